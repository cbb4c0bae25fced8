"""Displays hold the numbers of what they draw, and draw them."""

import numpy as np
import pytest

from evencover import ClasswisePredictor, InputError
from evencover.plotting import (
    ClassCoverageDisplay,
    CoverageByCountDisplay,
    SetSizeDisplay,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="module")
def report_for(simulate):
    rows, labels = simulate(1200, 12, seed=3)

    def measure(alpha):
        predictor = ClasswisePredictor(alpha=alpha).fit(rows[:600], labels[:600])
        return predictor.evaluate(rows[600:], np.where(labels[600:] == 11, 10, labels[600:]))

    return measure


def test_class_coverage_marks_exactly_the_classes_likely_below_the_target(report_for):
    report = report_for(0.1)
    below = report.likely_below[report.evaluated]
    axes = ClassCoverageDisplay.from_report(report).ax_
    drawn = {line.get_label(): line.get_xdata() for line in axes.lines}
    assert 0 < below.sum() == len(drawn["class likely below target"])
    assert len(drawn["class"]) == (~below).sum()


@pytest.mark.parametrize("display", [ClassCoverageDisplay, CoverageByCountDisplay])
def test_every_class_is_drawn_with_its_own_target(report_for, display):
    report = report_for({3: 0.02, "default": 0.1})
    drawn = {line.get_label(): line.get_ydata() for line in display.from_report(report).ax_.lines}
    assert sorted(drawn["target of the class"]) == [*[0.9] * 10, 0.98]


def test_coverage_is_drawn_against_calibration_count(report_for):
    report = report_for(0.1)
    points = CoverageByCountDisplay.from_report(report).ax_.lines[0]
    np.testing.assert_array_equal(points.get_xdata(), report.calibration_counts[report.evaluated])
    np.testing.assert_array_equal(points.get_ydata(), report.class_coverage[report.evaluated])
    bare = type(report)(report.alpha, report.class_counts, report.class_covered, report.size_counts)
    with pytest.raises(InputError, match="calibration counts"):
        CoverageByCountDisplay.from_report(bare)


def test_set_sizes_add_up_to_all_rows(report_for):
    bars = SetSizeDisplay.from_report(report_for(0.1)).ax_.patches
    assert sum(bar.get_height() for bar in bars) == pytest.approx(1)
