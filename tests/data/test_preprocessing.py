"""Dropping rare classes agrees with doing it to the whole matrix, in blocks or not."""

import numpy as np
import pytest

from evencover import InputError
from evencover.data import as_source, drop_rare_classes, source


@pytest.fixture
def example():
    rng = np.random.default_rng(0)
    labels = rng.choice(12, size=900, p=rng.dirichlet(np.ones(12)))
    return rng.dirichlet(np.full(12, 0.3), size=900).astype(np.float32), labels


def oracle(rows, labels, least):
    kept = [k for k in range(rows.shape[1]) if (labels == k).sum() >= least]
    chosen = np.isin(labels, kept)
    part = rows[chosen][:, kept].astype(np.float64)
    number = {old: new for new, old in enumerate(kept)}
    return part / part.sum(axis=1, keepdims=True), np.array([number[k] for k in labels[chosen]])


@pytest.mark.parametrize("least", [1, 30, 75])
@pytest.mark.parametrize("elements", [100, 1 << 20])
def test_agrees_with_the_oracle(example, least, elements, monkeypatch):
    monkeypatch.setattr(source, "BLOCK_ELEMENTS", elements)
    wanted_rows, wanted_labels = oracle(*example, least)
    result = drop_rare_classes(*example, min_count=least)
    for _ in range(2):  # can be read again
        blocks = list(result.blocks())
        rows = np.concatenate([block.rows for block in blocks])
        assert rows.dtype == np.float32
        np.testing.assert_allclose(rows, wanted_rows, rtol=1e-6)
        np.testing.assert_array_equal(np.concatenate([b.labels for b in blocks]), wanted_labels)
    assert (result.n_rows, result.n_classes) == wanted_rows.shape


def test_reads_files_and_keeps_the_names(example, tmp_path):
    rows, labels = example
    names = np.array([f"species {k}" for k in range(12)])
    np.savez(tmp_path / "scores.npz", softmax=rows, labels=labels, class_names=names)
    result = drop_rare_classes(tmp_path / "scores.npz", min_count=75)
    assert list(result.class_names) == [names[k] for k in result.reader.kept_classes]
    assert 2 <= result.n_classes < 12


def test_logits_are_only_selected():
    logits = as_source([[2.0, -1.0, 0.0], [0.0, 3.0, 0.0]], [0, 1], logits=True)
    result = drop_rare_classes(logits, min_count=1)
    assert result.logits
    assert next(result.blocks()).rows.tolist() == [[2.0, -1.0], [0.0, 3.0]]


def test_too_few_common_classes_are_refused(example):
    with pytest.raises(InputError, match="At least 2 classes must have 9999 examples"):
        drop_rare_classes(*example, min_count=9999)


def test_rows_without_mass_on_what_remains_are_refused():
    rows = [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]
    with pytest.raises(InputError, match="none in row 1"):
        list(drop_rare_classes(rows, [0, 1, 0], min_count=1).blocks())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([3.0, 1.0, 2.0], "Row 1 sums to 6"),
        ([1.5, -0.5, 0.0], "-0.5 in row 1, class 1"),
        ([np.nan, 0.5, 0.5], "NaN in row 1, class 0"),
    ],
)
def test_bad_rows_are_not_hidden_by_the_division(row, message):
    rows = [[0.5, 0.5, 0.0], row, [0.5, 0.5, 0.0]]
    with pytest.raises(InputError, match=message):
        list(drop_rare_classes(rows, [0, 1, 0], min_count=1).blocks())


def test_missing_labels_and_iterators_are_refused(example):
    with pytest.raises(InputError, match="Labels are needed"):
        drop_rare_classes(example[0])
    with pytest.raises(InputError, match="read twice"):
        drop_rare_classes(iter([example]))
    with pytest.raises(InputError, match="'min_count' parameter"):
        drop_rare_classes(*example, min_count=0)
