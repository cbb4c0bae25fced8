"""What the commands share: the application, common options, and how results are printed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

import evencover
from evencover.cli.console import note, watch
from evencover.data.opening import as_source
from evencover.data.source import Source
from evencover.errors import InputError

app = App(
    name="evencover",
    help="Prediction sets that aim to cover every class, not just the average one.",
    version=f"evencover {evencover.__version__}",
    help_format="plaintext",
)

Output = Annotated[Path, Parameter(name=["--output", "-o"])]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Dask = Annotated[str | None, Parameter(name="--dask")]
Switch = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Input:
    """How the data file is to be read."""

    labels: str | None = None
    "File (or folder, glob or URL) of labels; joined by id if both sides have ids."
    logits: Switch = False
    "The numbers are logits; a softmax is applied."
    ids: str | None = None
    "File with one stable id per row; the same id always gets the same random choices."
    row_groups: str | None = None
    "File with the group of each row, for methods with a threshold for each group of rows."
    probabilities_key: str | None = None
    "What the numbers are called in the file; with one column per class, a pattern such as 'p_*'."
    labels_key: str | None = None
    "What the labels are called, in the file or in that of --labels."
    ids_key: str | None = None
    "What the ids are called, in the file, or in that of --ids."

    def open(self, data: str | Path, what: str, *, complete: bool = True) -> Source:
        """Open the data as a source that shows its progress, and note how labels were matched."""
        from evencover.data.files import ids_from_file

        source = as_source(
            data,
            self.labels,
            ids=None if self.ids is None else ids_from_file(self.ids, self.ids_key or "ids"),
            logits=True if self.logits else None,
            probabilities_key=self.probabilities_key,
            labels_key=self.labels_key,
            ids_key=None if self.ids else self.ids_key,
            complete=complete,
        )
        if source.matching is not None:
            note(source.matching)
        return watch(source, what)

    def groups(self, source: Source) -> Any:
        """Read the group of each row, matched as labels are; None if there are none."""
        from evencover.data.files import values_for
        from evencover.data.join import match

        if self.row_groups is None:
            return None
        groups, _, matching = match(source, values_for(source, self.row_groups, "groups"), "groups")
        if matching is not None:
            note(matching)
        return groups


READ = Input()


def refuse_swapped(model: Path, data: str) -> None:
    """Say so if the data come where the model belongs."""
    from evencover.persistence import is_model

    if not model.is_file():
        return  # loading it says so
    if not is_model(model) and Path(data).is_file() and is_model(data):
        raise InputError(f"The model comes first, then the data. Got '{model}', then '{data}'.")
    if model.suffix.lower() != ".safetensors":
        raise InputError(
            f"The model must be a file that calibrate wrote (.safetensors). Got '{model}' instead."
        )


@contextmanager
def executor(dask: str | None) -> Iterator[Any]:
    """The cluster at an address, one on this machine ("local"), or None for threads."""
    if dask is None:
        yield None
        return
    from evencover.engine.dask import dask_client

    with dask_client(dask) as client:
        yield client


def number_if_float(alpha: str) -> Any:
    """Keep alpha as it was written unless it is a plain decimal, which Python shows the same."""
    try:
        return float(alpha)
    except ValueError:
        return alpha


def print_json(value: Any) -> None:
    """Show a value as JSON."""
    print(json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """The same value with null for numbers that JSON lacks: NaN and infinite thresholds."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
