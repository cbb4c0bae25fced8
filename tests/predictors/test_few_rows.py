"""A few rows at a time: the same sets as for many, from a rule that is made ready once."""

import numpy as np
import pytest

from evencover import InputError, PredictionSets, StandardPredictor
from evencover.predictors import base, make_predictor, methods_for_all
from evencover.predictors.rule import SetRule


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(400, 7, seed=3)


def on_threads(fitted, rows, **options):
    """The sets by the way that many rows take."""
    return PredictionSets.concatenate(fitted.predict_set_blocks(rows, **options))


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("score", ["softmax", "aps", "pas", "saps"])
@pytest.mark.parametrize("method", methods_for_all())
def test_a_few_rows_have_the_sets_of_many(data, method, score):
    rows, labels = data
    fitted = make_predictor(method, score=score).fit(rows[:300], labels[:300])
    for few in (rows[300:301], rows[300:], rows[300:, :].astype(np.float32), rows[399:300:-3]):
        assert fitted.predict_set(few) == on_threads(fitted, few)
    ids = ["a", "b"]
    assert fitted.predict_set(rows[300:302], ids=ids) == on_threads(fitted, rows[300:302], ids=ids)


def test_a_few_rows_start_no_threads_and_build_one_rule(data, monkeypatch):
    fitted = StandardPredictor(score="aps", exact=True).fit(*data)
    fitted.predict_set(data.rows[:1])
    monkeypatch.setattr(base, "map_source", None)
    monkeypatch.setattr(SetRule, "__init__", None)
    assert len(fitted.predict_set(data.rows[1:2])) == 1


def test_a_rule_answers_for_rows_at_hand(data):
    rows, labels = data
    fitted = StandardPredictor(score="aps").fit(rows, labels, class_names=list("abcdefg"))
    rule = fitted.rule()
    sets = rule.predict_set(rows[:2].tolist())
    assert sets == fitted.predict_set(rows[:2])
    assert sets.class_names == tuple("abcdefg")
    for wrong, words in ((rows[:2, :3], "the 7 classes"), (rows[0], "a matrix"), (2 * rows, "sum")):
        with pytest.raises(InputError, match=words):
            rule.predict_set(wrong)
