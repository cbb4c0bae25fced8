"""The sentences at the top of the page follow from the numbers."""

import numpy as np
import pytest
from depth import size

from evencover import CoverageReport
from evencover.evaluation.metrics import Tally
from evencover.predictors import make_predictor
from evencover.report.verdict import State, class_states, remedies, verdict


def report_of(rows, covered, alpha=0.1, names=None):
    rows, covered = np.array(rows), np.array(covered)
    sizes = np.zeros(len(rows) + 1, dtype=int)
    sizes[1] = rows.sum()
    return CoverageReport.from_tally(Tally(rows, covered, sizes), alpha, class_names=names)


def calibrated(method, counts, scores=None, **parameters):
    """A predictor with so many calibration rows of each class."""
    labels = np.repeat(np.arange(len(counts)), counts)
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=len(labels)) if scores is None else scores
    return make_predictor(method, **parameters).fit_scores(scores, labels, len(counts))


def test_a_class_is_likely_below_likely_above_on_target_or_untested():
    report = report_of([100, 100, 100, 0], [80, 90, 99, 0])
    assert class_states(report).tolist() == [1, 2, 3, 0]


def test_classes_that_are_covered_on_target_are_hardly_ever_accused():
    counts = np.random.default_rng(1).integers(1, 60, 400)
    rng, accused, praised = np.random.default_rng(2), 0, 0
    n_draws = size(short=60, deep=300)
    for _ in range(n_draws):
        report = report_of(counts, rng.binomial(counts, 0.9))
        accused += report.likely_below.any()
        praised += (class_states(report) == State.ABOVE).any()
        assert verdict(report, 1)["n_likely_below"] == report.likely_below.sum()
    # Each happens in at most 5% of the draws; the limit is four standard deviations more.
    most = n_draws * 0.05 + 4 * np.sqrt(n_draws * 0.05 * 0.95)
    assert max(accused, praised) < most


@pytest.mark.parametrize(
    ("rows", "covered", "headline"),
    [
        ([1000] * 4, [905] * 4, "met on average, and none of 4 classes are likely below 90%."),
        ([1000] * 4, [990, 990, 990, 700], "on average, but 1 of 4 classes is likely below 90%"),
        ([1000] * 4, [700] * 4, "missed on average, and 4 of 4 classes are likely below 90%"),
        ([40] * 100, [35] * 100, "missed on average, but none of 100 classes"),
        ([100] * 400, [90] * 399 + [80], "none of 400 classes"),  # one in 400 by chance
        ([100] * 4 + [0], [90] * 3 + [60, 0], "1 of 4 tested classes"),
        ([100] * 3 + [1], [90] * 3 + [1], "none of the 3 classes that can be judged are likely"),
    ],
)
def test_the_headline_states_target_and_classes(rows, covered, headline):
    assert headline in verdict(report_of(rows, covered), 0.01)["headline"]


def test_a_class_is_judged_against_its_own_target():
    """The same coverage of 95% is below a target of 99%, and above one of 80%."""
    report = report_of([400] * 3, [380] * 3, alpha=[0.01, 0.05, 0.2])
    assert class_states(report).tolist() == [1, 2, 3]
    found = verdict(report, 0.05)
    assert found["headline"].endswith("1 of 3 classes is likely below target.")
    far = report_of([400] * 2, [300, 330], alpha=[0.2, 0.01])
    assert verdict(far, 0.05)["worst"] == [1, 0]  # 16.5 points short before 5


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("n_low", [0, 30])
def test_a_class_has_too_few_rows_if_even_no_covered_one_would_show(alpha, n_low):
    """Among 100 others, of which some are named: one more class of n rows, none covered."""
    others, covered = [200] * 100, [50] * n_low + [199] * (100 - n_low)
    judged = []
    for n in range(1, 15):
        report = report_of([*others, n], [*covered, n], alpha)
        worst = report_of([*others, n], [*covered, 0], alpha)
        assert report.likely_below.sum() == n_low
        assert report.too_few_to_judge.tolist() == [False] * 100 + [not worst.likely_below[-1]]
        judged.append(worst.likely_below[-1])
    assert set(judged) == {True, False}


def test_noise_is_not_called_a_shortfall():
    report = report_of([1000], [893])
    assert verdict(report, 0.02)["is_met_on_average"]
    assert not verdict(report, 0.002)["is_met_on_average"]
    assert "0.7 points" in verdict(report, 0.002)["average"]
    above = report_of([1000], [960])
    assert verdict(above, 0.02)["is_met_on_average"]
    assert verdict(above, 0.02)["average"] == "6.0 points above the target."
    assert "most probable class" in verdict(above, 0.02, keep_top=True)["average"]


def test_the_worst_are_the_lowest_of_those_likely_below():
    rows = [400, 10, 200, 60, 2, 100]
    covered = [260, 0, 120, 40, 0, 90]
    report = report_of(rows, covered)
    assert report.likely_below.tolist() == [True, True, True, True, True, False]
    # 0 of 10 before 0 of 2, of which less is known; then 60%, 65%, 67%.
    assert verdict(report, 0.01)["worst"] == [1, 4, 2, 0, 3]


def test_standard_is_told_to_try_what_the_calibration_rows_allow():
    report = report_of([200] * 4, [100, 110, 120, 200], names=["a", "b, or B", "c", "d"])
    text = " ".join(remedies(calibrated("standard", [50, 20, 90, 400]), report))
    for words in ("2 of the 3", "Try classwise", "1 of the 3", "Try pooled", "b, or B (+14)"):
        assert words in text


@pytest.mark.parametrize("method", ["standard", "pooled"])
def test_classwise_is_not_advised_for_the_sake_of_a_few(method):
    names = [str(k) for k in range(20)]
    report = report_of([200] * 20, [100] * 15 + [190] * 5, names=names)
    text = " ".join(remedies(calibrated(method, [50] + [12] * 19), report))
    assert "classwise" not in text
    assert "about 308 more" in text  # 22 for each of 14 classes
