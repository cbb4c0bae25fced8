"""The bundled data set is sound, and is the problem that its documentation describes."""

import numpy as np
import pytest

from evencover.data.languages import Labeled, decode, encode, load_languages


@pytest.fixture(scope="module")
def languages() -> Labeled:
    return load_languages()


def test_shapes_and_types_agree(languages: Labeled) -> None:
    n_rows, n_classes = languages.probabilities.shape
    assert n_classes > 450
    assert languages.labels.shape == (n_rows,)
    assert languages.class_names.shape == (n_classes,)
    assert languages.probabilities.dtype == np.float32
    assert languages.labels.dtype == np.int32


def test_rows_are_probabilities_that_hardly_tie(languages: Labeled) -> None:
    rows = languages.probabilities
    assert rows.min() > 0
    np.testing.assert_allclose(rows.sum(axis=1, dtype=np.float64), 1, rtol=0, atol=1e-5)
    assert (rows.max(axis=1) == 1).mean() < 0.005  # ties make sets too large
    assert (np.diff(np.sort(rows[:500], axis=1), axis=1) == 0).mean() < 1e-3


def test_every_class_has_rows(languages: Labeled) -> None:
    assert languages.labels.min() == 0
    rows = np.bincount(languages.labels)
    assert len(rows) == len(languages.class_names)
    assert rows.min() >= 30


def test_accuracy_is_moderate_and_differs_between_classes(languages: Labeled) -> None:
    correct = languages.probabilities.argmax(axis=1) == languages.labels
    assert 0.6 < correct.mean() < 0.8
    assert languages.probabilities.max(axis=1).mean() == pytest.approx(correct.mean(), abs=0.03)
    class_accuracy = np.bincount(languages.labels, correct) / np.bincount(languages.labels)
    assert class_accuracy.std() > 0.15


def test_rows_are_in_random_order(languages: Labeled) -> None:
    neighbours_agree = (np.diff(languages.labels) == 0).mean()
    assert neighbours_agree < 0.01  # 0.002 by chance, about 0.97 in class order


def test_class_names_are_unique_and_readable(languages: Labeled) -> None:
    names = languages.class_names.tolist()
    assert len(set(names)) == len(names)
    assert all(name == name.strip() and len(name) > 1 for name in names)
    assert {"English", "Swahili", "Tamil"} <= set(names)


def test_storage_keeps_each_probability_within_a_step() -> None:
    exact = np.random.default_rng(0).dirichlet(np.full(300, 0.05), size=50)
    stored = decode(*encode(exact))
    rescaled = stored / stored.sum(axis=1, keepdims=True)
    # A row's total moves a little as well, so allow a step and a half.
    assert np.abs(rescaled ** (1 / 8) - exact ** (1 / 8)).max() < 1.5 / 256
