"""A folder of parts that can be finished after an interruption, and is complete or says it is not.

`_plan.json` is written first and says what the parts will be and what they are made from; each part
appears whole or not at all, and beside it its mark (length and checksum), until `_manifest.json`,
which is written last, holds the marks of all. A part that fits its mark is finished, so whoever
comes again with the same plan makes only what is missing.
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
from evencover.engine.blocks import Part, as_workers, cut, known_ids, map_blocks, single_threaded
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
from evencover.predictors.fitting import like_calibration
from evencover.predictors.state import digest
from evencover.taxonomy import MOST_PARTS, Taxonomy

FORMAT = 1
PLAN, MANIFEST = "_plan.json", "_manifest.json"

Record = dict[str, Any]


@dataclass(frozen=True)
class PlannedFolder:
    """A folder and what belongs in it.

    Parameters
    ----------
    folder
        Where the parts go; made if it does not exist.
    made_from
        What the parts are made from: name -> text that differs where the content would.
    parts
        One record for each part: ``file``, ``first_row``, ``rows``.
    """

    folder: Path
    made_from: dict[str, str]
    parts: list[Record]

    @contextmanager
    def writing(self, *, force: bool = False) -> Iterator[list[Record]]:
        """Hold the folder; write the plan, or check that it is the one there; the missing parts."""
        if not (self.folder / PLAN).is_file():
            refuse_other_things(self.folder, "one that this command began")
        make_folder(self.folder)
        with only_writer(self.folder):
            remove_leftovers(self.folder)
            self._begin(force=force)
            yield self.missing()

    def _begin(self, *, force: bool) -> None:
        known = read_record(self.folder / PLAN, _is_plan, "it is damaged; choose another folder")
        plan = {"format": FORMAT, "made_from": self.made_from, "parts": self.parts}
        if known == plan:
            return
        if known is not None:
            self._make_way(known, force=force)
        write_record(self.folder / PLAN, plan)

    def missing(self) -> list[Record]:
        """The parts that are not there yet, or not as they were written."""
        marks = self._marks()
        return [part for part in self.parts if not self._is_finished(part["file"], marks)]

    def _is_finished(self, file: str, marks: dict[str, Record]) -> bool:
        path = self.folder / file
        return file in marks and path.is_file() and marks[file] == mark_of(path)

    def _marks(self) -> dict[str, Record]:
        """What the parts were when they were written: beside them or, at last, in the manifest."""
        manifest = _read_quietly(self.folder / MANIFEST) or {}
        listed = manifest.get("parts")
        marks = {
            part["file"]: {key: part.get(key) for key in ("bytes", "checksum")}
            for part in (listed if isinstance(listed, list) else [])
            if isinstance(part, dict) and isinstance(part.get("file"), str)
        }
        for part in self.parts:
            own = _read_quietly(mark_path(self.folder / part["file"]))
            if own is not None:
                marks[part["file"]] = own
        return marks

    def finish(self, found: Mapping[str, Record] | None = None, **counts: int) -> None:
        """Write the manifest, now that every part is there.

        `found` says by file what turned out otherwise than planned; `counts` are of the whole.
        """
        marks = self._marks()
        parts = [
            part | (found or {}).get(part["file"], {}) | marks[part["file"]] for part in self.parts
        ]
        rows = sum(part["rows"] for part in parts)
        about: Record = {"format": FORMAT, "made_from": self.made_from, "rows": rows}
        about |= {**counts, "parts": parts}
        write_record(self.folder / MANIFEST, about)
        for part in self.parts:
            mark_path(self.folder / part["file"]).unlink(missing_ok=True)
        remove_leftovers(self.folder)

    def _make_way(self, known: Record, *, force: bool) -> None:
        """Refuse the plan that is there, or take away what it made: manifest first, plan last."""
        theirs = known["made_from"]
        differ = [name for name, text in self.made_from.items() if theirs.get(name) != text]
        if not force:
            raise InputError(
                f"'{self.folder}' holds the parts of another run: it had another "
                f"{' and another '.join(differ) or 'partition'}; choose another folder, or "
                "write it anew with force=True (--force)."
            )
        files = [self.folder / part["file"] for part in known["parts"]]
        marks = [mark_path(path) for path in files]
        for path in (self.folder / MANIFEST, *marks, *files, self.folder / PLAN):
            path.unlink(missing_ok=True)


def mark_of(path: Path) -> Record:
    """What tells a finished part from a damaged one."""
    content = hashlib.blake2b(digest_size=16)
    size = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            content.update(piece)
            size += len(piece)
    return {"bytes": size, "checksum": content.hexdigest()}


def mark_path(path: Path) -> Path:
    """Where the mark of a part is kept until the manifest is written."""
    return path.with_name(f"_{path.name}.json")


def leave_mark(path: Path) -> None:
    """Say that a part is finished, and what it is."""
    write_record(mark_path(path), mark_of(path))


def _read_quietly(path: Path) -> Record | None:
    """A record that can be made anew, if it can be read."""
    try:
        return read_record(path, bool, "")
    except InputError:
        return None


def _is_plan(content: Record) -> bool:
    """Whether its files are names only: nothing outside the folder may be removed."""
    files = [part["file"] for part in content["parts"]]
    return isinstance(content["made_from"], dict) and all(
        isinstance(file, str) and Path(file).name == file and file.isprintable() for file in files
    )


class FolderOfSets(NamedTuple):
    """What was written: rows, files, and files that were there already."""

    n_rows: int
    n_files: int
    n_there: int


def predict_to_folder(
    predictor: BasePredictor,
    probabilities: Any,
    folder: str | os.PathLike[str],
    *,
    ids: Any = None,
    groups: Any = None,
    executor: Any = None,
    ending: str = ".parquet",
    order: Order = "probability",
    with_probabilities: bool = False,
    top: int | None = None,
    taxonomy: Any = None,
    parts: int = MOST_PARTS,
    force: bool = False,
) -> FolderOfSets:
    """Write the prediction set of every row, one file for each part of the input.

    Each file appears whole or not at all, and `_manifest.json` when all are there. After an
    interruption the same call makes only what is missing. A folder that was begun with another
    model or input, or that lists classes in another way, is refused.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    probabilities, ids, groups, executor
        As in `BasePredictor.predict_set`. Workers write the files themselves, so they must see
        the folder under the same path.
    folder
        Where the files go.
    ending
        Their format: ".parquet", ".npz", ".jsonl" or ".csv".
    order
        "probability" lists the most probable class of each set first, "index" the lowest index.
    with_probabilities
        Write the probability of each listed class too.
    top
        List at most this many classes of each set, the most probable ones; the size is
        still that of the whole set.
    taxonomy, parts
        Also write the smallest nodes of a tree of classes that cover each set, at most this many: a
        `Taxonomy`, or what it is read from.
    force
        Write anew what another model or input made.

    Returns
    -------
    FolderOfSets
        How many rows and files there are, and how many files were there already.
    """
    folder = Path(folder).absolute()
    check_sets_format(f"part{ending}")
    source = like_calibration(predictor, probabilities)
    if isinstance(source, IterableSource):
        raise InputError(
            "A folder of parts is made from files or arrays, which can be read again. "
            "Got an iterator; use predict_set_blocks."
        )
    tree = None if taxonomy is None else Taxonomy.read(taxonomy, source.class_names)
    listing = Listing(order, with_probabilities, top, tree, parts)
    pieces = list(cut(source, known_ids(source, ids)))
    about_input = [_identity(part) for part in pieces]
    if groups is not None:
        about_input.append(tuple(map(str, to_numpy(groups).ravel().tolist())))
    identity = hashlib.blake2b(repr(about_input).encode(), digest_size=16)
    plan = PlannedFolder(
        folder,
        {
            "model": digest(predictor),
            "input": identity.hexdigest(),
            "way of listing classes": str(listing),
        },
        [_record(part, ending) for part in pieces],
    )
    listed = RuleAndListing(predictor.rule(logits=source.logits, groups=groups), listing)
    write = PartWriter(folder, ending, listed, source.class_names)
    with plan.writing(force=force) as missing:
        todo = [part for part in pieces if _record(part, ending) in missing]
        try:
            _write_parts(write, _with_own_ids(todo, ids_of_rows(source, ids)), executor)
        except KeyboardInterrupt as stop:
            there = len(pieces) - len(plan.missing())
            raise type(stop)(
                f"{there} of {len(pieces)} files are in '{folder}', and the same again makes the "
                "rest"
            ) from None
        plan.finish()
    n_rows = pieces[-1].start + (pieces[-1].source.n_rows or 0)
    return FolderOfSets(n_rows, len(pieces), len(pieces) - len(todo))


def ids_of_rows(source: Source, ids: Any) -> Array | None:
    """The ids to write beside the sets: those given, else those that come with the input."""
    own = getattr(source, "ids", None) if ids is None else ids
    return None if own is None else ids_to_write(own)


def _record(part: Part, ending: str) -> dict[str, Any]:
    file = f"part-{part.number:05d}{ending}"
    return {"file": file, "first_row": part.start, "rows": part.source.n_rows}


class PartToWrite(NamedTuple):
    """A part of the input, as in the engine, with the ids that are written beside its sets."""

    source: Source
    ids: Array | None
    number: int
    written_ids: Array | None


def _with_own_ids(parts: Sequence[Part], ids: Array | None) -> list[PartToWrite]:
    def own(part: Part) -> Array | None:
        return None if ids is None else ids[part.start : part.start + (part.source.n_rows or 0)]

    return [PartToWrite(*part, own(part)) for part in parts]


@dataclass(frozen=True)
class PartWriter:
    """Writes the sets of one part: the same bytes whoever does it, so it may be done twice."""

    folder: Path
    ending: str
    on_block: RuleAndListing
    class_names: Sequence[str] | None

    def __call__(self, item: PartToWrite) -> int:
        """Read the part block by block, write its file, return the number of rows."""
        part = Part(item.source, item.ids, item.number)
        path = self.folder / _record(part, self.ending)["file"]
        blocks = map_blocks(lambda pair: self.on_block(*pair), part.blocks())
        n_rows = write_sets(
            path, blocks, self.class_names, ids=item.written_ids, first_row=part.start
        )
        leave_mark(path)
        return n_rows

    def alone(self, item: PartToWrite) -> int:
        """The same as a task among others."""
        with single_threaded():
            return self(item)


def _write_parts(write: PartWriter, todo: Sequence[PartToWrite], executor: Any) -> None:
    if executor is not None and todo:
        as_workers(executor).fold(write.alone, todo, sum)  # type: ignore[misc]
    else:  # one file after the other, each with all threads
        for part in todo:
            write(part)


def _identity(part: Part) -> tuple[Any, ...]:
    """What tells this part from others without reading all of it, where that can be."""
    source = part.source
    about: list[Any] = [part.start, source.n_rows, source.n_classes, source.logits]
    if part.ids is not None:
        about.append(hashlib.blake2b(np.ascontiguousarray(part.ids).tobytes()).hexdigest())
    location, identity = getattr(source, "location", None), getattr(source, "identity", ())
    chunk = getattr(source, "chunk", None)
    if location is not None:
        is_here = isinstance(location, Path)
        about += [location.name if is_here else str(location), source.first_row, *identity]
    elif chunk is not None:
        about.append(chunk.key)
    else:
        content = hashlib.blake2b(digest_size=16)
        for rows, _ in source.row_blocks():
            content.update(np.ascontiguousarray(rows).tobytes())
        about.append(content.hexdigest())
    return tuple(about)
