"""The monitor: counts that add up, tests and their results, and what is rejected."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from depth import examples, size
from hypothesis import given, settings
from hypothesis import strategies as st
from monitoring.watching import assert_same_counts, assert_same_evidence, updated

from evencover import (
    APS,
    ClasswisePredictor,
    CoverageMonitor,
    InputError,
    StandardPredictor,
)
from evencover.ids import id_keys
from evencover.monitoring import state
from evencover.monitoring.evidence import block_of, shortfall_log_e, urn_log_e
from evencover.predictors import make_predictor, method_names
from evencover.randomness import RandomStream, random_order

K = 5
NOW = {"period": "now"}
pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(900, K, seed=21)


@pytest.fixture(scope="module")
def predictor(data):
    return ClasswisePredictor(score=APS()).fit(data.rows[:400], data.labels[:400])


@pytest.fixture(scope="module")
def new(data):
    return data.rows[400:], data.labels[400:], [f"row {n}" for n in range(500)]


def observed(predictor, rows, ids):
    """A monitor that recorded rows with ids."""
    monitor = CoverageMonitor(predictor)
    assert monitor.observe(rows, ids=ids, **NOW) == len(rows)
    return monitor


def arrival(n_rows, ids=None):
    """The order in which rows of one call count."""
    keys = np.arange(n_rows, dtype=np.uint64) if ids is None else id_keys(ids, n_rows)
    return random_order(0, RandomStream.EVIDENCE, keys)


def naive_restarts(hits, e_value):
    """E_t of the formula, block by block, with an e-value of the hits since a restart."""
    blocks = block_of(np.arange(len(hits)))
    found = 0.0
    for j in range(1, blocks[-1] + 2):
        found += e_value(hits, int((blocks < j - 1).sum())) / (j * (j + 1))
    return found + 1 / (blocks[-1] + 2)


def below(target):
    def e_value(hits, start):
        later = hits[start:]
        counts = np.array([later.sum()]), np.array([(~later).sum()])
        return float(np.exp(shortfall_log_e(*counts, target)[0]))

    return e_value


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((method, {"score": "aps"}) for method in method_names()),
        ("standard", {"score": "pas"}),
        ("standard", {"score": "raps", "exact": True}),
        ("classwise", {"score": "raps", "keep_top": False}),
    ],
    ids=str,
)
def test_every_method_is_watched(data, method, options):
    fitted = make_predictor(method, **options).fit(data.rows[:400], data.labels[:400])
    rows, labels = data.rows[400:], data.labels[400:]
    found = updated(fitted, rows, labels)
    is_covered = fitted.predict_set(rows).contains(labels)
    np.testing.assert_array_equal(found.rows, np.bincount(labels, minlength=K))
    np.testing.assert_array_equal(found.covered, np.bincount(labels[is_covered], minlength=K))
    order = arrival(len(labels))
    for y in range(K):
        hits = is_covered[order][labels[order] == y]
        assert found.e_values[y] == pytest.approx(naive_restarts(hits, below(0.88)))
    without = make_predictor(method, **options | {"keep_top": False})
    without = updated(without.fit(data.rows[:400], data.labels[:400]), rows, labels)
    np.testing.assert_array_equal(found.evidence.log_shift, without.evidence.log_shift)
    assert (found.covered >= without.covered).all()


def test_change_is_told_from_the_classs_own_scores(data, new):
    """By hand: the class's calibration scores, sorted, and how many new ones are within."""
    fitted = StandardPredictor().fit(data.rows[:400], data.labels[:400])
    snapshot = updated(fitted, new[0], new[1])
    scores, labels = 1 - data.rows[np.arange(900), data.labels], data.labels
    order = 400 + arrival(500)
    for y in range(K):
        calibration = np.sort(scores[:400][labels[:400] == y])
        k = -(-9 * (len(calibration) + 1) // 10)
        within = scores[order][labels[order] == y] <= calibration[k - 1]

        def shifted(hits, start, k=k, n=calibration.size):
            parts = hits[start:], ~hits[start:], hits[:start], ~hits[:start]
            hit, miss, *before = (np.array([part.sum()]) for part in parts)
            return float(np.exp(urn_log_e(hit, miss, np.array([k]), np.array([n]), before)[0]))

        found = np.exp(snapshot.evidence.log_shift[y])
        assert found == pytest.approx(naive_restarts(within, shifted))


def test_a_broken_promise_is_named_and_a_kept_one_is_not(predictor, new):
    rows, labels, ids = new
    assert not updated(predictor, rows, labels, ids=ids).alarm
    wrong = np.where(labels == 2, 3, labels)
    snapshot = updated(predictor, rows, wrong, ids=ids)
    assert snapshot.alarms.tolist() == [3]
    assert snapshot.shifts.tolist() == [3]
    assert snapshot.any_class.alarm
    found = snapshot.summary()
    assert found["classes"][0]["index"] == 3
    assert found["below_target"]["alarm"]
    low, high = snapshot.coverage_interval[3]
    assert high < 0.88
    assert low < snapshot.covered[3] / snapshot.rows[3] < high


@settings(max_examples=examples(2))
@given(cuts=st.lists(st.integers(0, 500), max_size=4))
def test_any_split_gives_the_same_counts(predictor, new, cuts):
    rows, labels, ids = new
    whole = updated(predictor, rows, labels, ids=ids, **NOW)
    parts = CoverageMonitor(predictor)
    for start, stop in pairwise(sorted({0, *cuts, 500})):
        parts.update(rows[start:stop], labels[start:stop], ids=ids[start:stop], **NOW)
    assert_same_counts(parts.snapshot(), whole)
    assert parts.snapshot().periods[0] == whole.periods[0]


@pytest.mark.parametrize("with_ids", [False, True])
def test_the_order_of_a_file_is_no_evidence(with_ids):
    """Hits first and misses last, as in a file sorted by the label's probability."""
    rng = np.random.default_rng(5)
    for _ in range(size(short=1, deep=100)):
        labels = rng.integers(0, K, 4000)
        logits = rng.normal(size=(4000, K))
        logits[np.arange(4000), labels] += rng.gamma(2, 1, size=4000)
        rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        fitted = StandardPredictor().fit(rows[:1500], labels[:1500])
        order = 1500 + np.argsort(-rows[np.arange(1500, 4000), labels[1500:]])
        ids = np.arange(2500) if with_ids else None
        assert not updated(fitted, rows[order], labels[order], ids=ids).alarm


@pytest.mark.parametrize("with_ids", [False, True])
def test_rows_of_one_call_count_in_an_order_that_only_their_ids_decide(predictor, new, with_ids):
    rows, labels, ids = new
    shuffled = np.random.default_rng(1).permutation(500)
    found = updated(predictor, rows, labels, ids=ids if with_ids else None)
    again = updated(
        predictor,
        rows[shuffled],
        labels[shuffled],
        ids=np.array(ids)[shuffled] if with_ids else None,
    )
    np.testing.assert_array_equal(found.rows, again.rows)
    is_same = np.allclose(found.evidence.log_e, again.evidence.log_e)
    assert is_same == with_ids  # without ids the place of a row is its key


def of_class_1(predictor, data, covered):
    """Rows and labels of class 1, so many of them covered or missed."""
    is_covered = predictor.predict_set(data.rows).contains(np.ones(900, dtype=int))
    hits, misses = data.rows[is_covered][0], data.rows[~is_covered][0]
    return np.where(np.asarray(covered)[:, None], hits, misses), np.ones(len(covered), dtype=int)


def test_a_long_good_history_does_not_hide_a_fall(data):
    """5000 labels at 92%, then a fall to 70%: found in 200 more, and dated."""
    fitted = ClasswisePredictor().fit(data.rows[:400], data.labels[:400])
    monitor = CoverageMonitor(fitted)
    for block in range(5):
        good = of_class_1(fitted, data, np.arange(1000) % 25 >= 2)
        monitor.update(*good, period=f"good {block}")
    assert monitor.snapshot().e_values[1] < 1
    found = []
    for day in range(10):
        monitor.update(*of_class_1(fitted, data, np.arange(20) >= 6), period=f"worse {day}")
        found.append(1 in monitor.snapshot().alarms)
    assert not found[0]
    assert found[-1]
    assert monitor.snapshot().since[1] == "worse 0"


def test_recent_coverage_below_target_is_shown_next_to_a_good_history(data):
    """3,303 labels at 85.5% after 6,000 at 90% once read as "nothing significant"."""
    fitted = StandardPredictor().fit(data.rows[:400], data.labels[:400])
    monitor = CoverageMonitor(fitted, state=None)
    monitor.update(*of_class_1(fitted, data, np.arange(6000) % 10 > 0), period="a")
    assert monitor.snapshot().summary()["recent"]["message"].startswith("Recent coverage is not")
    monitor.update(*of_class_1(fitted, data, np.arange(3303) < round(0.855 * 3303)), period="b")
    recent = monitor.snapshot().summary()["recent"]
    assert recent["message"].startswith("NOTE")
    assert "85.5% of period b" in recent["message"]
    assert recent["all"]["coverage"] > 0.88 > recent["latest_period"]["interval"][1]
    low, high = recent["latest_labels"]["interval"]
    assert low < recent["latest_labels"]["coverage"] < high


def test_rows_count_once_by_their_ids(predictor, new):
    rows, labels, ids = new
    monitor = CoverageMonitor(predictor)
    assert monitor.update(rows, labels, ids=ids) == (500, 0, 0, 0, 0)
    assert monitor.update(rows, labels, ids=ids) == (0, 0, 500, 0, 0)
    assert monitor.snapshot().totals[0] == 500
    assert monitor.update(rows, labels) == (500, 0, 0, 0, 0)  # without ids they are other rows
    assert monitor.snapshot().totals[0] == 1000
    twice = [0, 1, 0]
    assert monitor.update(rows[twice], labels[twice], ids=["a", "b", "a"]) == (2, 0, 1, 0, 0)
    assert monitor.observe(rows[twice], ids=["a", "c", "a"]) == 1
    with pytest.raises(InputError, match="'ids'"):
        monitor.observe(rows)


# Pairs of rows and labels -------------------------------------------------------------------------


def test_one_id_of_different_rows_is_an_error_that_names_it(predictor, new):
    """The monitor once paired the first row with the last label: coverage 29.3%, not 91.5%."""
    rows, labels, _ = new
    monitor, patients = CoverageMonitor(predictor), [f"patient {n // 2}" for n in range(500)]
    for send in (
        lambda: monitor.update(rows, labels, ids=patients),
        lambda: monitor.observe(rows, ids=patients),
    ):
        with pytest.raises(InputError, match="0 and 1, of 'patient 0'"):
            send()
    assert monitor.snapshot().totals[0] == 0


def test_each_row_of_a_recurring_id_counts_with_its_own_label(predictor, new):
    rows, labels, _ = new
    monitor, patients = CoverageMonitor(predictor), [f"patient {n}" for n in range(250)]
    for part in (slice(0, 250), slice(250, 500)) * 2:
        counts = monitor.update(rows[part], labels[part], ids=patients)
        assert counts[0] + counts[2] == 250
    first, second = (
        updated(predictor, rows[part], labels[part], ids=patients)
        for part in (slice(0, 250), slice(250, 500))
    )
    found = monitor.snapshot()
    np.testing.assert_array_equal(found.covered, first.covered + second.covered)
    np.testing.assert_array_equal(found.rows, first.rows + second.rows)


@pytest.mark.parametrize("by_id", [False, True])
def test_answers_count_as_right_for_their_own_and_their_ancestors_labels(new, by_id):
    rng, names = np.random.default_rng(0), list("abcde")
    labels = rng.integers(0, K, 4000)
    logits = rng.normal(0, 2, (4000, K)) + 2.0 * (np.arange(K) == labels[:, None])
    logits += 2.0 * (np.arange(K) // 2 == labels[:, None] // 2)  # ab and cd are confused
    rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    tree = [("a", "ab"), ("b", "ab"), ("c", "cd"), ("d", "cd")]
    predictor = StandardPredictor().fit(rows[:2000], labels[:2000], class_names=names)
    how = {"accuracy": 0.9, "taxonomy": tree, "class_names": names}
    predictor.fit_acceptance(rows[:2000], labels[:2000], **how)
    rows, labels, ids = rows[2000:], labels[2000:].tolist(), [f"row {n}" for n in range(2000)]
    labels[:40] = ["unknown"] * 40
    answers = predictor.answers(rows)
    assert min(answers.counts().values()) > 40
    right = [
        name is not None and y != "unknown" and names[y] in name
        for name, y in zip(answers.names, labels, strict=True)
    ]
    n_answered = sum(name is not None for name in answers.names)
    if by_id:
        monitor = observed(predictor, rows, ids)
        monitor.label(ids, labels)
    else:
        monitor = CoverageMonitor(predictor)
        indices = [K if y == "unknown" else y for y in labels]
        monitor.update(rows, [names[y] if y < K else "unknown" for y in indices])
    found = monitor.snapshot().summary()["answers"]
    assert (found["rows"], found["accuracy"]) == (n_answered, sum(right) / n_answered)
    assert found["interval"][0] < found["accuracy"] < found["interval"][1]


def test_without_cutoffs_no_answers_are_counted(predictor, new):
    rows, labels, _ = new
    monitor = CoverageMonitor(predictor)
    monitor.update(rows, labels)
    assert monitor.snapshot().summary()["answers"] is None


def hit_and_miss(predictor, rows):
    """Two rows and a label that only the set of the first contains."""
    sets = predictor.predict_set(rows, ids=["a"] * len(rows))
    covered = np.stack([sets.contains([y] * len(rows)) for y in range(K)])
    (y,) = np.flatnonzero(covered.any(axis=1) & ~covered.all(axis=1))[:1]
    return [rows[[np.flatnonzero(covered[y] == is_hit)[0]]] for is_hit in (True, False)], int(y)


@pytest.mark.parametrize(
    ("time", "is_covered"),
    [
        (None, False),
        ("2027-01-15T07:59:59+00:00", True),  # before both rows: the first
        ("2027-01-15 08:00:00", True),
        ("2027-01-15T09:30:00+01:00", True),
        ("2027-01-15T09:00:01Z", False),
        ("2027-01-15", False),  # without a time of day, the arrival of the label decides
    ],
)
def test_a_label_counts_for_the_last_row_of_its_id_before_it(
    predictor, new, monkeypatch, time, is_covered
):
    clock = [1.8e9]  # 2027-01-15T08:00
    monkeypatch.setattr(state.time, "time", lambda: clock[0])
    monitor, (parts, y) = CoverageMonitor(predictor), hit_and_miss(predictor, new[0])
    for row in parts:
        monitor.observe(row, ids=["a"])
        clock[0] += 3600
    times = None if time is None else [time]
    assert monitor.label(["a"], [y], time=times) == (1, 0, 0, 0, 1)
    assert monitor.snapshot().totals == (1, int(is_covered))
    assert monitor.label(["a"], [y], time=times) == (0, 0, 1, 0, 1)


def test_labels_are_those_of_the_model_that_served_the_row(data, new):
    """After a new model with another order of classes, coverage was once 0.0 instead of 1.0."""
    names = ["ant", "bee", "cat", "dog", "eel"]
    old, rows = StandardPredictor(), data.rows
    old = old.fit(rows[:400], data.labels[:400], class_names=names)
    turned = StandardPredictor().fit(
        np.roll(rows[:400], 1, axis=1),
        (data.labels[:400] + 1) % K,
        class_names=[names[-1], *names[:-1]],
    )
    first = CoverageMonitor(old)
    first.observe(new[0], ids=new[2])
    second = CoverageMonitor(turned, state=first.state)
    assert second.label(new[2], new[1]).counted == 500  # indices in the answers of the first
    assert_same_counts(first.snapshot(), updated(old, new[0], new[1], ids=new[2]))
    second.observe(np.roll(new[0], 1, axis=1), ids=new[2])  # it counts the same classes by name
    expected = updated(turned, np.roll(new[0], 1, axis=1), (new[1] + 1) % K, ids=new[2])
    assert_same_counts(second.snapshot(), expected)


def test_a_label_that_looks_like_a_class_is_an_error(data):
    """It once counted as a miss."""
    names = ["ant", "bee", "cat", "dog", "café"]
    monitor = CoverageMonitor(StandardPredictor().fit(*data, class_names=names))
    for label in ("ant ", " bee", "cafe\u0301", "dog\u200b"):
        with pytest.raises(InputError, match="row 1"):
            monitor.label(["a", "b"], ["cow", label])
    assert monitor.label(["a"], ["cow"]).waiting == 1


def test_indices_are_those_of_a_model_with_more_classes_that_served_the_row(predictor, new):
    """After a new model with fewer classes, its labels were once rejected."""
    rows, labels, ids = new
    first = CoverageMonitor(predictor)
    first.observe(rows, ids=ids)
    fewer = StandardPredictor().fit(np.eye(2)[[0, 1] * 40], [0, 1] * 40)
    assert labels.max() == K - 1
    assert CoverageMonitor(fewer, state=first.state).label(ids, labels).counted == len(labels)
    assert_same_counts(first.snapshot(), updated(predictor, rows, labels, ids=ids))
    with pytest.raises(InputError, match="'labels'"):
        first.label(ids[:1], [K])


def test_an_index_is_a_class_of_the_model_that_served_the_row_before_it(data, monkeypatch):
    """It was once one of the last model, whatever the time of the label."""
    clock, rows = [1.8e9], data.rows  # 2027-01-15T08:00
    monkeypatch.setattr(state.time, "time", lambda: clock[0])
    names, shared = ["ant", "bee", "cat", "dog", "eel"], state.MonitorState()
    for turn in range(2):
        fitted = StandardPredictor().fit(
            np.roll(rows[:400], turn, axis=1),
            (data.labels[:400] + turn) % K,
            class_names=np.roll(names, turn).tolist(),
        )
        monitor = CoverageMonitor(fitted, state=shared)
        monitor.observe(np.roll(rows[400:401], turn, axis=1), ids=["a"])
        clock[0] += 3600
    assert monitor.label(["a"], [0], time=["2027-01-15T08:30Z"]).counted == 1
    assert monitor.snapshot().rows.tolist() == [0, 1, 0, 0, 0]  # the ant of the first model


# Corrections ------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("wrong", [0, "oak"])
def test_a_corrected_label_replaces_the_first_one(predictor, new, by_id, wrong):
    rows, labels, ids = new
    monitor = observed(predictor, rows, ids)
    n_wrong = int((labels != wrong).sum())
    first = [wrong] * 500
    assert monitor.label(ids, first) == (500, 0, 0, 0, 0)
    send = partial(monitor.label, ids) if by_id else partial(monitor.update, rows, ids=ids, **NOW)
    counts = send(labels=labels)
    assert counts == (0, n_wrong, 500 - n_wrong, 0, 0)
    found, expected = monitor.snapshot(), updated(predictor, rows, labels, ids=ids, **NOW)
    assert_same_counts(found, expected)
    assert found.periods == expected.periods
    assert found.unknown_labels == 0
    assert monitor.label(ids, labels).repeated == 500


def test_of_two_labels_of_one_id_the_last_counts(predictor, new):
    monitor = observed(predictor, new[0][:1], ["a"])
    assert monitor.label(["a", "a"], [1, 2]) == (1, 0, 1, 0, 0)
    assert monitor.snapshot().rows.tolist() == [0, 0, 1, 0, 0]
    assert monitor.label(["b", "b"], [1, 2]) == (0, 0, 1, 1, 0)
    monitor.observe(new[0][1:2], ids=["b"])
    assert monitor.snapshot().rows.tolist() == [0, 0, 2, 0, 0]


@settings(max_examples=examples(3))
@given(
    steps=st.lists(st.lists(st.integers(0, K - 1), min_size=8, max_size=8), min_size=1, max_size=9)
)
def test_after_any_corrections_the_counts_are_those_of_the_last_labels(predictor, new, steps):
    rows, _, ids = new
    monitor = observed(predictor, rows[:8], ids[:8])
    for labels in steps:
        counts = monitor.label(ids[:8], labels)
        assert sum(counts) == 8
    assert_same_counts(monitor.snapshot(), updated(predictor, rows[:8], steps[-1], ids=ids[:8]))


def test_calibration_rows_are_rejected_also_those_that_joined_later(data):
    fitted = ClasswisePredictor().fit(data.rows[:60], data.labels[:60])
    earlier = CoverageMonitor(fitted)
    fitted.partial_fit(data.rows[60:90], data.labels[60:90])
    with pytest.raises(InputError, match="'predictor'"):  # its thresholds are new, the counts old
        earlier.update(data.rows[90:], data.labels[90:])
    monitor = CoverageMonitor(fitted)
    for start, stop in [(0, 60), (60, 90), (0, 90)]:
        with pytest.raises(InputError, match="calibration"):
            monitor.update(data.rows[start:stop], data.labels[start:stop])
    assert monitor.snapshot().totals[0] == 0
    assert monitor.update(data.rows[90:], data.labels[90:]).counted == 810


@pytest.mark.parametrize("part", [slice(80, 120), slice(50, 55)])
def test_ids_of_calibration_rows_are_rejected(data, part):
    ids = np.array([f"row {n}" for n in range(900)])
    fitted = ClasswisePredictor().fit(data.rows[:60], data.labels[:60], ids=ids[:60])
    fitted.partial_fit(data.rows[60:90], data.labels[60:90], ids=ids[60:90])
    monitor = CoverageMonitor(fitted)
    rows, labels, some = data.rows[part], data.labels[part], ids[part]
    for send in (
        lambda: monitor.update(rows, labels, ids=some),
        lambda: monitor.label(some, labels),
        lambda: monitor.observe(rows, ids=some),
    ):
        with pytest.raises(InputError, match="'ids'"):
            send()
    assert monitor.snapshot().totals[0] == 0


# Labels -----------------------------------------------------------------------------------------


def test_labels_find_their_rows_by_id_and_those_of_unknown_rows_wait(predictor, new):
    rows, labels, ids = new
    monitor, whole = (
        observed(predictor, rows, ids),
        updated(predictor, rows, labels, ids=ids, **NOW),
    )
    assert monitor.label(ids, labels) == (500, 0, 0, 0, 0)
    assert_same_evidence(monitor.snapshot(), whole)
    assert monitor.snapshot().periods == whole.periods
    monitor = observed(predictor, rows[:400], ids[:400])
    assert monitor.label(ids, labels) == (400, 0, 0, 100, 0)
    assert monitor.label(ids[350:], labels[350:]) == (0, 0, 50, 100, 0)
    assert (monitor.snapshot().totals[0], monitor.snapshot().waiting) == (400, 100)
    monitor.observe(rows[400:], ids=ids[400:], **NOW)
    assert_same_counts(monitor.snapshot(), whole)
    assert monitor.snapshot().waiting == 0


@pytest.mark.parametrize("early", [False, True])
def test_a_label_counts_for_every_model_that_serves_its_row(predictor, data, new, early):
    rows, labels, ids = new
    other = StandardPredictor().fit(data.rows[:400], data.labels[:400])
    first = CoverageMonitor(predictor)
    second = CoverageMonitor(other, state=first.state)
    if early:
        assert first.label(ids, labels).waiting == 500
    first.observe(rows, ids=ids)
    if not early:
        assert first.label(ids, labels).counted == 500
    second.observe(rows, ids=ids)
    for monitor in (first, second):
        assert_same_counts(monitor.snapshot(), updated(monitor.predictor, rows, labels, ids=ids))


# Bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("false_alarm", 0), ("tolerance", -1), ("tolerance", 0.95)]
)
def test_bad_parameters_are_rejected(predictor, name, value):
    with pytest.raises(InputError, match=f"'{name}'"):
        CoverageMonitor(predictor, **{name: value})


@pytest.mark.parametrize(
    ("ids", "labels", "time", "name"),
    [
        (["a", "b"], [1], None, "labels"),
        *((["a", "b"], [0, label], None, "labels") for label in (0.5, "", None, True, -1, K, 99)),
        ([0.5], [1], None, "ids"),
        (["a"], [1], ["soon"], "time"),
        *((["a"], [1], [time], "time") for time in ("0001-01-01T00:00:00+14:00", "1899-12-31")),
        *((["a"], [1], [time], "time") for time in ("9999-12-31T23:59:59-14:00", "2201-01-01")),
        (["a"], [1], ["2026-01-01", "2026-01-01"], "time"),
    ],
    ids=str,
)
def test_bad_labels_are_rejected(predictor, ids, labels, time, name):
    monitor = CoverageMonitor(predictor)
    with pytest.raises(InputError, match=f"'{name}'"):
        monitor.label(ids, np.array(labels, dtype=object), time=time)
    assert monitor.snapshot().waiting == 0


# ---- an alpha per class --------------------------------------------------------------------------


def test_every_class_is_held_to_its_own_target():
    rng = np.random.default_rng(2)
    p = rng.dirichlet([1, 1, 1], 900)
    labels = (p.cumsum(axis=1) < rng.random((900, 1))).sum(axis=1)
    alpha = {"ant": 0.01, "default": 0.3}
    names = ["ant", "bee", "cat"]
    predictor = ClasswisePredictor(alpha=alpha).fit(p[:600], labels[:600], class_names=names)
    monitor = CoverageMonitor(predictor, tolerance=0.02)
    assert monitor.model.targets.round(6).tolist() == [0.97, 0.68, 0.68]
    monitor.update(p[600:], labels[600:])
    assert len(monitor.snapshot().alarms) == 0
    sets = predictor.predict_set(p)
    for y in range(3):  # four of five are covered
        is_covered = sets.contains(np.full(900, y))
        some = np.append(np.flatnonzero(is_covered)[:80], np.flatnonzero(~is_covered)[:20])
        monitor.update(p[np.resize(some, 100)], np.full(100, y))
    assert monitor.snapshot().alarms.tolist() == [0]
