"""``monitor`` and ``update`` in the shell: counts, alarms, delayed labels."""

import json

import numpy as np
import pytest
from cli.running import K, refused, succeeded

from evencover import CoverageMonitor, load


@pytest.fixture
def watch(run, model):
    """Count a file in the state watch.db."""

    def command(*arguments, state="watch.db"):
        return run("monitor", model, *arguments, "--state", state)

    return command


def broken(folder, data):
    """Test rows of which every other label is that of another class."""
    labels = data.labels[300:].copy()
    labels[::2] = (labels[::2] + 1) % K
    np.savez(folder / "bad.npz", probs=data.rows[300:], labels=labels)


def test_a_kept_promise_exits_with_0_and_a_broken_one_with_3(folder, data, model, watch):
    calm = succeeded(watch("test.npz", "--period", "2026-01-01"))
    assert "300 labeled examples" in calm.out
    assert calm.out.startswith("No class is significantly below")
    assert "No class is significantly below 88%, the target less a tolerance of 2%." in calm.out
    broken(folder, data)
    result = watch("bad.npz", "--period", "2026-01-02")
    assert result.code == 3
    assert "ALARM" in result.out
    assert "below" in result.out
    assert "600 labeled examples" in result.out
    shown = json.loads(watch("--json").out)
    snapshot = CoverageMonitor(load(model), state="watch.db").snapshot()
    assert shown["rows"] == snapshot.rows.sum() == 600
    assert sorted(each["index"] for each in shown["classes"]) == list(range(K))
    assert [c["index"] for c in shown["classes"] if c["alarm"]] == sorted(
        snapshot.alarms, key=lambda y: -snapshot.e_values[y]
    )


def test_a_look_at_a_state_counts_nothing(watch):
    succeeded(watch("test.npz"))
    for _ in range(2):
        assert "300 labeled examples" in succeeded(watch()).out


def test_labels_that_come_later_join_by_id(folder, data, watch, model):
    rows, labels = data.rows[300:], data.labels[300:]
    ids = np.array([f"case {n}" for n in range(300)])
    np.savez("rows.npz", probs=rows, ids=ids)
    later = np.random.default_rng(1).permutation(300)[:200]
    with open("labels.csv", "w") as file:
        file.write("ids,labels\n")
        file.writelines(f"case {n},{labels[n]}\n" for n in later)
        file.write("case 9999,0\n")
    result = succeeded(watch("rows.npz", "--labels", "labels.csv", "--period", "p"))
    assert "labels counted: 200; corrected: 0; repeated: 0; waiting for their row: 1" in result.err
    grown = [f"case {n},{labels[n]}\n" for n in range(250)]  # most of these were counted
    (folder / "labels.csv").write_text("ids,labels\n" + "".join(grown))
    n_both = int((later < 250).sum())
    result = succeeded(watch("--labels", "labels.csv", "--period", "q"))  # by id alone
    assert f"labels counted: {250 - n_both}; corrected: 0; repeated: {n_both}" in result.err
    assert f"{450 - n_both} labeled examples" in result.out
    later = np.union1d(later, np.arange(250))
    expected = CoverageMonitor(load(model))
    expected.update(rows[later], labels[later], ids=ids[later])
    found = CoverageMonitor(load(model), state="watch.db")
    for name in ("rows", "covered"):
        shown, counted = (getattr(monitor.snapshot(), name) for monitor in (found, expected))
        np.testing.assert_array_equal(shown, counted)
    assert {period: n for y, period, n, _ in found.periods() if y < 0} == {
        "p": 200,
        "q": 250 - n_both,
    }


def test_a_file_of_labels_may_state_times_and_unknown_classes(folder, data, watch):
    np.savez("rows.npz", probs=data.rows[300:], ids=np.arange(300))
    succeeded(watch("rows.npz"))
    lines = ["id,label,time", "0,oak,2026-01-01", "1,naïve 2,2026-01-02", "2,3,2026-01-02"]
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", "utf-8")
    shown = json.loads(succeeded(watch("--labels", "labels.csv", "--json")).out)
    assert shown["unknown_labels"] == 2  # a column with text is text
    assert [(p["period"], p["rows"]) for p in shown["periods"]] == [
        ("2026-01-01", 1),
        ("2026-01-02", 2),
    ]
    (folder / "labels.csv").write_text("label\n1\n")
    assert "'id'" in refused(watch("--labels", "labels.csv"))


def test_bad_input_is_one_sentence_and_the_state_stays(folder, data, watch, model):
    succeeded(watch("test.npz"))
    assert "'false_alarm' must be 0.05, as in" in refused(watch("new.npy", "--false-alarm", "0.1"))
    assert "'ids'" in refused(watch("new.npy"))  # rows without labels
    assert "Cannot open" in refused(watch("new.npy", state="nowhere/watch.db"))
    assert "Cannot read" in refused(watch("none.npz"))
    assert "'retention'" in refused(watch("new.npy", "--retention", "0"))
    assert "300 labeled examples" in succeeded(watch()).out


# Update -----------------------------------------------------------------------------------------


def test_update_writes_what_calibrate_writes_on_all_rows(folder, data, run):
    rows, labels = data
    np.savez("all.npz", probs=rows, labels=labels)
    np.savez("first.npz", probs=rows[:300], labels=labels[:300])
    for name in ("first", "all"):
        arguments = ("--method", "classwise", "--score", "aps", "-o", f"{name}.safetensors")
        succeeded(run("calibrate", f"{name}.npz", *arguments))
    result = succeeded(run("update", "first.safetensors", "test.npz", "-o", "second.safetensors"))
    assert "calibrated on 600 rows of 6 classes; 300 before" in result.out
    second, whole = load("second.safetensors"), load("all.safetensors")
    np.testing.assert_array_equal(second.thresholds_, whole.thresholds_)
    succeeded(
        run("update", "first.safetensors", "test.npz", "-o", "w.safetensors", "--window", 350)
    )
    assert load("w.safetensors").n_calibration_ == 350


def test_rows_that_updated_a_model_do_not_evaluate_or_monitor_it(run, model):
    succeeded(run("update", model, "test.npz", "-o", "new.safetensors"))
    for file in ("cal.npz", "test.npz"):
        result = succeeded(run("evaluate", "new.safetensors", file))
        assert "used for calibration" in result.err
        assert "calibration" in refused(run("monitor", "new.safetensors", file, "--state", "s"))
