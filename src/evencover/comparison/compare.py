"""compare() methods and scores on repeated random splits; recommend() one from a single split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from evencover.arrays import IntArray
from evencover.comparison.result import Candidate, Comparison
from evencover.comparison.splits import CalibrationSize, Split, calibration_split, draw_splits
from evencover.comparison.trials import ScoredRows, try_all
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import InputError, warn_caller
from evencover.evaluation.suppliers import CAP
from evencover.predictors import BasePredictor, make_predictor, methods_for_all
from evencover.predictors.caps import check_price, exact_share, is_never_capped
from evencover.predictors.guarantees import AUTO
from evencover.quantiles import Alpha, ClassAlpha, is_per_class
from evencover.randomness import check_random_state
from evencover.scores import Score, Softmax, make_score, score_names
from evencover.templates import Card, Shown
from evencover.text_tables import folded
from evencover.validation import whole_number

DEFAULT_METHODS = ("standard", "classwise", "clustered", "pooled")
DEFAULT_SCORES = ("softmax", "aps", "raps")
PLENTY = 100  # examples of each class for CLASSWISE at alpha = 0.1, as the paper advises


def compare(
    probabilities: Any,
    labels: Any = None,
    *,
    methods: Sequence[str | BasePredictor] | str = DEFAULT_METHODS,
    scores: Sequence[str | Score] | str = DEFAULT_SCORES,
    alpha: Any = 0.1,
    floor: Alpha | None = None,
    max_share: Any = None,
    calibration_sizes: CalibrationSize | Sequence[CalibrationSize] = 0.5,
    n_splits: int = 10,
    from_logits: bool = False,
    labels_are: str | None = None,
    random_state: int = 0,
) -> Comparison:
    """Compare methods and scores on repeated random splits of one labeled data set.

    Parameters
    ----------
    probabilities
        (N, K) array-like or the path of a file; it is read twice.
    labels
        (N,) class indices; may come with the file.
    methods, scores
        Names, predictors and scores with parameters of their own (a predictor's alpha, score and
        random_state are replaced), or "all".
    alpha
        Target miscoverage, one number or one per class, as for predictors.
    floor
        Guaranteed coverage of every class, as for predictors; None leaves it to each method.
    max_share
        Largest share of the sets of other classes that a class may enter, as for predictors.
        Several, such as [None, 0.2, 0.1], are compared like methods.
    calibration_sizes
        Calibration examples of each class, such as 20. Several, [10, 20, 50], give learning curves.
        A number below 1 is a fraction of all rows; 0.5 by default. The other rows are for testing;
        every class with two rows keeps one of them.
    n_splits
        Number of splits, at least 2.
    from_logits, labels_are, random_state
        As for predictors.

    >>> from evencover.data import load_languages
    >>> p, y, _ = load_languages()
    >>> result = compare(p, y, methods=["standard", "clustered"], scores=["softmax"], n_splits=2)
    >>> result.recommended.method
    'clustered'
    """
    whole_number(n_splits, "n_splits", "compare", 2)
    seed = check_random_state(random_state, "compare")
    predictors = make_methods(methods, alpha)
    wanted = list(max_share) if isinstance(max_share, list | tuple) else [max_share]
    caps = _checked(wanted, floor, "compare")
    with_scores = _make_all(scores, score_names, make_score, "score")
    source = as_source(probabilities, labels, labels_are=labels_are, allow_unknown=True)
    rows = _score_rows(source, predictors, with_scores, from_logits, seed)
    class_alpha = ClassAlpha.of(alpha, source.class_names, rows.n_classes, "compare")
    splits = draw_splits(rows.labels, rows.n_classes, calibration_sizes, n_splits, seed)
    result = compare_on(rows, predictors, splits, seed, alpha=class_alpha, floor=floor, caps=caps)
    return _with_advice(result, rows, splits, seed)


def _checked(caps: list[Any], floor: Any, owner: str) -> list[Any]:
    """Check the caps to try; None alone leaves them to the methods."""
    given = [cap for cap in caps if cap is not None]
    for cap in given:
        exact_share(cap, "max_share", owner)
        check_price(cap, floor, owner)
    return caps if given else []


def _with_advice(
    result: Comparison, rows: ScoredRows, splits: Sequence[Split], seed: int
) -> Comparison:
    """State which few classes supply most labels in the sets of `best`, if a cap helps."""
    best, predictor = result.best, result.best.predictor
    few, splits = best.suppliers, [s for s in splits if s.size == result.calibration_size]
    if few is None or not len(few.classes) or best.max_share is not None:
        return result
    if is_never_capped(predictor):
        return result
    measured = [(best.mean("avg_size"), best.mean("shortfall"))]
    if predictor.floor in (None, AUTO):
        (tried,) = try_all(rows, [replace(predictor, max_share=CAP)], splits, seed)
        if not any(outcome.predictor.is_capped_.any() for outcome in tried):
            return result
        capped = Candidate.of(best.method, best.score, tried)
        measured.append((capped.mean("avg_size"), capped.mean("shortfall")))
    names = rows.source.class_names
    return replace(result, large_sets=few.sentence(names, result.n_classes, *measured))


def _score_rows(
    source: Source,
    predictors: Sequence[BasePredictor],
    scores: Sequence[Score],
    from_logits: bool,
    seed: int,
) -> ScoredRows:
    """Score the true labels; warn about unknown labels."""
    with_ranks = any("ranks" in predictor.needs for predictor in predictors)
    rows = ScoredRows(
        source, scores, from_logits=from_logits, random_state=seed, with_ranks=with_ranks
    )
    if not rows.is_known.all():
        warn_caller(
            f"{int((~rows.is_known).sum())} of {len(rows.labels)} labels are not among the "
            "classes; they count as misses."
        )
    return rows


def make_methods(methods: Sequence[str | BasePredictor] | str, alpha: Any) -> list[BasePredictor]:
    """Make the predictors to compare: of "all", those that take this alpha."""
    names = partial(methods_for_all, class_alpha=is_per_class(alpha))
    return _make_all(methods, names, make_predictor, "method")


def _make_all(
    wanted: Any, names: Callable[[], list[str]], make: Callable[[Any], Any], kind: str
) -> list[Any]:
    """Make a predictor or score of each name, each once; "all" stands for all names."""
    if isinstance(wanted, str):
        wanted = names() if wanted == "all" else [wanted]
    items = {repr(item): item for item in map(make, wanted)}
    if not items:
        raise InputError(f"There must be at least one {kind} to compare. Got none.")
    return list(items.values())


def compare_on(
    rows: ScoredRows,
    predictors: Sequence[BasePredictor],
    splits: Sequence[Split],
    seed: int,
    *,
    alpha: ClassAlpha,
    floor: Alpha | None = None,
    caps: Sequence[Any] = (),
) -> Comparison:
    """Try every method with every score on the same splits, and summarize by calibration size.

    Each method is tried with each of the caps, but STANDARD only once: no cap changes it.
    """
    shared: dict[str, Any] = {"alpha": alpha.typical if alpha.is_one else alpha.floats}
    if floor is not None:
        shared["floor"] = floor
    scores = list(rows.test_scores)
    settings, names = [], []
    for (score, predictor), name in zip(
        product(scores, predictors),
        product(_names(scores, "name"), _names(predictors, "method")),
        strict=True,
    ):
        setting = replace(predictor, score=score, **shared)
        for cap in [None] if is_never_capped(setting) else caps or [setting.max_share]:
            settings.append(replace(setting, max_share=cap))
            names.append(name)
    outcomes = try_all(rows, settings, splits, seed)
    n_splits = splits[-1].repetition + 1

    def of_size(first: int) -> Comparison:
        chosen = slice(first, first + n_splits)
        n_calibration = int(np.mean([len(split.calibration) for split in splits[chosen]]))
        candidates = tuple(
            Candidate.of(method, score, tried[chosen])
            for (score, method), tried in zip(names, outcomes, strict=True)
        )
        return Comparison(
            candidates,
            float(alpha.typical) if alpha.is_one else candidates[0].mean("alpha"),
            n_splits,
            n_calibration,
            len(rows.labels) - n_calibration,
            splits[first].size,
        )

    by_size = sorted(
        map(of_size, range(0, len(splits), n_splits)), key=lambda result: result.n_calibration
    )
    return replace(by_size[-1], smaller=tuple(by_size[:-1]))


def _names(items: Sequence[Any], attribute: str) -> list[str]:
    """Return short names if they are distinct, else the items with their parameters."""
    short = [getattr(item, attribute) for item in items]
    return short if len(set(short)) == len(items) else [repr(item) for item in items]


# ---- one split, in words -----------------------------------------------------------------------


def recommend(
    probabilities: Any,
    labels: Any = None,
    *,
    alpha: Any = 0.1,
    floor: Alpha | None = None,
    max_share: Alpha | None = None,
    from_logits: bool = False,
    labels_are: str | None = None,
) -> Recommendation:
    """Recommend a method for calibration data.

    Compare four methods with the softmax score on one split into halves, and recommend the one with
    the lowest cost of those that reach the target. `compare` tries several splits and scores.

    Parameters
    ----------
    probabilities
        (N, K) array-like or the path of a file with the calibration rows; it is read twice.
    labels
        (N,) class indices of the calibration rows; may come with the file.
    alpha, floor, max_share
        Target miscoverage, one number or one per class, guaranteed coverage of every class, and
        largest share of the sets of other classes that a class may enter, as for predictors.
    from_logits, labels_are
        As for predictors.

    >>> from evencover.data import load_filetypes
    >>> data = load_filetypes()
    >>> recommend(data.probabilities, data.labels).method
    'pooled'
    """
    predictors = make_methods(DEFAULT_METHODS, alpha)
    caps = _checked([max_share], floor, "recommend")
    source = as_source(probabilities, labels, labels_are=labels_are, allow_unknown=True)
    rows = _score_rows(source, predictors, [Softmax()], from_logits, 0)
    n_rows, n_classes = len(rows.labels), rows.n_classes
    if n_rows < 4:
        raise InputError(f"There must be at least 4 rows to compare on. Got {n_rows}.")
    class_alpha = ClassAlpha.of(alpha, source.class_names, n_classes, "recommend")
    halves = Split.of(0.5, 0, calibration_split(rows.labels, 0), n_rows)
    # Set sizes depend on the number of calibration examples, and counting them takes no test
    # labels: so thresholds of all rows give the sizes to expect.
    everything = Split(1.0, 0, np.arange(n_rows), np.ones(n_rows, dtype=bool))
    how: Any = {"alpha": class_alpha, "floor": floor, "caps": caps}
    full = compare_on(rows, predictors, [halves, everything], 0, **how)
    return Recommendation(
        _with_advice(full.smaller[0], rows, [halves], 0),
        {candidate.method: candidate.mean("avg_size") for candidate in full.candidates},
        np.bincount(rows.labels, minlength=n_classes)[:n_classes],
    )


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation(Shown):
    """A recommended method, the reasons, and the numbers behind them.

    Attributes
    ----------
    comparison
        The comparison on one split into halves.
    expected_sizes
        Mean set sizes by method, with thresholds from all rows.
    class_counts
        Calibration examples of each class (K,).
    """

    comparison: Comparison
    expected_sizes: dict[str, float]
    class_counts: IntArray

    @property
    def method(self) -> str:
        """The recommended method: the lowest cost of those that reach the target."""
        return self.comparison.best.method

    @property
    def n_missing(self) -> int:
        """Labels that are missing for CLASSWISE: 100 of each class at alpha = 0.1."""
        return int(np.maximum(self._plenty - self.class_counts, 0).sum())

    @property
    def _plenty(self) -> int:
        return ceil(PLENTY * 0.1 / self.comparison.alpha - 1e-9)

    @property
    def reason(self) -> str:
        """The gain and its price, the sizes to expect, and labels that would change the advice."""
        counts, sizes = self.class_counts, self.expected_sizes
        others = [f"{name} {size:.1f}" for name, size in sizes.items() if name != self.method]
        lines = [
            self.comparison.reason,
            f"Expect {sizes[self.method]:.1f} labels per set with thresholds from all of these "
            f"examples ({', '.join(others)}).",
        ]
        classes = f"{len(counts):,} classes have {counts.mean():.3g} examples on average, the"
        n_empty = int((counts == 0).sum())
        smallest = f"smallest {counts.min():,}" if not n_empty else f"{n_empty:,} smallest none"
        lines.append(f"The {classes} {smallest}.")
        if self.n_missing:
            lines[-1] += (
                f" {self.n_missing:,} more labels would give each class {self._plenty:,}, enough "
                "for classwise thresholds, which guarantee coverage for each class."
            )
        lines.append("Measured on one split into halves; 'evencover compare' tries ten.")
        return "\n".join(lines)

    def _card(self) -> Card:
        title, *lines = self.reason.splitlines()
        return self.comparison.card_with(title, lines)

    def __str__(self) -> str:
        return "\n".join(map(folded, self.reason.splitlines()))

    __repr__ = __str__
