"""Write a folder of partitions that can resume after an interruption.

`_plan.json` is written first: the partitions and their inputs. Each partition is written
atomically, followed by its length and checksum in a separate file. `_manifest.json` is written last
and replaces those files. A partition that matches its checksum is complete, so a repeated call
computes only the missing ones.
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
from evencover.engine.blocks import Part, as_workers, blocks_of, cut, known_ids, single_threaded
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
    reject_other_files,
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
    """A folder of partitions that can resume after an interruption."""

    folder: Path  # created if missing
    made_from: dict[str, str]  # name -> text that identifies an input of the partitions
    parts: list[Record]  # each with ``file``, ``first_row`` and ``rows``

    @contextmanager
    def writing(self, *, force: bool = False) -> Iterator[list[Record]]:
        """Lock the folder, write or check the plan, and yield the missing partitions."""
        if not (self.folder / PLAN).is_file():
            reject_other_files(self.folder, "one that this command began")
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
            try:
                yield self.missing()
            except KeyboardInterrupt as stop:
                there = len(self.parts) - len(self.missing())
                raise type(stop)(
                    f"{there} of {len(self.parts)} files are in '{self.folder}'; the same command "
                    "makes the rest"
                ) from None

    def missing(self) -> list[Record]:
        """Return the partitions that are missing or damaged."""
        checksums = self._checksums()

        def is_finished(file: str) -> bool:
            path = self.folder / file
            return file in checksums and path.is_file() and checksums[file] == file_checksum(path)

        return [part for part in self.parts if not is_finished(part["file"])]

    def _checksums(self) -> dict[str, Record]:
        """Read the checksums from the manifest and from the files next to the partitions."""
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
        """Write the manifest after all partitions.

        `found` has, by file, fields that differ from the plan; `counts` are totals.
        """
        checksums, found = self._checksums(), found or {}
        parts = [p | found.get(p["file"], {}) | checksums[p["file"]] for p in self.parts]
        rows = sum(part["rows"] for part in parts)
        about = {"format": FORMAT, "made_from": self.made_from, "rows": rows}
        write_record(self.folder / MANIFEST, {**about, **counts, "parts": parts})
        for part in self.parts:
            checksum_path(self.folder / part["file"]).unlink(missing_ok=True)
        remove_leftovers(self.folder)

    def _remove_other(self, known: Record, *, force: bool) -> None:
        """Reject another plan, or remove its files: manifest first, plan last."""
        theirs = known["made_from"]
        differ = [name for name, text in self.made_from.items() if theirs.get(name) != text]
        if not force:
            raise InputError(
                f"'{self.folder}' has files of another run with another "
                f"{' and another '.join(differ) or 'partition'}; choose another folder, or "
                "overwrite it with force=True (--force)."
            )
        files = [self.folder / part["file"] for part in known["parts"]]
        checksums = [checksum_path(path) for path in files]
        for path in (self.folder / MANIFEST, *checksums, *files, self.folder / PLAN):
            path.unlink(missing_ok=True)


def content_digest(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def file_checksum(path: Path) -> Record:
    """Return the record that identifies a complete partition."""
    return {"bytes": path.stat().st_size, "checksum": content_digest(path)}


def checksum_path(path: Path) -> Path:
    """Return the path of a partition's checksum until the manifest is written."""
    return path.with_name(f"_{path.name}.json")


def write_checksum(path: Path) -> None:
    """Record that a partition is complete."""
    write_record(checksum_path(path), file_checksum(path))


def _read_quietly(path: Path) -> Record | None:
    """Read a record; return None if it is unreadable."""
    try:
        return read_record(path, bool, "")
    except InputError:
        return None


def _is_plan(content: Record) -> bool:
    """Return whether file names have no path: nothing outside the folder may be removed."""
    files = [part["file"] for part in content["parts"]]
    return isinstance(content["made_from"], dict) and all(
        isinstance(file, str) and Path(file).name == file and file.isprintable() for file in files
    )


class FolderOfSets(NamedTuple):
    """Results of `predict_to_folder`."""

    n_rows: int
    n_files: int
    n_there: int  # files written by an earlier call


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
    """Write a prediction set for each row, one file per partition of the input.

    After an interruption, the same call computes only missing files. Raise InputError for a folder
    with another model, input or listing of classes.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    probabilities, ids, groups, executor
        As in `BasePredictor.predict_set`. Workers write the files, so they need the folder under
        the same path.
    folder
        Output folder.
    extension
        Format: ".parquet", ".npz", ".jsonl" or ".csv".
    order
        "probability" lists the most probable class of each set first, "index" the lowest index.
    with_probabilities, top
        Also write the probability of each class; list only the `top` most probable classes.
    taxonomy, parts
        Also describe each set by at most `parts` nodes of a class hierarchy: a `Taxonomy`, or an
        input of `Taxonomy.read`.
    force
        Replace results of another model or input.
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
        if written_ids is not None:
            todo = [part._replace(written_ids=written_ids[_rows(part)]) for part in todo]
        if executor is not None and todo:
            as_workers(executor).fold(write.alone, todo, sum)  # type: ignore[misc]
        else:  # one file after the other, each on all threads
            for part in todo:
                write(part)
        plan.finish()
    return FolderOfSets(_rows(pieces[-1]).stop, len(pieces), len(pieces) - len(todo))


def _rows(part: Part) -> slice:
    return slice(part.source.offset, part.source.offset + (part.source.n_rows or 0))


def ids_of_rows(source: Source, ids: Any) -> Array | None:
    """Return the ids to write with the sets: those given, else those of the input."""
    own = source.ids if ids is None else ids
    return None if own is None else ids_to_write(own)


def _record(part: Part, extension: str) -> dict[str, Any]:
    file = f"part-{part.number:05d}{extension}"
    return {"file": file, "first_row": part.source.offset, "rows": part.source.n_rows}


@dataclass(frozen=True)
class PartWriter:
    """Write the sets of one partition; equal bytes on every worker, so it can be repeated."""

    folder: Path
    extension: str
    on_block: RuleAndListing
    class_names: Sequence[str] | None

    def __call__(self, part: Part) -> int:
        """Write the partition's file and checksum; return the number of rows."""
        path = self.folder / _record(part, self.extension)["file"]
        pairs = blocks_of(part.source, part.ids)
        blocks = map_on_threads(lambda pair: self.on_block(*pair), pairs)
        start = part.source.offset
        n_rows = write_sets(path, blocks, self.class_names, ids=part.written_ids, first_row=start)
        write_checksum(path)
        return n_rows

    def alone(self, part: Part) -> int:
        """Write the partition on one thread."""
        with single_threaded():
            return self(part)


def _identity(part: Part) -> tuple[Any, ...]:
    """Identify this partition, without reading all of it where possible."""
    source = part.source
    about: list[Any] = [source.offset, source.n_rows, source.n_classes, source.logits]
    if part.ids is not None:
        about.append(hashlib.blake2b(np.ascontiguousarray(part.ids).tobytes()).hexdigest())
    location, chunk = source.location, getattr(source, "chunk", None)
    if location is not None:
        is_here = isinstance(location, Path)
        about += [location.name if is_here else str(location), source.info.first_row]
        about += getattr(source, "identity", ())
    elif chunk is not None:
        about.append(chunk.key)
    else:
        content = hashlib.blake2b(digest_size=16)
        for rows, _ in source.row_blocks():
            content.update(np.ascontiguousarray(rows).tobytes())
        about.append(content.hexdigest())
    return tuple(about)
