"""Tests for distribution shift between test and calibration examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Block, Source
from evencover.errors import warn_caller
from evencover.evaluation.report import Confusions, CoverageReport, Tally, total
from evencover.predictors.fitting import is_calibration_data
from evencover.predictors.method import MethodContract
from evencover.predictors.rule import SetRule

# False-alarm rate of each warning.
RATE = 1e-4
# Differences that matter, as a share of the rows, beyond noise.
NOTABLE, NOTABLE_COPIES = 0.05, 0.01
N_BINS, ENOUGH = 32, 4096
# Of large blocks only every 16th row's score is counted, which costs next to nothing.
EVERY, LARGE = 16, 2048
NOT_ALWAYS = "(Ignore this for a model with few distinct outputs, such as a decision tree.)"


def bin_scores(scores: FloatArray) -> tuple[FloatArray, IntArray]:
    """Bin calibration scores, of many evenly spaced ones, into inner edges and similar counts."""
    scores = np.sort(scores[:: max(1, len(scores) // ENOUGH)])
    edges = np.unique(scores[(np.arange(1, N_BINS) * len(scores)) // N_BINS])
    # As `score_histogram` counts, but the scores are sorted.
    within = np.searchsorted(scores, edges, side="right")
    return edges, np.diff(within, prepend=0, append=len(scores))


def score_histogram(edges: FloatArray, scores: FloatArray) -> IntArray:
    """Count scores by bin; an edge belongs to the bin on its left."""
    return np.bincount(np.searchsorted(edges, scores), minlength=len(edges) + 1)


class EvaluationCounts(NamedTuple):
    """Counts of coverage, sizes and confusions, and of scores by bin."""

    tally: Tally
    confusions: Confusions
    histogram: IntArray | None
    cut: Tally | None = None

    def abridged(self) -> EvaluationCounts:
        """Keep a few confusions of each class, which is all that a report shows."""
        return self._replace(confusions=self.confusions.most_frequent())


def count_block(
    rule: SetRule, edges: FloatArray | None, top: int | None, block: Block, ids: Array | None
) -> EvaluationCounts:
    """Count coverage, sizes and confusions of a block and, of a sample, scores by bin.

    With `top`, also count the coverage of sets that are cut to this many classes.
    """
    assert block.labels is not None
    counts, cut = rule.tally(block, ids), None
    if top is not None:
        cut = Tally.of(rule.sets(block, ids).top(top), block.labels)
    if edges is None:
        return EvaluationCounts(*counts, None, cut)
    some = slice(None, None, EVERY if len(block.rows) > LARGE else 1)
    labels, ids = block.labels[some], None if ids is None else ids[some]
    block = block._replace(rows=block.rows[some], labels=labels)
    known = labels < block.rows.shape[1]
    scores = rule.scoring.true_labels(block, ids)[known]
    scores = rule.scoring.score.from_base(scores, labels[known])
    return EvaluationCounts(*counts, score_histogram(edges, scores), cut)


def merge_counts(parts: Iterable[EvaluationCounts]) -> EvaluationCounts:
    """Add the counts of all parts."""
    histogram: Any = None
    cut: Tally | None = None

    def counts() -> Iterable[tuple[Tally, Confusions]]:
        nonlocal histogram, cut
        for part in parts:
            if part.cut is not None:
                cut = part.cut if cut is None else cut + part.cut
            histogram = part.histogram if histogram is None else histogram + part.histogram
            yield part.tally, part.confusions

    return EvaluationCounts(*total(counts()), histogram, cut)


def shift_warnings(
    method: MethodContract,
    report: CoverageReport,
    source: Source,
    histogram: IntArray | None = None,
) -> list[str]:
    """Return warnings about test rows that differ from the calibration rows."""
    if is_calibration_data(method, source):
        return [
            f"These {report.n_rows} rows were used for calibration, so coverage is "
            "overestimated; evaluate on held-out data."
        ]
    found, n_rows, depends = [], report.n_rows, method.depends_on_prevalence
    if report.n_unknown:
        found.append(
            f"{report.n_unknown} of {n_rows} labels are not among the model's classes; they count "
            "as misses."
        )
    expected, kind = method.class_counts_, "calibration set"
    target = method.target_prevalence_
    if target is not None:
        expected, kind = np.round(target * 1e6).astype(np.int64), "target prevalence"
    apart = distance(expected, report.class_counts)
    if apart is not None and depends:
        takes_target = target is None and "target_prevalence" in method.parameter_names()
        remedy = "; set 'target_prevalence' for others" * takes_target
        found.append(
            f"Class distribution shift: the class frequencies of these {n_rows} examples differ "
            f"from those of the {kind} (total variation {apart:.0%}, noise-corrected). Guarantees "
            f"of overall coverage assume equal frequencies{remedy}."
        )
    if histogram is not None and method.score_counts_ is not None and apart is None:
        share = distance(method.score_counts_, histogram, ordered=True)
        if share is not None:
            found.append(
                f"Score shift: the scores of the true labels of these {n_rows} examples differ "
                f"from those of the calibration set (total variation {share:.0%}, "
                "noise-corrected). Guarantees assume the same distribution."
            )
    if method.targets_average and not (apart is not None and depends):
        covered, behind = int(report.class_covered.sum()), _level_rows(method, report)
        if chance_of_at_most(covered, n_rows, behind, report.alpha) < RATE:
            found.append(
                f"Overall coverage of these {n_rows} examples is {report.marginal_coverage:.1%}, "
                f"significantly below the target of {1 - report.alpha:.1%}; they may differ from "
                "the calibration set."
            )
    return found + about_copies(method, source)


def _level_rows(method: MethodContract, report: CoverageReport) -> float:
    """Return the number of calibration rows behind the average coverage, as if in one group."""
    sharing = method._sharing()
    if sharing is None:
        return method._level_rows()
    rows = np.bincount(
        sharing.group_of_class, weights=report.class_counts, minlength=len(sharing.scores.counts)
    )
    shares = rows / report.n_rows
    return float(1 / (shares**2 / (sharing.scores.counts + 2)).sum() - 2)


def chance_of_at_most(covered: int, n_rows: int, n_calibration: float, alpha: float) -> float:
    """Compute P(at most `covered` of n rows covered), coverage being Beta over calibrations.

    >>> round(chance_of_at_most(85, 100, 1e9, 0.1), 3)  # nearly binomial
    0.073
    """
    from scipy.special import betaln, gammaln, ndtr

    a, b = (n_calibration + 1) * (1 - alpha), (n_calibration + 1) * alpha
    if n_rows > 100_000:
        variance = alpha * (1 - alpha) * (1 / (n_calibration + 2) + 1 / n_rows)
        return float(ndtr((covered / n_rows - (1 - alpha)) / np.sqrt(variance)))
    k = np.arange(covered + 1.0)
    ways = gammaln(n_rows + 1) - gammaln(k + 1) - gammaln(n_rows - k + 1)
    return float(np.exp(ways + betaln(k + a, n_rows - k + b) - betaln(a, b)).sum())


def distance(first: IntArray, second: IntArray, *, ordered: bool = False) -> float | None:
    """Return the distance of two histograms beyond noise, in shares, if significant and notable.

    Half the sum of differences, less the expected sampling noise. Significant at `RATE` is, for
    classes, a chi-square test over those frequent enough for one; for `ordered` bins, Fisher's
    exact test at some edge, with Bonferroni's correction. Chi-square is no test of score bins:
    their edges are calibration scores, so with 5 of these in a bin its rate is 50 times too high.

    >>> distance(np.array([500, 500]), np.array([480, 520])) is None
    True
    >>> round(distance(np.array([500, 500]), np.array([800, 200])), 2)
    0.28
    """
    n, m = int(first.sum()), int(second.sum())
    if n == 0 or m == 0:
        return None
    both = (first + second) / (n + m)
    apart = np.abs(first / n - second / m).sum() / 2
    noise = np.sqrt(2 / np.pi * both * (1 - both) * (1 / n + 1 / m)).sum() / 2
    beyond = float(apart - noise)
    if beyond <= NOTABLE:
        return None
    return beyond if (_at_edges if ordered else _chi_square)(first, second) < RATE else None


def _chi_square(first: IntArray, second: IntArray) -> float:
    from scipy.special import chdtrc

    n, m = int(first.sum()), int(second.sum())
    enough = (first + second) / (n + m) * min(n, m) >= 5  # rarer classes count together
    table = np.stack([np.append(x[enough], x[~enough].sum()) for x in (first, second)])
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2:
        return 1.0
    expected = np.outer([n, m], table.sum(axis=0)) / (n + m)
    return float(chdtrc(table.shape[1] - 1, ((table - expected) ** 2 / expected).sum()))


def _at_edges(first: IntArray, second: IntArray) -> float:
    """Test at every edge how many scores are below it: hypergeometric, given those of both."""
    from scipy.special import gammaln

    n, m = int(first.sum()), int(second.sum())
    below = np.cumsum(first)[:-1, None]
    drawn = below + np.cumsum(second)[:-1, None]
    j = np.arange(n + 1)
    others = np.clip(drawn - j, 0, m)

    def log_ways(of: Any, some: Any) -> Any:
        return gammaln(of + 1.0) - gammaln(some + 1.0) - gammaln(of - some + 1.0)

    log_law = log_ways(n, j) + log_ways(m, others) - log_ways(n + m, drawn)
    law = np.exp(np.where(others == drawn - j, log_law, -np.inf))
    tails = np.minimum((law * (j <= below)).sum(axis=1), (law * (j >= below)).sum(axis=1))
    return float(2 * len(tails) * tails.min(initial=1.0))


def note_repeated_rows(source: Source) -> None:
    """Warn of duplicate rows, which end up on both sides of a split."""
    sample = source.rows_read.sample[:, 0]
    n_copies = len(sample) - len(np.unique(sample))
    if n_copies >= 5 and n_copies / len(sample) > NOTABLE_COPIES:
        warn_caller(
            f"About {n_copies / len(sample):.0%} of the rows are exact duplicates. Splits put "
            "duplicates of an input into both parts, so coverage is overestimated. "
            f"{NOT_ALWAYS}"
        )


def about_copies(method: MethodContract, source: Source) -> list[str]:
    """Report rows that are exact duplicates of calibration rows."""
    if method.row_sample_ is None or method.row_sample_limit_ is None:
        return []
    hashes = method.row_sample_[:, 0].view(np.uint64)
    n_copies, n_seen = source.rows_read.copies_of(hashes, method.row_sample_limit_)
    if n_copies >= 5 and n_copies / n_seen > NOTABLE_COPIES:
        return [
            f"About {n_copies / n_seen:.0%} of these rows are exact copies of calibration rows, "
            f"so coverage is overestimated. {NOT_ALWAYS}"
        ]
    return []
