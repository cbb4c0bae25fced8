"""The monitor: counts that add up, tests and their results, and what is rejected."""

from itertools import pairwise

import numpy as np
import pytest
from depth import examples
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
from evencover.monitoring.evidence import block_of, shortfall_log_e, urn_log_e
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


def naive_restarts(hits, e_value):
    """E_t of the formula, block by block, with an e-value of the hits since a restart."""
    blocks = block_of(np.arange(len(hits)))
    found = 0.0
    for j in range(1, blocks[-1] + 2):
        found += e_value(hits, int((blocks < j - 1).sum())) / (j * (j + 1))
    return found + 1 / (blocks[-1] + 2)


def below(target):
    def e_value(hits, start):
        own = hits[start:]
        counts = np.array([own.sum()]), np.array([(~own).sum()])
        return float(np.exp(shortfall_log_e(*counts, target)[0]))

    return e_value


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
    for y in range(K):
        hits = sets.contains(labels)[labels == y]
        assert monitor.e_values()[y] == pytest.approx(naive_restarts(hits, below(0.88)))
    assert monitor.shift_log_e_values() is not None


def test_change_is_told_from_the_classs_own_scores(data, new):
    """By hand: the class's calibration scores, sorted, and how many new ones are within."""
    fitted = StandardPredictor().fit(data.rows[:400], data.labels[:400])
    monitor = CoverageMonitor(fitted).update(new[0], new[1])
    own, then = 1 - data.rows[np.arange(900), data.labels], data.labels
    for y in range(K):
        calibration = np.sort(own[:400][then[:400] == y])
        k = -(-9 * (len(calibration) + 1) // 10)
        within = own[400:][then[400:] == y] <= calibration[k - 1]

        def shifted(hits, start, k=k, n=calibration.size):
            parts = hits[start:], ~hits[start:], hits[:start], ~hits[:start]
            hit, miss, *before = (np.array([part.sum()]) for part in parts)
            return float(np.exp(urn_log_e(hit, miss, np.array([k]), np.array([n]), before)[0]))

        found = np.exp(monitor.shift_log_e_values()[y])
        assert found == pytest.approx(naive_restarts(within, shifted))


def test_classwise_counts_tell_of_change_as_rows_do(data, new):
    fitted = ClasswisePredictor().fit(data.rows[:400], data.labels[:400])
    by_rows = CoverageMonitor(fitted).update(new[0], new[1], period="a")
    by_counts = CoverageMonitor(fitted)
    by_counts.update_counts(range(K), by_rows.covered, by_rows.rows, period="a")
    np.testing.assert_array_equal(by_counts.rows, by_rows.rows)
    np.testing.assert_array_equal(by_counts.covered, by_rows.covered)
    log_e = urn_log_e(
        by_rows.covered, by_rows.rows - by_rows.covered, by_counts._urn.ranks, by_counts._urn.counts
    )
    # One block of unknown order: half the weight is on it, and the rest has not begun.
    has_all = np.isin(np.arange(K), by_counts._urn_is_coverage())
    expected = np.where(has_all, np.exp(log_e) / 2 + 1 / 2, 1)
    np.testing.assert_allclose(np.exp(by_counts.shift_log_e_values()), expected)
    assert by_counts.periods()[0] == (-1, "a", 500, by_rows.covered.sum())


def test_a_broken_promise_is_named_and_a_kept_one_is_not(predictor, new):
    rows, labels, ids = new
    assert not CoverageMonitor(predictor).update(rows, labels, ids=ids).alarm
    wrong = np.where(labels == 2, 3, labels)
    monitor = CoverageMonitor(predictor).update(rows, wrong, ids=ids)
    assert monitor.alarms().tolist() == [3]
    assert monitor.shifts().tolist() == [3]
    assert monitor.any_class().alarm
    found = summary(monitor)
    assert found["classes"][0]["index"] == 3
    assert found["below_target"]["alarm"]
    low, high = monitor.coverage_interval()[3]
    assert high < 0.88
    assert low < monitor.covered[3] / monitor.rows[3] < high
    each = monitor.coverage_interval(each=True)
    narrower = np.diff(each) < np.diff(monitor.coverage_interval())
    assert narrower[monitor.rows > 0].all()


@settings(max_examples=examples(8))
@given(cuts=st.lists(st.integers(0, 500), max_size=4))
def test_any_split_gives_the_same_evidence(predictor, new, cuts):
    rows, labels, ids = new
    whole = CoverageMonitor(predictor).update(rows, labels, ids=ids, period="now")
    parts = CoverageMonitor(predictor)
    edges = [0, *sorted(cuts), 500]
    for start, stop in pairwise(edges):
        if stop > start:
            part = slice(start, stop)
            parts.update(rows[part], labels[part], ids=ids[part], period="now")
    np.testing.assert_array_equal(parts.rows, whole.rows)
    np.testing.assert_allclose(parts.log_e_values(), whole.log_e_values())
    np.testing.assert_allclose(parts.shift_log_e_values(), whole.shift_log_e_values())
    assert parts.overall().e_value == pytest.approx(whole.overall().e_value)
    assert parts.periods() == whole.periods()


def test_a_long_good_history_does_not_hide_a_fall(predictor):
    """5000 labels at 92%, then a fall to 70%: found in 200 more, and dated."""
    monitor = CoverageMonitor(predictor)
    for block in range(200):
        monitor.update_counts([1], covered=[23], rows=[25], period=f"good {block:03}")
    assert monitor.e_values()[1] < 1
    found = []
    for day in range(10):
        monitor.update_counts([1], covered=[14], rows=[20], period=f"worse {day}")
        found.append(1 in monitor.alarms())
    assert not found[0]
    assert found[-1]
    assert monitor.began(1) == "worse 0"


def test_rows_count_once_by_their_keys(predictor, new):
    rows, labels, ids = new
    monitor = CoverageMonitor(predictor).update(rows, labels, ids=ids)
    with pytest.warns(EvencoverWarning, match="500 of 500"):
        monitor.update(rows, labels, ids=ids)
    assert monitor.rows.sum() == 500
    monitor.update(rows, labels, ids=ids, once=False)
    assert monitor.rows.sum() == 1000


def test_rows_without_ids_count_once_by_their_content_in_any_order(predictor, new):
    rows, labels = np.concatenate([new[0], new[0][:3]]), np.concatenate([new[1], new[1][:3]])
    monitor = CoverageMonitor(predictor).update(rows, labels, once=True)
    assert monitor.rows.sum() == 503  # copies within one file are rows of their own
    with pytest.warns(EvencoverWarning, match="503 of 503"):
        monitor.update(rows[::-1].copy(), labels[::-1].copy(), once=True)
    with pytest.warns(EvencoverWarning, match="250 of 250"):
        monitor.update(rows[:250], labels[:250], once=True)
    assert monitor.rows.sum() == 503
    monitor.update(rows[:5], (labels[:5] + 1) % K, once=True)  # other labels: other rows
    assert monitor.rows.sum() == 508


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


def test_ids_of_calibration_rows_are_rejected(data):
    ids = np.array([f"row {n}" for n in range(900)])
    fitted = ClasswisePredictor().fit(data.rows[:60], data.labels[:60], ids=ids[:60])
    fitted.partial_fit(data.rows[60:90], data.labels[60:90], ids=ids[60:90])
    monitor = CoverageMonitor(fitted)
    for part in (slice(80, 120), slice(50, 55)):
        with pytest.raises(InputError, match="'ids'"):
            monitor.update(data.rows[part], data.labels[part], ids=ids[part])
        with pytest.raises(InputError, match="'ids'"):
            monitor.label(ids[part], data.labels[part])
    assert monitor.rows.sum() == 0
    assert monitor.update(data.rows[90:], data.labels[90:], ids=ids[90:]).rows.sum() == 810


def test_copies_of_calibration_rows_are_told(simulate):
    rows, labels = simulate(3000, K, seed=4)
    monitor = CoverageMonitor(ClasswisePredictor().fit(rows[:2000], labels[:2000]))
    with pytest.warns(EvencoverWarning, match="copies of calibration rows"):
        monitor.update(rows[1000:], labels[1000:])


def observed(monitor):
    """How many rows the drift counts have, of the reference and of now."""
    return monitor.store.drift(monitor.about.key, 10 + K)[:, :10].sum(axis=1).tolist()


def test_rows_without_labels_are_counted_once_by_their_keys(predictor, new):
    rows, _, ids = new
    monitor = CoverageMonitor(predictor).observe(rows, once=True)
    with pytest.warns(EvencoverWarning, match="500 of 500"):
        monitor.observe(iter([rows[300:], rows[:300]]), once=True)
    assert observed(monitor) == [0, 500]
    monitor.observe(rows[:400]).observe(rows, ids=ids).observe(rows, reference=True)
    assert observed(monitor) == [500, 1400]


def test_groups_of_rows_are_watched_without_the_question_of_change(data):
    sites = np.array(["north", "south"])[np.arange(900) % 2]
    fitted = RowGroupedPredictor().fit(data.rows[:400], data.labels[:400], groups=sites[:400])
    monitor = CoverageMonitor(fitted).update(data.rows[400:], data.labels[400:], groups=sites[400:])
    assert monitor.rows.sum() == 500
    assert monitor.shift_log_e_values() is None
    assert not monitor.any_shift().alarm
    assert not summary(monitor)["score_shift"]["alarm"]


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


# Labels -----------------------------------------------------------------------------------------


def test_labels_find_their_rows_by_id(predictor, new):
    rows, labels, ids = new
    monitor = CoverageMonitor(predictor).observe(rows[:400], ids=ids[:400], period="then")
    assert tuple(monitor.label(ids, labels)) == (400, 0, 100)
    assert tuple(monitor.label(ids[:100] + ids[450:], labels[:150])) == (0, 100, 50)
    assert monitor.rows.sum() == 400
    monitor.observe(rows[400:], ids=ids[400:], period="then")
    whole = CoverageMonitor(predictor).update(rows, labels, ids=ids, period="then")
    np.testing.assert_array_equal(monitor.rows, whole.rows)
    np.testing.assert_array_equal(monitor.covered, whole.covered)
    np.testing.assert_allclose(monitor.log_e_values(), whole.log_e_values())
    np.testing.assert_allclose(monitor.shift_log_e_values(), whole.shift_log_e_values())
    assert monitor.periods() == whole.periods()


@pytest.mark.parametrize("method", ["standard", "pooled", "classwise"])
@pytest.mark.parametrize("options", [{}, {"exact": True}, {"allow_empty": False}], ids=str)
def test_stored_sets_judge_as_the_rule_does(data, method, options):
    fitted = make_predictor(method, score="raps", **options)
    fitted.fit(data.rows[:400], data.labels[:400])
    ids = list(range(1000, 1500))
    by_id = CoverageMonitor(fitted).observe(data.rows[400:], ids=ids)
    by_id.label(ids, data.labels[400:])
    with_rows = CoverageMonitor(fitted).update(data.rows[400:], data.labels[400:], ids=ids)
    for name in ("rows", "covered"):
        np.testing.assert_array_equal(getattr(by_id, name), getattr(with_rows, name))
    np.testing.assert_allclose(by_id.shift_log_e_values(), with_rows.shift_log_e_values())


def test_delays_that_differ_between_classes_are_a_warning(predictor, data, monkeypatch):
    from evencover.monitoring import store

    rng = np.random.default_rng(2)
    labels, ids = data.labels[400:], np.arange(500)
    for late, n_warnings in ((0.0, 0), (5.0, 1)):
        clock = [1e9]
        monkeypatch.setattr(store.time, "time", lambda clock=clock: clock[0])
        monitor = CoverageMonitor(predictor).observe(data.rows[400:], ids=ids)
        arrival = rng.exponential(10, size=500) + late * labels
        for row in np.argsort(arrival):
            clock[0] = 1e9 + 86400 * arrival[row]
            monitor.label(ids[row : row + 1], labels[row : row + 1])
        assert len(monitor.label_delay()) == n_warnings
        assert len(summary(monitor)["warnings"]) == n_warnings


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


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ((["a", "b"], [1]), "labels"),
        ((["a"], [0.5]), "labels"),
        (([0.5], [1]), "ids"),
        ((["a"], [1], "soon"), "time"),
        ((["a"], [1], ["2026-01-01", "2026-01-01"]), "time"),
    ],
    ids=str,
)
def test_bad_labels_are_rejected(predictor, given, name):
    monitor = CoverageMonitor(predictor)
    with pytest.raises(InputError, match=f"'{name}'"):
        monitor.label(given[0], given[1], time=given[2] if len(given) > 2 else None)
    assert monitor.store.waiting() == 0


# ---- an alpha per class --------------------------------------------------------------------------


def test_every_class_is_held_to_its_own_target():
    rng = np.random.default_rng(2)
    p = rng.dirichlet([1, 1, 1], 900)
    labels = (p.cumsum(axis=1) < rng.random((900, 1))).sum(axis=1)
    alpha = {"ant": 0.01, "default": 0.3}
    names = ["ant", "bee", "cat"]
    predictor = ClasswisePredictor(alpha=alpha).fit(p[:600], labels[:600], class_names=names)
    monitor = CoverageMonitor(predictor, tolerance=0.02)
    assert monitor.targets.round(6).tolist() == [0.97, 0.68, 0.68]
    assert len(monitor.update(p[600:], labels[600:]).alarms()) == 0
    monitor.update_counts([0, 1, 2], [80, 80, 80], [100, 100, 100])
    assert monitor.alarms().tolist() == [0]


def test_labels_outside_the_classes_are_misses_of_the_whole():
    rng = np.random.default_rng(3)
    p = rng.dirichlet([1, 1, 1], 300)
    names = np.array(["ant", "bee", "cat"], dtype=object)
    labels = names[(p.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1)]
    predictor = ClasswisePredictor().fit(p[:200], labels[:200], class_names=names.tolist())
    monitor = CoverageMonitor(predictor).update(p[200:], np.r_[labels[200:290], ["wasp"] * 10])
    n_rows, n_covered = monitor.totals
    assert (n_rows, monitor.rows.sum()) == (100, 90)
    assert n_covered == monitor.covered.sum()
