"""``monitor`` and ``update`` in the shell: counts, alarms, delayed labels, merging, pages."""

import json

import numpy as np
import pytest
from cli.running import K, refused, succeeded

from evencover import CoverageMonitor, load
from evencover.output.atomic import only_writer


@pytest.fixture
def watch(run, model):
    """Count a file in the state watch.json."""

    def command(*arguments, state="watch.json"):
        return run("monitor", model, *arguments, "--state", state)

    return command


def broken(folder, data):
    """Test rows whose labels are those of another class."""
    np.savez(folder / "bad.npz", probs=data.rows[300:], labels=(data.labels[300:] + 1) % K)


def test_a_kept_promise_exits_with_0_and_a_broken_one_with_3(folder, data, model, watch):
    calm = succeeded(watch("test.npz", "--period", "2026-01-01"))
    assert "300 labelled rows" in calm.out
    assert "every class is held to 0.88 or more" in " ".join(calm.out.split())
    assert "No class is known to be covered less than 0.88." in calm.out
    broken(folder, data)
    result = watch("bad.npz", "--period", "2026-01-02")
    assert result.code == 3
    assert "ALARM" in result.out
    assert "broken" in result.out
    assert "600 labelled rows" in result.out
    assert watch("--quiet-alarms").code == 0
    shown = json.loads(watch("--json", "--quiet-alarms").out)
    monitor = CoverageMonitor.load("watch.json", load(model))
    assert shown["rows"] == monitor.rows.sum() == 600
    assert sorted(each["index"] for each in shown["classes"]) == list(range(K))
    assert [c["index"] for c in shown["classes"] if c["alarm"]] == sorted(
        monitor.alarms(), key=lambda y: -monitor.e_values()[y]
    )


def test_the_page_shows_periods_classes_and_since_when(folder, data, watch):
    succeeded(watch("test.npz", "--period", "2026-01-01"))
    broken(folder, data)
    watch("bad.npz", "--period", "2026-01-02", "--report", "page.html")
    page = (folder / "page.html").read_text("utf-8")
    assert "2026-01-01: coverage 0.9" in page
    assert "naïve 0" in page
    assert "<td>2026-01-02</td>" in page
    assert "<script" not in page


def test_the_second_writer_of_a_state_is_refused(folder, watch):
    """Else it would write over what the first has counted meanwhile."""
    with only_writer(folder / "watch.json"):
        assert "Another process" in refused(watch("test.npz"))
    succeeded(watch("test.npz"))
    assert not list(folder.glob(".watch.json*"))


def test_a_look_at_a_state_writes_nothing(folder, watch):
    """Else the state of a service could be replaced by what it was a moment ago."""
    succeeded(watch("test.npz"))
    with only_writer(folder / "watch.json"):
        before = (folder / "watch.json").stat().st_ino
        succeeded(watch("--report", "page.html"))
        assert (folder / "watch.json").stat().st_ino == before
    assert not (folder / "watch.json.before").exists()


def test_the_same_file_is_counted_once(watch):
    succeeded(watch("test.npz"))
    assert "counted before" in refused(watch("test.npz"))
    assert "600 labelled rows" in succeeded(watch("test.npz", "--again")).out


def test_a_file_without_labels_is_counted_once(watch):
    def n_observed(result):
        return sum(CoverageMonitor.load("watch.json", load("model.safetensors")).counts.sizes[1])

    once = n_observed(succeeded(watch("new.npy")))
    again = succeeded(watch("new.npy"))
    assert "not counted again" in again.err
    assert n_observed(again) == once
    assert n_observed(succeeded(watch("new.npy", "--again"))) == 2 * once


def test_states_of_two_services_merge(folder, data, watch, model):
    rows, labels = data.rows[300:], data.labels[300:]
    for name, part in (("a", slice(0, 120)), ("b", slice(120, 300))):
        np.savez(f"{name}.npz", probs=rows[part], labels=labels[part])
        succeeded(watch(f"{name}.npz", "--period", "p", state=f"{name}.json"))
    succeeded(watch("--merge", "a.json", "b.json", state="both.json"))
    succeeded(watch("test.npz", "--period", "p", state="whole.json"))
    both, whole = (CoverageMonitor.load(f"{n}.json", load(model)) for n in ("both", "whole"))
    both.counts.inputs = whole.counts.inputs = frozenset()
    assert both == whole
    assert "counted before" in refused(watch("--merge", "a.json", state="both.json"))


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
    assert "rows without a label yet: 100; labels without a row here: 1" in result.err
    grown = [f"case {n},{labels[n]}\n" for n in range(250)]  # most of these were counted
    (folder / "labels.csv").write_text("ids,labels\n" + "".join(grown))
    result = succeeded(watch("rows.npz", "--labels", "labels.csv", "--period", "q"))
    n_both = int((later < 250).sum())
    assert f"counted before: {n_both}" in result.err
    assert f"{450 - n_both} labelled rows" in result.out
    again = succeeded(watch("rows.npz", "--labels", "labels.csv"))
    assert "counted before: 250" in again.err
    assert f"{450 - n_both} labelled rows" in again.out
    (folder / "labels.csv").write_text("ids,labels\ncase 9999,0\ncase 7,0\ncase 3,oak\n")
    wrong = watch("rows.npz", "--labels", "labels.csv", state="new.json")
    assert wrong.code == 2
    assert "Got 'oak' in row 2 of 'labels.csv'" in wrong.err
    later = np.union1d(later, np.arange(250))
    expected = CoverageMonitor(load(model))
    known = np.sort(later)
    expected.update(rows[known], labels[known], ids=ids[known])
    found = CoverageMonitor.load("watch.json", load(model))
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.covered, expected.covered)


def test_rows_without_labels_tell_of_drift_only(folder, data, watch):
    result = succeeded(watch("new.npy", "--reference", "cal.npz"))
    assert "0 labelled rows" in result.out
    assert "Drift" not in result.out
    few = data.rows[300:][data.rows[300:].argmax(axis=1) == 1]
    np.save("few.npy", np.repeat(few, 5, axis=0))
    result = succeeded(watch("few.npy", "--reference", "cal.npz", state="other.json"))
    assert "Drift: rows predicted as naïve 1 were" in result.out
    assert "says nothing about coverage" in result.out


def test_bad_input_is_one_sentence_and_the_state_stays(folder, data, watch, model):
    succeeded(watch("test.npz"))
    before = (folder / "watch.json").read_bytes()
    assert "'false_alarm' must be 0.05, as in" in refused(watch("new.npy", "--false-alarm", "0.1"))
    assert "does not exist" in refused(watch("new.npy", state="nowhere/watch.json"))
    assert "Cannot read" in refused(watch("none.npz"))
    (folder / "cut.json").write_bytes(before[:-9])
    assert "damaged" in refused(watch("new.npy", state="cut.json"))
    assert (folder / "watch.json").read_bytes() == before


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
    succeeded(run("update", "first.safetensors", "test.npz", "-o", "s.safetensors", "--since", 500))
    assert load("s.safetensors").n_calibration_ == 100


def test_rows_that_updated_a_model_do_not_evaluate_or_monitor_it(run, model):
    succeeded(run("update", model, "test.npz", "-o", "new.safetensors"))
    for file in ("cal.npz", "test.npz"):
        result = succeeded(run("evaluate", "new.safetensors", file))
        assert "used for calibration" in result.err
        assert "calibration" in refused(run("monitor", "new.safetensors", file, "--state", "s"))


def test_update_refuses_in_a_sentence(folder, run, model):
    assert "exists already" in refused(run("update", model, "test.npz", "-o", model))
    assert "needs labels" in refused(run("update", model, "new.npy", "-o", "m.safetensors"))
    assert "extension" in refused(run("update", model, "test.npz", "-o", "m.npz"))
    assert not (folder / "m.safetensors").exists()
