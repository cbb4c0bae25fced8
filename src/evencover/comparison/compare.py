"""compare(): methods and scores on repeated random splits of one labeled data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from evencover.arrays import IntArray
from evencover.comparison.cost import costs
from evencover.comparison.result import Candidate, Comparison
from evencover.comparison.trials import ScoredRows, Trial, calibration_split, fit_all, other_rows
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import InputError, warn_caller
from evencover.evaluation.report import CoverageReport, Tally
from evencover.predictors import BasePredictor, make_predictor, methods_for_all
from evencover.predictors.shift_checks import note_repeated_rows
from evencover.quantiles import Alpha, ClassAlpha, exact_fraction, is_per_class
from evencover.randomness import check_random_state
from evencover.scores import Score, make_score, score_names
from evencover.validation import align_classes, real_number, whole_number

DEFAULT_METHODS = ("standard", "classwise", "clustered", "pooled")
DEFAULT_SCORES = ("softmax", "aps", "raps")


def compare(
    probabilities: Any,
    labels: Any = None,
    *,
    methods: Sequence[str | BasePredictor] | str = DEFAULT_METHODS,
    scores: Sequence[str | Score] | str = DEFAULT_SCORES,
    alpha: Any = 0.1,
    floor: Alpha | None = None,
    confidence: Alpha | None = None,
    n_splits: int = 10,
    calibration_fraction: float | None = None,
    n_per_class: int | Mapping[Any, int] | Sequence[int] | IntArray | None = None,
    from_logits: bool = False,
    temperature: float = 1.0,
    temperatures: Sequence[float] | None = None,
    random_state: int = 0,
    max_size: float | None = None,
    min_coverage: float | None = None,
    top: int | None = None,
) -> Comparison:
    """Compare methods and scores on repeated random splits of one labeled data set.

    Parameters
    ----------
    probabilities
        (N, K) array-like or the path of a file; it is read three times for each temperature.
    labels
        (N,) class indices; may come with the file.
    methods, scores
        Names, predictors and scores with parameters of their own (a predictor's alpha, score and
        random_state are replaced), or "all".
    alpha, floor
        Target miscoverage, one number or one per class, and guaranteed coverage of every class, as
        for predictors. With a floor, each candidate is also tried without it, to state its cost in
        labels.
    confidence
        Guarantee coverage with this probability over calibration sets, for methods that can.
    n_splits
        Number of splits, at least 2.
    calibration_fraction, n_per_class
        Calibration rows: a fraction of all (one half by default), or this many of each class (one
        number, or one per class by name or index). Every class with two rows keeps one for testing.
    from_logits, temperature, random_state
        As for predictors.
    temperatures
        Temperatures to try with every method and score; for logits.
    max_size, min_coverage
        Recommend only candidates with at most this average set size, and at least this coverage of
        all rows.
    top
        Also measure sets cut to this many most probable classes.

    >>> from evencover.data import load_languages
    >>> p, y, _ = load_languages()
    >>> result = compare(p, y, methods=["standard", "clustered"], scores=["softmax"], n_splits=2)
    >>> result.recommended.method
    'clustered'
    """
    whole_number(n_splits, "n_splits", "compare", 2)
    seed = check_random_state(random_state, "compare")
    limits = {
        name: None if limit is None else real_number(limit, name, "compare", 0)
        for name, limit in (("max_size", max_size), ("min_coverage", min_coverage))
    }
    if top is not None:
        whole_number(top, "top", "compare", 1)
    predictors = [make_predictor(each) for each in _listed(methods, methods_for_all)]
    if is_per_class(alpha) and methods == "all":
        predictors = [each for each in predictors if each.supports_class_alpha]
    predictors = [each.with_params(floor=floor) for each in predictors]
    if confidence is not None:
        predictors = _with_confidence(predictors, confidence)
    known = [make_score(each) for each in _listed(scores, score_names)]
    if not predictors or not known:
        raise InputError("There must be at least one method and one score to compare. Got none.")
    source = as_source(probabilities, labels, allow_unknown=True)
    own_alpha = ClassAlpha.of(alpha, source.class_names, source.n_classes, "compare")
    if n_per_class is not None and not isinstance(n_per_class, int | np.integer):
        names = source.class_names
        aligned = align_classes(n_per_class, names, source.n_classes, "n_per_class")
        n_per_class = np.append(aligned, 0)  # no row with an unknown label
    splits: list[IntArray] = []
    candidates: list[Candidate] = []
    all_temperatures = _temperatures(temperature, temperatures, source, from_logits)
    for each in all_temperatures:
        rows = ScoredRows(
            source,
            known,
            from_logits=from_logits,
            temperature=each,
            random_state=seed,
            with_ranks=any("ranks" in predictor.needs for predictor in predictors),
        )
        if not splits:
            share: Any = {"calibration_fraction": calibration_fraction, "n_per_class": n_per_class}
            splits = [calibration_split(rows.labels, seed, n, **share) for n in range(n_splits)]
            if not rows.is_known.all():
                warn_caller(
                    f"{int((~rows.is_known).sum())} of {len(rows.labels)} labels are not among the "
                    "classes; they count as misses."
                )
            if max(map(len, splits)) == len(rows.labels):
                raise InputError(
                    f"All {len(rows.labels)} rows are calibration rows; leave some for testing."
                )
            note_repeated_rows(source)
        suffix = "" if len(all_temperatures) == 1 else f" at T = {each:g}"
        candidates += _try_all(rows, predictors, own_alpha, splits, seed, suffix, top)
    n_calibration = int(np.mean([len(split) for split in splits]))
    level = float(own_alpha.typical)
    if not own_alpha.is_one:
        level = fmean(report.alpha for report in candidates[0].reports)
    return Comparison(
        tuple(candidates),
        level,
        n_splits,
        n_calibration,
        len(rows.labels) - n_calibration,
        **limits,
        floor=None if floor is None else float(exact_fraction(floor, "compare", "floor")),
        top=top,
        confidence=None if confidence is None else float(exact_fraction(confidence, "compare")),
    )


def _try_all(
    rows: ScoredRows,
    predictors: Sequence[BasePredictor],
    alpha: ClassAlpha,
    splits: Sequence[IntArray],
    seed: int,
    suffix: str,
    top: int | None,
) -> list[Candidate]:
    """Try every method with every score on the same splits; `suffix` ends the score's name."""
    scores, n_splits = list(rows.test_scores), len(splits)
    methods = zip(predictors, _names(predictors, "method"), strict=True)
    pairs = list(product(zip(scores, _names(scores, "name"), strict=True), methods))
    tests = [other_rows(split, len(rows.labels)) for split in splits]

    def trial(job: tuple[Score, BasePredictor, int], **changed: Any) -> Trial:
        score, predictor, number = job
        predictor = predictor.with_params(**changed)
        own = alpha.typical if alpha.is_one else alpha
        fitted = predictor.with_params(alpha=own, score=score, random_state=seed + number)
        rows.calibrate(fitted, score, splits[number])
        return Trial(score, fitted, tests[number])

    jobs = [(score, method, n) for (score, _), (method, _) in pairs for n in range(n_splits)]
    trials = fit_all(trial, jobs)
    reports = [CoverageReport.from_tally(tally, alpha) for tally in rows.tally(trials)]
    found = costs(rows, trials, [report.avg_size for report in reports])
    at_top = [] if top is None else rows.tally_top(trials, top)
    cut = [CoverageReport.from_tally(tally, alpha) for tally in at_top]
    unraised: list[Tally] = []
    if predictors[0].floor is not None:
        unraised = rows.tally(fit_all(partial(trial, floor=None), jobs))
    plain = [CoverageReport.from_tally(tally, alpha) for tally in unraised]
    return [
        Candidate(
            method,
            score + suffix,
            tuple(reports[first : first + n_splits]),
            tuple(found[first : first + n_splits]),
            getattr(predictor, "confidence", None) is not None,
            "marginal_coverage" if predictor.targets_average else "macro_coverage",
            tuple(cut[first : first + n_splits]),
            tuple(plain[first : first + n_splits]),
        )
        for first, ((_, score), (predictor, method)) in zip(
            range(0, len(trials), n_splits), pairs, strict=True
        )
    ]


def _temperatures(
    temperature: float, several: Sequence[float] | None, source: Source, from_logits: bool
) -> list[float]:
    """Check the temperatures to try, each once."""
    if several is None:
        return [real_number(temperature, "temperature", "compare", 0, open_low=True)]
    if not (from_logits if source.logits is None else source.logits):
        raise InputError(
            "The 'temperatures' parameter of compare needs logits. Got probabilities; pass their "
            "logarithms and from_logits=True (--logits)."
        )
    found = [real_number(each, "temperatures", "compare", 0, open_low=True) for each in several]
    if not found:
        raise InputError("The 'temperatures' parameter of compare must name one. Got none.")
    return list(dict.fromkeys(found))


def _listed(wanted: Sequence[Any] | str, names: Callable[[], list[str]]) -> Sequence[Any]:
    """List all names for "all", and a single name as one."""
    if wanted == "all":
        return names()
    return [wanted] if isinstance(wanted, str) else wanted


def _with_confidence(predictors: list[BasePredictor], confidence: Alpha) -> list[BasePredictor]:
    """Set this confidence where a method has the parameter."""
    able = [each for each in predictors if "confidence" in each.get_params()]
    if not able:
        raise InputError(
            "The 'confidence' parameter of compare needs a method that can guarantee coverage for "
            "one calibration set."
        )
    return [
        each.with_params(confidence=confidence) if each in able else each for each in predictors
    ]


def _names(items: Sequence[Any], attribute: str) -> list[str]:
    """Return short names if they are distinct, else the items with their parameters."""
    short = [getattr(item, attribute) for item in items]
    return short if len(set(short)) == len(items) else [repr(item) for item in items]
