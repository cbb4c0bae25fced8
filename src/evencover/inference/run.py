"""From a model and raw inputs to a folder of scores, part by part."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover._arrow import import_pyarrow
from evencover._validation import raise_unknown, whole_number
from evencover.errors import InputError
from evencover.inference.batches import Batch, Range, prepared_batches
from evencover.inference.classes import Classes, match_classes
from evencover.inference.inputs import KINDS, Inputs, Kind
from evencover.inference.models.base import Model
from evencover.inference.models.opening import open_model
from evencover.inference.opening import open_inputs
from evencover.inference.outputs import outputs_of
from evencover.inference.parts import PartContent, PartFormat, Skipped, read_account
from evencover.inference.tables import Columns
from evencover.output.manifest import PlannedFolder, leave_mark
from evencover.output.tables import write_csv

DTYPES = ("float32", "float16")
# A kill costs at most one part, and a part is held in memory: 16 MB of float32 where K = 1000.
MOST_ROWS, MOST_NUMBERS = 4096, 1 << 22
N_FIRST = 2  # inputs that tell what the model returns
UNREADABLE = "_unreadable.csv"

Batches = Generator[Batch, None, None]
Watch = Callable[[Batches, int], Batches]


class Inferred(NamedTuple):
    """What was written: rows, inputs that could not be read, files, and those there already."""

    n_rows: int
    n_unreadable: int
    n_files: int
    n_there: int


def infer(
    model: str | os.PathLike[str] | Model,
    data: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    kind: Kind | None = None,
    input_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
    class_names: Sequence[str] | None = None,
    probabilities: bool = False,
    dtype: str = "float32",
    device: str | None = None,
    batch_size: int = 32,
    workers: int = 2,
    limit: int | None = None,
    strict: bool = False,
    force: bool = False,
    watch: Watch | None = None,
) -> Inferred:
    """Run a trained classifier over raw inputs and write a score file that everything here reads.

    The folder gets one Parquet file per few thousand inputs, with the columns ``id``, ``logits`` (a
    list of fixed size) and ``label``, the class names and the model's identity as metadata, and
    `_manifest.json` when all are there. After an interruption the same call makes only what is
    missing, and the bytes are the same. Memory does not grow with the number of inputs.

    Parameters
    ----------
    model
        An ONNX file; the folder or name of a Hugging Face model; or ``module:function``, which maps
        a list of pictures or texts to logits.
    data
        A folder with one sub-folder per class; a table (.csv, .tsv, .jsonl, .parquet) with a column
        of paths or texts; or a Hugging Face dataset on disk.
    folder
        Where the files go.
    kind
        "images" or "texts", where model and data do not say.
    input_key, labels_key, ids_key
        The columns of a table, where they have none of the usual names.
    class_names
        What the model's outputs are called, in their order, if the model does not say or says
        something else than the data.
    probabilities
        The model returns probabilities; the column is called ``probs`` then.
    dtype
        "float32", or "float16" in half the room.
    device
        Such as "cpu" or "cuda"; by default a GPU if there is one.
    batch_size, workers
        How many inputs the model takes at once, and how many threads read and prepare them.
    limit
        Take only this many inputs, the first ones.
    strict
        Fail at the first input that cannot be read, instead of listing it in `_unreadable.csv`.
    force
        Write anew what another model or other data made.
    watch
        A generator that passes batches on, for a progress bar; it also gets the number of inputs.

    Returns
    -------
    Inferred
        How many rows and files there are.
    """
    import_pyarrow()
    if dtype not in DTYPES:
        raise_unknown("dtype", dtype, DTYPES)
    if kind is not None and kind not in KINDS:
        raise_unknown("kind", kind, KINDS)
    whole_number(batch_size, "batch_size", "infer", 1)
    whole_number(workers, "workers", "infer", 1)
    if limit is not None:
        whole_number(limit, "limit", "infer", 1)
    folder = Path(folder).absolute()
    if not folder.parent.is_dir():
        raise InputError(f"Cannot write '{folder}': the folder '{folder.parent}' does not exist.")
    run = open_model(model, device)
    if kind is not None and run.kind not in (None, kind):
        raise InputError(f"The model {run.name} takes {run.kind}. Got kind={kind!r} (--kind).")
    inputs = open_inputs(data, kind or run.kind, Columns(input_key, labels_key, ids_key))
    size = run.batch_size or batch_size
    kind_of_number = np.dtype(dtype)
    first, n_classes = _first_rows(run, inputs, size, kind_of_number, probabilities)
    classes = match_classes(run, inputs, n_classes, class_names)
    form = PartFormat(
        "probs" if probabilities else "logits",
        n_classes,
        kind_of_number,
        inputs.labels is not None,
        isinstance(first, str),
        classes.names,
        {"name": run.name.strip("'"), "identity": run.identity},
    )
    ranges = _parts(min(inputs.n_inputs, limit or inputs.n_inputs), n_classes)
    plan = PlannedFolder(
        folder,
        {
            "model": run.identity,
            "input": f"{inputs.identity}, {ranges[-1].stop} inputs",
            "set of classes": _digest((classes.names, sorted(classes.index_of.items(), key=str))),
            "way of storing numbers": f"{form.column}, {dtype}",
        },
        [_record(each) for each in ranges],
    )
    with plan.writing(force=force) as missing:
        todo = [each for each in ranges if _record(each) in missing]
        batches = prepared_batches(run, inputs, todo, size, workers)
        if watch is not None:
            batches = watch(batches, sum(each.stop - each.start for each in todo))
        try:
            for part, content in _filled(
                run, batches, classes, kind_of_number, probabilities=probabilities, strict=strict
            ):
                path = folder / _record(part)["file"]
                form.write(path, content)
                leave_mark(path)
        except KeyboardInterrupt as stop:
            there = len(ranges) - len(plan.missing())
            raise type(stop)(
                f"{there} of {len(ranges)} files are in '{folder}', and the same again makes the "
                "rest"
            ) from None
        finally:
            batches.close()  # a bar goes before anything is said
        return _finish(plan, ranges, len(todo))


def _first_rows(
    model: Model, inputs: Inputs, size: int, dtype: np.dtype[Any], probabilities: bool
) -> tuple[str | int, int]:
    """The first id, and the number of classes: seen before anything is written."""
    skipped: list[Skipped] = []
    whole = [Range(0, 0, inputs.n_inputs)]
    few = model.batch_size or min(size, N_FIRST)
    for batch in prepared_batches(model, inputs, whole, few, 1):
        skipped += batch.skipped[: 1 - len(skipped)]
        if batch.examples:
            rows = outputs_of(model, batch, dtype, probabilities=probabilities)
            return batch.examples[0].id, rows.shape[1]
    raise InputError(
        f"None of the {inputs.n_inputs} inputs of {inputs.name} could be read. "
        f"The first was {skipped[0].id!r}: {skipped[0].reason}."
    )


def _filled(
    model: Model,
    batches: Iterable[Batch],
    classes: Classes,
    dtype: np.dtype[Any],
    *,
    probabilities: bool,
    strict: bool,
) -> Iterator[tuple[Range, PartContent]]:
    """Every part with all its rows, once it is complete."""
    content, n_seen = PartContent.empty(), 0
    for batch in batches:
        if batch.skipped and strict:
            raise InputError(
                f"Every input must be readable (--strict). "
                f"Got {batch.skipped[0].id!r}: {batch.skipped[0].reason}."
            )
        content.skipped += batch.skipped
        if batch.examples:
            rows = outputs_of(model, batch, dtype, probabilities=probabilities)
            if rows.shape[1] != classes.n_classes:
                raise InputError(
                    f"The model {model.name} must return {classes.n_classes} numbers for every "
                    f"input. Got {rows.shape[1]} from {batch.examples[0].id!r} on."
                )
            content.rows.append(rows)
            content.ids += [each.id for each in batch.examples]
            content.labels += [
                classes.index_of[each.label] for each in batch.examples if each.label is not None
            ]
        n_seen += batch.n_inputs
        if n_seen == batch.part.stop - batch.part.start:
            yield batch.part, content
            content, n_seen = PartContent.empty(), 0


def _parts(n_inputs: int, n_classes: int) -> list[Range]:
    """The inputs in ranges, which do not depend on batches or workers."""
    step = max(1, min(MOST_ROWS, MOST_NUMBERS // n_classes))
    starts = range(0, n_inputs, step)
    return [Range(i, start, min(start + step, n_inputs)) for i, start in enumerate(starts)]


def _record(part: Range) -> dict[str, Any]:
    file = f"part-{part.number:05d}.parquet"
    return {"file": file, "first_row": part.start, "rows": part.stop - part.start}


def _finish(plan: PlannedFolder, ranges: list[Range], n_made: int) -> Inferred:
    """Count rows and what is missing, list what could not be read, write the manifest."""
    found: dict[str, dict[str, Any]] = {}
    skipped: list[Skipped] = []
    n_rows = 0
    for part in ranges:
        file = _record(part)["file"]
        rows, missing = read_account(plan.folder / file)
        found[file] = {"first_row": n_rows, "rows": rows}
        n_rows += rows
        skipped += missing
    listed = plan.folder / UNREADABLE
    if skipped:
        write_csv(listed, [each._asdict() for each in skipped])
    else:
        listed.unlink(missing_ok=True)
    plan.finish(found, unreadable=len(skipped))
    return Inferred(n_rows, len(skipped), len(ranges), len(ranges) - n_made)


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=16).hexdigest()
