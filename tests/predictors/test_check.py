"""Which rows are looked at whole when calibrating: the same thresholds, and what is found wrong."""

import numpy as np
import pytest

from evencover import ClusteredPredictor, InputError, StandardPredictor
from evencover.predictors.scoring import SAMPLE_STEP


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(600, 12, seed=4)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("check", ["all", "sample", "none"])
@pytest.mark.parametrize("score", ["softmax", "pas", "aps"])
def test_the_thresholds_are_the_same(data, score, check):
    for dtype in (np.float64, np.float32, np.float16):
        rows, labels = data.rows.astype(dtype), data.labels
        for cls in (StandardPredictor, ClusteredPredictor):
            found = cls(score=score).fit(rows, labels, check=check).thresholds_
            np.testing.assert_array_equal(found, cls(score=score).fit(rows, labels).thresholds_)
    logits = np.log(data.rows + 1e-9)
    fits = [
        StandardPredictor(from_logits=True, score=score).fit(logits, data.labels, check=each)
        for each in (check, "all")
    ]
    np.testing.assert_array_equal(fits[0].thresholds_, fits[1].thresholds_)


def spoilt(data, row, column, value=0.9):
    rows = data.rows.copy()
    rows[row, column] = value
    return rows


def other_than(label):
    return (label + 1) % 12


@pytest.mark.parametrize(("check", "refused"), [("all", True), ("sample", False), ("none", False)])
def test_a_bad_row_off_the_sample_is_missed(data, check, refused):
    rows = spoilt(data, SAMPLE_STEP + 1, other_than(data.labels[SAMPLE_STEP + 1]))
    model = StandardPredictor()
    if refused:
        with pytest.raises(InputError, match=f"Row {SAMPLE_STEP + 1} sums to"):
            model.fit(rows, data.labels, check=check)
    else:
        model.fit(rows, data.labels, check=check)


def test_a_bad_row_of_the_sample_is_found(data):
    rows = spoilt(data, 2 * SAMPLE_STEP, other_than(data.labels[2 * SAMPLE_STEP]))
    with pytest.raises(InputError, match=f"Row {2 * SAMPLE_STEP} sums to"):
        StandardPredictor().fit(rows, data.labels, check="sample")
    StandardPredictor().fit(rows, data.labels, check="none")


@pytest.mark.parametrize("value", [np.nan, -0.2, 1.5, np.inf])
def test_the_true_labels_own_probability_is_always_looked_at(data, value):
    rows = spoilt(data, 5, data.labels[5], value)
    with pytest.raises(InputError, match="ow 5"):
        StandardPredictor().fit(rows, data.labels, check="none")


def test_other_words_are_refused(data):
    with pytest.raises(InputError, match="Unknown check 'some'"):
        StandardPredictor().fit(*data, check="some")
