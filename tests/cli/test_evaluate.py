"""`evencover evaluate`: the report as a table or as JSON, and notes about the data."""

import json

import numpy as np
from cli.running import shell, succeeded

from evencover import load
from evencover.report.content import report_content

OTHER_NAMES = {"n_unknown_labels": "n_unknown"}


def test_evaluate_as_json_has_the_attributes_as_keys(model, run, data):
    about = json.loads(succeeded(run("evaluate", model, "test.npz", "--json")).out)
    report = load(model).evaluate(data.rows[300:], data.labels[300:])
    for key, value in about.items():
        found = getattr(report, OTHER_NAMES.get(key, key))
        found = found if isinstance(found, dict) else list_of(found)
        np.testing.assert_equal(np.nan if value is None else value, found)
    needed = "marginal_coverage class_coverage class_counts covgap avg_size frac_undercovered "
    needed += "macro_coverage shortfall size_quantiles n_classes_evaluated "
    assert set(needed.split()) | {"covgap_noise_floor", "class_coverage_interval"} <= set(about)


def list_of(value):
    values = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(values, list) and values and hasattr(values[0], "_asdict"):
        return [one._asdict() for one in values]
    return list(values) if isinstance(values, tuple) else values


def test_evaluate_opens_with_the_headline_and_all_prints_all(model, run, data):
    first, _, *lines = succeeded(run("evaluate", model, "test.npz")).out.splitlines()
    report = load(model).evaluate(data.rows[300:], data.labels[300:])
    content = report_content(load(model), data.rows[300:], data.labels[300:])
    assert first == content["verdict"]["headline"]
    assert lines[:-2] == report.lines()
    assert [line.split("  ")[0] for line in lines[:3]] == [
        "overall coverage",
        "labels per set",
        "below 90%",
    ]
    text = succeeded(run("evaluate", model, "test.npz", "--all")).out
    words = " ".join(text.split())  # long lines are folded
    assert all(" ".join(line.split()) in words for line in report.lines(everything=True))


def test_the_calibration_file_is_no_test_file(model, run):
    result = succeeded(run("evaluate", model, "cal.npz"))
    assert result.err.startswith("note: These 300 rows were used for calibration")
    assert result.err.count("\n") == 1
    assert result.out.startswith("Target met")
    assert succeeded(run("evaluate", model, "test.npz")).err == ""


def test_notes_are_shown_whatever_python_thinks_of_warnings(folder):
    arguments = ("calibrate", "cal.npz", "--method", "clustered", "-o", "m.safetensors")
    result = succeeded(shell(*arguments, PYTHONWARNINGS="error::UserWarning"))
    assert result.err.startswith("note: Clustering is not possible")
