"""``evencover calibrate``: fit thresholds and save a model."""

from __future__ import annotations

from evencover.cli.options import (
    READ,
    Alpha,
    Confidence,
    Dask,
    Force,
    Groups,
    Input,
    Output,
    Prevalence,
    Seed,
    Settings,
    Switch,
    executor,
    make_methods,
    make_scores,
    number_if_float,
    read_numbers,
    read_settings,
    refuse_unused,
)
from evencover.output.atomic import refuse_existing


def run(
    data: str,
    /,
    *,
    output: Output,
    method: str | None = None,
    score: str = "softmax",
    alpha: Alpha = "0.1",
    confidence: Confidence = None,
    exact: Switch = False,
    allow_empty: bool = True,
    groups: Groups = None,
    prevalence: Prevalence = None,
    target_prevalence: str | None = None,
    settings: Settings = None,
    temperature: str = "1",
    seed: Seed = 0,
    dask: Dask = None,
    force: Force = False,
    read: Input = READ,
) -> None:
    """Fit thresholds on held-out labeled data and save a model.

    Parameters
    ----------
    data
        Probabilities and labels: a file, folder, pattern or address; {endings}.
    output
        Where to write the model (.safetensors).
    method
        {methods}; {default_method} by default.
    score
        {scores}.
    exact
        Randomize the thresholds so that coverage is exactly 1 - alpha.
    allow_empty
        Whether sets may be empty; if not, an empty set is given the most probable class.
    target_prevalence
        Have coverage over all rows for other class frequencies than those of the data: a file as
        for --prevalence, such as expected counts, or "uniform", for methods that can.
    temperature
        Divides logits; "fit" learns it from a fifth of the rows, which then do not calibrate.
    """
    from evencover.persistence import save
    from evencover.predictors import DEFAULT_METHOD

    output = refuse_existing(output, force=force, endings=(".safetensors",))
    more = read_settings(settings, groups, prevalence)
    if confidence is not None:
        more["confidence"] = number_if_float(confidence)
    if target_prevalence is not None:
        is_file = target_prevalence != "uniform"
        more["target_prevalence"] = (
            read_numbers(target_prevalence, "--target-prevalence") if is_file else "uniform"
        )
    (predictor,), for_method = make_methods([method or DEFAULT_METHOD], more)
    (with_score,), for_score = make_scores([score], more)
    refuse_unused(more, for_method | for_score, [predictor, with_score])
    source = read.open(data, "calibrating")
    predictor.set_params(
        alpha=number_if_float(alpha),
        score=with_score,
        exact=exact,
        allow_empty=allow_empty,
        from_logits=bool(source.logits),
        temperature=number_if_float(temperature),
        random_state=seed,
    )
    with executor(dask) as workers:
        predictor.fit(source, groups=read.groups(source), executor=workers)
    save(predictor, output, force=force)
    print(
        f"{output}: {predictor.method}, calibrated on {predictor.n_calibration_} rows "
        f"of {predictor.n_classes_} classes"
    )
