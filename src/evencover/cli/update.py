"""``evencover update``: add labeled data to a model's calibration set."""

from __future__ import annotations

from evencover.cli.options import READ, Dask, Force, Input, ModelFile, Output, executor, load_model
from evencover.errors import InputError
from evencover.output.atomic import reject_existing


def run(
    model: ModelFile,
    data: str,
    /,
    *,
    output: Output,
    window: int | None = None,
    since: str | None = None,
    dask: Dask = None,
    force: Force = False,
    read: Input = READ,
) -> None:
    """Add labeled data to a model's calibration set.

    The result is a new model, the one that calibrate fits to all rows. --window and --since drop
    old rows.

    Parameters
    ----------
    data
        Probabilities and labels of new rows.
    output
        New model to write (.safetensors).
    window
        Keep only this many rows, the newest.
    since
        Keep the row with this id and those after it.
    """
    from evencover.persistence import save

    output = reject_existing(output, force=force, extensions=(".safetensors",))
    predictor = load_model(model, data)
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
