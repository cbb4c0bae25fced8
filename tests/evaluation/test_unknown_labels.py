"""Labels that are not among the model's classes."""

import numpy as np
import pandas as pd
import pytest

from evencover import EvencoverWarning, InputError, StandardPredictor, compare, evaluate
from evencover.predictors import predictor_class

NAMES = ["ant", "bee", "cat"]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 0.7, 0.5], 600)
    names = np.array(NAMES, dtype=object)[(p.cumsum(axis=1) < rng.random((600, 1))).sum(axis=1)]
    return pd.DataFrame(p, columns=NAMES), names


def with_unknown(names, every=10):
    names = names.copy()
    names[::every] = "wasp"
    return names


@pytest.mark.parametrize("score", ["softmax", "aps"])
def test_unknown_labels_are_misses(data, score):
    p, names = data
    predictor = StandardPredictor(score=score).fit(p[:300], names[:300], ids=np.arange(300))
    labels, ids = with_unknown(names)[300:], np.arange(300, 600)
    known = labels != "wasp"
    with pytest.warns(EvencoverWarning, match="30 of 300"):
        report = predictor.evaluate(p[300:], labels, ids=ids)
    alone = predictor.evaluate(p[300:][known], labels[known], ids=ids[known])
    assert (report.n_unknown, report.n_rows, alone.n_rows) == (30, 300, 270)
    assert report.class_covered.tolist() == alone.class_covered.tolist()
    assert report.true_gap == alone.true_gap
    assert report.marginal_coverage == alone.class_covered.sum() / 300
    assert report.size_counts.sum() == 300
    assert "unknown" in str(report)
    sets = predictor.predict_set(p[300:], ids=ids)
    direct = evaluate(sets, labels)
    assert direct.marginal_coverage == report.marginal_coverage
    assert direct.to_dict()["n_unknown_labels"] == 30


def test_calibration_leaves_unknown_labels_out(data):
    p, names = data
    labels = with_unknown(names)
    known = labels != "wasp"
    for method, options in [
        ("standard", {}),
        ("pooled", {}),
        ("rc3p", {}),
        ("standard", {"ids": 1}),
    ]:
        more = {"ids": np.arange(600)} if options else {}
        kept = {"ids": np.arange(600)[known]} if options else {}
        with pytest.warns(EvencoverWarning, match=r"60 of 600 rows \(10.0%\)"):
            fitted = predictor_class(method)().fit(p, labels, **more)
        alone = predictor_class(method)().fit(
            p.to_numpy()[known], labels[known], class_names=NAMES, **kept
        )
        assert fitted.thresholds_.tolist() == alone.thresholds_.tolist()
        assert fitted.n_calibration_ == 540


def test_compare_counts_unknown_labels_as_misses(data):
    p, names = data
    with pytest.warns(EvencoverWarning, match="60 of 600"):
        found = compare(p, with_unknown(names), scores=["softmax"], n_splits=3)
    for candidate in found.candidates:
        for report in candidate.reports:
            assert 15 < report.n_unknown < 45
            assert report.n_rows == found.n_test
            assert report.size_counts.sum() == report.n_rows


def test_only_names_can_be_unknown(data):
    p, names = data
    predictor = StandardPredictor().fit(p, names)
    with pytest.raises(InputError, match="3"):
        predictor.evaluate(p, np.full(600, 3))
    with pytest.raises(InputError, match="wasp"):
        predictor.evaluate(p, np.full(600, "wasp"))
    with pytest.raises(InputError, match="wasp"):
        predictor.partial_fit(p, with_unknown(names))


def test_compare_takes_a_floor(data):
    p, names = data
    labels = np.array([NAMES.index(name) for name in names])
    found = compare(p.to_numpy(), labels, scores=["softmax"], n_splits=3, floor=0.85)
    plain = compare(p.to_numpy(), labels, scores=["softmax"], n_splits=3)
    assert found.rows()[0]["avg_size"] > plain.rows()[0]["avg_size"]
