"""`evencover evaluate`: the report as a table or as JSON."""

import json

import numpy as np
from cli.running import assert_found, succeeded

from evencover import load


def test_evaluate_as_json_has_the_attributes_as_keys(model, run, data):
    about = json.loads(succeeded(run("evaluate", model, "test.npz", "--json")).out)
    report = load(model).evaluate(data.rows[300:], data.labels[300:])
    for key, value in about.items():
        found = getattr(report, "n_unknown" if key == "n_unknown_labels" else key)
        if key.startswith("by_"):
            found = [group._asdict() for group in found()]
        np.testing.assert_equal(value, found if isinstance(found, dict) else list_of(found))
    needed = "marginal_coverage class_coverage class_counts covgap avg_size frac_undercovered "
    needed += "macro_coverage undercov_gap shortfall size_quantiles n_classes_evaluated "
    assert set(needed.split()) | {"covgap_noise_floor", "class_coverage_interval"} <= set(about)


def list_of(value):
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_evaluate_prints_the_table(model, run, data):
    text = succeeded(run("evaluate", model, "test.npz")).out
    report = load(model).evaluate(data.rows[300:], data.labels[300:])
    assert str(report) in text
    for group in report.by_calibration_count():
        cells = (group.group, group.n_classes, group.n_rows, f"{group.coverage:.3f}")
        assert_found(" +".join(map(str, cells)), text)
