"""The sentences at the top of the page follow from the numbers."""

import numpy as np
import pytest

from evencover import CoverageReport
from evencover.evaluation.report import Tally
from evencover.predictors import make_predictor
from evencover.report.remedies import Needs, remedies
from evencover.report.verdict import class_states, expected_by_chance, usual_spread, verdict


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


def test_surely_means_that_the_whole_interval_is_on_one_side():
    report = report_of([100, 100, 100, 0], [80, 90, 99, 0])
    assert class_states(report).tolist() == [1, 2, 3, 0]


def test_chance_is_what_simulation_shows():
    counts = np.random.default_rng(1).integers(1, 60, 400)
    rng, seen = np.random.default_rng(2), []
    for _ in range(300):
        report = report_of(counts, rng.binomial(counts, 0.9))
        seen.append((class_states(report) == 1).sum())
    # 300 draws of a count with a mean of 4.6: four standard errors are 0.5.
    assert np.mean(seen) == pytest.approx(expected_by_chance(counts, 0.1), abs=0.5)


@pytest.mark.parametrize(
    ("rows", "covered", "says"),
    [
        ([1000] * 4, [905] * 4, "kept on average, and no class is surely let down"),
        ([1000] * 4, [990, 990, 990, 700], "but surely broken for 1 of 4 classes"),
        ([1000] * 4, [700] * 4, "broken on average, and surely for 4 of 4 classes"),
        ([100] * 400, [90] * 399 + [80], "no more than chance would show"),
    ],
)
def test_the_headline_says_what_is_the_case(rows, covered, says):
    assert says in verdict(report_of(rows, covered), 0.01)["headline"]


def test_noise_is_not_called_a_breach():
    report = report_of([1000], [893])
    assert verdict(report, 0.02)["is_kept_on_average"]
    assert not verdict(report, 0.002)["is_kept_on_average"]


def test_the_usual_spread_counts_the_rows_that_calibrate():
    report = report_of([500, 500], [450, 450])
    one = usual_spread(report, np.array([0, 0]), np.array([100]))
    two = usual_spread(report, np.array([0, 1]), np.array([100, 100]))
    assert two < one < 2 * np.sqrt(0.09 * (1 / 100 + 1 / 1000))


def test_needs_are_the_smallest_counts_that_do():
    assert Needs.at(0.1).least == 9  # rank ceil(10 * 0.9) = 9 of 9 rows
    assert Needs.at(0.05).least == 19
    assert Needs.at(0.5).least == 1


def test_standard_is_told_to_try_what_the_calibration_rows_allow():
    report = report_of([200] * 4, [100, 110, 120, 200], names=["a", "b", "c", "d"])
    text = " ".join(remedies(calibrated("standard", [50, 20, 3, 400]), report))
    assert "1 of the 3 had at least 34" in text
    assert "try classwise" in text
    assert "2 of the 3 had fewer than 34" in text
    assert "try pooled" in text
    assert "about 45 more" in text  # 14 for b and 31 for c
    assert "c (+31), b (+14)" in text


def test_classwise_is_told_how_much_its_thresholds_vary():
    report = report_of([200] * 3, [100, 190, 190])
    few = " ".join(remedies(calibrated("classwise", [20, 20, 20]), report))
    assert "with 20 calibration rows" in few
    assert "Pooled steadies it" in few
    many = " ".join(remedies(calibrated("classwise", [2000, 20, 20]), report))
    assert "differ from the calibration rows" in many


def test_clusters_tell_who_is_in_none():
    rng = np.random.default_rng(0)
    counts = [100] * 20 + [4]
    labels = np.repeat(np.arange(21), counts)
    scores = rng.uniform(size=len(labels)) * (1 + labels % 2)
    with pytest.warns(UserWarning, match="fewer than 9"):
        predictor = calibrated("clustered", counts, scores, n_clusters=2, gamma=0.5)
    report = report_of([200] * 21, [100] + [190] * 19 + [100])
    text = " ".join(remedies(predictor, report))
    assert "1 of the 2 had too few calibration rows to join a cluster" in text
    assert "With about 18 rows each" in text
    assert "more clusters than 2" in text


def test_pooled_is_told_how_much_its_classes_speak_for_themselves():
    rng = np.random.default_rng(1)
    counts = [50, 20, 20, 20]
    predictor = calibrated("pooled", counts, rng.uniform(size=sum(counts)), strength=30)
    text = " ".join(remedies(predictor, report_of([200] * 4, [100, 190, 190, 190])))
    assert "a say of 62%" in text  # 50 / (50 + 30)
    assert "It had at least 34 calibration rows" in text


def test_nothing_is_advised_where_nothing_is_broken():
    report = report_of([200] * 3, [181] * 3)
    assert remedies(calibrated("standard", [50, 50, 50]), report) == [
        "Nothing needs fixing: no class is surely below the promise."
    ]
