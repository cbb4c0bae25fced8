"""``evencover calibrate``: fit thresholds and save a model."""

from __future__ import annotations

from evencover.cli import options
from evencover.output.atomic import reject_existing


def run(
    data: str,
    /,
    *,
    output: options.Output,
    method: str | None = None,
    score: str = "softmax",
    alpha: options.Alpha = "0.1",
    confidence: options.Confidence = None,
    exact: options.Switch = False,
    allow_empty: bool = True,
    groups: options.Groups = None,
    prevalence: options.Prevalence = None,
    target_prevalence: str | None = None,
    settings: options.Settings = None,
    temperature: str = "1",
    seed: options.Seed = 0,
    dask: options.Dask = None,
    force: options.Force = False,
    read: options.Input = options.READ,
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

    output = reject_existing(output, force=force, extensions=(".safetensors",))
    more = options.read_settings(
        settings,
        groups=groups,
        prevalence=prevalence,
        confidence=options.number_if_float(confidence),
        target_prevalence=target_prevalence,
    )
    (predictor,), (with_score,) = options.make_methods_and_scores(
        [method or DEFAULT_METHOD], [score], more
    )
    source = read.open(data, "calibrating")
    predictor.set_params(
        alpha=options.number_if_float(alpha),
        score=with_score,
        exact=exact,
        allow_empty=allow_empty,
        from_logits=bool(source.logits),
        temperature=options.number_if_float(temperature),
        random_state=seed,
    )
    with options.executor(dask) as workers:
        predictor.fit(source, groups=read.groups(source), executor=workers)
    save(predictor, output, force=force)
    print(
        f"{output}: {predictor.method}, calibrated on {predictor.n_calibration_} rows "
        f"of {predictor.n_classes_} classes"
    )
