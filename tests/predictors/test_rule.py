"""One rule says who is in a set, wherever sets, sizes or coverage are asked for."""

import pickle

import numpy as np
import pytest

from evencover import (
    ClasswisePredictor,
    CoverageMonitor,
    InputError,
    PredictionSets,
    StandardPredictor,
    _kernels,
    compare,
    recommend,
)
from evencover.data import as_source
from evencover.engine.blocks import joined
from evencover.evaluation.metrics import EvaluationCounts, Tally
from evencover.predictors import make_predictor, method_names


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(500, 7, seed=2)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("score", ["softmax", "aps", "pas"])
@pytest.mark.parametrize("method", method_names())
def test_the_rule_gives_the_predictors_sets_sizes_and_coverage(data, method, score):
    rows, labels = data
    fitted = make_predictor(method, score=score).fit(rows[:300], labels[:300])
    rule = pickle.loads(pickle.dumps(fitted.rule()))
    blocks = list(as_source(rows[300:], labels[300:]).blocks())
    sets = fitted.predict_set(rows[300:])
    assert PredictionSets.concatenate(map(rule.sets, blocks)) == sets
    coverage = [
        _kernels.set_coverage(
            rule.scoring.of_block(block), block.labels, rule.thresholds, keep_top=rule.keep_top
        )
        for block in blocks
    ]
    sizes, covered, top, accepted = joined(part[:4] for part in coverage)
    appearances = np.bincount(sets.indices, minlength=sets.n_classes)
    assert sum(part.appearances for part in coverage).tolist() == appearances.tolist()
    counts = EvaluationCounts.total(map(rule.counts, blocks)).tally
    for ours, expected in zip(counts, Tally.of(sets, labels[300:]), strict=True):
        np.testing.assert_array_equal(ours, expected)
    np.testing.assert_array_equal(sizes, sets.sizes)
    np.testing.assert_array_equal(covered, sets.contains(labels[300:]))
    np.testing.assert_array_equal(top, rows[300:].argmax(axis=1))
    assert accepted.tolist() == [
        members == [t] for members, t in zip(sets.to_lists(), top, strict=True)
    ]


def test_predicting_leaves_the_callers_source_alone(data):
    fitted = make_predictor("standard").fit(*data, class_names=list("abcdefg"))
    source = as_source(data.rows)
    assert fitted.predict_set(source).class_names == tuple("abcdefg")
    assert source.class_names is None


@pytest.fixture(scope="module")
def on_logits(data):
    return ClasswisePredictor(from_logits=True).fit(np.log(data.rows[:300]), data.labels[:300])


ENTRIES = {
    "fit": lambda fitted, rows, labels: fitted.fit(rows, labels),
    "partial_fit": lambda fitted, rows, labels: fitted.partial_fit(rows, labels),
    "predict_set": lambda fitted, rows, labels: fitted.predict_set(rows),
    "one row": lambda fitted, rows, labels: fitted.predict_set(rows[:1]),
    "float16": lambda fitted, rows, labels: fitted.predict_set(rows.astype("f2")),
    "lists": lambda fitted, rows, labels: fitted.predict_set(rows.tolist()),
    "blocks": lambda fitted, rows, labels: fitted.predict_set(iter([rows[:90], rows[90:]])),
    "rule": lambda fitted, rows, labels: fitted.rule().predict_set(rows[:1]),
    "predict_p": lambda fitted, rows, labels: fitted.predict_p(rows),
    "evaluate": lambda fitted, rows, labels: fitted.evaluate(rows, labels),
    "monitor": lambda fitted, rows, labels: CoverageMonitor(fitted).update(rows, labels),
    "compare": lambda fitted, rows, labels: compare(rows, labels, from_logits=True),
    "recommend": lambda fitted, rows, labels: recommend(rows, labels, from_logits=True),
}


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_probabilities_are_no_logits_unless_the_input_says_so(on_logits, data, entry):
    fitted = pickle.loads(pickle.dumps(on_logits))
    with pytest.raises(InputError, match=r"'logits' .* Got probabilities from row 0 on"):
        entry(fitted, data.rows[300:], data.labels[300:])
    entry(fitted, np.log(data.rows[300:]), data.labels[300:])


def test_an_input_that_is_stated_to_hold_logits_is_read_as_logits(on_logits, data):
    rows, labels = data.rows[300:], data.labels[300:]
    stated = [{"logits": rows}, as_source(rows, logits=True)]
    one, other = (on_logits.predict_set(each) for each in stated)
    assert one == other == on_logits.rule(logits=True).predict_set(rows)
    assert one.sizes.mean() > on_logits.predict_set(np.log(rows)).sizes.mean()
    assert recommend(as_source(rows, labels, logits=True), from_logits=True).expected_sizes
    assert on_logits.predict_set({"probs": rows}).sizes.tolist() == (
        on_logits.predict_set(np.log(rows)).sizes.tolist()
    )


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("scale", ["normal", "uniform"])
@pytest.mark.parametrize("n_classes", [2, 3, 4, 8, 100])
def test_random_logits_are_never_taken_for_probabilities(n_classes, scale):
    rng = np.random.default_rng(n_classes)
    logits = getattr(rng, scale)(size=(3000, n_classes))
    fitted = StandardPredictor(from_logits=True).fit(logits, rng.integers(0, n_classes, 3000))
    rule = fitted.rule()
    for row in range(3000):
        rule.predict_set(logits[row : row + 1])
    for start in range(0, 3000, 4):
        rule.predict_set(logits[start : start + 4])


def test_one_row_of_two_classes_decides_nothing():
    fitted = StandardPredictor(from_logits=True).fit([[2.0, 0.0], [0.0, 3.0]] * 9, [0, 1] * 9)
    assert len(fitted.predict_set(np.array([[0.25, 0.75]]))) == 1
    with pytest.raises(InputError, match="Got probabilities"):
        fitted.predict_set(np.array([[0.25, 0.75], [0.5, 0.5]]))


def test_logits_are_no_probabilities_and_the_message_says_what_to_do(data):
    fitted = StandardPredictor().fit(*data)
    for logits in (np.log(data.rows), 9 + np.log(data.rows)):
        for entry in (fitted.predict_set, fitted.rule().predict_set):
            with pytest.raises(InputError, match="from_logits=True"):
                entry(logits[:5])
