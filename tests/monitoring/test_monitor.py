"""The monitor: counts that add up, questions and their answers, states that survive."""

import json
from itertools import pairwise

import numpy as np
import pytest
from depth import examples, size
from hypothesis import given, settings
from hypothesis import strategies as st

from evencover import (
    APS,
    ClasswisePredictor,
    CoverageMonitor,
    EvencoverWarning,
    InputError,
    PooledPredictor,
    RowGroupedPredictor,
    StandardPredictor,
)
from evencover.monitoring import summary
from evencover.monitoring.evidence import shortfall_log_e, urn_log_e
from evencover.monitoring.monitor import EARLIER, MOST_PERIODS, Counts
from evencover.predictors import make_predictor, method_names

K = 5
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


@pytest.mark.parametrize("score", ["aps", "pas"])
@pytest.mark.parametrize("method", method_names())
def test_every_method_is_watched(data, method, score):
    fitted = make_predictor(method, score=score).fit(data.rows[:400], data.labels[:400])
    rows, labels = data.rows[400:], data.labels[400:]
    monitor = CoverageMonitor(fitted).update(rows, labels)
    sets = fitted.predict_set(rows)
    covered = np.bincount(labels[sets.contains(labels)], minlength=K)
    np.testing.assert_array_equal(monitor.rows, np.bincount(labels, minlength=K))
    np.testing.assert_array_equal(monitor.covered, covered)
    expected = shortfall_log_e(covered, monitor.rows - covered, 0.88)
    np.testing.assert_array_equal(monitor.log_e_values(), expected)
    assert monitor.change_log_e_values() is not None


def test_change_is_told_from_the_classs_own_scores(data, new):
    """By hand: the class's calibration scores, sorted, and how many new ones are within."""
    fitted = StandardPredictor().fit(data.rows[:400], data.labels[:400])
    monitor = CoverageMonitor(fitted).update(new[0], new[1])
    own, then = 1 - data.rows[np.arange(900), data.labels], data.labels
    for y in range(K):
        calibration = np.sort(own[:400][then[:400] == y])
        k = -(-9 * (len(calibration) + 1) // 10)
        within = (own[400:][then[400:] == y] <= calibration[k - 1]).sum()
        n_rows = (then[400:] == y).sum()
        expected = urn_log_e(
            *(np.array([v]) for v in (within, n_rows - within, k, len(calibration)))
        )
        assert monitor.change_log_e_values()[y] == expected[0]


def test_classwise_counts_tell_of_change_as_rows_do(data, new):
    fitted = ClasswisePredictor().fit(data.rows[:400], data.labels[:400])
    by_rows = CoverageMonitor(fitted).update(new[0], new[1], period="a")
    by_counts = CoverageMonitor(fitted)
    by_counts.update_counts(range(K), by_rows.covered, by_rows.rows, period="a")
    assert by_counts == by_rows


def test_a_broken_promise_is_named_and_a_kept_one_is_not(predictor, new):
    rows, labels, ids = new
    assert not CoverageMonitor(predictor).update(rows, labels, ids=ids).alarm
    wrong = np.where(labels == 2, 3, labels)
    monitor = CoverageMonitor(predictor).update(rows, wrong, ids=ids)
    assert monitor.alarms().tolist() == [3]
    assert monitor.changes().tolist() == [3]
    assert monitor.any_class().alarm
    found = summary(monitor)
    assert found["classes"][0]["index"] == 3
    assert found["promise"]["alarm"]
    low, high = monitor.coverage_interval()[3]
    assert high < 0.88
    assert low < monitor.covered[3] / monitor.rows[3] < high
    each = monitor.coverage_interval(each=True)
    narrower = np.diff(each) < np.diff(monitor.coverage_interval())
    assert narrower[monitor.rows > 0].all()


@settings(max_examples=examples(8))
@given(cuts=st.lists(st.integers(0, 500), max_size=4), swap=st.booleans())
def test_merging_any_split_gives_the_same_state(predictor, new, cuts, swap):
    rows, labels, ids = new
    whole = CoverageMonitor(predictor).update(rows, labels, ids=ids, period="now")
    whole.observe(rows, ids=ids).observe(rows[:50], ids=ids[:50], reference=True)
    edges = [0, *sorted(cuts), 500]
    parts = []
    for start, stop in pairwise(edges):
        if stop > start:
            part = CoverageMonitor(predictor)
            part.update(rows[start:stop], labels[start:stop], ids=ids[start:stop], period="now")
            parts.append(part.observe(rows[start:stop], ids=ids[start:stop]))
    parts[0].observe(rows[:50], ids=ids[:50], reference=True)
    merged = CoverageMonitor(predictor)
    for part in reversed(parts) if swap else parts:
        merged = part + merged if swap else merged + part
    assert merged == whole


def test_old_periods_become_one_before_or_after_a_merge():
    def counts(days):
        made = Counts(3)
        for day in days:
            made.add_labelled(f"{day:04d}", np.array([2, 0, 1]), np.array([1, 0, 1]))
        return made

    days = range(MOST_PERIODS + 30)
    whole = counts(days)
    assert len(whole.periods) == MOST_PERIODS + 1
    assert whole.rows.tolist() == [2 * len(days), 0, len(days)]
    assert counts(days[::2]) + counts(days[1::2]) == whole
    assert counts(days[50:]) + counts(days[:50]) == whole
    assert whole.periods[EARLIER][0, 0] == 2 * 30


def test_only_monitors_of_one_kind_merge(predictor, data):
    mine = CoverageMonitor(predictor)
    other = StandardPredictor().fit(*data)
    for theirs, name in (
        (CoverageMonitor(other), "model"),
        (CoverageMonitor(predictor, tolerance=0.05), "tolerance"),
        (CoverageMonitor(predictor, 0.1), "false_alarm"),
    ):
        with pytest.raises(InputError, match=name):
            mine + theirs


def test_the_same_rows_are_counted_once_if_asked(predictor, new):
    rows, labels, ids = new
    monitor = CoverageMonitor(predictor).update(rows, labels, ids=ids, once=True)
    with pytest.raises(InputError, match="counted before"):
        monitor.update(rows, labels, ids=ids, once=True)
    assert monitor.rows.sum() == 500
    again = CoverageMonitor(predictor).update(rows, labels, ids=ids, once=True)
    with pytest.raises(InputError, match="Both monitors counted the same rows"):
        monitor + again


def test_calibration_rows_are_rejected_also_those_that_joined_later(data):
    fitted = ClasswisePredictor().fit(data.rows[:60], data.labels[:60])
    monitor = CoverageMonitor(fitted)
    with pytest.raises(InputError, match="calibration"):
        monitor.update(data.rows[:60], data.labels[:60])
    fitted.partial_fit(data.rows[60:90], data.labels[60:90])
    with pytest.raises(InputError, match="'predictor'"):  # its thresholds are new, the counts old
        monitor.update(data.rows[90:], data.labels[90:])
    monitor = CoverageMonitor(fitted)
    for start, stop in [(0, 60), (60, 90), (0, 90)]:
        with pytest.raises(InputError, match="calibration"):
            monitor.update(data.rows[start:stop], data.labels[start:stop])
    assert monitor.rows.sum() == 0
    assert monitor.update(data.rows[90:], data.labels[90:]).rows.sum() == 810


def test_copies_of_calibration_rows_are_told(simulate):
    rows, labels = simulate(3000, K, seed=4)
    monitor = CoverageMonitor(ClasswisePredictor().fit(rows[:2000], labels[:2000]))
    with pytest.warns(EvencoverWarning, match="copies of calibration rows"):
        monitor.update(rows[1000:], labels[1000:])


def test_rows_without_labels_are_counted_once_if_asked(predictor, new, tmp_path):
    rows = new[0]
    monitor = CoverageMonitor(predictor).observe(rows, once=True)
    monitor.save(tmp_path / "watch.json")
    monitor = CoverageMonitor.load(tmp_path / "watch.json", predictor)
    with pytest.warns(EvencoverWarning, match="500 rows .* not counted again"):
        monitor.observe(iter([rows[:200], rows[200:]]), once=True)
    assert monitor.counts.sizes.sum() == 500
    monitor.observe(rows[:400], once=True).observe(rows[::-1].copy(), once=True)
    assert monitor.counts.sizes.sum() == 1400


def test_ids_of_single_rows_are_kept_and_count_once(predictor, tmp_path):
    keys = np.array([0, 7, 2**64 - 1], dtype=np.uint64)
    monitor = CoverageMonitor(predictor)
    monitor.counts.add_ids(keys)
    monitor.save(tmp_path / "watch.json")
    again = CoverageMonitor.load(tmp_path / "watch.json", predictor)
    assert sorted(again.counts.ids.tolist()) == keys.tolist()
    other = CoverageMonitor(predictor)
    other.counts.add_ids(keys[1:])
    with pytest.raises(InputError, match="2 inputs"):
        monitor + other


def test_groups_of_rows_are_watched_without_the_question_of_change(data):
    sites = np.array(["north", "south"])[np.arange(900) % 2]
    fitted = RowGroupedPredictor().fit(data.rows[:400], data.labels[:400], groups=sites[:400])
    monitor = CoverageMonitor(fitted).update(data.rows[400:], data.labels[400:], groups=sites[400:])
    assert monitor.rows.sum() == 500
    assert monitor.change_log_e_values() is None
    assert not monitor.any_change().alarm
    assert not summary(monitor)["change"]["alarm"]


# Drift ------------------------------------------------------------------------------------------


def test_drift_is_seen_where_sets_change_and_nowhere_else(data, new):
    fitted = PooledPredictor()
    fitted.fit(data.rows[:400], data.labels[:400], class_names=list("abcde"))
    rows = new[0]
    assert CoverageMonitor(fitted).observe(rows).drift() == []
    calm = CoverageMonitor(fitted).observe(data.rows[:400], reference=True).observe(rows)
    assert not any(each.drifted for each in calm.drift())
    moved = rows[rows.argmax(axis=1) == 0]
    found = CoverageMonitor(fitted).observe(data.rows[:400], reference=True).observe(moved).drift()
    assert found[0].what == "rows predicted as a"
    assert found[0].drifted
    assert found[0].now == 1
    assert found[0].before == pytest.approx((data.rows[:400].argmax(axis=1) == 0).mean())
    assert not CoverageMonitor(fitted).observe(moved).alarm


# Files ------------------------------------------------------------------------------------------


def test_a_state_comes_back_and_the_one_before_is_kept(predictor, new, tmp_path):
    rows, labels, ids = new
    path = tmp_path / "watch.json"
    first = CoverageMonitor(predictor).update(rows[:100], labels[:100], ids=ids[:100])
    first.save(path)
    assert CoverageMonitor.load(path, predictor) == first
    second = CoverageMonitor.load(path, predictor).update(rows[100:], labels[100:], ids=ids[100:])
    second.save(path)
    assert CoverageMonitor.load(path, predictor) == second
    assert CoverageMonitor.load(f"{path}.before", predictor) == first
    assert {each.name for each in tmp_path.iterdir()} == {"watch.json", "watch.json.before"}


def test_a_state_cut_anywhere_is_refused_and_says_where_the_one_before_is(predictor, new, tmp_path):
    path = tmp_path / "watch.json"
    monitor = CoverageMonitor(predictor).update(*new[:2], period="2026-01-01")
    monitor.save(path)
    monitor.save(path)
    content = path.read_bytes().rstrip()  # the last newline may go
    cuts = range(0, len(content), size(short=29, deep=1))
    for cut in cuts:
        path.write_bytes(content[:cut])
        with pytest.raises(InputError, match=r"damaged.*watch\.json\.before"):
            CoverageMonitor.load(path, predictor)
    assert CoverageMonitor.load(f"{path}.before", predictor) == monitor


@pytest.mark.parametrize(
    ("old", "new_text"),
    [
        ('"false_alarm": 0.05', '"false_alarm": 0.5'),
        ('"first": [', '"first": [1, '),
        ('"format": 1', '"format": 0'),
        ("2026-01-01", "2026-01-02"),
    ],
)
def test_a_changed_state_is_refused(predictor, new, tmp_path, old, new_text):
    path = tmp_path / "watch.json"
    CoverageMonitor(predictor).update(*new[:2], period="2026-01-01").save(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new_text, 1))
    with pytest.raises(InputError, match="damaged"):
        CoverageMonitor.load(path, predictor)


def test_a_state_of_the_future_or_of_another_model_is_refused_by_name(predictor, data, tmp_path):
    path = tmp_path / "watch.json"
    CoverageMonitor(predictor).save(path)
    with pytest.raises(InputError, match="belongs to another model"):
        CoverageMonitor.load(path, StandardPredictor().fit(*data))
    content = json.loads(path.read_text()) | {"format": 2}
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="has format 2"):
        CoverageMonitor.load(path, predictor)
    with pytest.raises(InputError, match="no such file"):
        CoverageMonitor.load(tmp_path / "none.json", predictor)


@pytest.mark.parametrize(
    "change",
    [
        {"n_classes": 4},
        {"sizes": [[1]]},
        {"urn": {"classes": [0], "first": [1], "second": [2]}},
        {"urn": {"classes": [9], "first": [1], "second": [0]}},
        {"urn": {"classes": [0], "first": [1.5], "second": [0]}},
        {"urn": {"classes": [0], "first": [-1], "second": [-2]}},
        {"tops": {"classes": [0, 0], "first": [1, 1], "second": [0, 0]}},
    ],
    ids=str,
)
def test_impossible_counts_are_rejected(predictor, tmp_path, change):
    from evencover.monitoring.store import write_state

    path = tmp_path / "watch.json"
    content = CoverageMonitor(predictor)._content()
    write_state(path, content | {"counts": content["counts"] | change})
    with pytest.raises(InputError, match="damaged"):
        CoverageMonitor.load(path, predictor)


# Bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("false_alarm", 0), ("tolerance", -1), ("tolerance", 0.95)]
)
def test_bad_parameters_are_rejected(predictor, name, value):
    with pytest.raises(InputError, match=f"'{name}'"):
        CoverageMonitor(predictor, **{name: value})


@pytest.mark.parametrize(
    ("counts", "name"),
    [(([5], [1], [1]), "classes"), (([0], [2], [1]), "covered"), (([0], [0.5], [1]), "covered")],
)
def test_bad_counts_are_rejected(predictor, counts, name):
    with pytest.raises(InputError, match=f"'{name}'"):
        CoverageMonitor(predictor).update_counts(*counts)


def test_an_unfitted_predictor_and_rows_without_labels_are_refused(predictor, new):
    with pytest.raises(InputError, match="not calibrated"):
        CoverageMonitor(StandardPredictor())
    with pytest.raises(InputError, match="needs labels"):
        CoverageMonitor(predictor).update(new[0])
