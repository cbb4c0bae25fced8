"""Displays hold the numbers of what they draw, and draw them."""

import numpy as np
import pytest

from evencover import ClasswisePredictor, ClusteredPredictor, InputError, compare
from evencover.data import load_languages
from evencover.plotting import (
    ClassCoverageDisplay,
    CoverageByCountDisplay,
    EmbeddingDisplay,
    ParetoDisplay,
    ScoreDistributionDisplay,
    SetSizeDisplay,
    ThresholdsDisplay,
)
from evencover.scores import Softmax

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="module")
def fitted():
    p, y, names = load_languages()
    rows = slice(0, 12000)
    predictor = ClusteredPredictor(keep_top=False).fit(p[rows], y[rows], class_names=list(names))
    scores = Softmax().true_label(p[rows], y[rows])
    return predictor, predictor.evaluate(p[12000:], y[12000:]), scores, y[rows]


def test_class_coverage_marks_exactly_the_classes_likely_below_the_target(fitted):
    _, report, _, _ = fitted
    display = ClassCoverageDisplay.from_report(report)
    below = report.likely_below[report.evaluated]
    drawn = {line.get_label(): line.get_xdata() for line in display.ax_.lines}
    assert 0 < below.sum() == len(drawn["class likely below target"])
    assert len(drawn["class"]) == (~below).sum()


@pytest.mark.parametrize("display", [ClassCoverageDisplay, CoverageByCountDisplay])
def test_every_class_is_drawn_with_its_own_target(fitted, display):
    p, y, names = load_languages()
    rows, alpha = slice(0, 12000), {names[3]: 0.01, "default": 0.1}
    predictor = ClusteredPredictor(alpha=alpha).fit(p[rows], y[rows], class_names=list(names))
    report = predictor.evaluate(p[12000:], y[12000:])
    drawn = {line.get_label(): line.get_ydata() for line in display.from_report(report).ax_.lines}
    found, n = np.unique(drawn["target of the class"], return_counts=True)
    assert dict(zip(found, n, strict=True)) == {0.9: report.n_classes_evaluated - 1, 0.99: 1}
    EmbeddingDisplay.from_scores(predictor, *fitted[2:])


def test_coverage_is_drawn_against_calibration_count(fitted):
    _, report, _, _ = fitted
    display = CoverageByCountDisplay.from_report(report)
    points = display.ax_.lines[0]
    np.testing.assert_array_equal(points.get_xdata(), report.calibration_counts[report.evaluated])
    np.testing.assert_array_equal(points.get_ydata(), report.class_coverage[report.evaluated])


def test_set_sizes_add_up_to_all_rows(fitted):
    _, report, _, _ = fitted
    bars = SetSizeDisplay.from_report(report).ax_.patches
    assert sum(bar.get_height() for bar in bars) == pytest.approx(1)


def test_a_class_is_drawn_against_its_cluster(fitted):
    predictor, _, scores, labels = fitted
    index = int(np.flatnonzero(predictor.cluster_of_class_ >= 0)[0])
    display = ScoreDistributionDisplay.from_scores(predictor, scores, labels, index)
    mates = predictor.cluster_of_class_[labels] == predictor.cluster_of_class_[index]
    np.testing.assert_array_equal(display.others, np.sort(scores[mates]))
    assert display.threshold == predictor.thresholds_[index]
    assert display.ax_.get_legend() is not None


def test_embedding_draws_every_class_with_enough_rows(fitted):
    predictor, _, scores, labels = fitted
    display = EmbeddingDisplay.from_scores(predictor, scores, labels)
    drawn = len(display.ax_.collections[0].get_offsets()) + len(display.ax_.lines[0].get_xdata())
    assert drawn == np.isfinite(display.embedding).all(axis=1).sum() > 400


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_infinite_thresholds_are_counted():
    p, y, _ = load_languages()
    predictor = ClasswisePredictor().fit(p[:3000], y[:3000])
    display = ThresholdsDisplay.from_predictor(predictor)
    n_infinite = int(np.isinf(predictor.thresholds_).sum())
    assert f"({n_infinite} classes)" in display.ax_.get_legend().get_texts()[0].get_text()


def test_pareto_front_joins_the_candidates_that_nothing_beats():
    p, y, _ = load_languages()
    comparison = compare(p[:8000], y[:8000], methods=["standard", "pooled"], n_splits=2)
    display = comparison.plot()
    assert isinstance(display, ParetoDisplay)
    assert len(display.ax_.lines[0].get_xdata()) == display.on_front.sum()
    assert len(display.ax_.texts) == len(comparison.candidates)


def test_what_a_report_does_not_know_is_said(fitted):
    _, report, _, _ = fitted
    bare = type(report)(report.alpha, report.class_counts, report.class_covered, report.size_counts)
    with pytest.raises(InputError, match="'calibration_counts'"):
        CoverageByCountDisplay.from_report(bare)
