"""What notebooks show of a value: a card of the report's templates, or its text."""

import sys

import numpy as np
import pytest

from evencover import ClasswisePredictor, PredictionSets, compare, evaluate, recommend
from evencover.templates import environment


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    return rng.dirichlet(np.ones(3), 90) * 0.5 + 0.5 * np.eye(3)[labels], labels


NAMES = ["a<b", "&c", "d"]


def test_sets_show_their_first_rows_with_names_escaped():
    mask = np.array([[True, True, False], [False, False, True]])
    html = PredictionSets.from_mask(np.tile(mask, (4, 1)), NAMES)._repr_html_()
    assert html.count("a&lt;b, &amp;c") == 3
    assert html.count("<tr>") == 1 + 5
    assert "8 rows, 3 classes" in html


def test_a_predictor_shows_its_parameters_and_its_guarantee(data):
    predictor = ClasswisePredictor(alpha=0.2)
    assert "ClasswisePredictor(alpha=0.2)" in predictor._repr_html_()
    predictor.fit(*data)
    html = predictor._repr_html_()
    assert predictor.guarantee_text in html
    assert "90</span>" in html
    predictor.set_params(alpha=0.3)  # takes effect with the next fit, and so the card is the same
    assert predictor._repr_html_() == html


def test_a_report_shows_its_summary_and_its_worst_classes(data):
    probabilities, labels = data
    mask = probabilities > 0.4
    report = evaluate(PredictionSets.from_mask(mask, NAMES), labels)
    html = report._repr_html_()
    for _, value, _ in report.summary(everything=False):
        assert value in html
    assert html.index("a&lt;b") > 0


def test_comparisons_show_their_candidates_and_the_advice(data):
    comparison = compare(*data, methods=["standard", "classwise"], scores=["softmax"], n_splits=2)
    html = comparison._repr_html_()
    assert "standard + softmax" in html
    assert comparison.reason.splitlines()[0] in html
    advice = recommend(*data)
    assert advice.reason.splitlines()[-1].replace("'", "&#39;") in advice._repr_html_()


def test_notebooks_show_text_without_jinja2(monkeypatch):
    environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert PredictionSets.from_mask(np.eye(2, dtype=bool))._repr_html_() is None
