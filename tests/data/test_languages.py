"""The bundled data set is sound, and is the problem that its documentation describes."""

import numpy as np
import pytest

from evencover.data.languages import Labeled, decode, encode, load_languages


@pytest.fixture(scope="module")
def languages() -> Labeled:
    return load_languages()


def test_rows_are_probabilities_that_hardly_tie(languages: Labeled) -> None:
    rows = languages.probabilities
    assert rows.min() > 0
    np.testing.assert_allclose(rows.sum(axis=1, dtype=np.float64), 1, rtol=0, atol=1e-5)
    assert (rows.max(axis=1) == 1).mean() < 0.005  # ties make sets too large
    assert (np.diff(np.sort(rows[:500], axis=1), axis=1) == 0).mean() < 1e-3


def test_shapes_classes_and_order(languages: Labeled) -> None:
    rows, labels, names = languages
    assert (rows.dtype, labels.dtype) == (np.float32, np.int32)
    assert rows.shape == (len(labels), len(names))
    assert len(set(names)) == len(names) > 450
    assert {"English", "Swahili", "Tamil"} <= set(names)
    counts = np.bincount(labels)
    assert len(counts) == len(names)
    assert counts.min() >= 30
    assert (np.diff(labels) == 0).mean() < 0.01  # 0.002 by chance, about 0.97 in class order


def test_accuracy_is_moderate_and_differs_between_classes(languages: Labeled) -> None:
    correct = languages.probabilities.argmax(axis=1) == languages.labels
    assert 0.6 < correct.mean() < 0.8
    assert languages.probabilities.max(axis=1).mean() == pytest.approx(correct.mean(), abs=0.03)
    class_accuracy = np.bincount(languages.labels, correct) / np.bincount(languages.labels)
    assert class_accuracy.std() > 0.15


def test_storage_keeps_each_probability_within_a_step() -> None:
    exact = np.random.default_rng(0).dirichlet(np.full(300, 0.05), size=50)
    stored = decode(*encode(exact))
    rescaled = stored / stored.sum(axis=1, keepdims=True)
    # A row's total moves a little as well, so allow a step and a half.
    assert np.abs(rescaled ** (1 / 8) - exact ** (1 / 8)).max() < 1.5 / 256
