"""``evencover update``: let new labelled rows join the calibration rows of a model."""

from __future__ import annotations

from pathlib import Path

from evencover.cli.options import READ, Dask, Input, Output, Switch, executor, refuse_swapped
from evencover.errors import InputError
from evencover.output.atomic import refuse_existing


def run(
    model: Path,
    data: str,
    /,
    *,
    output: Output,
    window: int | None = None,
    since: str | None = None,
    dask: Dask = None,
    force: Switch = False,
    read: Input = READ,
) -> None:
    """Let new labelled rows join the calibration rows of a model, and save it as another one.

    The result is what calibrate gives on all rows. With --window or --since old rows are left out.

    Parameters
    ----------
    model
        Written by calibrate.
    data
        Probabilities and labels of new rows.
    output
        Where to write the new model (.safetensors).
    window
        Keep only this many rows, the newest.
    since
        Keep only the row with this id and those after it.
    dask
        Run on a dask cluster: the address of its scheduler, or "local" for this machine's cores.
    force
        Overwrite an existing file.
    """
    from evencover.persistence import load, save

    output = refuse_existing(output, force=force)
    if output.suffix != ".safetensors":
        raise InputError(f"A model's ending must be .safetensors. Got '{output}' instead.")
    refuse_swapped(model, data)
    predictor = load(model)
    n_before = predictor.n_calibration_
    source = read.open(data, "updating")
    if read.row_groups is not None:
        raise InputError("--row-groups is not for update: models of groups of rows keep no rows.")
    with executor(dask) as workers:
        predictor.partial_fit(source, window=window, since=since, executor=workers)
    save(predictor, output, force=force)
    print(
        f"{output}: {predictor.method}, calibrated on {predictor.n_calibration_} rows of "
        f"{predictor.n_classes_} classes; {n_before} before"
    )
