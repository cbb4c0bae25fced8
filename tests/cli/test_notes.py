"""Notes: what the user should know goes to stderr and is no error."""

import warnings

import numpy as np
from cli.running import shell, succeeded


def test_the_calibration_file_is_no_test_file(model, run):
    result = succeeded(run("evaluate", model, "cal.npz"))
    assert result.err.startswith("note: These 300 rows were used for calibration")
    assert result.err.count("\n") == 1
    assert result.out.startswith("300 rows")
    assert succeeded(run("evaluate", model, "test.npz")).err == ""


def test_a_class_that_was_never_seen_is_a_note(folder, run, data):
    few = data.labels < 4
    np.savez("few.npz", probs=data.rows[few], labels=data.labels[few])
    result = succeeded(run("calibrate", "few.npz", "--method", "classwise", "-o", "m.safetensors"))
    assert result.err == (
        "note: 2 of 6 classes have no calibration examples; classwise puts them in every set.\n"
    )


def test_notes_are_shown_whatever_python_thinks_of_warnings(folder):
    for place, setting in enumerate(["ignore", "error::UserWarning"]):
        arguments = ("calibrate", "cal.npz", "--method", "clustered", "-o", f"{place}.safetensors")
        result = succeeded(shell(*arguments, PYTHONWARNINGS=setting))
        assert result.err.startswith("note: Clustering is not possible")


def test_main_leaves_the_warnings_of_its_caller_alone(model, run):
    before = warnings.showwarning
    succeeded(run("evaluate", model, "cal.npz"))
    assert warnings.showwarning is before
