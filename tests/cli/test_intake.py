"""Commands on files as people have them: stray columns, other names, swapped arguments."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import NAMES, K, refused, succeeded

pd = pytest.importorskip("pandas")


@pytest.fixture
def table(folder, data):
    """A CSV file with an index, an id and a label under a name of its own."""
    frame = pd.DataFrame(np.log(data.rows[:300]), columns=NAMES)
    frame.assign(truth=data.labels[:300]).to_csv("cal.csv")
    return frame


def test_a_stray_column_never_becomes_a_class(table, run):
    line = refused(
        run("calibrate", "cal.csv", "--logits", "--labels", "labels.npy", "-o", "m.safetensors")
    )
    assert "integers in 'truth'" in line
    done = succeeded(
        run("calibrate", "cal.csv", "--logits", "--labels-key", "truth", "-o", "m.safetensors")
    )
    assert f"300 rows of {K} classes" in done.out
    assert "Ignored non-class columns of 'cal.csv': '' (an index)" in done.err


def test_keys_name_arrays_of_the_file_and_of_other_files(folder, run, data):
    np.savez("odd.npz", scores=data.rows[:300], truth=data.labels[:300], patient=np.arange(300) + 7)
    np.savez("apart.npz", truth=data.labels[:300], more=data.labels[:300])
    np.savez("p.npz", probs=data.rows[:300], patient=np.arange(300) + 7)
    keys = ("--probabilities-key", "scores", "--labels-key", "truth", "--ids-key", "patient")
    assert "scores (300, 6)" in refused(run("calibrate", "odd.npz", "-o", "a.safetensors"))
    options = ["--method", "clustered", "--score", "aps"]
    options += ["--set", "gamma=0.4", "--set", "n_clusters=2"]
    succeeded(run("calibrate", "odd.npz", *keys, *options, "-o", "a.safetensors"))
    apart = ("--labels", "apart.npz", "--labels-key", "truth")
    ids = ("--ids-key", "patient")
    succeeded(run("calibrate", "p.npz", *apart, *ids, *options, "-o", "b.safetensors"))
    thresholds = [
        json.loads(succeeded(run("info", f"{name}.safetensors", "--json")).out)["thresholds"]
        for name in "ab"
    ]
    assert thresholds[0] == thresholds[1]


@pytest.mark.parametrize("command", ["evaluate", "predict", "report"])
def test_the_model_comes_first(folder, model, run, command):
    output = {"predict": ("-o", "s.csv"), "report": ("-o", "r.html")}.get(command, ())
    assert "comes before the data" in refused(run(command, "test.npz", model, *output))


def write_labels(name, ids, labels, heading="id,label"):
    """Write labels with their ids, in another order than the rows."""
    order = np.random.default_rng(3).permutation(len(ids))
    lines = [f"{ids[index]},{labels[index]}" for index in order]
    Path(name).write_text("\n".join([heading, *lines]), encoding="utf-8")


IDS = [f"case {number}" for number in range(300)]
COMMANDS = {
    "calibrate": ("calibrate", "rows.npz", "-o", "m.safetensors", "--force"),
    "evaluate": ("evaluate", "model.safetensors", "rows.npz", "--json"),
    "compare": ("compare", "rows.npz", "--n-splits", 2, "--scores", "softmax,aps", "--json"),
    "recommend": ("recommend", "rows.npz"),
    "update": ("update", "model.safetensors", "rows.npz", "-o", "m.safetensors", "--force"),
}


def outcome(run, command, *more):
    """Run a command; return what it found, and what it noted."""
    result = succeeded(run(*COMMANDS[command], *more))
    model = Path("m.safetensors").read_bytes() if "-o" in COMMANDS[command] else None
    return (result.out, model), result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_labels_with_ids_join_rows_with_ids(folder, model, run, data, command):
    rows, labels = data.rows[300:], data.labels[300:]
    np.savez("rows.npz", probs=rows, labels=labels, ids=IDS)
    expected, noted = outcome(run, command)
    assert "matched" not in noted
    np.savez("rows.npz", probs=rows, ids=IDS)
    write_labels("labels.csv", IDS, labels)
    found, noted = outcome(run, command, "--labels", "labels.csv")
    assert found == expected
    assert len([line for line in noted.splitlines() if "matched by id" in line]) == 1
    write_labels("labels.csv", IDS, labels, "id,diagnosis")  # the only other column
    assert outcome(run, command, "--labels", "labels.csv")[0] == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_ids_on_one_side_match_by_position_and_say_so(folder, model, run, data, command):
    rows, labels = data.rows[300:], data.labels[300:]
    np.savez("rows.npz", probs=rows, labels=labels)
    expected, _ = outcome(run, command)
    np.savez("rows.npz", probs=rows)
    lines = [f"{name},{label}" for name, label in zip(IDS, labels, strict=True)]
    Path("labels.csv").write_text("\n".join(["id,label", *lines]))
    found, noted = outcome(run, command, "--labels", "labels.csv")
    assert found == expected
    assert "matched by position (300 rows): no ids in 'rows.npz'" in noted
    np.savez("rows.npz", probs=rows, ids=IDS)
    Path("labels.txt").write_text("\n".join(map(str, labels)))
    assert (
        "matched by position (300 rows): no ids in the labels"
        in outcome(run, command, "--labels", "labels.txt")[1]
    )
    Path("labels.txt").write_text("\n".join(map(str, labels[1:])))
    assert run(*COMMANDS[command], "--labels", "labels.txt").code == 2


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"monitor"}))
def test_a_column_that_both_tables_share_joins_them(folder, model, run, data, command):
    rows, labels = data.rows[300:], data.labels[300:]
    np.savez("rows.npz", probs=rows, labels=labels, ids=IDS)
    expected, _ = outcome(run, command)
    order = np.random.default_rng(0).permutation(300)
    np.savez("rows.npz", probs=rows, path=IDS)
    write_labels("labels.csv", np.array(IDS)[order], labels[order], "path,label")
    assert "--ids-key path" in refused(run(*COMMANDS[command], "--labels", "labels.csv"))
    found, noted = outcome(run, command, "--labels", "labels.csv", "--ids-key", "path")
    assert found == expected
    assert "matched by id (300 rows)." in noted
    more = [*IDS, "stranger"]
    write_labels("labels.csv", more, [*labels, 0], "path,label")
    found, noted = outcome(run, command, "--labels", "labels.csv", "--ids-key", "path")
    assert found == expected
    assert noted.count("(300 rows); 1 without a row is not used") == 1


def test_rows_with_ids_update_a_model_without(folder, model, run, data):
    np.savez("ids.npz", probs=data.rows[300:], labels=data.labels[300:], ids=IDS)
    result = succeeded(run("update", model, "ids.npz", "-o", "with.safetensors"))
    assert "ignored" in result.err
    succeeded(run("update", model, "test.npz", "-o", "without.safetensors"))
    assert Path("with.safetensors").read_bytes() == Path("without.safetensors").read_bytes()
