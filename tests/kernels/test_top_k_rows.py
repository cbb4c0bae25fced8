"""Rows of which only some classes are listed: both kernels agree, and so do whole rows."""

import numpy as np
import pytest
from depth import size
from kernels.cases import KINDS, PLAIN, SCORES, draws_of, random_thresholds
from kernels.compare import INSTRUCTION_SETS, ask, assert_same, native, outcome

from evencover import _kernels
from evencover._kernels import Draws, Thresholds, reference, topk
from evencover.errors import InputError
from evencover.topk import TopK

KERNELS = ("true_label_scores", "score_entries", "prediction_sets", "set_coverage")


def whole_rows(rng, n, k, dtype):
    """Rows with ties and with probabilities of all magnitudes."""
    logits = np.round(rng.normal(size=(n, k)) * rng.choice([0.1, 1, 5]), rng.integers(0, 3))
    rows = np.exp(logits)
    return (rows / rows.sum(axis=1, keepdims=True)).astype(dtype)


def top_of(rows, counts):
    """The most probable classes of each row: in order, reversed, or by class."""
    order = np.argsort(-rows, axis=1, kind="stable")
    classes = [order[i, :n] for i, n in enumerate(counts)]
    classes = [[c, c[::-1], np.sort(c)][i % 3] for i, c in enumerate(classes)]
    return TopK(classes, [rows[i, c] for i, c in enumerate(classes)], n_classes=rows.shape[1])


def cases():
    rng = np.random.default_rng(11)
    for _ in range(size(20, 400)):
        n, k = int(rng.integers(1, 100)), int(rng.choice([3, 16, 17, 25, 48, 64, 65, 150]))
        rows = whole_rows(rng, n, k, rng.choice([np.float32, np.float64]))
        thresholds = random_thresholds(rng, k, rng.choice(KINDS))
        if rng.integers(3) == 0:
            thresholds = thresholds._replace(rank_limit=rng.integers(1, k + 1, size=k))
        score = SCORES[int(rng.integers(len(SCORES)))]
        yield rng, rows, score, draws_of(rng, score, n, with_ids=bool(rng.integers(2))), thresholds


def arguments_of(name, score, rows, draws, labels, thresholds, keep_top):
    more = {
        "true_label_scores": ([labels], {}),
        "score_entries": ([], {}),
        "prediction_sets": ([thresholds], {"keep_top": keep_top}),
        "set_coverage": ([labels, thresholds], {"keep_top": keep_top}),
    }[name]
    return [score.base.kernel, rows, draws, *more[0]], {**more[1], **PLAIN}


def test_both_kernels_agree_on_every_instruction_set(monkeypatch):
    for rng, rows, score, draws, thresholds in cases():
        some = top_of(rows, rng.integers(1, rows.shape[1] + 1, size=len(rows)))
        labels = rng.integers(0, rows.shape[1], size=len(rows))
        for name in KERNELS:
            for keep_top in (False, True):
                arguments, options = arguments_of(
                    name, score, some, draws, labels, thresholds, keep_top
                )
                expected = outcome(topk, name, *arguments, **options)
                for instruction_set in INSTRUCTION_SETS:
                    monkeypatch.setattr(native, "INSTRUCTION_SET", instruction_set)
                    assert_same(outcome(native, name, *arguments, **options), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_threshold_includes_scores_up_to_its_last_bit(dtype, monkeypatch):
    tiny = [0.0, 5e-324, 1e-45, 2.0**-54, 2.0**-53, 2.0**-52, 1e-7]
    values = np.array([*tiny, 0.1, 0.3, 0.4], dtype=dtype)
    rows = TopK([np.arange(len(values))] * 3, [values] * 3, n_classes=12)
    near = np.concatenate([1 - values.astype(np.float64), [-np.inf, -1, 0, 1, 1.5, np.inf]])
    for limit in np.concatenate([near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf)]):
        thresholds = Thresholds(np.full(12, limit))
        arguments = [SCORES[0].base.kernel, rows, Draws(), thresholds]
        for keep_top in (False, True):
            options = {"keep_top": keep_top, **PLAIN}
            expected = outcome(topk, "prediction_sets", *arguments, **options)
            for instruction_set in INSTRUCTION_SETS:
                monkeypatch.setattr(native, "INSTRUCTION_SET", instruction_set)
                found = outcome(native, "prediction_sets", *arguments, **options)
                assert_same(found, expected)


def test_rows_that_list_every_class_are_the_whole_rows():
    for rng, rows, score, draws, thresholds in cases():
        n, k = rows.shape
        every = top_of(rows, [k] * n)
        labels = rng.integers(0, k, size=n)
        assert_same([_kernels.row_keys(every, draws)], [reference.row_keys(rows, draws)])
        formula = score.base.kernel
        scores = ask(reference.score_matrix, formula, rows, draws, **PLAIN)
        entries = ask(_kernels.score_entries, formula, every, draws, **PLAIN)[0]
        assert_same([entries[np.lexsort((every.classes, every.row_of_entry))]], [scores.ravel()])
        for name in ("true_label_scores", "prediction_sets", "set_coverage"):
            given = (score, rows, draws, labels, thresholds, True)
            arguments, options = arguments_of(name, *given)
            expected = outcome(reference, name, *arguments, **options)
            arguments[1] = every
            assert_same(outcome(_kernels, name, *arguments, **options), expected)


def test_sets_of_listed_classes_are_those_of_the_whole_row_restricted_to_them():
    for rng, rows, score, draws, thresholds in cases():
        counts = rng.integers(1, rows.shape[1] + 1, size=len(rows))
        some, keyed = top_of(rows, counts), draws._replace(ids=reference.row_keys(rows, draws))
        options = {"keep_top": False, **PLAIN}
        starts, classes = ask(
            _kernels.prediction_sets, score.base.kernel, some, keyed, thresholds, **options
        )
        full_starts, full = ask(
            reference.prediction_sets, score.base.kernel, rows, keyed, thresholds, **options
        )
        for i, n_listed in enumerate(counts):
            known = set(np.argsort(-rows[i], kind="stable")[:n_listed])
            whole = [y for y in full[full_starts[i] : full_starts[i + 1]] if y in known]
            assert classes[starts[i] : starts[i + 1]].tolist() == whole


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_equal_classes_are_found_wherever_they_are(instruction_set, monkeypatch):
    monkeypatch.setattr(native, "INSTRUCTION_SET", instruction_set)
    rng = np.random.default_rng(5)
    for n in (2, 8, 9, 16, 17, 20, 33, 64, 65):
        for _ in range(40):
            classes = rng.choice(2**18, size=n, replace=False)
            first, second = rng.choice(n, size=2, replace=False)
            near = classes.copy()
            near[first] = classes[second] + 2**17  # the last bits are equal
            twice = classes.copy()
            twice[first] = classes[second]
            for draws in (Draws(), Draws(score_use=8)):
                for given, is_bad in ((classes, False), (near % 2**18, None), (twice, True)):
                    is_bad = len(set(given)) < n if is_bad is None else is_bad
                    rows = TopK([given, [0]], [np.full(n, 0.01), [0.5]], n_classes=2**18)
                    options = (SCORES[0].kernel, rows, draws, np.zeros(2, np.int64))
                    found = outcome(native, "true_label_scores", *options, **PLAIN)
                    assert (found == ["bad row", 0]) == is_bad


def test_a_label_that_is_not_listed_has_an_infinite_score():
    rows = TopK([[0, 1], [2, 0]], [[0.5, 0.25], [0.75, 0.125]], n_classes=100_000)
    scores = ask(
        _kernels.true_label_scores, SCORES[0].kernel, rows, Draws(), np.array([0, 77]), **PLAIN
    )
    assert scores.tolist() == [0.5, np.inf]


@pytest.mark.parametrize(
    ("classes", "probabilities"),
    [
        ([[0, 9]], [[0.5, 0.25]]),
        ([[-1, 1]], [[0.5, 0.25]]),
        ([[0, 1]], [[0.5]]),
        ([[0.5, 1]], [[0.5, 0.25]]),
        ([["a", "b"]], [[0.5, 0.25]]),
    ],
)
def test_malformed_lists_are_rejected(classes, probabilities):
    with pytest.raises(InputError):
        TopK(classes, probabilities, n_classes=9)


MANY = np.arange(200)
BAD = {
    "sum": ([0, 1], [0.9, 0.2]),
    "negative": ([0, 1], [-0.1, 0.5]),
    "nan": ([0, 1], [np.nan, 0.5]),
    "above 1": ([0, 1], [3.0, 0.1]),
    "twice": ([4, 0, 4], [0.5, 0.1, 0.1]),
    "twice of 64": (np.append(MANY[:63], 7), np.full(64, 0.001)),
    "twice of many": (np.append(MANY, 7), np.full(201, 0.001)),
    "none": ([], []),
}


@pytest.mark.parametrize(("classes", "values"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("kernels", ["numpy", "c++"])
def test_rows_that_are_not_probabilities_are_bad(classes, values, kernels):
    rows = TopK([[0, 1], classes], [[0.5, 0.1], values], n_classes=300)
    given = (SCORES[0].kernel, rows, Draws())
    module = topk if kernels == "numpy" else native
    assert outcome(module, "score_entries", *given, **PLAIN) == ["bad row", 1]
