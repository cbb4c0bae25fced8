"""Labels that do not belong to their rows are found; weak and overconfident models are not."""

import numpy as np
import pytest
from depth import IS_DEEP, examples, size
from hypothesis import given, settings
from hypothesis import strategies as st

from evencover.evaluation.label_fit import label_fit

REPEATS = 200 if IS_DEEP else 5


def gaussian_model(seed, n_rows, n_classes, signal, sharpness=1.0, prevalence=None):
    """Draw labels and the posterior of Gaussian features; `sharpness` above 1 is overconfident."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(n_classes, n_rows, p=prevalence)
    features = rng.normal(size=(n_rows, n_classes))
    features[np.arange(n_rows), labels] += signal
    logits = sharpness * signal * features
    if prevalence is not None:
        logits += sharpness * np.log(prevalence)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), labels


def zipf(n_classes):
    weights = 1 / np.arange(1, n_classes + 1)
    return weights / weights.sum()


def is_mismatch(rows, labels, **options):
    found = label_fit(rows, labels, **options)
    return found is not None and found.is_mismatch


# Rows, classes, signal, sharpness. With sharpness 1 the model is calibrated.
HONEST = [
    (50, 2, 0.3, 1),
    (50, 2, 0.3, 20),
    (300, 2, 0.2, 20),  # 56% right, 91% claimed
    (300, 2, 0.6, 20),  # 66% right, 96% claimed
    (4000, 2, 0.05, 1),
    (2000, 2, 0.3, 10),
    (300, 3, 0.5, 5),
    (50, 10, 0.5, 5),
    (1000, 10, 0.3, 5),
    (50, 100, 1.0, 3),
    (1000, 100, 0.3, 10),  # 2% right, 44% claimed
    (500, 1000, 0.5, 8),
]


@pytest.mark.parametrize(("n_rows", "n_classes", "signal", "sharpness"), HONEST)
def test_honest_labels_of_weak_and_overconfident_models_are_accepted(
    n_rows, n_classes, signal, sharpness
):
    for seed in range(REPEATS):
        assert not is_mismatch(*gaussian_model(seed, n_rows, n_classes, signal, sharpness))


@pytest.mark.parametrize("n_classes", [3, 30, 300])
def test_honest_labels_of_unequal_classes_are_accepted(n_classes):
    for seed in range(REPEATS):
        rows, labels = gaussian_model(seed, 500, n_classes, 0.7, 4, zipf(n_classes))
        assert not is_mismatch(rows, labels)
        # Label shift: the file has few classes, in other shares than the model expects.
        few = labels < 3
        assert not is_mismatch(rows[few], labels[few])


@pytest.mark.parametrize("sharpness", [1, 3, 10])
def test_two_labels_of_very_unequal_counts_are_accepted(sharpness):
    prevalence = np.append([0.99, 0.01], np.zeros(48))
    for seed in range(REPEATS):
        rng = np.random.default_rng(seed)
        labels = rng.choice(50, 1000, p=prevalence)
        features = rng.normal(size=(1000, 50))
        features[np.arange(1000), labels] += 1.0
        p = np.exp(sharpness * features)
        assert not is_mismatch(p / p.sum(axis=1, keepdims=True), labels)


MISMATCHED = [(100, 100, 4), (200, 100, 3), (300, 10, 3), (150, 1000, 4), (600, 3, 3), (800, 2, 3)]


@pytest.mark.parametrize(("n_rows", "n_classes", "signal"), MISMATCHED)
@pytest.mark.parametrize("prevalence", [None, zipf])
@pytest.mark.parametrize("logits", [False, True])
def test_permuted_labels_are_found(n_rows, n_classes, signal, prevalence, logits):
    if prevalence and (n_rows < 200 or n_classes == 2):
        n_rows *= 3  # unequal classes need more rows
    weights = prevalence(n_classes) if prevalence else None
    for seed in range(REPEATS):
        rows, labels = gaussian_model(seed, n_rows, n_classes, signal, 1, weights)
        permuted = np.random.default_rng(seed).permutation(labels)
        numbers = np.log(np.maximum(rows, 1e-300)) - 3 if logits else rows
        options = {"logits": logits}
        assert is_mismatch(numbers, permuted, **options)
        assert not is_mismatch(numbers, labels, **options)


@pytest.mark.parametrize("n_rows", [400, 2000])
@pytest.mark.parametrize("n_classes", [12, 85])
def test_classes_in_another_order_are_found_even_if_some_coincide(n_rows, n_classes):
    codes = np.append([0], np.roll(np.arange(1, n_classes), 1))  # the most frequent one stays
    for seed in range(REPEATS):
        rows, labels = gaussian_model(seed, n_rows, n_classes, 3, 1, zipf(n_classes))
        for other in (codes[labels], (labels + 1) % n_classes):
            found = label_fit(rows, other)
            assert found.is_mismatch
            assert found.recoded_accuracy > 2 * found.accuracy
            assert "different orders" in found.sentence("labels were matched by id")


def test_a_constant_label_and_few_rows_cannot_be_tested():
    rows, labels = gaussian_model(0, 300, 40, 3)
    assert label_fit(rows, np.zeros(300, dtype=int)) is None
    assert label_fit(rows[:49], labels[:49]) is None
    assert label_fit(np.full((300, 40), 0.025), labels) is None


def test_equal_rows_say_nothing():
    rows, labels = gaussian_model(0, 300, 40, 3)
    assert not is_mismatch(np.repeat(rows[:1], 300, axis=0), labels)


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(50, 200))
def test_the_test_ignores_the_order_of_rows_and_monotone_changes(seed, n_classes, n_rows):
    rows, labels = gaussian_model(seed, n_rows, n_classes, 0.3)
    found = label_fit(rows, labels)
    order = np.random.default_rng(seed).permutation(n_rows)
    moved = label_fit(rows[order], labels[order])
    for name in ("accuracy", "permuted_accuracy"):
        assert getattr(moved, name) == pytest.approx(getattr(found, name))
    logits = label_fit(np.log(rows) + 1, labels, logits=True)
    assert logits.excess == pytest.approx(found.excess)
    assert logits.expected_excess == pytest.approx(found.expected_excess, rel=1e-3)


def test_the_excess_of_permuted_labels_is_standard_normal():
    rows, labels = gaussian_model(3, 200, 6, 1.0, 1, zipf(6))
    rng, n = np.random.default_rng(0), size(short=100, deep=400)
    found = np.array([label_fit(rows, rng.permutation(labels)).excess for _ in range(n)])
    assert abs(found.mean()) < 4 / np.sqrt(n)
    assert abs(found.std() - 1) < 4 / np.sqrt(2 * n)


def test_a_calibrated_model_has_the_excess_that_it_expects():
    n = size(short=50, deep=200)
    fits = [label_fit(*gaussian_model(seed, 100, 20, 0.4)) for seed in range(n)]
    excess, expected = np.array([(fit.excess, fit.expected_excess) for fit in fits]).T
    assert abs((excess - expected).mean()) < 4 / np.sqrt(n)
