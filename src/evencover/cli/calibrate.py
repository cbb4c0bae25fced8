"""``evencover calibrate``: learn thresholds from held-out rows, save them as a model."""

from __future__ import annotations

from typing import Any

from evencover._validation import InputError
from evencover.cli.choices import (
    Settings,
    make_methods,
    make_scores,
    read_settings,
    refuse_unused,
)
from evencover.cli.shared import READ, Dask, Input, Output, Switch, executor, number_if_float
from evencover.output.atomic import refuse_existing


def run(
    data: str,
    /,
    *,
    output: Output,
    method: str = "pooled",
    score: str = "softmax",
    alpha: str = "0.1",
    exact: Switch = False,
    allow_empty: bool = True,
    randomize: bool = True,
    penalty: float | None = None,
    k_reg: int | None = None,
    gamma: float | None = None,
    n_clusters: int | None = None,
    groups: str | None = None,
    prevalence: str | None = None,
    settings: Settings = None,
    temperature: float = 1.0,
    seed: int = 0,
    dask: Dask = None,
    gather: bool = True,
    force: Switch = False,
    read: Input = READ,
) -> None:
    """Learn the thresholds from held-out rows with labels, and save them as a model.

    Parameters
    ----------
    data
        Probabilities and labels: .npz, .npy with --labels, .parquet or .arrow.
    output
        Where to write the model (.safetensors).
    method
        standard, classwise, clustered, pooled, interpolated, fuzzy, rc3p, macro or grouped.
    score
        softmax, aps, raps, saps or pas.
    alpha
        Miscoverage level: sets aim at coverage 1 - alpha. A decimal or a fraction such as 1/3.
    exact
        Randomise the thresholds so that coverage is exactly 1 - alpha.
    allow_empty
        Whether sets may be empty; if not, an empty set is given the most probable class.
    randomize
        Whether APS, RAPS and SAPS draw a uniform number per row.
    penalty
        RAPS: the price (lambda) of each rank beyond k-reg, 0.01 by default; SAPS: of each rank,
        0.2 by default.
    k_reg
        RAPS: the rank up to which nothing is paid; 5 by default.
    gamma
        Clustered: share of the rows that find the clusters; by the paper's rule by default.
    n_clusters
        Clustered: number of clusters; by the paper's rule by default.
    groups
        Grouped: file with the group of each class (.npy, .npz or text).
    prevalence
        PAS: file with one number per class, such as the training counts; by default the
        calibration labels are counted.
    settings
        Any other parameter of the method or the score, as name=value, such as tau=0.9; may be
        repeated.
    temperature
        Divides logits.
    seed
        Fixes every random choice.
    dask
        Run on a dask cluster: the address of its scheduler, or "local" for this machine's cores.
    gather
        Whether all scores come to one machine; if not, the same thresholds are found by several
        passes, and the model has no p-values.
    force
        Overwrite an existing file.
    """
    from evencover.persistence import save
    from evencover.predictors import make_predictor

    output = refuse_existing(output, force=force)
    if output.suffix != ".safetensors":
        raise InputError(f"A model's ending must be .safetensors. Got '{output}' instead.")
    own = {"gamma": gamma, "n_clusters": n_clusters}
    parameters = {name: value for name, value in own.items() if value is not None}
    if parameters and method.lower() != "clustered":
        raise InputError("--gamma and --n-clusters belong to the method 'clustered'.")
    more = read_settings(settings, groups, prevalence)
    methods, for_method = make_methods([method], more)
    scores, for_score = make_scores([score], more)
    refuse_unused(more, for_method | for_score, [*methods, *scores])
    parameters |= {name: more[name] for name in for_method}
    of_score = {name: more[name] for name in for_score}
    source = read.open(data, "calibrating")
    predictor = make_predictor(
        method,
        alpha=number_if_float(alpha),
        score=_score(score, of_score, randomize=randomize, penalty=penalty, k_reg=k_reg),
        exact=exact,
        allow_empty=allow_empty,
        from_logits=bool(source.logits),
        temperature=temperature,
        random_state=seed,
        **parameters,
    )
    with executor(dask) as workers:
        predictor.fit(source, ids=read.row_ids(), executor=workers, gather=gather)
    save(predictor, output, force=force)
    print(
        f"{output}: {predictor.method}, calibrated on {predictor.n_calibration_} rows "
        f"of {predictor.n_classes_} classes"
    )


def _score(
    name: str, own: dict[str, Any], *, randomize: bool, penalty: float | None, k_reg: int | None
) -> Any:
    from evencover.scores import make_score

    given = {"penalty": penalty, "k_reg": k_reg}
    parameters = own | {k: v for k, v in given.items() if v is not None}
    if not randomize:
        parameters["randomize"] = False
    return make_score({"name": name, **parameters})
