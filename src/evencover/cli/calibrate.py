"""``evencover calibrate``: learn thresholds from held-out rows, save them as a model."""

from __future__ import annotations

from evencover.cli.options import (
    READ,
    Dask,
    Input,
    Output,
    Settings,
    Switch,
    executor,
    make_methods,
    make_scores,
    number_if_float,
    read_settings,
    read_target,
    refuse_unused,
)
from evencover.errors import InputError
from evencover.output.atomic import refuse_existing


def run(
    data: str,
    /,
    *,
    output: Output,
    method: str | None = None,
    score: str = "softmax",
    alpha: str = "0.1",
    confidence: str | None = None,
    exact: Switch = False,
    allow_empty: bool = True,
    groups: str | None = None,
    prevalence: str | None = None,
    target_prevalence: str | None = None,
    settings: Settings = None,
    temperature: str = "1",
    seed: int = 0,
    dask: Dask = None,
    force: Switch = False,
    read: Input = READ,
) -> None:
    """Learn the thresholds from held-out rows with labels, and save them as a model.

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
    alpha
        Miscoverage level: sets aim at coverage 1 - alpha. A decimal or a fraction such as 1/3.
    confidence
        Have coverage of at least 1 - alpha with this probability over calibrations, such as 0.9,
        for methods that can promise it; by default it is promised on average over calibrations.
    exact
        Randomise the thresholds so that coverage is exactly 1 - alpha.
    allow_empty
        Whether sets may be empty; if not, an empty set is given the most probable class.
    groups
        File with the columns 'class' and 'groups', or one group per class in their order, for a
        method that takes 'groups'.
    prevalence
        File with the columns 'class' and 'prevalence', or one number per class in their order,
        such as the training counts, for a score that takes 'prevalence'.
    target_prevalence
        Have coverage over all rows for other class frequencies than those of the data: a file as
        for --prevalence, such as expected counts, or "uniform", for methods that can.
    settings
        Any other parameter of the method or the score, as name=value, such as tau=0.9; may be
        repeated.
    temperature
        Divides logits; "fit" learns it from a fifth of the rows, which then do not calibrate.
    seed
        Fixes every random choice.
    dask
        Run on a dask cluster: the address of its scheduler, or "local" for this machine's cores.
    force
        Overwrite an existing file.
    """
    from evencover.persistence import save
    from evencover.predictors import DEFAULT_METHOD

    output = refuse_existing(output, force=force)
    if output.suffix != ".safetensors":
        raise InputError(f"A model's ending must be .safetensors. Got '{output}' instead.")
    more = read_settings(settings, groups, prevalence)
    if confidence is not None:
        more["confidence"] = number_if_float(confidence)
    if target_prevalence is not None:
        more["target_prevalence"] = read_target(target_prevalence)
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
