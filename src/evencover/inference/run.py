"""Run a model on raw inputs and write a folder of scores, one partition at a time."""

from __future__ import annotations

import difflib
import importlib
import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, import_pyarrow, to_numpy
from evencover.data.columns import NAMES_KEY
from evencover.data.location import reading
from evencover.errors import InputError, listed, one_line, warn_caller
from evencover.inference.inputs import (
    KINDS,
    Columns,
    Example,
    Inputs,
    Kind,
    UnreadableError,
    as_text,
    digest_of,
    open_inputs,
    read_value,
)
from evencover.inference.models import Model, open_model
from evencover.output.atomic import atomic_path
from evencover.output.folders import Record, ResumableFolder, write_checksum
from evencover.output.writers import write_csv
from evencover.threads import map_ordered, results
from evencover.validation import SUM_TOLERANCE, raise_unknown, whole_number

DTYPES = ("float32", "float16")
# An interruption loses at most one partition, which is kept in memory: 16 MB of float32 for K =
# 1000.
MAX_ROWS, MAX_NUMBERS = 4096, 1 << 22
MAX_REASON = 400  # maximum characters of a library's message
UNREADABLE = "_unreadable.csv"


class Inferred(NamedTuple):
    """Results of a run."""

    n_rows: int
    n_unreadable: int  # unreadable inputs
    n_files: int
    n_there: int  # files written by an earlier run
    accuracy: float | None  # top-1 accuracy, if there are labels


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
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    scale: float | None = None,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    probabilities: bool = False,
    dtype: str = "float32",
    device: str | None = None,
    batch_size: int = 32,
    workers: int = 2,
    limit: int | None = None,
    strict: bool = False,
    force: bool = False,
    watch: Watch | None = None,
    note: Callable[[str], None] | None = None,
) -> Inferred:
    """Run a classifier on images or text and save its outputs.

    The folder gets Parquet files with the columns ``id``, ``logits`` and ``label``, and finally
    `_manifest.json`. After an interruption, the same call computes only missing files. The result
    is bit-identical. Memory does not grow with the number of inputs.

    Parameters
    ----------
    model
        An ONNX file; the folder or name of a Hugging Face model; or ``module:function``, which maps
        a list of images or texts to logits.
    data
        A folder with one sub-folder per class; a table (.csv, .tsv, .jsonl, .parquet) with a column
        of paths or texts; or a Hugging Face dataset on disk.
    folder
        Where to write the files.
    kind
        "images" or "texts", if neither model nor data determine it.
    input_key, labels_key, ids_key
        The columns of a table, if they do not have the usual names.
    class_names
        Names of the model's outputs in order, if the model does not use the names in the data.
    mean, std, scale, size, channels
        Preprocessing of images for an ONNX model, instead of its ``preprocessor_config.json``:
        resize to `size` (height and width, or one number for both), convert to 1 or 3 `channels`,
        and map each pixel from 0 to 255 to (pixel * scale - mean) / std. By default, resize images
        to the model's size and scale them to [0, 1].
    probabilities
        The model returns probabilities; the column is called ``probs``.
    dtype
        "float32", or "float16" for half the size.
    device
        Such as "cpu" or "cuda"; by default a GPU if there is one.
    batch_size, workers
        Number of inputs per batch, and of threads that prepare them.
    limit
        Use only the first `limit` inputs.
    strict
        Raise for unreadable inputs, instead of listing them in `_unreadable.csv`.
    force
        Replace results of another model, other settings or other data.
    watch
        A generator that passes batches on, for a progress bar; it also receives the number of
        inputs.
    note
        Called once with a line on the preprocessing, before the first file is written. Without it,
        `infer` warns if the preprocessing of images is unspecified.
    """
    import_pyarrow()
    if dtype not in DTYPES:
        raise_unknown("dtype", dtype, DTYPES)
    if kind not in (None, *KINDS):
        raise_unknown("kind", kind, KINDS)
    counts = {"batch_size": batch_size, "workers": workers, "limit": 1 if limit is None else limit}
    for name, number in counts.items():
        whole_number(number, name, "infer", 1)
    folder = Path(folder).absolute()
    if not folder.parent.is_dir():
        raise InputError(f"Cannot write '{folder}': the folder '{folder.parent}' does not exist.")
    options = {"mean": mean, "std": std, "scale": scale, "size": size, "channels": channels}
    opened = open_model(model, device, **options)
    if kind is not None and opened.kind not in (None, kind):
        raise InputError(f"The model {opened.name} takes {opened.kind}. Got kind={kind!r}.")
    inputs = open_inputs(data, kind or opened.kind, Columns(input_key, labels_key, ids_key))
    n_inputs = min(inputs.n_inputs, limit or inputs.n_inputs)
    run = _Run(
        *(opened, inputs, opened.batch_size or batch_size, workers, strict),
        *(np.dtype(dtype), probabilities),
    )
    head = run.first_batch(n_inputs)
    head = head._replace(rows=run.outputs(head))  # computed before the folder is created
    n_classes = head.rows.shape[1]
    names, index_of = match_classes(opened, inputs, n_classes, class_names)
    form = PartFormat(
        "probs" if probabilities else "logits",
        n_classes,
        np.dtype(dtype),
        inputs.labels is not None,
        isinstance(head.examples[0].id, str),
        names,
        {"name": as_text(opened.name.strip("'")), "identity": opened.identity},
    )
    # Partitions do not depend on batches or workers.
    parts = _cut(n_inputs, max(1, min(MAX_ROWS, MAX_NUMBERS // n_classes)))
    libraries = [*opened.libraries, *(["PIL"] if inputs.kind == "images" else [])]
    versions = [f"{name} {importlib.import_module(name).__version__}" for name in libraries]
    made_from = {
        "model": opened.identity,
        "preprocessing": opened.preprocessing,
        "device": opened.device,
        "version of a library": ", ".join(versions),
        "input": f"{inputs.identity}, {n_inputs} inputs",
        "set of classes": digest_of(names, sorted(index_of.items(), key=str)),
        "way of storing numbers": f"{form.column}, {dtype}",
    }
    plan = ResumableFolder(folder, made_from, parts)
    with plan.writing(force=force) as missing:
        _announce(opened, note)
        batches = run.batches(missing, head)
        if watch is not None:
            batches = watch(batches, sum(part["rows"] for part in missing))
        done: dict[str, PartCounts] = {}
        try:
            for part, rows, labels, ids, skipped in run.parts(batches, n_classes, index_of):
                path = folder / part["file"]
                done[part["file"]] = form.write(path, rows, labels, ids, skipped)
                write_checksum(path)
        finally:
            batches.close()  # closes the bar before a message
        return _finish(plan, done, has_labels=form.has_labels)


def _announce(model: Model, note: Callable[[str], None] | None) -> None:
    """Report the preprocessing and its source."""
    line = f"preprocessing: {model.preprocessing} ({model.source})"
    if model.is_default:
        line += "; set --mean and --std if the model was trained with other values"
    if note is not None and model.preprocessing:
        note(line)
    elif note is None and model.is_default:
        warn_caller(f"{line}.")


def _cut(n_inputs: int, step: int) -> list[Record]:
    """Group consecutive inputs, at most `step` at a time, into parts of a `ResumableFolder`."""
    starts = range(0, n_inputs, step)
    sizes = [min(step, n_inputs - start) for start in starts]
    return [
        {"file": f"part-{number:05d}.parquet", "first_row": start, "rows": rows}
        for number, (start, rows) in enumerate(zip(starts, sizes, strict=True))
    ]


def _finish(plan: ResumableFolder, done: dict[str, PartCounts], *, has_labels: bool) -> Inferred:
    """Sum the counts, list unreadable inputs, and write the manifest."""
    found: dict[str, Record] = {}
    skipped: list[Skipped] = []
    n_rows = n_correct = 0
    for part in plan.parts:
        file = part["file"]
        counts = done.get(file) or PartCounts.read(plan.folder / file)
        found[file] = {"first_row": n_rows, "rows": counts.n_rows}
        n_rows += counts.n_rows
        n_correct += counts.n_correct
        skipped += counts.skipped
    unreadable = plan.folder / UNREADABLE
    if skipped:
        write_csv(unreadable, [each._asdict() for each in skipped])
    else:
        unreadable.unlink(missing_ok=True)
    plan.finish(found, unreadable=len(skipped))
    accuracy = n_correct / n_rows if has_labels and n_rows else None
    return Inferred(n_rows, len(skipped), len(found), len(found) - len(done), accuracy)


class Skipped(NamedTuple):
    """An unreadable input, and the reason."""

    id: str | int
    reason: str


class Batch(NamedTuple):
    """Inputs of one call of the model."""

    part: Record
    n_inputs: int  # readable or not
    examples: list[Example]  # the readable ones
    skipped: list[Skipped]
    prepared: Any  # the model's input
    rows: Any = None  # the model's outputs, once computed


Batches = Generator[Batch, None, None]
Watch = Callable[[Batches, int], Batches]


class _Run(NamedTuple):
    """Read inputs in batches; worker threads prepare them while the model runs."""

    model: Model
    inputs: Inputs
    batch_size: int
    workers: int
    strict: bool
    dtype: np.dtype[Any]
    probabilities: bool

    def first_batch(self, n_inputs: int) -> Batch:
        """Return the first batch with a readable input."""
        skipped: list[Skipped] = []
        for part, examples in self._examples(_cut(n_inputs, self.batch_size), 0):
            batch = self._prepare(part, examples)
            if batch.examples:
                return batch
            skipped += batch.skipped[:1]
        raise InputError(
            f"At least one input of {self.inputs.name} must be readable. Got none of {n_inputs}; "
            f"the first was {skipped[0].id!r}: {skipped[0].reason}."
        )

    def batches(self, parts: list[Record], head: Batch) -> Batches:
        """Yield the batches of the parts in order, each within one part; reuse the first one."""
        n_done = 0
        is_first = parts and parts[0]["first_row"] == head.part["first_row"] == 0
        if is_first and head.n_inputs <= parts[0]["rows"]:
            n_done = head.n_inputs
            yield head._replace(part=parts[0])
        with ThreadPoolExecutor(self.workers, thread_name_prefix="evencover-infer") as pool:
            yield from map_ordered(
                lambda task: pool.submit(self._prepare, *task),
                results,
                self._examples(parts, n_done),
                2 * self.workers + 1,
            )

    def _examples(
        self, parts: Sequence[Record], n_done: int
    ) -> Iterator[tuple[Record, list[Example]]]:
        """Yield the examples of each batch, except the first `n_done` of the first part."""
        stream, at = self.inputs.examples(), 0
        for part in parts:
            first, stop = part["first_row"] + n_done, part["first_row"] + part["rows"]
            stream = islice(stream, first - at, None)
            for start in range(first, stop, self.batch_size):
                n_wanted = min(self.batch_size, stop - start)
                examples = list(islice(stream, n_wanted))
                if len(examples) < n_wanted:
                    raise InputError(
                        f"{self.inputs.name} must not change during a run. Got fewer inputs than "
                        "at its start; run it again."
                    )
                yield part, examples
            at, n_done = stop, 0

    def _prepare(self, part: Record, examples: list[Example]) -> Batch:
        """Read and prepare one input after the other, keeping one full-size image in memory."""
        values, readable, skipped = [], [], []
        for example in examples:
            try:
                value = read_value(self.inputs.kind, example.value)
            except UnreadableError as error:
                if self.strict:
                    raise InputError(
                        f"Every input must be readable (--strict). Got {example.id!r}: {error}."
                    ) from error
                skipped.append(Skipped(example.id, str(error)))
                continue
            with _naming(self.model, [example]):
                values.append(self.model.prepare(value))
            readable.append(example)
        prepared = None
        if values:  # pad a fixed batch size with copies of the last input
            values += [values[-1]] * ((self.model.batch_size or 0) - len(values))
            with _naming(self.model, readable):
                prepared = self.model.collate(values)
        return Batch(part, len(examples), readable, skipped, prepared)

    def parts(
        self, batches: Batches, n_classes: int, index_of: dict[str | int, int]
    ) -> Iterator[tuple[Record, list[Array], list[int], list[str | int], list[Skipped]]]:
        """Yield each part with its rows, labels, ids and unreadable inputs."""
        rows, labels, ids, skipped = [], [], [], []
        n_seen = 0
        for batch in batches:
            skipped += batch.skipped
            if batch.examples:
                rows.append(self.outputs(batch) if batch.rows is None else batch.rows)
                if rows[-1].shape[1] != n_classes:
                    raise InputError(
                        f"The model {self.model.name} must return {n_classes} numbers for every "
                        f"input. Got {rows[-1].shape[1]} from {batch.examples[0].id!r} on."
                    )
                ids += [each.id for each in batch.examples]
                labels += [index_of[e.label] for e in batch.examples if e.label is not None]
            n_seen += batch.n_inputs
            if n_seen == batch.part["rows"]:
                yield batch.part, rows, labels, ids, skipped
                rows, labels, ids, skipped = [], [], [], []
                n_seen = 0

    def outputs(self, batch: Batch) -> Array:
        """Run the model; return one finite row per readable input."""
        name = self.model.name
        with _naming(self.model, batch.examples):
            raw = to_numpy(self.model.logits(batch.prepared))
        expected = max(len(batch.examples), self.model.batch_size or 0)
        if raw.ndim != 2 or len(raw) != expected or raw.shape[1] < 2 or raw.dtype.kind not in "fiu":
            raise InputError(
                f"The model {name} must return one row per input and one real number per class (2 "
                f"or more). Got an array of shape {raw.shape} and type {raw.dtype} for {expected} "
                "inputs."
            )
        rows = raw[: len(batch.examples)]
        bad = np.argwhere(~np.isfinite(rows))
        if len(bad):
            row, column = bad[0].tolist()
            raise InputError(
                f"The model {name} must return finite numbers. Got {rows[row, column]} for "
                f"{batch.examples[row].id!r}, class {column}."
            )
        total = rows.sum(axis=1, dtype=np.float64)
        are_probabilities = (rows >= 0).all() and (abs(total - 1) <= SUM_TOLERANCE[4]).all()
        if self.probabilities and not are_probabilities:
            raise InputError(
                f"The model {name} must return probabilities (--probabilities). Got a row that is "
                f"below 0 or sums to {total[abs(total - 1).argmax()]:.6g}; leave the option out "
                "if they are logits."
            )
        if are_probabilities and not self.probabilities:
            raise InputError(
                f"The model {name} must return logits. Got rows that are at least 0 and sum to 1; "
                "if they are probabilities, pass probabilities=True (--probabilities)."
            )
        with np.errstate(over="ignore"):
            stored: Array = rows.astype(self.dtype)
        if not np.isfinite(stored).all():
            raise InputError(
                f"The logits of the model {name} must fit into {self.dtype.name}. "
                f"Got {rows.ravel()[abs(rows).argmax()]:.6g}; use dtype='float32' "
                "(--dtype float32)."
            )
        return stored


@contextmanager
def _naming(model: Model, examples: Sequence[Example]) -> Iterator[None]:
    """Convert an exception of a model to an InputError that names model and inputs."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"The model {model.name} cannot take the {len(examples)} inputs from "
            f"{examples[0].id!r} on: {type(error).__name__}: "
            f"{one_line(error, MAX_REASON).rstrip('.')}."
        ) from error


# Parts --------------------------------------------------------------------------------------------


class PartCounts(NamedTuple):
    """The number of rows of a part, of correct rows, and its unreadable inputs."""

    n_rows: int
    n_correct: int
    skipped: list[Skipped]

    @classmethod
    def read(cls, path: Path) -> PartCounts:
        """Read the counts of an existing part."""
        import pyarrow.parquet as pq

        with reading(path), pq.ParquetFile(path) as file:
            about = file.schema_arrow.metadata or {}
            skipped = json.loads(about.get(b"unreadable", b"[]"))
            n_correct = int(about.get(b"correct", b"0"))
            return cls(file.metadata.num_rows, n_correct, [Skipped(*each) for each in skipped])


@dataclass(frozen=True)
class PartFormat:
    """Columns and metadata common to all parts."""

    column: str  # "logits" or "probs"
    n_classes: int
    dtype: np.dtype[Any]
    has_labels: bool
    ids_are_text: bool
    class_names: Sequence[str] | None
    model: dict[str, str]

    def write(
        self,
        path: Path,
        rows: Sequence[Array],
        labels: list[int],
        ids: list[str | int],
        skipped: list[Skipped],
    ) -> PartCounts:
        """Write the part atomically; equal content gives equal bytes."""
        pa = import_pyarrow()
        import pyarrow.parquet as pq

        joined = np.concatenate([np.zeros((0, self.n_classes), self.dtype), *rows])
        about = {"model": json.dumps(self.model)}
        if self.class_names is not None:
            about[NAMES_KEY] = json.dumps(list(self.class_names))
        numbers = pa.FixedSizeListArray.from_arrays(pa.array(joined.ravel()), self.n_classes)
        columns = {"id": self._ids(ids), self.column: numbers}
        n_correct = 0
        if self.has_labels:
            columns["label"] = pa.array(labels, pa.int32())
            n_correct = int((joined.argmax(axis=1) == labels).sum())
            about["correct"] = str(n_correct)
        if skipped:
            about["unreadable"] = json.dumps(skipped)
        table = pa.table(columns).replace_schema_metadata(about)
        with atomic_path(path) as temporary:
            # Neither a dictionary nor compression makes these numbers smaller.
            pq.write_table(table, temporary, use_dictionary=False, compression="none")
        return PartCounts(len(joined), n_correct, skipped)

    def _ids(self, ids: list[str | int]) -> Any:
        pa = import_pyarrow()
        if self.ids_are_text:
            return pa.array([str(each) for each in ids], pa.string())
        other = next((each for each in ids if not isinstance(each, int)), None)
        if other is not None:
            raise InputError(f"Ids must be all numbers or all text. Got {other!r} among numbers.")
        return pa.array(ids, pa.int64())


# Classes ------------------------------------------------------------------------------------------


def match_classes(
    model: Model, inputs: Inputs, n_classes: int, given: Sequence[str] | None = None
) -> tuple[list[str] | None, dict[str | int, int]]:
    """Return the names of the outputs, and the output index of each label.

    Names are `given`, or the model's own. Without either, data with the same number of classes name
    the outputs in order, as tools do that train on folders.
    """
    owner = f"The model {model.name}" if given is None else "class_names (--class-names)"
    stated = model.class_names if given is None else given
    names = None if stated is None else [str(name) for name in stated]
    if names is not None and not len(set(names)) == len(names) == n_classes:
        raise InputError(
            f"{owner} must name each of the {n_classes} outputs once. Got {len(names)} names, "
            f"{len(set(names))} of them different."
        )
    labels = inputs.labels
    if labels is None:
        return names, {}
    are_indices = all(isinstance(y, int) or (y.isascii() and y.isdigit()) for y in labels)
    if names is None and not are_indices:
        names = list(inputs.class_names or sorted(map(str, labels)))
        if len(names) != n_classes:
            raise InputError(
                f"The model {model.name} names no classes and returns {n_classes} numbers, but "
                f"{inputs.name} has {len(names)} classes ({listed(names, 5)}); name the model's "
                "classes in its order with class_names (--class-names)."
            )
        warn_caller(
            f"The model {model.name} names no classes. Its outputs are assumed to be the "
            f"{n_classes} classes of {inputs.name} in order ({listed(names, 5)})."
        )
    index_of = {name: index for index, name in enumerate(names or ())}
    unknown = sorted(str(label) for label in labels if str(label) not in index_of)
    if not unknown:
        return names, {label: index_of[str(label)] for label in labels}
    if are_indices:
        wrong = sorted(int(label) for label in labels if not 0 <= int(label) < n_classes)
        if wrong:
            raise InputError(
                f"Every label of {inputs.name} must be between 0 and {n_classes - 1}, because the "
                f"model {model.name} has {n_classes} classes. Got {listed(wrong, 5)}."
            )
        return names, {label: int(label) for label in labels}
    close = difflib.get_close_matches(unknown[0], index_of, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"its classes are {listed(index_of, 5)}."
    raise InputError(
        f"Every label must be a class of the model {model.name}. Got {listed(unknown, 5)}; {hint}"
    )
