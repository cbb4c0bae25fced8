"""Write a folder of partitions that can resume after an interruption.

`_plan.json` is written first: the partitions and their inputs. Partitions are written atomically,
so one that exists is complete, and a repeated call computes only the missing ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from evencover.arrow import import_pyarrow
from evencover.data.source import Block, Source
from evencover.engine.blocks import as_workers, cut
from evencover.errors import InputError
from evencover.output.atomic import (
    is_trace,
    only_writer,
    read_record,
    remove_leftovers,
    write_record,
)
from evencover.output.writers import ListedSets, Listing, write_sets
from evencover.predictors.base import BasePredictor
from evencover.predictors.fit import digest
from evencover.taxonomy import Taxonomy
from evencover.threads import map_on_threads, results_in_order, single_threaded

FORMAT = 1
PLAN = "_plan.json"

Record = dict[str, Any]


@dataclass(frozen=True)
class ResumableFolder:
    """A folder of partitions that can resume after an interruption."""

    folder: Path  # created if missing
    made_from: dict[str, str]  # name -> text that identifies an input of the partitions
    parts: dict[str, int]  # file -> number of rows, in order

    @contextmanager
    def writing(self, *, force: bool = False) -> Iterator[list[str]]:
        """Lock the folder, write or check the plan, and yield the missing files."""
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
                yield self._missing()
            except KeyboardInterrupt as stop:
                there = len(self.parts) - len(self._missing())
                raise type(stop)(
                    f"{there} of {len(self.parts)} files are in '{self.folder}'; the same command "
                    "makes the rest"
                ) from None

    def _missing(self) -> list[str]:
        return [file for file in self.parts if not (self.folder / file).is_file()]

    def _remove_other(self, known: Record, *, force: bool) -> None:
        """Reject another plan, or remove its files, the plan last."""
        differ = [
            name for name, text in self.made_from.items() if known["made_from"].get(name) != text
        ]
        if not force:
            raise InputError(
                f"'{self.folder}' has files of another run with another "
                f"{' and another '.join(differ) or 'partition'}; choose another folder, or "
                "overwrite it with force=True (--force)."
            )
        for file in [*known["parts"], PLAN]:
            (self.folder / file).unlink(missing_ok=True)


def _is_plan(content: Record) -> bool:
    """Return whether file names have no path: nothing outside the folder may be removed."""
    are_known = isinstance(content["made_from"], dict) and isinstance(content["parts"], dict)
    return are_known and all(
        Path(file).name == file and file.isprintable() for file in content["parts"]
    )


def reject_other_files(folder: Path, welcome: str) -> None:
    """Raise InputError for a file at the folder's path, or a folder with other files.

    `welcome` describes, in the message, the folder that would be accepted.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Cannot write '{folder}': it is a file, not a folder.")
    if folder.is_dir() and not all(is_trace(path.name) for path in folder.iterdir()):
        raise InputError(f"'{folder}' must be a new or empty folder, or {welcome}.")


def make_folder(folder: Path, *, parents: bool = False) -> None:
    """Create the folder, unless it exists."""
    try:
        folder.mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot make folder '{folder}': {error.strerror or error}.") from error


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
    executor: Any = None,
    with_probabilities: bool = False,
    top: int | None = None,
    taxonomy: Any = None,
    force: bool = False,
) -> FolderOfSets:
    """Write a prediction set for each row, one file per partition of the input.

    After an interruption, the same call computes only missing files. Raise InputError for a folder
    with another model, input or listing of classes.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    probabilities, ids, executor
        As in `BasePredictor.predict_set`. Workers write the files, so they need the folder under
        the same path.
    folder
        Output folder, of Parquet files.
    with_probabilities, top
        Also write the probability of each class; list only the `top` most probable classes.
    taxonomy
        Also describe each set by a class hierarchy: a `Taxonomy`, or an input of `Taxonomy.read`.
    force
        Replace results of another model or input.
    """
    folder = Path(folder).absolute()
    import_pyarrow()
    source = predictor._current_fit().open(probabilities, ids=ids, read_labels=False)
    if source.n_rows is None:
        raise InputError(
            "'probabilities' must be files or arrays, which can be read again. Got an iterator; "
            "use predict_set_blocks."
        )
    tree = None if taxonomy is None else Taxonomy.read(taxonomy, source.class_names)
    listing = Listing(with_probabilities, top, tree)
    partitions = list(cut(source))
    made_from = {
        "model": digest(predictor),
        "input": input_digest(source),
        "way of listing classes": str(listing),
    }
    files = [f"part-{number:05d}.parquet" for number in range(len(partitions))]
    n_rows = [partition.n_rows or 0 for partition in partitions]
    plan = ResumableFolder(folder, made_from, dict(zip(files, n_rows, strict=True)))
    file_of = {part.offset: folder / file for part, file in zip(partitions, files, strict=True)}
    list_block = partial(listing.list_block, predictor.rule(logits=source.logits))
    write = PartitionWriter(file_of, list_block, source.class_names)
    with plan.writing(force=force) as missing:
        todo = [part for part, file in zip(partitions, files, strict=True) if file in missing]
        if executor is not None and todo:
            sum(results_in_order(as_workers(executor), write.alone, todo))
        else:  # one file after the other, each on all threads
            for partition in todo:
                write(partition)
    return FolderOfSets(sum(n_rows), len(partitions), len(partitions) - len(todo))


@dataclass(frozen=True)
class PartitionWriter:
    """Write the sets of one partition; equal bytes on every worker, so it can be repeated."""

    files: Mapping[int, Path]  #: by the index of the partition's first row
    list_block: Callable[[Block], ListedSets]
    class_names: Sequence[str] | None

    def __call__(self, partition: Source) -> int:
        """Write the partition's file; return the number of rows."""
        blocks = map_on_threads(self.list_block, partition.blocks())
        path = self.files[partition.offset]
        return write_sets(path, blocks, self.class_names, ids=partition.ids)

    def alone(self, partition: Source) -> int:
        """Write the partition on one thread."""
        with single_threaded():
            return self(partition)


def input_digest(source: Source) -> str:
    """Identify the rows of a source, without reading all of them where possible."""
    identities = [_identity(partition) for partition in cut(source)]
    return hashlib.blake2b(repr(identities).encode(), digest_size=16).hexdigest()


def _identity(partition: Source) -> tuple[Any, ...]:
    """Identify a partition."""
    rows = partition.reader.identity_of_rows()
    if rows is None:
        content = hashlib.blake2b(digest_size=16)
        for block in partition.reader.row_blocks():
            content.update(block.rows.tobytes())
        rows = (content.hexdigest(),)
    keys = None if partition.keys is None else hashlib.blake2b(partition.keys.tobytes()).hexdigest()
    facts = (partition.offset, partition.n_rows, partition.n_classes, partition.logits, keys)
    return facts + rows
