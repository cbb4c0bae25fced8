"""The state: transactions, retention, times, and what it rejects, in SQLite and PostgreSQL."""

import json
import sqlite3
import threading
import time

import numpy as np
import pytest
from depth import size
from monitoring.watching import assert_same_counts, assert_same_evidence, updated

from evencover import ClasswisePredictor, CoverageMonitor, InputError
from evencover.ids import id_keys
from evencover.monitoring import MonitorState, database, state
from evencover.monitoring.database import StateError
from evencover.monitoring.state import pack_sets, unpack_sets
from evencover.sets import PredictionSets

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
    monkeypatch.setattr(state.time, "time", lambda: now[0])
    return now


def ids(start, stop):
    return [f"row {n}" for n in range(start, stop)]


def test_a_state_comes_back_in_another_process_with_the_same_evidence(predictor, data, location):
    whole = CoverageMonitor(predictor)
    for part in (slice(400, 600), slice(600, 900)):
        rows, labels = data.rows[part], data.labels[part]
        whole.update(rows, labels, period="p")
        updated(predictor, rows, labels, location, period="p")
    again = CoverageMonitor(predictor, state=location)
    assert_same_evidence(again.snapshot(), whole.snapshot())
    assert again.periods() == whole.periods()


def test_a_snapshot_is_one_transaction_and_stays_as_it_is(predictor, data, location):
    """Another process labels rows between any two queries of a summary; it is that of before."""
    mine, theirs = (CoverageMonitor(predictor, state=location) for _ in range(2))
    mine.update(data.rows[400:500], data.labels[400:500], period="p")
    before = json.dumps(mine.snapshot().summary())
    mine = CoverageMonitor(predictor, state=location)  # which has read nothing yet
    run, n_queries = mine.state._reader.run, []

    def interrupted(sql, *values):
        found = run(sql, *values)
        n = len(n_queries)
        n_queries.append(sql)
        theirs.update(data.rows[500 + 9 * n :][:9], data.labels[500 + 9 * n :][:9], period="p")
        theirs.label([f"nobody {n}"], [0])
        return found

    mine.state._reader.run = interrupted
    first = mine.snapshot()
    assert len(n_queries) < 10
    assert json.dumps(first.summary()) == before
    del mine.state._reader.run
    with pytest.raises(ValueError, match="read-only"):
        first.rows[0] = 0
    later = mine.snapshot()
    assert later.totals[0] == 100 + 9 * len(n_queries)
    assert json.dumps(first.summary()) == before


def test_a_snapshot_that_goes_on_from_the_last_is_that_of_a_new_monitor(predictor, data, location):
    monitor = CoverageMonitor(predictor, state=location)
    monitor.snapshot()
    for n in range(400, size(short=550, deep=900), 50):
        part = slice(n, n + 50)
        for labels in (np.roll(data.labels[part], 1), data.labels[part]):  # some are corrected
            monitor.update(data.rows[part], labels, ids=ids(n, n + 50))
            new = CoverageMonitor(predictor, state=location)
            assert_same_evidence(monitor.snapshot(), new.snapshot())


def test_every_label_counts_once_whoever_sends_it(predictor, data, location):
    """Three stores and six threads; the rows are served by one while labels come to all."""
    monitors = [CoverageMonitor(predictor, state=location) for _ in range(3)]
    counted, stop = [], size(short=500, deep=900)

    def serve():
        for n in range(400, stop, 20):
            monitors[0].observe(data.rows[n : n + 20], ids=ids(n, n + 20))

    def send(monitor, seed):
        for n in np.random.default_rng(seed).permutation(np.arange(400, stop, 10)).tolist():
            counted.append(monitor.label(ids(n, n + 10), data.labels[n : n + 10]).counted)

    threads = [threading.Thread(target=serve)]
    threads += [
        threading.Thread(target=send, args=(monitor, 10 * n + seed))
        for n, monitor in enumerate(monitors)
        for seed in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows, labels = data.rows[400:stop], data.labels[400:stop]
    whole = updated(predictor, rows, labels, ids=ids(400, stop))
    for monitor in monitors:
        assert_same_counts(monitor.snapshot(), whole)
        assert monitor.snapshot().waiting == 0
    assert sum(counted) <= stop - 400  # some waited, and were counted when their row came


def test_an_error_within_an_update_leaves_nothing(predictor, data, location, monkeypatch):
    monitor = CoverageMonitor(predictor, state=location)
    monitor.observe(data.rows[400:500], ids=ids(400, 500))

    def fail(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(MonitorState, "_append", fail)
        with pytest.raises(KeyboardInterrupt):
            monitor.label(ids(400, 500), data.labels[400:500])
        with pytest.raises(KeyboardInterrupt):
            monitor.update(data.rows[500:], data.labels[500:], ids=ids(500, 900))
    assert monitor.snapshot().totals[0] == 0
    assert monitor.label(ids(400, 500), data.labels[400:500]).counted == 100
    assert monitor.update(data.rows[500:], data.labels[500:], ids=ids(500, 900)).counted == 400
    assert monitor.snapshot().totals[0] == 500


def serve(monitor, data, start, stop=None):
    stop = start + 1 if stop is None else stop
    monitor.observe(data.rows[start:stop], ids=ids(start, stop))


def test_rows_and_waiting_labels_are_kept_as_long_as_stated(predictor, data, location, clock):
    monitor = CoverageMonitor(predictor, state=MonitorState(location, retention=10))
    serve(monitor, data, 400)
    assert monitor.label(ids(500, 501), [0]).waiting == 1
    clock[0] += 9.9 * 86400
    serve(monitor, data, 401)
    serve(monitor, data, 500)
    assert monitor.snapshot().totals[0] == 1  # it waited 9.9 days
    assert monitor.label(ids(501, 502), [0]).waiting == 1
    clock[0] += 1.2 * 86400
    serve(monitor, data, 402)
    clock[0] += 1.2 * 86400
    serve(monitor, data, 403)  # the clock stood at the time of the look before for a day
    assert monitor.snapshot().expired == 1
    assert monitor.label(ids(400, 404), [0, 0, 0, 0]) == (3, 0, 0, 1, 0)
    clock[0] += 10 * 86400
    serve(monitor, data, 404)
    clock[0] += 86400
    serve(monitor, data, 405)
    serve(monitor, data, 501)
    assert monitor.snapshot().totals[0] == 4  # the label that waited is forgotten
    assert monitor.label(ids(401, 404), [0, 0, 0]) == (0, 0, 3, 0, 0)  # but not what was counted
    assert monitor.label(ids(401, 402), [1]) == (0, 0, 1, 0, 0)  # its set is no longer there


@pytest.mark.parametrize("days", [100, -100, pytest.param(1e5, marks=pytest.mark.deep)])
def test_a_clock_that_jumps_removes_no_earlier_row_if_it_is_set_right(
    predictor, data, location, clock, days
):
    monitor = CoverageMonitor(predictor, state=location)
    for n in range(400, 500, 10):
        serve(monitor, data, n, n + 10)
        clock[0] += 86400 / 2
    clock[0] += 86400 * days
    for n in range(500, 520, 10):
        serve(monitor, data, n, n + 10)
        clock[0] += 3600
    clock[0] -= 86400 * days
    for n in range(520, 600, 10):
        serve(monitor, data, n, n + 10)
        clock[0] += 86400
    n_lost = 20 if days < 0 else 0  # rows that seemed to be 100 days old
    assert monitor.snapshot().expired == n_lost
    assert monitor.label(ids(400, 600), data.labels[400:600]).counted == 200 - n_lost


def test_rows_in_memory_are_limited_and_counted_ones_are_remembered(predictor, data, monkeypatch):
    monkeypatch.setattr(state, "MOST_IN_MEMORY", 50)
    monitor = CoverageMonitor(predictor)
    assert monitor.update(data.rows[400:500], data.labels[400:500], ids=ids(400, 500)).counted
    for n in range(500, 900, 10):
        serve(monitor, data, n, n + 10)
    assert 300 < monitor.snapshot().expired < 360
    assert monitor.label(ids(400, 500), data.labels[400:500]).repeated == 100


def test_labels_count_in_the_period_in_which_their_row_was_served(predictor, data, location, clock):
    monitor = CoverageMonitor(predictor, state=location)
    for day in range(3):
        monitor.observe(data.rows[400:500], ids=[f"{day} {n}" for n in range(100)])
        clock[0] += 86400
    for day in range(3):
        monitor.label([f"{day} {n}" for n in range(100)], data.labels[400:500])
    overall = [(period, rows) for y, period, rows, _ in monitor.periods() if y < 0]
    assert overall == [("2027-01-15", 100), ("2027-01-16", 100), ("2027-01-17", 100)]


def test_levels_are_those_of_the_state(predictor, location):
    CoverageMonitor(predictor, 0.1, 0.05, state=location)
    again = CoverageMonitor(predictor, state=location)
    assert (again.model.false_alarm, again.model.tolerance) == (0.1, 0.05)
    for parameter in ("false_alarm", "tolerance"):
        with pytest.raises(InputError, match=f"'{parameter}'"):
            CoverageMonitor(predictor, state=location, **{parameter: 0.01})


def test_unknown_labels_may_be_any_text(predictor, data, location):
    monitor = CoverageMonitor(predictor, state=location)
    monitor.observe(data.rows[400:403], ids=ids(400, 403))
    labels = ["\0", "\ud800", "a'; DROP TABLE labeled; --"]
    assert monitor.label(ids(400, 403), labels).counted == 3
    assert monitor.label(ids(400, 403), labels).repeated == 3
    assert monitor.snapshot().unknown_labels == 3
    assert monitor.snapshot().totals == (3, 0)


def test_integers_are_rejected_if_a_class_has_another_number_as_its_name(data):
    """By the model alone: 0 is no name, and was once accepted or not by what came with it."""
    names = [str(y + 1) for y in range(K)]
    how = {"class_names": names, "labels_are": "indices"}
    predictor = ClasswisePredictor().fit(data.rows[:400], data.labels[:400], **how)
    monitor = CoverageMonitor(predictor)
    monitor.observe(data.rows[400:403], ids=ids(400, 403))
    for labels in ([0, 1, 3], [0, 0, 0], [0, "5", "1"]):
        with pytest.raises(InputError, match="labels_are"):
            monitor.label(ids(400, 403), np.array(labels, dtype=object))
    assert monitor.label(ids(400, 403), ["1", "5", "0"]).counted == 3
    assert monitor.snapshot().rows.tolist() == [1, 0, 0, 0, 1]
    assert monitor.snapshot().unknown_labels == 1
    assert monitor.label(ids(400, 403), [1, 5, 0], labels_are="names").repeated == 3
    assert monitor.label(ids(400, 403), [0, 4, 3], labels_are="indices").corrected == 1
    assert monitor.snapshot().rows.tolist() == [1, 0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["datetime64[D]", "datetime64[ns]", "U", "O"])
def test_times_may_be_dates_or_text(predictor, data, kind):
    monitor = CoverageMonitor(predictor)
    monitor.observe(data.rows[400:402], ids=ids(400, 402))
    time = np.array(["2026-02-01", "2026-02-03"], dtype="datetime64[s]" if kind == "O" else kind)
    assert monitor.label(ids(400, 402), [0, 1], time=time.astype(kind)).counted == 2
    assert [row.period for row in monitor.periods() if row.class_index < 0] == [
        *("2026-02-01", "2026-02-03")
    ]


@pytest.mark.parametrize("n_classes", [2, 9, 300, 70_000])
def test_packed_sets_hold_their_classes(n_classes):
    rng, most = np.random.default_rng(n_classes), min(5, n_classes)
    for sizes in ([0], [1], [n_classes], [0, 1, most], [most, 0], [n_classes, 0, most]):
        members = [rng.permutation(n_classes)[:n_members] for n_members in sizes]
        sets = PredictionSets.from_sizes(np.array(sizes), np.concatenate(members), n_classes)
        packed = pack_sets(sets)
        for rows in ([0], [len(sizes) - 1, 0], range(len(sizes))):
            assert unpack_sets(packed, len(sizes), n_classes, list(rows)) == sets[list(rows)]
        assert len(packed) <= 2 + len(sizes) * 2 * (1 + n_classes // 8)
    assert pack_sets(None) is None


def test_sets_that_are_stored_in_pieces_judge_as_whole_ones(predictor, data, location, monkeypatch):
    """Rows of one call are divided, and rows of several requests are joined."""
    whole = CoverageMonitor(predictor)
    part = slice(400, 500)
    whole.update(data.rows[part], data.labels[part], ids=ids(400, 500), period="p")
    monkeypatch.setattr(state, "BATCH", 7)
    monitor = CoverageMonitor(predictor, state=location)
    assert monitor.observe(data.rows[400:450], ids=ids(400, 450), period="p") == 50
    keys = id_keys(ids(450, 500), 50)
    served = [
        monitor.serve(data.rows[n : n + 2], keys[n - 450 : n - 448], ids(n, n + 2))[1]
        for n in range(450, 500, 2)
    ]
    assert monitor.state.record(served) == 50
    assert monitor.state.record(served) == 0  # and nothing more is stored
    with monitor.state.reading() as run:
        sizes = [row.n_rows for row in run("SELECT n_rows FROM batches ORDER BY batch")]
    assert max(sizes) == 7  # how many of the first rows have a block in common depends on its size
    assert (sum(sizes), sizes[-9:]) == (100, [*[6] * 8, 2])
    monitor.label(ids(400, 500), data.labels[part], period="p")
    assert_same_evidence(monitor.snapshot(), whole.snapshot())


@pytest.mark.deep
def test_a_lost_connection_is_reported_and_opened_again(predictor, data, server):
    psycopg = pytest.importorskip("psycopg")
    monitor = CoverageMonitor(predictor, state=server)
    with psycopg.connect(server, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    with pytest.raises(StateError):
        monitor.update(data.rows[400:500], data.labels[400:500])
    assert monitor.update(data.rows[400:500], data.labels[400:500]).counted == 100


def test_a_state_that_cannot_be_used_is_rejected(predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.1)
    for path in (tmp_path / "nowhere" / "watch.db", tmp_path):
        with pytest.raises(StateError):
            CoverageMonitor(predictor, state=path)
    (tmp_path / "text.db").write_text("not a database" * 1000)
    with pytest.raises(StateError):
        CoverageMonitor(predictor, state=tmp_path / "text.db")
    later = sqlite3.connect(tmp_path / "later.db", isolation_level=None)
    later.execute("CREATE TABLE state (format BIGINT)")
    later.execute("INSERT INTO state VALUES (99)")
    later.close()
    with pytest.raises(InputError, match="format"):
        CoverageMonitor(predictor, state=tmp_path / "later.db")


@pytest.mark.parametrize(
    "address",
    [
        "u:secret@127.0.0.1:1/watch",
        "u:sec%zzret@127.0.0.1:1/watch",
        "u:se/cret@127.0.0.1:1/watch",
        "u:se?cret@127.0.0.1:1/watch",
        "u:se#cret@127.0.0.1:1/watch",
        "u:se@cret@127.0.0.1:1/watch",
        "u:secret@[::1/db",
        "u:secret",
        "127.0.0.1:1/watch?user=u&password=secret",
        "127.0.0.1:1/watch?user=u&password=sec%zzret",
        "127.0.0.1:1/watch?user=u&password=a@secret",
        "127.0.0.1:1/secret word",
        "127.0.0.1:1/watch?user=u&password=a&secret",
        "127.0.0.1:1/watch?user=u&password=a&secret=b",
    ],
)
def test_a_password_is_in_no_message(address):
    """Two of them were once echoed, and one gave a traceback."""
    pytest.importorskip("psycopg")
    with pytest.raises(InputError) as error:
        MonitorState(f"postgresql://{address}")
    assert not any(part in str(error.value) for part in ("sec", "cret", "zz"))


@pytest.mark.parametrize(
    "address",
    [
        *("data://x", "reference://x", "generic::x://y", "mysql://a", "POSTGRESQL://u:secret@h"),
        *("postgresql:/u:secret@h/db", "postgresql:u:secret@h", "host=h password=secret"),
        "PASSWORD = secret host=h",
    ],
)
def test_another_address_is_one_sentence(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"'state' must be") as error:
        MonitorState(address)
    assert "secret" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_state_of_an_older_format_is_rejected_and_left_alone(predictor, tmp_path):
    path = tmp_path / "old.db"
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("CREATE TABLE state (format BIGINT PRIMARY KEY)")
    old.execute("CREATE TABLE served (id BIGINT, model BIGINT)")
    old.execute("INSERT INTO state VALUES (3)")
    old.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"format 6. Got 3"):
        CoverageMonitor(predictor, state=path)
    assert path.read_bytes() == before


def test_another_database_is_rejected_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE patients (name TEXT)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"other\.db"):
        MonitorState(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["other.db"]


def test_a_state_that_was_deleted_takes_no_label(predictor, data, tmp_path):
    """SQLite would go on to write to the deleted file."""
    path = tmp_path / "watch.db"
    monitor = CoverageMonitor(predictor, state=path)
    serve(monitor, data, 400, 500)
    backup = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for file in backup:
        file.unlink()
    for _ in range(2):
        with pytest.raises(StateError):
            monitor.label(ids(400, 500), data.labels[400:500])
        with pytest.raises(StateError):
            monitor.snapshot()
    assert not path.exists()  # an empty state would take labels and know no row
    for file, content in backup.items():
        file.write_bytes(content)
    assert monitor.label(ids(400, 500), data.labels[400:500]).counted == 100


def test_a_connection_whose_set_up_fails_is_not_used(predictor, data, location, monkeypatch):
    """A failover or a lock timeout right after connecting once made every later call fail."""
    monitor = CoverageMonitor(predictor, state=location)
    monitor.state.close()

    def fail(*_):
        raise KeyError("set-up")

    with monkeypatch.context() as patched:
        patched.setattr(database.Database, "_set_up", fail)
        with pytest.raises(KeyError):
            monitor.update(data.rows[400:500], data.labels[400:500])
        with pytest.raises(KeyError):
            monitor.snapshot()
    assert monitor.update(data.rows[400:500], data.labels[400:500]).counted == 100
    assert monitor.snapshot().totals[0] == 100


def test_writers_wait_for_a_lock_only_so_long_and_readers_not_at_all(
    predictor, data, location, monkeypatch
):
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.2)
    mine, theirs = (CoverageMonitor(predictor, state=location) for _ in range(2))
    with theirs.state._writer.writing():
        begun = time.monotonic()
        with pytest.raises(StateError):
            mine.update(data.rows[400:500], data.labels[400:500])
        assert mine.snapshot().totals[0] == 0
        assert time.monotonic() - begun < 5
    assert mine.update(data.rows[400:500], data.labels[400:500]).counted == 100


def test_one_label_reads_few_of_the_others(predictor, data):
    """An order by number once made SQLite read a million labels for each new one."""
    monitor = CoverageMonitor(predictor)
    rows = np.tile(data.rows[400:], (10, 1))
    names = [f"row {n}" for n in range(len(rows))]
    monitor.update(rows, np.tile(data.labels[400:], 10), ids=names)
    monitor.observe(rows[:2], ids=["new", "newer"])
    steps = [0]
    connection = monitor.state._writer._connection
    connection.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 100), 100)
    assert monitor.label(["new", names[7]], [0, (int(data.labels[407]) + 1) % 5])[:2] == (1, 1)
    assert steps[0] < len(rows)
