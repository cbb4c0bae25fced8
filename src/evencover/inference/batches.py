"""Inputs in batches, read and prepared by workers while the model is busy."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from evencover._threads import in_order
from evencover.errors import InputError
from evencover.inference.inputs import Example, Inputs, Kind
from evencover.inference.models.base import Model
from evencover.inference.parts import Skipped
from evencover.inference.values import UnreadableError, read_value

MOST_WORDS = 400  # characters of what a library says


class Range(NamedTuple):
    """Consecutive inputs that make a part: its number, the first of them, and the one after."""

    number: int
    start: int
    stop: int


class Batch(NamedTuple):
    """Inputs that the model takes together.

    Attributes
    ----------
    part
        The part to which they belong.
    n_inputs
        How many there are, readable or not.
    examples
        The readable ones.
    prepared
        What the model takes; None if none is readable.
    skipped
        The others.
    """

    part: Range
    n_inputs: int
    examples: list[Example]
    prepared: Any
    skipped: list[Skipped]


def prepared_batches(
    model: Model, inputs: Inputs, parts: Sequence[Range], batch_size: int, workers: int
) -> Generator[Batch, None, None]:
    """Batches of the parts in order; each begins anew with a part, so that parts never differ."""
    with ThreadPoolExecutor(workers, thread_name_prefix="evencover-infer") as pool:
        yield from in_order(
            lambda task: pool.submit(_prepare, model, inputs.kind, *task),
            _results,
            _cut(inputs, parts, batch_size),
            2 * workers + 1,
        )


def _cut(
    inputs: Inputs, parts: Sequence[Range], batch_size: int
) -> Iterator[tuple[Range, list[Example]]]:
    at, stream = -1, inputs.examples(0)
    for part in parts:
        if part.start != at:
            stream = inputs.examples(part.start)
        for start in range(part.start, part.stop, batch_size):
            examples = list(islice(stream, min(batch_size, part.stop - start)))
            if len(examples) < min(batch_size, part.stop - start):
                raise InputError(f"{inputs.name} became shorter while it was read; begin again.")
            yield part, examples
        at = part.stop


def _prepare(model: Model, kind: Kind, part: Range, examples: list[Example]) -> Batch:
    values, readable, skipped = [], [], []
    for example in examples:
        try:
            values.append(read_value(kind, example.value))
            readable.append(example)
        except UnreadableError as error:
            skipped.append(Skipped(example.id, str(error)))
    n_missing = (model.batch_size or 0) - len(values)
    if values and n_missing > 0:  # a model that takes just so many gets the last one again
        values += [values[-1]] * n_missing
    prepared = None
    if values:
        with speaking_of(model, readable):
            prepared = model.prepare(values)
    return Batch(part, len(examples), readable, prepared, skipped)


@contextmanager
def speaking_of(model: Model, examples: Sequence[Example]) -> Iterator[None]:
    """One sentence for whatever a model says about inputs that it cannot take."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or "no reason given"
        shortened = reason if len(reason) <= MOST_WORDS else f"{reason[:MOST_WORDS]} ..."
        raise InputError(
            f"The model {model.name} cannot take the {len(examples)} inputs from "
            f"{examples[0].id!r} on: {type(error).__name__}: {shortened.rstrip('.')}."
        ) from error


def _results(futures: Sequence[Future[Batch]]) -> list[Batch]:
    return [future.result() for future in futures]
