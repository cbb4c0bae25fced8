"""Accepted predictions: by the set alone, and by fitted cutoffs, the same on every path."""

import numpy as np
import pytest

from evencover import (
    APS,
    EvencoverWarning,
    InputError,
    PooledPredictor,
    StandardPredictor,
    load,
    save,
)

K = 30


@pytest.fixture(scope="module")
def data():
    """Rows that are mostly clear, with labels drawn from the rows themselves."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(K, 0.02), 6000) + 1e-9
    rows /= rows.sum(axis=1, keepdims=True)
    labels = (rows.cumsum(axis=1) < rng.random((6000, 1))).sum(axis=1).clip(max=K - 1)
    return (rows[:3000], labels[:3000]), (rows[3000:], labels[3000:])


@pytest.mark.parametrize("keep_top", [False, True])
@pytest.mark.parametrize("score", ["softmax", APS(randomize=False)], ids=["softmax", "aps"])
def test_a_set_that_is_just_the_top_class_is_accepted(data, keep_top, score):
    calibration, (rows, labels) = data
    predictor = PooledPredictor(keep_top=keep_top, score=score, alpha=0.3).fit(*calibration)
    sets = predictor.predict_set(rows)
    expected = np.array(
        [members.tolist() == [top] for members, top in zip(sets, rows.argmax(axis=1), strict=True)]
    )
    assert 0 < expected.sum() < len(rows)
    assert np.array_equal(sets.accepted, expected)
    if not keep_top and score == "softmax":  # one-label sets without the top class: review
        assert expected.sum() < (sets.sizes == 1).sum()
    alone = [predictor.predict_set(rows[i : i + 1]).accepted[0] for i in range(50)]
    assert alone == expected[:50].tolist()
    assert np.array_equal(sets.top(1).accepted, expected)
    assert np.array_equal(sets[::-1].accepted, expected[::-1])
    report = predictor.evaluate(rows, labels)
    assert report.accepted.sum() == expected.sum()
    is_right = expected & (rows.argmax(axis=1) == labels)
    assert report.accepted_right.sum() == is_right.sum()
    assert report.accepted_accuracy == pytest.approx(is_right.sum() / expected.sum())


@pytest.mark.parametrize("logits", [False, True])
def test_fitted_cutoffs_decide_on_every_path(data, logits, tmp_path):
    (calibration, labels), (rows, test_labels) = data
    if logits:
        calibration, rows = np.log(calibration), np.log(rows)
    predictor = StandardPredictor(from_logits=logits).fit(calibration, labels)
    predictor.fit_acceptance(calibration, labels, accuracy=0.8)
    top = rows.argmax(axis=1)
    p = rows.max(axis=1)
    if logits:
        p = 1 / np.exp(rows - p[:, None]).sum(axis=1)
    acceptance = predictor.acceptance_
    expected = 1 - p <= acceptance.limits[top]
    assert 0.1 < expected.mean() < 1
    accepted = predictor.predict_set(rows).accepted
    assert (accepted != expected).mean() < 1e-3  # NumPy's softmax differs in the last bit
    assert (top == test_labels)[accepted].mean() > 0.8
    save(predictor, tmp_path / "m.safetensors")
    for same in (load(tmp_path / "m.safetensors"), predictor.with_alpha(0.3)):
        assert np.array_equal(same.predict_set(rows).accepted, accepted)
    alone = [predictor.predict_set(rows[i : i + 1]).accepted[0] for i in range(50)]
    assert alone == accepted[:50].tolist()
    assert predictor.evaluate(rows, test_labels).accepted.sum() == accepted.sum()
    predictor.partial_fit(rows, test_labels)
    assert np.array_equal(predictor.acceptance_.limits, acceptance.limits)
    assert predictor.fit(calibration, labels).acceptance_ is None


def test_cutoffs_do_not_depend_on_the_order_of_rows(data):
    (rows, labels), _ = data
    ids, order = np.arange(len(rows)), np.random.default_rng(1).permutation(len(rows))
    first = StandardPredictor().fit(rows, labels)
    first.fit_acceptance(rows, labels, accuracy=0.8, ids=ids)
    second = StandardPredictor().fit(rows, labels)
    second.fit_acceptance(rows[order], labels[order], accuracy=0.8, ids=ids[order])
    assert np.array_equal(first.acceptance_.limits, second.acceptance_.limits)


def test_answers_far_above_the_target_name_the_other_mode_and_its_need_of_other_rows():
    """One class is always right, the other below the target: only the first is accepted."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.6, 1, 6000)
    top = rng.integers(0, 2, 6000)
    rows = np.where(np.arange(2) == top[:, None], p[:, None], 1 - p[:, None])
    labels = np.where((top == 1) & (rng.random(6000) < 0.15), 0, top)
    predictor = StandardPredictor().fit(rows, labels)
    with pytest.warns(EvencoverWarning, match=r"per_class=False.*other rows"):
        predictor.fit_acceptance(rows, labels, accuracy=0.9)
    fitted = predictor.acceptance_
    assert fitted.tested_accuracy > 0.95
    assert np.isneginf(fitted.limits).tolist() == [False, True]
    predictor.fit_acceptance(rows, labels, accuracy=0.9, per_class=False)
    assert predictor.acceptance_.node_tested.sum() > fitted.node_tested.sum()


def test_an_accuracy_out_of_reach_accepts_nothing_and_warns(data):
    (rows, labels), _ = data
    predictor = StandardPredictor().fit(rows, labels)
    with pytest.warns(EvencoverWarning, match="accuracy"):
        predictor.fit_acceptance(rows, labels, accuracy=0.9999)
    assert not predictor.predict_set(rows).accepted.any()
    for wrong in (0, 1, 1.5, "0.9"):
        with pytest.raises(InputError, match="accuracy"):
            predictor.fit_acceptance(rows, labels, accuracy=wrong)
