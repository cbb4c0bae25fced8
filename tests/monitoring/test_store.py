"""The store: transactions, retention, times, and what it rejects, in SQLite and PostgreSQL."""

import sqlite3
import threading

import numpy as np
import pytest

from evencover import ClasswisePredictor, CoverageMonitor, InputError, StandardPredictor
from evencover.monitoring import Store, store
from evencover.monitoring.store import StoreError, contains, pack

K = 5
pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(900, K, seed=21)


@pytest.fixture(scope="module")
def predictor(data):
    names = list("abcde")
    return ClasswisePredictor().fit(data.rows[:400], data.labels[:400], class_names=names)


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("psycopg")
    from postgresql import postgresql

    with postgresql() as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.deep)])
def location(request, tmp_path):
    """A place for a state: a file, or a database of its own on the tests' server."""
    if request.param == "sqlite":
        return tmp_path / "watch.db"
    import psycopg

    address = request.getfixturevalue("server")
    name = f"db{abs(hash(tmp_path)):x}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return address.replace("/postgres?", f"/{name}?")


@pytest.fixture
def clock(monkeypatch):
    now = [1.8e9]
    monkeypatch.setattr(store.time, "time", lambda: now[0])
    return now


def ids(start, stop):
    return [f"row {n}" for n in range(start, stop)]


def test_a_state_comes_back_in_another_process_with_the_same_evidence(predictor, data, location):
    whole = CoverageMonitor(predictor).update(data.rows[400:], data.labels[400:], period="p")
    for part in (slice(400, 600), slice(600, 900)):
        monitor = CoverageMonitor(predictor, store=location)
        monitor.update(data.rows[part], data.labels[part], period="p")
        monitor.store.close()
    again = CoverageMonitor(predictor, store=location)
    np.testing.assert_array_equal(again.rows, whole.rows)
    np.testing.assert_array_equal(again.covered, whole.covered)
    np.testing.assert_allclose(again.log_e_values(), whole.log_e_values())
    np.testing.assert_allclose(again.shift_log_e_values(), whole.shift_log_e_values())
    assert again.overall() == pytest.approx(whole.overall())
    assert again.periods() == whole.periods()


def test_a_monitor_sees_what_another_one_counts(predictor, data, location):
    mine, theirs = (CoverageMonitor(predictor, store=location) for _ in range(2))
    mine.update(data.rows[400:500], data.labels[400:500])
    assert theirs.rows.sum() == 100
    mine.update(data.rows[500:], data.labels[500:])
    np.testing.assert_array_equal(mine.log_e_values(), theirs.log_e_values())


def test_every_label_counts_once_whoever_sends_it(predictor, data, location):
    """Three stores and six threads; the rows are served by one while labels come to all."""
    monitors = [CoverageMonitor(predictor, store=location) for _ in range(3)]
    rule, counted = predictor.rule(), []

    def serve():
        for n in range(400, 900, 20):
            part = slice(n, n + 20)
            sets = rule.predict_set(data.rows[part], ids(n, n + 20))
            monitors[0].served(data.rows[part], ids(n, n + 20), sets, rule)

    def send(monitor, seed):
        for n in np.random.default_rng(seed).permutation(np.arange(400, 900, 10)).tolist():
            counted.append(monitor.label(ids(n, n + 10), data.labels[n : n + 10]).counted)

    threads = [threading.Thread(target=serve)]
    threads += [
        threading.Thread(target=send, args=(each, 10 * n + seed))
        for n, each in enumerate(monitors)
        for seed in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = CoverageMonitor(predictor).update(data.rows[400:], data.labels[400:], ids=ids(400, 900))
    for each in monitors:
        np.testing.assert_array_equal(each.rows, whole.rows)
        np.testing.assert_array_equal(each.covered, whole.covered)
        assert each.store.waiting() == 0
    assert sum(counted) <= 500  # some waited, and were counted when their row came


def test_an_error_within_an_update_leaves_nothing(predictor, data, location, monkeypatch):
    monitor = CoverageMonitor(predictor, store=location)
    monitor.observe(data.rows[400:500], ids=ids(400, 500))

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Store, "_add_counts", fail)
        with pytest.raises(KeyboardInterrupt):
            monitor.label(ids(400, 500), data.labels[400:500])
        with pytest.raises(KeyboardInterrupt):
            monitor.update(data.rows[500:], data.labels[500:], ids=ids(500, 900))
    assert monitor.rows.sum() == 0
    assert monitor.label(ids(400, 500), data.labels[400:500]).counted == 100
    monitor.update(data.rows[500:], data.labels[500:], ids=ids(500, 900))
    assert monitor.rows.sum() == 500


def test_rows_and_waiting_labels_are_kept_as_long_as_stated(predictor, data, location, clock):
    monitor = CoverageMonitor(predictor, store=Store(location, retention=10))

    def serve(n):
        monitor.observe(data.rows[n : n + 1], ids=ids(n, n + 1))

    serve(400)
    assert monitor.label(ids(500, 501), [0]).waiting == 1
    clock[0] += 9.9 * 86400
    serve(401)
    serve(500)
    assert monitor.rows.sum() == 1  # it waited 9.9 days
    assert monitor.label(ids(501, 502), [0]).waiting == 1
    clock[0] += 0.2 * 86400
    serve(402)
    assert tuple(monitor.label(ids(400, 403), [0, 0, 0])) == (2, 0, 1)
    clock[0] += 10 * 86400
    serve(403)
    serve(501)
    assert monitor.rows.sum() == 3  # the last label is forgotten
    assert tuple(monitor.label(ids(401, 403), [0, 0])) == (0, 2, 0)  # but not what was counted


def test_labels_count_in_the_period_in_which_their_row_was_served(predictor, data, location, clock):
    monitor = CoverageMonitor(predictor, store=location)
    for day in range(3):
        monitor.observe(data.rows[400:500], ids=[f"{day} {n}" for n in range(100)])
        clock[0] += 86400
    for day in range(3):
        monitor.label([f"{day} {n}" for n in range(100)], data.labels[400:500])
    overall = [(period, rows) for y, period, rows, _ in monitor.periods([-1]) if y < 0]
    assert overall == [("2027-01-15", 100), ("2027-01-16", 100), ("2027-01-17", 100)]


def test_levels_are_those_of_the_state(predictor, location):
    CoverageMonitor(predictor, 0.1, 0.05, store=location)
    again = CoverageMonitor(predictor, store=location)
    assert (again.false_alarm, again.tolerance) == (0.1, 0.05)
    for parameter in ("false_alarm", "tolerance"):
        with pytest.raises(InputError, match=f"'{parameter}'"):
            CoverageMonitor(predictor, store=location, **{parameter: 0.01})


def test_models_share_a_state_without_sharing_counts(predictor, data, location):
    other = StandardPredictor().fit(data.rows[:300], data.labels[:300])
    both = [CoverageMonitor(each, store=location) for each in (predictor, other)]
    for each, stop in zip(both, (700, 900), strict=True):
        each.update(data.rows[400:stop], data.labels[400:stop], ids=ids(400, stop))
    assert [int(each.rows.sum()) for each in both] == [300, 500]


def test_a_row_whose_id_repeats_in_a_request_counts_once_for_drift(predictor, data, location):
    monitor = CoverageMonitor(predictor, store=location)
    monitor.observe(data.rows[400:403], ids=["a", "b", "a"])
    places = monitor.store.drift(monitor.about.key, 10 + K)[1]
    assert places.sum() == 2 * 2  # a set size and a top class each
    tops = data.rows[400:402].argmax(axis=1)
    assert places[10:].tolist() == np.bincount(tops, minlength=K).tolist()


def test_unknown_labels_may_be_any_text(predictor, data, location):
    monitor = CoverageMonitor(predictor, store=location, name="\udcff.safetensors")
    monitor.observe(data.rows[400:403], ids=ids(400, 403))
    labels = ["\0", "\ud800", "a'; DROP TABLE labeled; --"]
    assert monitor.label(ids(400, 403), labels).counted == 3
    assert sum(monitor.store.unknown(monitor.about.key).values()) == 3
    assert monitor.totals == (3, 0)


@pytest.mark.parametrize("label", ["", None, 1.5, True])
def test_missing_labels_are_rejected(predictor, data, label):
    monitor = CoverageMonitor(predictor)
    monitor.observe(data.rows[400:402], ids=ids(400, 402))
    with pytest.raises(InputError, match="'labels'"):
        monitor.label(ids(400, 402), np.array(["a", label], dtype=object))
    assert monitor.totals == (0, 0)


@pytest.mark.parametrize("label", [-1, K, 99])
def test_numbers_that_are_no_index_are_rejected(predictor, data, label):
    monitor = CoverageMonitor(predictor)
    monitor.observe(data.rows[400:402], ids=ids(400, 402))
    with pytest.raises(InputError, match=f"indices from 0 to 4. Got {label}"):
        monitor.label(ids(400, 402), [0, label])
    with pytest.raises(InputError, match="indices"):
        monitor.label_rows(data.rows[400:402], [0, label], predictor.rule())
    assert monitor.totals == (0, 0)


def test_numbers_that_are_the_index_of_one_class_and_the_name_of_another_are_rejected(data):
    names = [str(y + 1) for y in range(K)]
    predictor = ClasswisePredictor().fit(data.rows[:400], data.labels[:400], class_names=names)
    monitor = CoverageMonitor(predictor)
    monitor.observe(data.rows[400:403], ids=ids(400, 403))
    with pytest.raises(InputError, match=r"Got 1, 3: the index"):
        monitor.label(ids(400, 403), [0, 1, 3])
    assert monitor.label(ids(400, 403), ["1", "5", "0"]).counted == 3
    assert monitor.rows.tolist() == [1, 0, 0, 0, 1]
    assert monitor.store.unknown(monitor.about.key) == {"0": 1}


@pytest.mark.parametrize(
    "kind", ["datetime64[D]", "datetime64[s]", "datetime64[ns]", "U", "seconds"]
)
def test_times_may_be_dates_of_numpy_or_seconds_as_text(predictor, data, kind):
    monitor = CoverageMonitor(predictor)
    monitor.observe(data.rows[400:402], ids=ids(400, 402))
    time = np.array(["2026-02-01", "2026-02-03"], dtype=None if kind == "seconds" else kind)
    if kind == "seconds":
        time = time.astype("datetime64[s]").astype(int).astype(str)
    assert monitor.label(ids(400, 402), [0, 1], time=time).counted == 2
    assert [period for _, period, *_ in monitor.periods([-1])] == ["2026-02-01", "2026-02-03"]


@pytest.mark.parametrize("n_classes", [2, 9, 300, 70_000])
def test_packed_sets_hold_their_classes(n_classes):
    rng = np.random.default_rng(n_classes)
    for size in (0, 1, min(5, n_classes), n_classes):
        classes = rng.permutation(n_classes)[:size]
        packed = pack(classes, n_classes)
        some = {0, n_classes - 1, *rng.integers(0, n_classes, 50).tolist()}
        assert [contains(packed, y, n_classes) for y in some] == [y in classes for y in some]
        assert len(packed) <= 2 + n_classes // 8


@pytest.mark.deep
def test_a_lost_connection_is_reported_and_opened_again(predictor, data, server):
    psycopg = pytest.importorskip("psycopg")
    monitor = CoverageMonitor(predictor, store=server)
    with psycopg.connect(server, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    with pytest.raises(StoreError):
        monitor.update(data.rows[400:500], data.labels[400:500])
    assert monitor.update(data.rows[400:500], data.labels[400:500]).rows.sum() == 100


def test_a_state_that_cannot_be_used_is_rejected(predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.1)
    for path in (tmp_path / "nowhere" / "watch.db", tmp_path):
        with pytest.raises(StoreError):
            CoverageMonitor(predictor, store=path)
    (tmp_path / "text.db").write_text("not a database" * 1000)
    with pytest.raises(StoreError):
        CoverageMonitor(predictor, store=tmp_path / "text.db")
    later = sqlite3.connect(tmp_path / "later.db", isolation_level=None)
    later.execute("CREATE TABLE format (number BIGINT)")
    later.execute("INSERT INTO format VALUES (2)")
    later.close()
    with pytest.raises(InputError, match="format"):
        CoverageMonitor(predictor, store=tmp_path / "later.db")


def test_a_password_is_in_no_message():
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError) as error:
        Store("postgresql://someone:secret@127.0.0.1:1/watch")
    assert "secret" not in str(error.value)


def test_another_database_is_rejected_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE patients (name TEXT)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"other\.db"):
        Store(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["other.db"]
