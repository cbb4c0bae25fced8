"""Run a classifier on inputs, and write a folder of scores."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.arrow import import_pyarrow
from evencover.classes import Classes, checked_names, integers_if_all, is_integer_text
from evencover.data.columns import NAMES_KEY
from evencover.data.location import reading
from evencover.errors import InputError, listed, one_line
from evencover.inference.inputs import Example, Inputs, Unreadable, open_inputs, read_value
from evencover.inference.models import Model, open_model
from evencover.output.atomic import atomic_path, write_csv
from evencover.output.folders import resumable_folder
from evencover.rows import are_probabilities
from evencover.sizes import at_once
from evencover.threads import map_on_threads
from evencover.validation import whole_number

# An interruption loses at most one partition, which is in memory: 16 MB of float32 for K = 1000.
MAX_ROWS, MAX_NUMBERS = 4096, at_once(1 << 22)


class Inferred(NamedTuple):
    """Results of a run."""

    n_rows: int
    n_unreadable: int  # inputs
    n_files: int
    n_there: int  # files written by an earlier run
    column: str  # "probs" or "logits"
    accuracy: float | None  # top-1 accuracy, if there are labels


class Batch(NamedTuple):
    """Inputs of one call of the model."""

    span: range  # of all inputs, readable or not
    examples: list[Example]  # the readable ones, without their values
    prepared: list[Any]  # what the model takes for these
    unreadable: list[Unreadable]


Batches = Generator[Batch, None, None]


def infer(
    model: str | os.PathLike[str] | Callable[[list[Any]], Any],
    data: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    input_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int = 32,
    force: bool = False,
    watch: Callable[[Batches, int], Batches] = lambda batches, _: batches,
) -> Inferred:
    """Run a classifier on images or text and save its outputs.

    The folder gets Parquet files with the columns ``id``, ``label``, and ``probs`` or ``logits``,
    which the first batch decides. After an interruption, the same call computes only the missing
    files. Inputs that cannot be read are listed in ``_unreadable.csv``.

    Parameters
    ----------
    model
        The folder or name of a Hugging Face model; or a function, also as ``module:function``, that
        maps a list of images (pillow, RGB) or texts to one row of numbers each.
    data
        A folder with one subfolder per class; or a table (.csv, .tsv, .jsonl, .parquet) with a
        column of paths or texts.
    folder
        Where to write the files.
    input_key, labels_key, ids_key
        The columns of a table, if they do not have the usual names.
    class_names
        Names of the model's outputs in order, if the model does not name them as the data do.
    batch_size
        Number of inputs per batch.
    force
        Replace results of another model or other data.
    watch
        A generator that passes batches on, for a progress bar; it also gets the number of inputs.
    """
    import_pyarrow()
    whole_number(batch_size, "batch_size", "infer", 1)
    opened = open_model(model)
    keys = {"input_key": input_key, "labels_key": labels_key, "ids_key": ids_key}
    inputs = open_inputs(data, opened.kind, **keys)
    run, all_inputs = _Run(opened, inputs), range(inputs.n_inputs)
    first, first_outputs = run.first(all_inputs, batch_size)
    n_classes = first_outputs.shape[1]
    is_logits = opened.returns_logits or not are_probabilities(first_outputs)
    column = "logits" if is_logits else "probs"
    names, index_of = match_classes(opened, inputs, n_classes, class_names)
    write = partial(_write_part, column, inputs.ids_are_text, index_of, names)
    # Partitions do not depend on batches.
    spans = _cut(all_inputs, max(1, min(MAX_ROWS, MAX_NUMBERS // n_classes)))
    span_of = {f"part-{number:05d}.parquet": span for number, span in enumerate(spans)}
    made_from = {
        "model": opened.identity,
        "input": inputs.identity,
        "set of classes": repr(names),
        "type of outputs": column,
    }
    folder, parts = Path(folder).absolute(), {file: len(span) for file, span in span_of.items()}
    with resumable_folder(folder, made_from, parts, force=force) as missing:
        todo = [(file, _cut(span_of[file], batch_size)) for file in missing]
        stream = run.batches(span for _, cut in todo for span in cut)
        n_missing = sum(parts[file] for file in missing)
        with closing(watch(stream, n_missing)) as batches:  # a bar ends before a message
            for file, cut in todo:
                scored = [
                    (batch, first_outputs if batch.span == first else run.outputs(batch, n_classes))
                    for batch in islice(batches, len(cut))
                ]
                write(folder / file, scored)
        n_rows, n_correct, unreadable = _totals(sorted(folder.glob("part-*.parquet")))
        (folder / "_unreadable.csv").unlink(missing_ok=True)  # of another run
        if unreadable:
            write_csv(folder / "_unreadable.csv", unreadable)
    accuracy = n_correct / n_rows if inputs.labels else None
    n_there = len(spans) - len(missing)
    return Inferred(n_rows, len(unreadable), len(spans), n_there, column, accuracy)


def _cut(span: range, step: int) -> list[range]:
    """Cut a range into consecutive ones of at most `step` numbers."""
    return [span[start : start + step] for start in range(0, len(span), step)]


class _Run(NamedTuple):
    """Prepare batches on several threads while the model runs on one."""

    model: Model
    inputs: Inputs

    def batches(self, spans: Iterable[range]) -> Batches:
        """Yield the prepared batches in order."""
        yield from map_on_threads(self._prepare, self._read(spans), most_threads=8)

    def _read(self, spans: Iterable[range]) -> Iterator[tuple[range, list[Example]]]:
        """Yield the examples of each span."""
        stream, position = self.inputs.examples(), 0
        for span in spans:
            examples = list(islice(stream, span.start - position, span.stop - position))
            if len(examples) < len(span):
                raise InputError(f"{self.inputs.name} lost inputs during the run; run it again.")
            yield span, examples
            position = span.stop

    def _prepare(self, examples: tuple[range, list[Example]]) -> Batch:
        """Read and prepare one input after the other, keeping one full-size image in memory."""
        batch = Batch(examples[0], [], [], [])
        for example in examples[1]:
            value = read_value(self.inputs.kind, example)
            if isinstance(value, Unreadable):
                batch.unreadable.append(value)
                continue
            if self.model.prepare is not None:
                value = self._call(self.model.prepare, value, repr(example.id))
            batch.prepared.append(value)
            batch.examples.append(example._replace(value=None))
        return batch

    def first(self, all_inputs: range, batch_size: int) -> tuple[range, Array]:
        """Score the first batch with a readable input; return which inputs it has, too."""
        for batch in self.batches(_cut(all_inputs, batch_size)):
            if batch.prepared:
                return batch.span, self.outputs(batch)
        row_id, reason = batch.unreadable[-1]
        raise InputError(f"{self.inputs.name} has no readable input. Got {row_id!r}: {reason}.")

    def outputs(self, batch: Batch, n_classes: int | None = None) -> Array:
        """Run the model; check that it returns one finite row per readable input (n, K)."""
        n = len(batch.prepared)
        if not n:
            return np.zeros((0, n_classes or 0), np.float32)
        inputs = f"the {n} inputs from {batch.examples[0].id!r} on"
        values = to_numpy(self._call(self.model.outputs, batch.prepared, inputs))
        is_right = values.ndim == 2 and len(values) == n and values.dtype.kind in "fiu"
        if not is_right or values.shape[1] < 2 or n_classes not in (None, values.shape[1]):
            raise InputError(
                f"The model {self.model.name} must return one row per input, of {n_classes or 'K'} "
                f"real numbers. Got shape {values.shape} and type {values.dtype} for {inputs}."
            )
        with np.errstate(over="ignore"):
            outputs: Array = values.astype(np.float32)
        for row, column in np.argwhere(~np.isfinite(outputs)).tolist():
            raise InputError(
                f"The model {self.model.name} must return finite numbers. "
                f"Got {values[row, column]} for {batch.examples[row].id!r}, class {column}."
            )
        return outputs

    def _call(self, function: Callable[[Any], Any], value: Any, inputs: str) -> Any:
        """Call the model's code; convert exceptions to an InputError that names the inputs."""
        try:
            return function(value)
        except Exception as error:
            raise InputError(
                f"The model {self.model.name} cannot take {inputs}: {type(error).__name__}: "
                f"{one_line(error, 400).rstrip('.')}."
            ) from error


def _write_part(
    column: str,
    ids_are_text: bool,
    index_of: Mapping[str | None, int],  # empty without labels
    class_names: Sequence[str] | None,
    path: Path,
    scored: Sequence[tuple[Batch, Array]],
) -> None:
    """Write a partition atomically; equal content gives equal bytes."""
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    examples = [example for batch, _ in scored for example in batch.examples]
    outputs = np.concatenate([block for _, block in scored])
    as_id, id_type = (str, pa.string()) if ids_are_text else (int, pa.int64())
    columns = {
        "id": pa.array([as_id(example.id) for example in examples], id_type),
        column: pa.FixedSizeListArray.from_arrays(pa.array(outputs.ravel()), outputs.shape[1]),
    }
    unreadable = [fields for batch, _ in scored for fields in batch.unreadable]
    metadata = {"unreadable": json.dumps(unreadable)}
    if class_names is not None:
        metadata[NAMES_KEY] = json.dumps(list(class_names))
    if index_of:
        labels = [index_of[example.label] for example in examples]
        columns["label"] = pa.array(labels, pa.int32())
        metadata["correct"] = str((outputs.argmax(axis=1) == labels).sum())
    with atomic_path(path) as temporary:
        # Neither a dictionary nor compression makes these numbers smaller.
        table = pa.table(columns).replace_schema_metadata(metadata)
        pq.write_table(table, temporary, use_dictionary=False, compression="none")


def _totals(paths: Iterable[Path]) -> tuple[int, int, list[dict[str, Any]]]:
    """Return the number of rows of all partitions, of correct ones, and the unreadable inputs."""
    import pyarrow.parquet as pq

    n_rows, n_correct, unreadable = 0, 0, []
    for path in paths:
        with reading(path), pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata
            n_rows += file.metadata.num_rows
            n_correct += int(metadata.get(b"correct", b"0"))
            unreadable += json.loads(metadata[b"unreadable"])
    return n_rows, n_correct, [Unreadable(*fields)._asdict() for fields in unreadable]


def match_classes(
    model: Model, inputs: Inputs, n_classes: int, class_names: Sequence[str] | None
) -> tuple[Sequence[str] | None, dict[str | None, int]]:
    """Return the names of the outputs, and the output index of each label.

    Labels are names; if all are integers, they are output indices, unless some output has a number
    as its name.
    """
    owner = f"The model {model.name}" if class_names is None else "class_names (--class-names)"
    stated = model.class_names if class_names is None else class_names
    names = None if stated is None else checked_names(stated, n_classes, owner)
    labels, classes = sorted(inputs.labels), Classes(n_classes, names)
    if names is None and not all(map(is_integer_text, labels)):
        raise InputError(
            f"The model {model.name} must name its {n_classes} classes, as {inputs.name} does "
            f"({listed(labels, 5)}); list them in the order of its outputs with --class-names."
        )
    values = np.array(labels, dtype=object) if classes.number_name else integers_if_all(labels)
    indices = classes.label_indices(values, row_name=lambda _: inputs.name)
    return names, dict(zip(labels, indices.tolist(), strict=True))
