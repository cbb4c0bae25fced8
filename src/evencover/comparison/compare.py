"""Which rows calibrate in one repetition; all others test, validate or train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from evencover.arrays import IntArray
from evencover.comparison.cost import costs
from evencover.comparison.result import Candidate, Comparison
from evencover.comparison.trials import ScoredRows, Trial, calibration_split, fit_all, other_rows
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import InputError
from evencover.evaluation.report import CoverageReport
from evencover.predictors import BasePredictor, make_predictor, methods_for_all
from evencover.predictors.shift_checks import note_repeated_rows
from evencover.quantiles import Alpha, exact_fraction
from evencover.randomness import check_random_state
from evencover.scores import Score, make_score, score_names
from evencover.validation import align_classes, real_number, whole_number

# What is compared unless something else is asked for; "all" is everything there is.
DEFAULT_METHODS = ("standard", "classwise", "clustered", "pooled")
DEFAULT_SCORES = ("softmax", "aps", "raps")


def compare(
    probabilities: Any,
    labels: Any = None,
    *,
    methods: Sequence[str | BasePredictor] | str = DEFAULT_METHODS,
    scores: Sequence[str | Score] | str = DEFAULT_SCORES,
    alpha: Alpha = 0.1,
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
) -> Comparison:
    """Compare methods and scores on repeated random splits of one labelled data set.

    Parameters
    ----------
    probabilities
        (N, K) array-like or the path of a file; it is read twice.
    labels
        (N,) class indices; may come with the file.
    methods, scores
        What to compare: names, or predictors and scores with parameters of their own (a
        predictor's alpha, score and random_state are replaced), or "all" there are.
    alpha
        The level.
    confidence
        For methods that can promise it: coverage of at least 1 - alpha with this probability over
        calibrations. The others stay as they are.
    n_splits
        How many times the rows are split; at least 2.
    calibration_fraction, n_per_class
        How many rows calibrate: a share of all (one half by default), or this many of each class
        (one number for all, or one per class, by name or in their order), leaving a row to test
        on to every class that has two.
    from_logits, temperature, random_state
        As for predictors.
    temperatures
        Several of them, for logits: every method and score is tried with each.
    max_size, min_coverage
        Recommend only candidates whose sets have at most this many classes on average, and that
        cover at least this share of all rows.

    >>> from evencover.data import load_languages
    >>> p, y, _ = load_languages()
    >>> result = compare(p, y, methods=["standard", "clustered"], scores=["softmax"], n_splits=2)
    >>> result.pick.method
    'clustered'
    """
    level = exact_fraction(alpha, "compare")
    whole_number(n_splits, "n_splits", "compare", 2)
    seed = check_random_state(random_state, "compare")
    predictors = [make_predictor(each) for each in _all_if(methods, methods_for_all)]
    predictors = _with_confidence(predictors, confidence)
    scores = _all_if(scores, score_names)
    if not predictors or not scores:
        raise InputError("There must be at least one method and one score to compare. Got none.")
    source = as_source(probabilities, labels)
    known = [make_score(score) for score in scores]
    every = _temperatures(temperature, temperatures, source, from_logits)
    scored = {
        each: ScoredRows(
            source,
            known,
            from_logits=from_logits,
            temperature=each,
            random_state=seed,
            with_ranks=any("ranks" in predictor.needs for predictor in predictors),
        )
        for each in every
    }
    rows = scored[every[0]]
    if n_per_class is not None and not isinstance(n_per_class, int | np.integer):
        names = source.class_names
        n_per_class = align_classes(n_per_class, names, source.n_classes, "n_per_class")
    splits = [
        calibration_split(
            rows.labels,
            seed,
            place,
            calibration_fraction=calibration_fraction,
            n_per_class=n_per_class,
        )
        for place in range(n_splits)
    ]
    if min(len(rows.labels) - len(split) for split in splits) == 0:
        raise InputError(
            f"There must be rows left to test on. Got {len(rows.labels)} rows, which all calibrate."
        )
    note_repeated_rows(source)
    candidates = [
        candidate
        for each, own in scored.items()
        for candidate in _tried(
            own, predictors, alpha, splits, seed, "" if len(every) == 1 else f" at T = {each:g}"
        )
    ]
    n_calibration = int(np.mean([len(split) for split in splits]))
    return Comparison(
        tuple(candidates),
        float(level),
        n_splits,
        n_calibration,
        len(rows.labels) - n_calibration,
        max_size if max_size is None else real_number(max_size, "max_size", "compare", 0),
        min_coverage
        if min_coverage is None
        else real_number(min_coverage, "min_coverage", "compare", 0),
        confidence if confidence is None else float(exact_fraction(confidence, "compare")),
    )


def _tried(
    rows: ScoredRows,
    predictors: Sequence[BasePredictor],
    alpha: Alpha,
    splits: Sequence[IntArray],
    seed: int,
    suffix: str,
) -> list[Candidate]:
    """Every method with every score on the same splits; `suffix` is added to the score's name."""
    all_scores, n_splits = list(rows.test_scores), len(splits)
    pairs = list(product(all_scores, predictors))
    name_of_method = dict(zip(predictors, _names(predictors, "method"), strict=True))
    name_of_score = dict(zip(all_scores, _names(all_scores, "name"), strict=True))
    tests = [other_rows(split, len(rows.labels)) for split in splits]

    def trial(job: tuple[Score, BasePredictor, int]) -> Trial:
        score, predictor, place = job
        fitted = predictor.with_params(alpha=alpha, score=score, random_state=seed + place)
        rows.calibrate(fitted, score, splits[place])
        return Trial(score, fitted, tests[place])

    trials = fit_all(trial, [(*pair, place) for pair in pairs for place in range(n_splits)])
    reports = [CoverageReport.from_tally(tally, alpha) for tally in rows.tally(trials)]
    found = costs(rows, trials, [report.avg_size for report in reports])
    return [
        Candidate(
            name_of_method[predictor],
            name_of_score[score] + suffix,
            tuple(reports[first : first + n_splits]),
            tuple(found[first : first + n_splits]),
            getattr(predictor, "confidence", None) is not None,
        )
        for first, (score, predictor) in zip(range(0, len(trials), n_splits), pairs, strict=True)
    ]


def _temperatures(
    temperature: float, several: Sequence[float] | None, source: Source, from_logits: bool
) -> list[float]:
    """The temperatures to try, each once."""
    if several is None:
        return [real_number(temperature, "temperature", "compare", 0, open_low=True)]
    if not (from_logits if source.logits is None else source.logits):
        raise InputError(
            "The 'temperatures' parameter of compare needs logits. Got probabilities; pass their "
            "logarithms with from_logits=True (--logits on the command line)."
        )
    found = [real_number(each, "temperatures", "compare", 0, open_low=True) for each in several]
    if not found:
        raise InputError("The 'temperatures' parameter of compare must name one. Got none.")
    return list(dict.fromkeys(found))


def _all_if(wanted: Sequence[Any] | str, names: Callable[[], list[str]]) -> Sequence[Any]:
    """The names there are for "all"; a single name is a list of one."""
    if wanted == "all":
        return names()
    return [wanted] if isinstance(wanted, str) else wanted


def _with_confidence(
    predictors: list[BasePredictor], confidence: Alpha | None
) -> list[BasePredictor]:
    """The predictors, with this confidence where they have one."""
    if confidence is None:
        return predictors
    able = [each for each in predictors if "confidence" in each.get_params()]
    if not able:
        raise InputError(
            "The 'confidence' parameter of compare must be None, because no method here can "
            f"promise coverage for one calibration. Got {confidence!r} instead."
        )
    return [
        each.with_params(confidence=confidence) if each in able else each for each in predictors
    ]


def _names(items: Sequence[Any], attribute: str) -> list[str]:
    """Short names where they tell the items apart, else the items with their parameters."""
    short = [getattr(item, attribute) for item in items]
    return short if len(set(short)) == len(items) else [repr(item) for item in items]
