"""``evencover update``: add labeled data to a model's calibration set."""

from __future__ import annotations

from evencover.cli import options
from evencover.output.atomic import check_output


def run(
    model: options.ModelFile,
    data: str,
    /,
    *,
    output: options.Output,
    window: int | None = None,
    force: options.Force = False,
    read: options.Input = options.READ,
) -> None:
    """Add labeled data to a model's calibration set.

    The result is a new model, the one that calibrate fits to all rows. --window drops old rows.

    Parameters
    ----------
    data
        Probabilities and labels of new rows.
    output
        New model to write (.safetensors).
    window
        Keep only this many rows, the newest.
    """
    from evencover.persistence import save

    check_output(output, [model, data, *read.files], force=force, extensions=options.MODEL)
    predictor = options.load_model(model, data)
    n_before = predictor.n_calibration_
    source = read.open(data, "updating", predictor, allow_unknown=False)
    predictor.partial_fit(source, window=window)
    save(predictor, output, force=force)
    print(
        f"{output}: {predictor.method}, calibrated on {predictor.n_calibration_} rows of "
        f"{predictor.n_classes_} classes; {n_before} before"
    )
