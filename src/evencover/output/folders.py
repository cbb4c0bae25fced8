"""A folder of parts that can resume after an interruption.

`_plan.json` is written first: the parts and what they are made from. Each part appears whole or not
at all, followed by its length and checksum in a file next to it. `_manifest.json` is written last
and replaces those files. A part that matches its checksum is finished, so the same call again makes
only what is missing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.data.source import IterableSource, Source
from evencover.engine.blocks import Part, as_workers, cut, known_ids, single_threaded
from evencover.errors import InputError
from evencover.output.atomic import only_writer, remove_leftovers
from evencover.output.writers import (
    Listing,
    Order,
    RuleAndListing,
    check_sets_format,
    ids_to_write,
    make_folder,
    read_record,
    refuse_other_things,
    write_record,
    write_sets,
)
from evencover.predictors.base import BasePredictor
from evencover.predictors.fitting import align_to_calibration
from evencover.predictors.state import digest
from evencover.taxonomy import MOST_PARTS, Taxonomy
from evencover.threads import map_on_threads

FORMAT = 1
PLAN, MANIFEST = "_plan.json", "_manifest.json"

Record = dict[str, Any]


@dataclass(frozen=True)
class ResumableFolder:
    """A folder of parts that can resume after an interruption."""

    folder: Path  # made if it does not exist
    made_from: dict[str, str]  # name -> text that differs where the content of parts would
    parts: list[Record]  # each with ``file``, ``first_row`` and ``rows``

    @contextmanager
    def writing(self, *, force: bool = False) -> Iterator[list[Record]]:
        """Lock the folder, write the plan or check the one there, and yield the missing parts."""
        if not (self.folder / PLAN).is_file():
            refuse_other_things(self.folder, "one that this command began")
        make_folder(self.folder)
        with only_writer(self.folder):
            remove_leftovers(self.folder)
            remedy = "it is damaged; choose another folder"
            known = read_record(self.folder / PLAN, _is_plan, remedy)
            plan = {"format": FORMAT, "made_from": self.made_from, "parts": self.parts}
            if known != plan:
                if known is not None:
                    self._remove_other(known, force=force)
                write_record(self.folder / PLAN, plan)
            yield self.missing()

    def missing(self) -> list[Record]:
        """Return the parts that are not there yet, or not as they were written."""
        checksums = self._checksums()

        def is_finished(file: str) -> bool:
            path = self.folder / file
            return file in checksums and path.is_file() and checksums[file] == file_checksum(path)

        return [part for part in self.parts if not is_finished(part["file"])]

    def _checksums(self) -> dict[str, Record]:
        """Read the checksums from the manifest and from the files next to the parts."""
        listed = (_read_quietly(self.folder / MANIFEST) or {}).get("parts")
        checksums = {
            part["file"]: {key: part.get(key) for key in ("bytes", "checksum")}
            for part in (listed if isinstance(listed, list) else [])
            if isinstance(part, dict) and isinstance(part.get("file"), str)
        }
        for part in self.parts:
            own = _read_quietly(checksum_path(self.folder / part["file"]))
            if own is not None:
                checksums[part["file"]] = own
        return checksums

    def finish(self, found: Mapping[str, Record] | None = None, **counts: int) -> None:
        """Write the manifest, now that every part is there.

        `found` has, by file, what differs from the plan; `counts` are of the whole.
        """
        checksums, found = self._checksums(), found or {}
        parts = [
            part | found.get(part["file"], {}) | checksums[part["file"]] for part in self.parts
        ]
        rows = sum(part["rows"] for part in parts)
        about = {"format": FORMAT, "made_from": self.made_from, "rows": rows}
        write_record(self.folder / MANIFEST, {**about, **counts, "parts": parts})
        for part in self.parts:
            checksum_path(self.folder / part["file"]).unlink(missing_ok=True)
        remove_leftovers(self.folder)

    def _remove_other(self, known: Record, *, force: bool) -> None:
        """Reject the plan that is there, or remove what it made: manifest first, plan last."""
        theirs = known["made_from"]
        differ = [name for name, text in self.made_from.items() if theirs.get(name) != text]
        if not force:
            raise InputError(
                f"'{self.folder}' holds the parts of another run: it had another "
                f"{' and another '.join(differ) or 'partition'}; choose another folder, or "
                "write it again with force=True (--force)."
            )
        files = [self.folder / part["file"] for part in known["parts"]]
        checksums = [checksum_path(path) for path in files]
        for path in (self.folder / MANIFEST, *checksums, *files, self.folder / PLAN):
            path.unlink(missing_ok=True)


def content_digest(path: Path) -> str:
    """Return a digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def file_checksum(path: Path) -> Record:
    """Return what tells a finished part from a damaged one."""
    return {"bytes": path.stat().st_size, "checksum": content_digest(path)}


def checksum_path(path: Path) -> Path:
    """Return where the checksum of a part is kept until the manifest is written."""
    return path.with_name(f"_{path.name}.json")


def write_checksum(path: Path) -> None:
    """Record that a part is finished."""
    write_record(checksum_path(path), file_checksum(path))


def _read_quietly(path: Path) -> Record | None:
    """Read a record that can be made again, if it can be read."""
    try:
        return read_record(path, bool, "")
    except InputError:
        return None


def _is_plan(content: Record) -> bool:
    """Return whether its files are names only: nothing outside the folder may be removed."""
    files = [part["file"] for part in content["parts"]]
    return isinstance(content["made_from"], dict) and all(
        isinstance(file, str) and Path(file).name == file and file.isprintable() for file in files
    )


class FolderOfSets(NamedTuple):
    """What `predict_to_folder` wrote."""

    n_rows: int
    n_files: int
    n_there: int  # files that an earlier call had written


def predict_to_folder(
    predictor: BasePredictor,
    probabilities: Any,
    folder: str | os.PathLike[str],
    *,
    ids: Any = None,
    groups: Any = None,
    executor: Any = None,
    extension: str = ".parquet",
    order: Order = "probability",
    with_probabilities: bool = False,
    top: int | None = None,
    taxonomy: Any = None,
    parts: int = MOST_PARTS,
    force: bool = False,
) -> FolderOfSets:
    """Write the prediction set of every row, one file for each part of the input.

    After an interruption the same call makes only what is missing. Raise InputError for a folder
    that was begun with another model or input, or that lists classes in another way.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    probabilities, ids, groups, executor
        As in `BasePredictor.predict_set`. Workers write the files themselves, so they must see
        the folder under the same path.
    folder
        Where the files go.
    extension
        Their format: ".parquet", ".npz", ".jsonl" or ".csv".
    order
        "probability" lists the most probable class of each set first, "index" the lowest index.
    with_probabilities, top
        Write the probability of each class too; list only this many classes, the most probable.
    taxonomy, parts
        Also write the smallest nodes of a tree of classes that cover each set, at most this many: a
        `Taxonomy`, or what it is read from.
    force
        Replace what another model or input made.
    """
    folder = Path(folder).absolute()
    check_sets_format(f"part{extension}")
    source = align_to_calibration(predictor, probabilities)
    if isinstance(source, IterableSource):
        raise InputError(
            "'probabilities' must be files or arrays, which can be read again. Got an iterator; "
            "use predict_set_blocks."
        )
    tree = None if taxonomy is None else Taxonomy.read(taxonomy, source.class_names)
    listing = Listing(order, with_probabilities, top, tree, parts)
    pieces = list(cut(source, known_ids(source, ids)))
    about_input = [_identity(part) for part in pieces]
    if groups is not None:
        about_input.append(tuple(map(str, to_numpy(groups).ravel().tolist())))
    made_from = {
        "model": digest(predictor),
        "input": hashlib.blake2b(repr(about_input).encode(), digest_size=16).hexdigest(),
        "way of listing classes": str(listing),
    }
    plan = ResumableFolder(folder, made_from, [_record(part, extension) for part in pieces])
    listed = RuleAndListing(predictor.rule(logits=source.logits, groups=groups), listing)
    write = PartWriter(folder, extension, listed, source.class_names)
    written_ids = ids_of_rows(source, ids)
    with plan.writing(force=force) as missing:
        todo = [part for part in pieces if _record(part, extension) in missing]
        items = [
            PartToWrite(*part, None if written_ids is None else written_ids[_rows(part)])
            for part in todo
        ]
        try:
            if executor is not None and items:
                as_workers(executor).fold(write.alone, items, sum)  # type: ignore[misc]
            else:  # one file after the other, each with all threads
                for item in items:
                    write(item)
        except KeyboardInterrupt as stop:
            there = len(pieces) - len(plan.missing())
            raise type(stop)(
                f"{there} of {len(pieces)} files are in '{folder}'; the same command makes the rest"
            ) from None
        plan.finish()
    return FolderOfSets(_rows(pieces[-1]).stop, len(pieces), len(pieces) - len(todo))


def _rows(part: Part) -> slice:
    return slice(part.start, part.start + (part.source.n_rows or 0))


def ids_of_rows(source: Source, ids: Any) -> Array | None:
    """Return the ids to write next to the sets: those given, else those of the input."""
    own = getattr(source, "ids", None) if ids is None else ids
    return None if own is None else ids_to_write(own)


def _record(part: Part, extension: str) -> dict[str, Any]:
    file = f"part-{part.number:05d}{extension}"
    return {"file": file, "first_row": part.start, "rows": part.source.n_rows}


class PartToWrite(NamedTuple):
    """A `Part` of the input, and the ids to write next to its sets."""

    source: Source
    ids: Array | None
    number: int
    written_ids: Array | None


@dataclass(frozen=True)
class PartWriter:
    """Write the sets of one part: the same bytes on every worker, so it may be done twice."""

    folder: Path
    extension: str
    on_block: RuleAndListing
    class_names: Sequence[str] | None

    def __call__(self, item: PartToWrite) -> int:
        """Write the part's file and checksum; return the number of rows."""
        part = Part(*item[:3])
        path = self.folder / _record(part, self.extension)["file"]
        blocks = map_on_threads(lambda pair: self.on_block(*pair), part.blocks())
        n_rows = write_sets(
            path, blocks, self.class_names, ids=item.written_ids, first_row=part.start
        )
        write_checksum(path)
        return n_rows

    def alone(self, item: PartToWrite) -> int:
        """Do the same as one of many tasks."""
        with single_threaded():
            return self(item)


def _identity(part: Part) -> tuple[Any, ...]:
    """Return what tells this part from others, without reading all of it where possible."""
    source = part.source
    about: list[Any] = [part.start, source.n_rows, source.n_classes, source.logits]
    if part.ids is not None:
        about.append(hashlib.blake2b(np.ascontiguousarray(part.ids).tobytes()).hexdigest())
    location, identity = getattr(source, "location", None), getattr(source, "identity", ())
    chunk = getattr(source, "chunk", None)
    if location is not None:
        is_here = isinstance(location, Path)
        about += [location.name if is_here else str(location), source.info.first_row, *identity]
    elif chunk is not None:
        about.append(chunk.key)
    else:
        content = hashlib.blake2b(digest_size=16)
        for rows, _ in source.row_blocks():
            content.update(np.ascontiguousarray(rows).tobytes())
        about.append(content.hexdigest())
    return tuple(about)
