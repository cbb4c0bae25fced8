"""What the methods beyond the paper promise, by simulation; and that the check would notice.

Scores of class y are uniform**(1 / shape_y), so the coverage of a threshold q is q**shape_y and is
computed, not estimated. Seeds are fixed. Each test of a mean has a false-alarm rate of 6e-5.
"""

import numpy as np
import pytest
from depth import size

from evencover import (
    FuzzyPredictor,
    GroupedPredictor,
    InterpolatedPredictor,
    MacroPredictor,
    RC3PPredictor,
    StandardPredictor,
)

SIGMAS = 4
SHAPE = np.array([0.3, 8.0, 0.6, 5.0, 1.0, 3.0])
COUNTS = np.array([300, 12, 80, 15, 30, 20])  # the hard classes are the rare ones
LABELS = np.repeat(np.arange(6), COUNTS)
N_REPETITIONS = size(short=200, deep=4000)

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


def coverage_of(fitted):
    upper = np.clip(fitted.thresholds_, 0, 1) ** SHAPE
    if fitted.fit_.thresholds.lower is None:
        return upper
    lower = np.clip(fitted.fit_.thresholds.lower, 0, 1) ** SHAPE
    return fitted.fit_.thresholds.upper_probability * (upper - lower) + lower


def class_coverages(make, labels=LABELS, n=N_REPETITIONS):
    """Coverage of each class (n, 6) in repeated calibrations."""
    rng = np.random.default_rng(1)
    coverage = []
    for repetition in range(n):
        scores = rng.random(len(labels)) ** (1 / SHAPE[labels])
        coverage.append(coverage_of(make(random_state=repetition).fit_scores(scores, labels, 6)))
    return np.array(coverage)


def mean_and_error(values):
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


def test_macro_coverage_is_promised_and_standard_does_not_have_it():
    macro, error = mean_and_error(class_coverages(MacroPredictor).mean(axis=1))
    assert macro > 0.9 - SIGMAS * error
    assert macro < 0.9 + 2 / 72 + SIGMAS * error  # at most twice the largest weight above
    standard, error = mean_and_error(class_coverages(StandardPredictor).mean(axis=1))
    assert standard < 0.9 - 2 * SIGMAS * error


def test_the_largest_weight_is_needed_for_the_macro_promise(monkeypatch):
    """Two rows per class: without it the mean coverage falls short of 1 - alpha."""
    from evencover.predictors import macro

    labels = np.repeat(np.arange(6), 2)

    def measured():
        coverage = class_coverages(lambda **how: MacroPredictor(alpha=0.25, **how), labels)
        return mean_and_error(coverage.mean(axis=1))

    promised, error = measured()
    assert promised > 0.75 - SIGMAS * error
    tails = macro._tail_weights

    def without(labels, counts):
        return np.maximum(tails(labels, counts) - 1 / 12, 1e-9)

    monkeypatch.setattr(macro, "_tail_weights", without)
    short, error = measured()
    assert short < 0.75 - SIGMAS * error


@pytest.mark.parametrize(
    ("bandwidth", "exact"),
    [
        (0.05, False),
        (0.5, True),
        pytest.param(0.05, True, marks=pytest.mark.deep),
        pytest.param(0.5, False, marks=pytest.mark.deep),
    ],
)
def test_fuzzy_keeps_marginal_coverage(bandwidth, exact):
    """Labels are drawn anew, so that rows are exchangeable; exact coverage is exact."""
    rng = np.random.default_rng(3)
    chance = COUNTS / COUNTS.sum()
    covered = []
    for repetition in range(size(short=120, deep=2500)):
        labels = rng.choice(6, 90, p=chance)
        scores = rng.random(90) ** (1 / SHAPE[labels])
        fitted = FuzzyPredictor(bandwidth=bandwidth, exact=exact, random_state=repetition)
        fitted.fit_scores(scores, labels, 6)
        covered.append(chance @ coverage_of(fitted))
    mean, error = mean_and_error(np.array(covered))
    # 18 rows are held out: rank 18 of 18, so 18 / 19 unless it is randomised down to 0.9.
    assert abs(mean - (0.9 if exact else 18 / 19)) < SIGMAS * error


def test_interpolated_loses_at_most_another_alpha():
    """Its promise is 1 - 2 alpha; here it is near 1 - alpha, and rare classes gain on STANDARD."""
    blend = class_coverages(InterpolatedPredictor)
    mean, error = mean_and_error(blend @ (COUNTS / COUNTS.sum()))
    assert mean > 0.8 + SIGMAS * error
    standard = class_coverages(StandardPredictor)
    hard = [1, 3, 5]
    assert blend[:, hard].mean() > standard[:, hard].mean() + 0.05


def test_groups_are_covered_and_classes_within_are_not():
    groups = np.array([0, 0, 1, 1, 2, 2])
    coverage = class_coverages(lambda **how: GroupedPredictor(groups=groups, **how))
    for group in range(3):
        members = groups == group
        share = COUNTS[members] / COUNTS[members].sum()
        mean, error = mean_and_error(coverage[:, members] @ share)
        n = COUNTS[members].sum()
        assert mean > 0.9 - SIGMAS * error
        assert mean < 0.9 + 1 / (n + 1) + SIGMAS * error + 0.01  # counts are fixed, not drawn
    assert coverage[:, 1].mean() < 0.8


def test_rc3p_covers_classes_with_many_rows_and_falls_short_with_few():
    """Plug-in ranks: the document says so, and by about how much. Ranks follow the scores here."""
    rng = np.random.default_rng(5)
    means = {}
    for n in (10, 400):
        labels = np.repeat(np.arange(6), n)
        covered = []
        for _ in range(size(short=80, deep=3000)):
            scores, errors = rng.random(6 * n), rng.random(6 * n)
            ranks = np.ceil(6 * errors**4).astype(int).clip(1)  # not a function of the score
            fitted = RC3PPredictor().fit_scores(scores, labels, 6, ranks=ranks)
            rank_limit = fitted.rank_limits_ / 6
            covered.append((np.minimum(fitted.thresholds_, 1) * rank_limit**0.25).mean())
        means[n] = mean_and_error(np.array(covered))
    few, many = means[10], means[400]
    assert few[0] < 0.9 - SIGMAS * few[1]
    assert many[0] > 0.9 - 0.005
    assert few[0] > 0.8
