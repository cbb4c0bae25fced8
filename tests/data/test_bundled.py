"""The bundled data sets are sound, and are the problems that their documentation describes."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from evencover.data.bundled import (
    Labeled,
    LabeledFiles,
    decode,
    load_filetypes,
    load_languages,
)

STORAGE = Path(__file__).parents[2] / "scripts" / "bundled_storage.py"


@pytest.fixture(scope="module")
def languages() -> Labeled:
    return load_languages()


@pytest.fixture(scope="module")
def filetypes() -> LabeledFiles:
    return load_filetypes()


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


def test_storage_keeps_each_probability_within_a_step() -> None:
    exact = np.random.default_rng(0).dirichlet(np.full(300, 0.05), size=50)
    encode = runpy.run_path(str(STORAGE))["encode"]
    stored = decode(*encode(exact, 256), 256)
    rescaled = stored / stored.sum(axis=1, keepdims=True)
    # A row's total moves a little as well, so allow a step and a half.
    assert np.abs(rescaled ** (1 / 8) - exact ** (1 / 8)).max() < 1.5 / 256


def test_filetypes_have_the_models_outputs_and_a_tail(filetypes: LabeledFiles) -> None:
    rows, labels, names, ids = filetypes
    assert (rows.dtype, labels.dtype) == (np.float32, np.int32)
    assert rows.shape == (len(labels), 214)
    assert len(set(names)) == 214
    assert {"python", "txt", "png"} <= set(names)
    counts = np.bincount(labels, minlength=214)
    assert (counts >= 40).sum() >= 100
    assert counts.max() == 120
    assert (counts == 0).any()  # a deployed model has outputs that a site does not see
    assert len(set(ids)) == len(ids) == len(labels)
    assert rows.min() >= 0
    np.testing.assert_allclose(rows.sum(axis=1, dtype=np.float64), 1, rtol=0, atol=1e-5)


def test_rows_labels_and_ids_of_filetypes_belong_together(filetypes: LabeledFiles) -> None:
    rows, labels, names, ids = filetypes
    assert (rows.argmax(axis=1) == labels).mean() > 0.8
    for name, extension in (("python", (".py", ".pyi")), ("png", ".png"), ("txt", ".txt")):
        of_type = ids[labels == list(names).index(name)]
        assert all(one.lower().endswith(extension) for one in of_type.tolist())
    assert (np.diff(labels) == 0).mean() < 0.03  # 0.01 by chance
