"""Labels that do not belong to their rows stop every command, and are warned of in Python."""

from pathlib import Path

import numpy as np
import pytest
from cli.running import NAMES

from evencover import (
    CoverageMonitor,
    MismatchWarning,
    StandardPredictor,
    compare,
    write_report,
)


@pytest.fixture
def permuted(folder, data):
    """The test rows with permuted labels, stored with the rows and apart from them."""
    labels = np.random.default_rng(0).permutation(data.labels[300:])
    np.savez("wrong.npz", probs=data.rows[300:], labels=labels)
    np.save("wrong.npy", labels)
    return labels


COMMANDS = {
    "calibrate": ("calibrate", "wrong.npz", "-o", "out.safetensors"),
    "evaluate": ("evaluate", "classwise.safetensors", "wrong.npz", "--csv", "out.csv"),
    "report": ("report", "classwise.safetensors", "wrong.npz", "-o", "out.html"),
    "update": ("update", "classwise.safetensors", "wrong.npz", "-o", "out.safetensors"),
    "monitor": ("monitor", "classwise.safetensors", "wrong.npz", "--state", "state.db"),
    "compare": ("compare", "wrong.npz", "--n-splits", "2"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_stops_and_writes_nothing(run, model, permuted, command):
    arguments = [model if "classwise" in word else word for word in COMMANDS[command]]
    result = run(*arguments)
    assert result.code == 2
    assert "with permuted labels: rows and labels do not belong together" in result.err
    assert "labels come with the rows of 'wrong.npz'" in result.err
    assert not list(Path().glob("out.*"))
    if command == "monitor":
        assert "300 labeled" in run("monitor", model, "test.npz", "--state", "state.db").out


@pytest.fixture
def fitted(data):
    return StandardPredictor().fit(data.rows[:300], data.labels[:300], class_names=NAMES)


@pytest.mark.parametrize(
    "use",
    [
        lambda fitted, rows, labels: StandardPredictor().fit(rows, labels),
        lambda fitted, rows, labels: fitted.partial_fit(rows, labels),
        lambda fitted, rows, labels: fitted.evaluate(rows, labels),
        lambda fitted, rows, labels: CoverageMonitor(fitted).update(rows, labels),
        lambda fitted, rows, labels: compare(rows, labels, n_splits=2),
    ],
    ids=["fit", "partial_fit", "evaluate", "monitor", "compare"],
)
def test_python_warns(fitted, data, permuted, use):
    use(fitted, data.rows[300:], data.labels[300:])
    with pytest.warns(MismatchWarning, match="labels were matched by position"):
        use(fitted, data.rows[300:], permuted)


def test_the_report_does_not_open_with_a_target_met(fitted, data, permuted, folder):
    with pytest.warns(MismatchWarning):
        report = fitted.evaluate(data.rows[300:], permuted)
    assert not report.labels_fit
    assert report.to_dict()["labels_fit"] is False
    assert "labels" in str(report).splitlines()[1]
    with pytest.warns(MismatchWarning):
        write_report(fitted, "page.html", data.rows[300:], permuted)
    page = (folder / "page.html").read_text("utf-8")
    assert '<h1 id="headline">Rows and labels do not belong together.</h1>' in page
