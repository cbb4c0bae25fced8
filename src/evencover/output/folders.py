"""Prediction sets as a folder: one file for each part of the input, written where it is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover._validation import Array, InputError, plain_array
from evencover.data.source import IterableSource, Source
from evencover.engine.blocks import Part, cut, known_ids, map_blocks
from evencover.engine.workers import as_workers, one_of_many
from evencover.output.listing import Listing, Order, RuleAndListing
from evencover.output.manifest import PlannedFolder, leave_mark
from evencover.output.writers import check_sets_format, ids_to_write, write_sets
from evencover.predictors.base import BasePredictor
from evencover.predictors.content import digest
from evencover.predictors.matching import like_calibration
from evencover.taxonomy import MOST_PARTS, Taxonomy


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
        about_input.append(tuple(map(str, plain_array(groups).ravel().tolist())))
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
        with one_of_many():
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
