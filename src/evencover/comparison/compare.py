"""compare(): every method and score on the same repeated splits of the user's own data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from evencover._types import FloatArray, IntArray
from evencover._validation import import_pandas, real_number, whole_number
from evencover.comparison.splitting import calibration_split, other_rows
from evencover.comparison.trials import ScoredRows, Trial
from evencover.data.opening import as_source
from evencover.errors import EvencoverWarning, InputError
from evencover.evaluation.metrics import Metric, shown_in
from evencover.evaluation.report import CoverageReport
from evencover.predictors import BasePredictor, make_predictor, method_names
from evencover.quantiles import Alpha, exact_fraction
from evencover.randomness import check_random_state
from evencover.scores import Score, make_score, score_names

# What is compared unless something else is asked for; "all" is everything there is.
DEFAULT_METHODS = ("standard", "classwise", "clustered", "pooled")
DEFAULT_SCORES = ("softmax", "aps", "raps")
# What is weighed: even coverage against small sets.
AXES = ("covgap", "avg_size")


class Difference(NamedTuple):
    """How much larger a metric is than the best one's, over the same splits."""

    mean: float
    standard_error: float
    is_clear: bool


@dataclass(frozen=True, eq=False)
class Candidate:
    """One method with one score, and its report on each split."""

    method: str
    score: str
    reports: tuple[CoverageReport, ...]

    @property
    def name(self) -> str:
        """How tables and sentences call it."""
        return f"{self.method} with {self.score}"

    def values(self, metric: str) -> FloatArray:
        """A metric on each split."""
        return np.array([getattr(report, metric) for report in self.reports])

    def mean(self, metric: str) -> float:
        """A metric's mean over the splits."""
        return float(self.values(metric).mean())

    def standard_error(self, metric: str) -> float:
        """Standard error of the mean over the splits, as in the paper (ddof = 1)."""
        values = self.values(metric)
        return float(values.std(ddof=1) / np.sqrt(len(values)))


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    candidates
        One per method and score.
    alpha, n_splits, n_calibration, n_test
        The level, and the number of splits and of rows in each part.
    """

    candidates: tuple[Candidate, ...]
    alpha: float
    n_splits: int
    n_calibration: int
    n_test: int

    @property
    def noise_floor(self) -> float:
        """The CovGap that a method with exactly 1 - alpha for every class would show."""
        return self.candidates[0].mean("covgap_noise_floor")

    @property
    def best(self) -> Candidate:
        """The candidate with the lowest mean CovGap."""
        return min(self.candidates, key=lambda candidate: candidate.mean("covgap"))

    @property
    def pick(self) -> Candidate:
        """The smallest sets among the candidates whose CovGap is not clearly above the best."""
        tied = [c for c in self.candidates if not self.difference_to_best(c).is_clear]
        return min(tied, key=lambda candidate: candidate.mean("avg_size"))

    def difference_to_best(self, candidate: Candidate, metric: str = "covgap") -> Difference:
        """Paired difference to the candidate with the lowest CovGap.

        Splits of one data set overlap, so their plain standard error is too small; this one is
        corrected for the overlap (Nadeau and Bengio 2003). A difference is clear if a one-sided
        t-test at 5% says so: where two candidates are equally good, a clear difference is
        claimed at most about once in twenty times.
        """
        from scipy.special import stdtrit

        differences = candidate.values(metric) - self.best.values(metric)
        mean = float(differences.mean())
        overlap = 1 / self.n_splits + self.n_test / self.n_calibration
        error = float(np.sqrt(overlap * differences.var(ddof=1)))
        limit = float(stdtrit(self.n_splits - 1, 0.95))
        return Difference(mean, error, mean > limit * error and mean > 0)

    def is_on_pareto_front(self, candidate: Candidate) -> bool:
        """Whether no other candidate has both a lower CovGap and smaller sets."""
        gap, size = candidate.mean("covgap"), candidate.mean("avg_size")
        return not any(
            other.mean("covgap") <= gap
            and other.mean("avg_size") <= size
            and (other.mean("covgap") < gap or other.mean("avg_size") < size)
            for other in self.candidates
        )

    @property
    def reason(self) -> str:
        """Why `pick` is picked, in sentences."""
        best, pick = self.best, self.pick
        tied = [c for c in self.candidates if not self.difference_to_best(c).is_clear]
        size = f"{pick.mean('avg_size'):.2f} classes on average"
        if len(tied) == 1:
            return (
                f"{pick.name} has the lowest CovGap ({pick.mean('covgap'):.2f}), clearly below "
                f"all others; its sets hold {size}."
            )
        if len(tied) == len(self.candidates):
            opening = f"The CovGaps of all {len(tied)} candidates are within noise of each other"
        else:
            opening = (
                f"The CovGaps of {len(tied)} of {len(self.candidates)} candidates are within the "
                f"noise of the lowest, {best.mean('covgap'):.2f} of {best.name}"
            )
        return f"{opening}; of these {pick.name} has the smallest sets ({size})."

    # ---- ways to read it ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "alpha": self.alpha,
            "n_splits": self.n_splits,
            "n_calibration": self.n_calibration,
            "n_test": self.n_test,
            "noise_floor": self.noise_floor,
            "candidates": self.rows(),
            "best": {"method": self.best.method, "score": self.best.score},
            "pick": {"method": self.pick.method, "score": self.pick.score},
            "reason": self.reason,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One record per candidate: metrics with standard errors, and how it compares."""
        table = []
        for candidate in self.candidates:
            row: dict[str, Any] = {"method": candidate.method, "score": candidate.score}
            for metric in shown_in("comparison"):
                row[metric.name] = candidate.mean(metric.name)
                row[f"{metric.name}_se"] = candidate.standard_error(metric.name)
            difference = self.difference_to_best(candidate)
            row |= {
                "covgap_above_best": difference.mean,
                "covgap_above_best_se": difference.standard_error,
                "clearly_above_best": difference.is_clear,
                "on_pareto_front": self.is_on_pareto_front(candidate),
            }
            table.append(row)
        return table

    def to_frame(self) -> Any:
        """`rows` as a pandas data frame."""
        return import_pandas().DataFrame(self.rows())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw CovGap against AvgSize with the Pareto front; needs matplotlib."""
        from evencover.plotting import ParetoDisplay

        return ParetoDisplay.from_comparison(self, ax=ax)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Column titles and cells for people."""
        metrics = shown_in("comparison table")
        titles = [metric.title for metric in metrics]
        titles.insert(1, "above best")  # beside the CovGap
        cells = []
        for candidate, row in zip(self.candidates, self.rows(), strict=True):
            numbers = [_cell(metric, candidate) for metric in metrics]
            above = "best" if candidate is self.best else f"{row['covgap_above_best']:+.2f}"
            mark = "" if candidate is self.best or row["clearly_above_best"] else " (noise)"
            numbers.insert(1, above + mark)
            pareto = "*" if row["on_pareto_front"] else ""
            cells.append([candidate.method.upper(), candidate.score, *numbers, pareto])
        return ["method", "score", *titles, "Pareto"], cells

    def heading(self) -> str:
        """What was done, and how to read it."""
        return (
            f"{self.n_splits} splits into {self.n_calibration} calibration and {self.n_test} test "
            f"rows, alpha = {self.alpha:g}; mean (standard error).\n"
            f"Noise floor of CovGap on these test rows: {self.noise_floor:.2f}"
        )

    def __str__(self) -> str:
        titles, cells = self.table()
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [titles, *cells]
        ]
        return "\n".join([self.heading(), *lines, self.reason])


def _cell(metric: Metric, candidate: Candidate) -> str:
    """A metric's mean, with its standard error where candidates are weighed by it."""
    mean = metric.text(candidate.mean(metric.name))
    if metric.name not in AXES:
        return mean
    return f"{mean} ({metric.text(candidate.standard_error(metric.name))})"


def compare(
    probabilities: Any,
    labels: Any = None,
    *,
    methods: Sequence[str | BasePredictor] | str = DEFAULT_METHODS,
    scores: Sequence[str | Score] | str = DEFAULT_SCORES,
    alpha: Alpha = 0.1,
    n_splits: int = 10,
    calibration_fraction: float | None = None,
    n_per_class: int | Sequence[int] | IntArray | None = None,
    from_logits: bool = False,
    temperature: float = 1.0,
    random_state: int = 0,
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
    n_splits
        How many times the rows are split; at least 2.
    calibration_fraction, n_per_class
        How many rows calibrate: a share of all (one half by default), or so many of each class
        (one number for all, or one per class), leaving a row to test on to every class that has
        two.
    from_logits, temperature, random_state
        As for predictors.

    >>> from evencover.data import load_languages
    >>> p, y, _ = load_languages()
    >>> result = compare(p, y, methods=["standard", "clustered"], scores=["softmax"], n_splits=2)
    >>> result.best.method
    'clustered'
    """
    level = exact_fraction(alpha, "compare")
    whole_number(n_splits, "n_splits", "compare", 2)
    seed = check_random_state(random_state, "compare")
    predictors = [make_predictor(each) for each in _all_if(methods, method_names)]
    scores = _all_if(scores, score_names)
    if not predictors or not scores:
        raise InputError("There must be at least one method and one score to compare. Got none.")
    rows = ScoredRows(
        as_source(probabilities, labels),
        [make_score(score) for score in scores],
        from_logits=from_logits,
        temperature=real_number(temperature, "temperature", "compare", 0, open_low=True),
        random_state=seed,
        with_ranks=any("ranks" in predictor.needs for predictor in predictors),
        with_coins=any(predictor.exact for predictor in predictors),
    )
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
    all_scores = list(rows.test_scores)
    pairs = list(product(all_scores, predictors))
    name_of_method = dict(zip(predictors, _names(predictors, "method"), strict=True))
    name_of_score = dict(zip(all_scores, _names(all_scores, "name"), strict=True))
    tests = [other_rows(split, len(rows.labels)) for split in splits]
    trials = [
        Trial(score, _fitted(rows, score, predictor, alpha, split, seed + place), tests[place])
        for score, predictor in pairs
        for place, split in enumerate(splits)
    ]
    reports = [CoverageReport.from_tally(tally, alpha) for tally in rows.tally(trials)]
    candidates = [
        Candidate(
            name_of_method[predictor],
            name_of_score[score],
            tuple(reports[first : first + n_splits]),
        )
        for first, (score, predictor) in zip(range(0, len(trials), n_splits), pairs, strict=True)
    ]
    n_calibration = int(np.mean([len(split) for split in splits]))
    return Comparison(
        tuple(candidates), float(level), n_splits, n_calibration, len(rows.labels) - n_calibration
    )


def _all_if(wanted: Sequence[Any] | str, names: Callable[[], list[str]]) -> Sequence[Any]:
    """The names there are for "all"; a single name is a list of one."""
    if wanted == "all":
        return names()
    return [wanted] if isinstance(wanted, str) else wanted


def _names(items: Sequence[Any], attribute: str) -> list[str]:
    """Short names where they tell the items apart, else the items with their parameters."""
    short = [getattr(item, attribute) for item in items]
    return short if len(set(short)) == len(items) else [repr(item) for item in items]


def _fitted(
    rows: ScoredRows,
    score: Score,
    predictor: BasePredictor,
    alpha: Alpha,
    calibration: IntArray,
    seed: int,
) -> BasePredictor:
    """A copy of the predictor, calibrated on the rows of one split."""
    fitted = type(predictor)(**predictor.get_params())
    fitted.set_params(alpha=alpha, score=score, random_state=seed)
    with warnings.catch_warnings():  # what a split lacks is in the table, not news
        warnings.simplefilter("ignore", EvencoverWarning)
        rows.calibrate(fitted, score, calibration)
    return fitted
