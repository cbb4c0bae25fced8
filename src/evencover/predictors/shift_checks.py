"""Tests for distribution shift between test and calibration examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.data.fingerprint import Fingerprint
from evencover.data.source import Block
from evencover.errors import warn_caller
from evencover.evaluation.metrics import Confusions, Tally
from evencover.evaluation.report import CoverageReport
from evencover.predictors.fit import Fit
from evencover.predictors.rule import SetRule
from evencover.randomness import places

# False-alarm rate of each warning.
RATE = 1e-4
# Differences that matter, as a share of the rows, beyond noise.
NOTABLE, NOTABLE_COPIES = 0.05, 0.01
# After the first rows only every 16th row's score is counted, which costs next to nothing.
EVERY, LARGE = 16, 2048
NOT_ALWAYS = "(Ignore this for a model with few distinct outputs, such as a decision tree.)"


def score_histogram(edges: FloatArray, scores: FloatArray) -> IntArray:
    """Count scores by bin; an edge belongs to the bin on its left."""
    return np.bincount(np.searchsorted(edges, scores), minlength=len(edges) + 1)


class EvaluationCounts(NamedTuple):
    """Counts of coverage, sizes and confusions, and of scores by bin."""

    tally: Tally
    confusions: Confusions
    histogram: IntArray

    def abridged(self) -> EvaluationCounts:
        """Keep a few confusions of each class, which is all that a report shows."""
        return self._replace(confusions=self.confusions.most_frequent())


def count_block(rule: SetRule, edges: FloatArray, block: Block) -> EvaluationCounts:
    """Count coverage, sizes and confusions of a block and, of a sample, scores by bin."""
    return EvaluationCounts(*rule.tally(block), scores_by_bin(rule, edges, block))


def scores_by_bin(rule: SetRule, edges: FloatArray, block: Block) -> IntArray:
    """Count the true labels' scores of a sample of the block by bin."""
    sample = _first_and_every_16th(block)
    assert sample.labels is not None
    known = sample.labels < sample.rows.shape[1]
    scores = rule.scoring.true_labels(sample)[known]
    scores = rule.scoring.score.from_base(scores, sample.labels[known])
    return score_histogram(edges, scores)


def _first_and_every_16th(block: Block) -> Block:
    """Select rows by their index in the whole input, so that blocks do not affect the selection."""
    index = places(block.start, block.start + len(block.rows))
    chosen = (index < LARGE) | (index % EVERY == 0)
    ids = index if block.ids is None else block.ids
    labels = None if block.labels is None else block.labels[chosen]
    return Block(block.start, block.rows[chosen], labels, ids[chosen], block.source)


def merge_counts(parts: Iterable[EvaluationCounts]) -> EvaluationCounts:
    """Add the counts of all parts; memory does not grow with their number."""
    tally: Any = None
    histogram: Any = 0
    confusions: list[Confusions] = []
    for part in parts:
        tally = part.tally if tally is None else tally + part.tally
        histogram = histogram + part.histogram
        confusions.append(part.confusions)
        if len(confusions) == 256:
            confusions = [Confusions.total(confusions)]
    return EvaluationCounts(tally, Confusions.total(confusions), histogram)


def shift_warnings(
    fit: Fit,
    report: CoverageReport,
    read: Fingerprint,
    histogram: IntArray,
    *,
    depends_on_prevalence: bool,
    n_behind: float | None,
) -> list[str]:
    """Return warnings about test rows that differ from the calibration rows.

    `n_behind` is the number of calibration rows behind the average coverage, as if in one group;
    None if the method does not target that.
    """
    if fit.inputs.include(read):
        return [
            f"These {report.n_rows} rows were used for calibration, so coverage is "
            "overestimated; evaluate on held-out data."
        ]
    messages, n_rows = [], report.n_rows
    target = 1 - report.alpha
    if report.recall_at_k is not None and report.recall_at_k[0][2] < target:
        messages.append(
            f"Recall at k of these {n_rows} examples is {report.recall_at_k[0][0]:.1%}, "
            f"significantly below the target of {target:.1%}: no set contains a label that is not "
            "listed. Use a larger k."
        )
    if report.n_unknown:
        messages.append(
            f"{report.n_unknown} of {n_rows} labels are not among the model's classes; they count "
            "as misses."
        )
    class_shift = distance(fit.rows.class_counts, report.class_counts)
    is_reweighted = class_shift is not None and depends_on_prevalence
    if is_reweighted:
        messages.append(
            f"Class distribution shift: the class frequencies of these {n_rows} examples differ "
            f"from those of the calibration set (total variation {class_shift:.0%}, "
            "noise-corrected). Guarantees of overall coverage assume equal frequencies; those of "
            "each class, as with 'classwise', do not."
        )
    if class_shift is None:
        score_shift = distance(fit.score_bins[1], histogram, ordered=True)
        if score_shift is not None:
            messages.append(
                f"Score shift: the scores of the true labels of these {n_rows} examples differ "
                f"from those of the calibration set (total variation {score_shift:.0%}, "
                "noise-corrected). Guarantees assume the same distribution."
            )
    if n_behind is not None and not is_reweighted:
        n_covered = int(report.class_covered.sum())
        if chance_of_at_most(n_covered, n_rows, n_behind, report.alpha) < RATE:
            messages.append(
                f"Overall coverage of these {n_rows} examples is {report.marginal_coverage:.1%}, "
                f"significantly below the target of {1 - report.alpha:.1%}; they may differ from "
                "the calibration set."
            )
    return messages + about_copies(fit, read)


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

    def log_ways(n_all: Any, n_drawn: Any) -> Any:
        return gammaln(n_all + 1.0) - gammaln(n_drawn + 1.0) - gammaln(n_all - n_drawn + 1.0)

    log_law = log_ways(n, j) + log_ways(m, others) - log_ways(n + m, drawn)
    law = np.exp(np.where(others == drawn - j, log_law, -np.inf))
    tails = np.minimum((law * (j <= below)).sum(axis=1), (law * (j >= below)).sum(axis=1))
    return float(2 * len(tails) * tails.min(initial=1.0))


def note_repeated_rows(read: Fingerprint) -> None:
    """Warn of duplicate rows, which end up on both sides of a split."""
    sample = read.sample[:, 0]
    n_copies = len(sample) - len(np.unique(sample))
    if n_copies >= 5 and n_copies / len(sample) > NOTABLE_COPIES:
        warn_caller(
            f"About {n_copies / len(sample):.0%} of the rows are exact duplicates. Splits put "
            "duplicates of an input into both parts, so coverage is overestimated. "
            f"{NOT_ALWAYS}"
        )


def about_copies(fit: Fit, read: Fingerprint) -> list[str]:
    """Report rows that are exact duplicates of calibration rows."""
    n_copies, n_sampled = read.copies_of(fit.inputs.sample[:, 0], fit.inputs.limit)
    if n_copies >= 5 and n_copies / n_sampled > NOTABLE_COPIES:
        return [
            f"About {n_copies / n_sampled:.0%} of these rows are exact copies of calibration rows, "
            f"so coverage is overestimated. {NOT_ALWAYS}"
        ]
    return []
