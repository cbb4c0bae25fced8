"""``evencover calibrate``, ``update`` and ``export``: models, which are files."""

from __future__ import annotations

from typing import Literal

from evencover.cli import options
from evencover.errors import InputError
from evencover.output.atomic import check_output


def calibrate(
    data: str,
    /,
    *,
    output: options.Output,
    method: str | None = None,
    score: str = "softmax",
    alpha: options.Alpha = "0.1",
    alpha_of: options.AlphaOf = None,
    floor: options.Floor = None,
    max_share: options.MaxShare = None,
    accept_accuracy: float | None = None,
    accept_mode: Literal["class", "overall"] | None = None,
    taxonomy: str | None = None,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    dask: options.Dask = None,
    force: options.Force = False,
    read: options.Input = options.READ,
) -> None:
    """Fit thresholds on held-out labeled data and save a model.

    The data are {endings}.

    {methods}

    {scores}

    Parameters
    ----------
    data
        Probabilities and labels: a file, folder, glob or URL.
    output
        Model to write (.safetensors).
    method
        One of the methods above; {default_method} by default.
    score
        One of the scores above.
    accept_accuracy
        Accept predictions so that this share of them is right.
    accept_mode
        Whether each predicted class (default) or only all target it.
    taxonomy
        File of groups to answer with, or "labels" for SpeciesNet's.
    """
    from evencover.persistence import save
    from evencover.predictors import DEFAULT_METHOD

    inputs = [data, *read.files, *options.files_among(alpha_of, settings), taxonomy]
    check_output(output, inputs, force=force, extensions=options.MODEL)
    for option, value in (("--taxonomy", taxonomy), ("--accept-mode", accept_mode)):
        if value is not None and accept_accuracy is None:
            raise InputError(f"{option} needs --accept-accuracy, the accuracy of the answers.")
    (predictor,), (with_score,) = options.make_methods_and_scores(
        [method or DEFAULT_METHOD], [score], options.read_settings(settings)
    )
    source = read.open(data, "calibrating")
    predictor.set_params(
        alpha=options.read_alpha(alpha, alpha_of, source.class_names, source.n_classes),
        **options.read_floor(floor),
        max_share=max_share,
        score=with_score,
        from_logits=bool(source.logits),
        random_state=seed,
    )
    with options.executor(dask) as workers:
        predictor.fit(source, executor=workers)
        if accept_accuracy is not None:
            predictor.fit_acceptance(
                source,
                accuracy=accept_accuracy,
                per_class=accept_mode != "overall",
                taxonomy=taxonomy,
                executor=workers,
            )
    save(predictor, output, force=force)
    print(
        f"{output}: {predictor.method}, calibrated on {predictor.n_calibration_} rows "
        f"of {predictor.n_classes_} classes"
    )


def update(
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

    The result is a new model, the one that calibrate fits to all rows; only the caps of max_share
    are those of the first calibration. --window drops old rows.

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
    kept = "" if predictor.max_share is None else "; caps are those of the first calibration"
    print(
        f"{output}: {predictor.method}, calibrated on {predictor.n_calibration_} rows of "
        f"{predictor.n_classes_} classes; {n_before} before{kept}"
    )


def export(
    model: options.ModelFile,
    /,
    *,
    output: options.Output,
    opset: int = 17,
    force: options.Force = False,
) -> None:
    """Write a model's prediction sets as an ONNX graph.

    The sets are bit-identical to those of predict.

    Parameters
    ----------
    output
        Graph to write (.onnx).
    opset
        Version of the operators, 13 or later.
    """
    from evencover.serving.onnx import to_onnx

    check_output(output, [model], force=force, extensions=(".onnx",))
    to_onnx(options.load_model(model), output, opset=opset, force=force)
    print(f"{output}: membership, sizes and classes of sets, from rows")
