"""Held-out rows: the coverage report of a fit, and tests for a distribution shift."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from evencover.arrays import IntArray
from evencover.data.fingerprint import Fingerprint
from evencover.data.source import Source
from evencover.engine.blocks import fold_source
from evencover.errors import warn_caller
from evencover.evaluation.metrics import EvaluationCounts
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.suppliers import CAP
from evencover.predictors.calibration import warn_of_mismatch
from evencover.predictors.caps import ScoreSample, is_never_capped, sample_size, sampled_rows
from evencover.predictors.explanations import rows_behind
from evencover.predictors.fit import Fit
from evencover.predictors.guarantees import AUTO
from evencover.randomness import row_indices
from evencover.sizes import sampled

# False-alarm rate of each warning.
RATE = 1e-4
NOTABLE = 0.05  # share of the rows by which distributions differ beyond noise, to matter
# Scores to state what a cap would give: a quarter of those that a fit takes, since scoring and
# sorting them took most of the time of an evaluation with many classes.
MOST_NUMBERS = sampled(1 << 22, 600)


def coverage_report(
    fit: Fit, source: Source, read: Fingerprint, counts: EvaluationCounts
) -> CoverageReport:
    """Report on rows of a source that have been read and counted; warn of a shift."""
    tally = counts.tally
    if not tally.rows.any():
        raise source.no_known_label()
    if not source.reader.may_lack_classes:
        tally = tally._replace(listed=None)
    report = CoverageReport.from_tally(
        tally,
        fit.alpha,
        class_names=source.class_names,
        calibration_counts=fit.rows.class_counts,
        thresholds=fit.thresholds.upper,
        guarantees=fit.guarantees,
        is_capped=None if fit.caps is None else fit.is_capped,
        share=None if fit.caps is None else fit.share,
        cluster_of_class=getattr(fit.state, "cluster_of_class", None),
        confusions=counts.confusions,
        accept_accuracy=0.95 if fit.acceptance is None else fit.acceptance.accuracy,
        levels=None if fit.acceptance is None else fit.acceptance.levels,
    )
    mismatch = warn_of_mismatch(source, read, fit.rule.scoring.for_input(source.logits))
    if mismatch is not None:
        return replace(report, labels_fit=False, data_warnings=(mismatch,))
    messages = shift_warnings(fit, report, read)
    for message in messages:
        warn_caller(message)
    return replace(report, data_warnings=tuple(messages))


def with_large_sets(
    fit: Fit, source: Source, report: CoverageReport, executor: Any = None
) -> CoverageReport:
    """Add which few classes supply most labels, and what a cap would give for the same rows.

    Nothing if a cap changes nothing. It reads the rows twice more, if they can be read again.
    """
    few, names = report.suppliers, report.class_names
    if not len(few.classes) or fit.caps is not None or is_never_capped(fit.method):
        return report
    if source.n_rows is None or fit.method.floor not in (None, AUTO):
        return replace(report, large_sets=few.sentence(names, report.n_classes))
    scoring = fit.rule.scoring.for_input(source.logits)
    n_sampled = sample_size(source.n_classes, most_numbers=MOST_NUMBERS)
    rows = sampled_rows(row_indices(0, source.n_rows), n_sampled)
    sample = ScoreSample.read(source, scoring, rows, fit.method.needs, executor)
    capped = fit.capped(CAP, sample.take(sample.labels < source.n_classes))
    if not capped.is_capped.any():
        return report
    count, finish = capped.rule.for_input(source.logits).counts, EvaluationCounts.abridged
    counts, _ = fold_source(source, count, EvaluationCounts.total, finish, executor)
    after = CoverageReport.from_tally(counts.tally, fit.alpha, class_names=names)
    measured = ((of.avg_size, of.shortfall) for of in (report, after))
    return replace(report, large_sets=few.sentence(names, report.n_classes, *measured))


def shift_warnings(fit: Fit, report: CoverageReport, read: Fingerprint) -> list[str]:
    """Return warnings about test rows that differ from the calibration rows."""
    if fit.inputs.include(read):
        return [
            f"These {report.n_rows} rows were used for calibration, so coverage is "
            "overestimated; evaluate on held-out data."
        ]
    recall = None if report.recall is None else report.recall.warning(1 - report.alpha)
    messages, n_rows = [] if recall is None else [recall], report.n_rows
    if report.n_unknown:
        messages.append(
            f"{report.n_unknown} of {n_rows} labels are not among the model's classes; they count "
            "as misses."
        )
    class_shift = distance(fit.rows.class_counts, report.class_counts)
    is_reweighted = class_shift is not None and fit.method._depends_on_prevalence
    if is_reweighted:
        messages.append(
            f"Class distribution shift: the class frequencies of these {n_rows} examples differ "
            f"from those of the calibration set (total variation {class_shift:.0%}, "
            "noise-corrected). Guarantees of overall coverage assume equal frequencies; those of "
            "each class, as with 'classwise', do not."
        )
    # Caps may lower the overall coverage, too.
    if fit.targets_average and not is_reweighted and not fit.is_capped.any():
        n_covered, n_behind = int(report.class_covered.sum()), rows_behind(fit, report)
        if chance_of_at_most(n_covered, n_rows, n_behind, report.alpha) < RATE:
            messages.append(
                f"Overall coverage of these {n_rows} examples is {report.marginal_coverage:.1%}, "
                f"significantly below the target of {1 - report.alpha:.1%}; they may differ from "
                "the calibration set."
            )
    return messages


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


def distance(first: IntArray, second: IntArray) -> float | None:
    """Return the distance of two distributions of classes beyond noise, if significant and notable.

    Half the sum of differences in shares, less the expected sampling noise. Significant at `RATE`
    is a chi-square test over the classes that are frequent enough for one.

    >>> distance(np.array([500, 500]), np.array([480, 520])) is None
    True
    >>> round(distance(np.array([500, 500]), np.array([800, 200])), 2)
    0.28
    """
    from scipy.special import chdtrc

    n, m = int(first.sum()), int(second.sum())
    both = (first + second) / (n + m)
    apart = np.abs(first / n - second / m).sum() / 2
    noise = np.sqrt(2 / np.pi * both * (1 - both) * (1 / n + 1 / m)).sum() / 2
    beyond = float(apart - noise)
    if beyond <= NOTABLE:
        return None
    enough = both * min(n, m) >= 5  # rarer classes count together
    table = np.stack([np.append(x[enough], x[~enough].sum()) for x in (first, second)])
    table = table[:, table.sum(axis=0) > 0]
    expected = np.outer([n, m], table.sum(axis=0)) / (n + m)
    squares = ((table - expected) ** 2 / expected).sum()
    return beyond if chdtrc(table.shape[1] - 1, squares) < RATE else None
