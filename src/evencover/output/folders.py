"""Write a folder of partitions that can resume after an interruption.

`_plan.json` is written first: the partitions and their inputs. Partitions are written atomically,
so one that exists is complete, and a repeated call computes only the missing ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from evencover.arrow import import_pyarrow
from evencover.data.source import Block, Source
from evencover.engine.blocks import cut
from evencover.engine.executors import results_in_order
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
from evencover.predictors.fit import Fit
from evencover.taxonomy import Taxonomy
from evencover.threads import map_on_threads, single_threaded

FORMAT = 1
PLAN = "_plan.json"


@contextmanager
def resumable_folder(
    folder: Path, made_from: dict[str, str], parts: dict[str, int], *, force: bool = False
) -> Iterator[list[str]]:
    """Lock a folder of partitions, write or check its plan, and yield the missing files.

    `made_from` has a text that identifies each input of the partitions; `parts` has the number of
    rows of each file, in order. `force` removes the files of another plan.
    """
    plan, path = {"format": FORMAT, "made_from": made_from, "parts": parts}, folder / PLAN
    if not path.is_file():
        _reject_other_files(folder)
    make_folder(folder)
    with only_writer(folder):
        remove_leftovers(folder)
        known = read_record(path, _is_plan, "it is damaged; choose another folder")
        if known is not None and known != plan:
            if not force:
                raise _other_plan(folder, known["made_from"], made_from)
            for file in [*known["parts"], PLAN]:  # the plan last
                (folder / file).unlink(missing_ok=True)
        if known != plan:
            write_record(path, plan)
        try:
            yield _missing(folder, parts)
        except KeyboardInterrupt as stop:
            there = len(parts) - len(_missing(folder, parts))
            raise type(stop)(
                f"{there} of {len(parts)} files are in '{folder}'; the same command makes the rest"
            ) from None


def _missing(folder: Path, parts: Iterable[str]) -> list[str]:
    return [file for file in parts if not (folder / file).is_file()]


def _is_plan(content: dict[str, Any]) -> bool:
    """Return whether file names have no path: nothing outside the folder may be removed."""
    are_known = isinstance(content["made_from"], dict) and isinstance(content["parts"], dict)
    return are_known and all(
        Path(file).name == file and file.isprintable() for file in content["parts"]
    )


def _other_plan(folder: Path, known: Mapping[str, str], made_from: Mapping[str, str]) -> InputError:
    differ = [name for name, text in made_from.items() if known.get(name) != text]
    return InputError(
        f"'{folder}' has files of another run with another "
        f"{' and another '.join(differ) or 'partition'}; choose another folder, or overwrite it "
        "with force=True (--force)."
    )


def _reject_other_files(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Cannot write '{folder}': it is a file, not a folder.")
    if folder.is_dir() and not all(is_trace(path.name) for path in folder.iterdir()):
        raise InputError(
            f"'{folder}' must be a new or empty folder, or one that this command began."
        )


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
    source = Fit.of(predictor).open(probabilities, ids=ids, read_labels=False)
    if source.n_rows is None:
        raise InputError(
            "'probabilities' must be files or arrays, which can be read again. Got an iterator; "
            "use predict_set_blocks."
        )
    tree = None if taxonomy is None else Taxonomy.read(taxonomy, source.class_names)
    listing = Listing(with_probabilities, top, tree)
    partitions = list(cut(source))
    made_from = {
        "model": Fit.of(predictor).digest,
        "input": input_digest(source),
        "way of listing classes": str(listing),
    }
    path_of = {
        partition.offset: folder / f"part-{number:05d}.parquet"
        for number, partition in enumerate(partitions)
    }
    parts = {path_of[part.offset].name: part.n_rows or 0 for part in partitions}
    list_block = partial(listing.list_block, predictor.rule(logits=source.logits))
    write = partial(_write_partition, path_of, list_block, source.class_names)
    with resumable_folder(folder, made_from, parts, force=force) as missing:
        todo = [part for part in partitions if path_of[part.offset].name in missing]
        if executor is not None and todo:
            sum(results_in_order(executor, partial(_on_one_thread, write), todo))
        else:  # one file after the other, each on all threads
            for partition in todo:
                write(partition)
    return FolderOfSets(sum(parts.values()), len(parts), len(parts) - len(todo))


def _write_partition(
    path_of: Mapping[int, Path],
    list_block: Callable[[Block], ListedSets],
    class_names: Sequence[str] | None,
    partition: Source,
) -> int:
    """Write the sets of one partition; equal bytes on every worker, so it can be repeated."""
    blocks = map_on_threads(list_block, partition.blocks())
    return write_sets(path_of[partition.offset], blocks, class_names, ids=partition.ids)


def _on_one_thread(write: Callable[[Source], int], partition: Source) -> int:
    with single_threaded():
        return write(partition)


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
