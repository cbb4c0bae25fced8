"""`evencover calibrate`: what the library learns, by name."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import NAMES, assert_found, refused, succeeded

import evencover
from evencover import PAS, RAPS, SAPS, load


def test_calibrate_is_the_library(folder, run, data, quietly):
    succeeded(
        run(
            *("calibrate", "cal.npz", "-o", "m.safetensors", "--method", "Clustered", "--seed", 7),
            *("--set", "gamma=0.4", "--set", "n_clusters=2", "--score", "raps"),
            *("--set", "penalty=0.1", "--set", "k_reg=2", "--set", "randomize=false"),
            *("--alpha", 0.05, "--set", "exact=true", "--set", "keep-top=true"),
        )
    )
    model = load("m.safetensors")
    assert model.score == evencover.RAPS(randomize=False, penalty=0.1, k_reg=2)
    parameters = model.get_params() | {"score": "raps"}
    assert parameters == {
        **{"alpha": 0.05, "score": "raps", "gamma": 0.4, "n_clusters": 2, "exact": True},
        **{"keep_top": True, "from_logits": False, "random_state": 7},
        **{"confidence": None, "floor": None, "max_share": None},
    }
    again = evencover.ClusteredPredictor(**model.get_params())
    quietly(again, data.rows[:300], data.labels[:300])
    np.testing.assert_array_equal(model.thresholds_, again.thresholds_)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--method", "interpolated", "--set", "tau=0.9"), {"tau": 0.9}),
        (("--method", "fuzzy", "--set", "bandwidth=inf"), {"bandwidth": np.inf}),
        (("--method", "rc3p", "--score", "raps", "--set", "k_reg=2"), {"score": RAPS(k_reg=2)}),
        (
            ("--method", "macro", "--score", "saps", "--set", "penalty=0.3"),
            {"score": SAPS(True, 0.3)},
        ),
        (("--method", "clustered", "--set", "gamma=0.4", "--set", "n_clusters=2"), {"gamma": 0.4}),
        (
            ("--method", "grouped", "--set", "groups=groups.txt"),
            {"groups": ["a", "a", "b", "b", "c", "c"]},
        ),
        (
            ("--method", "standard", "--score", "pas", "--set", "prevalence=counts.npy"),
            {"score": PAS([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])},
        ),
        (("--method", "classwise", "--set", "confidence=0.9"), {"confidence": 0.9}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_method_and_score_is_calibrated_by_name(folder, run, data, arguments, expected):
    Path("groups.txt").write_text("a\na\nb\nb\nc\nc\n")
    np.save("counts.npy", np.arange(1, 7))
    succeeded(run("calibrate", "cal.npz", "-o", "m.safetensors", *arguments))
    fitted = load("m.safetensors")
    assert {name: fitted.get_params()[name] for name in expected} == expected
    again = type(fitted)(**fitted.get_params()).fit(data.rows[:300], data.labels[:300])
    assert again.thresholds_.tolist() == fitted.thresholds_.tolist()
    succeeded(run("predict", "m.safetensors", "new.npy", "-o", "sets.jsonl"))
    sets = again.predict_set(data.rows[300:])
    lines = Path("sets.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["set"] for line in lines] == sets.to_lists()
    assert_found("overall coverage", succeeded(run("evaluate", "m.safetensors", "test.npz")).out)


def write_by_class(name, column, values):
    """Write values of the classes in another order, with a column of their names."""
    order = [4, 0, 5, 2, 1, 3]
    lines = [f"{NAMES[index]},{values[index]}" for index in order]
    Path(name).write_text("\n".join([f"class,{column}", *lines]), encoding="utf-8")


@pytest.mark.parametrize(
    ("setting", "column", "values", "more"),
    [
        ("prevalence", "prevalence", [50, 3, 9, 1, 70, 2], ("--score", "pas")),
        ("groups", "groups", list("aabbba"), ("--method", "grouped")),
    ],
)
def test_files_with_a_column_of_classes_go_by_name(folder, run, setting, column, values, more):
    more = more if "--method" in more else (*more, "--method", "standard")

    def calibrated(file, output):
        option = ("--set", f"{setting}={file}")
        return run("calibrate", "cal.npz", "-o", output, *option, *more)

    Path("plain.txt").write_text("\n".join(map(str, values)))
    succeeded(calibrated("plain.txt", "plain.safetensors"))
    write_by_class("named.csv", column, values)
    succeeded(calibrated("named.csv", "named.safetensors"))
    expected, found = load("plain.safetensors"), load("named.safetensors")
    assert found.thresholds_.tolist() == expected.thresholds_.tolist()
    rows = np.load("new.npy")
    assert found.predict_set(rows) == expected.predict_set(rows)
    succeeded(run("info", "named.safetensors"))
    text = Path("named.csv").read_text("utf-8")
    for wrong in (text.replace(NAMES[3], "oak"), text + f"\n{NAMES[3]},{values[3]}"):
        Path("wrong.csv").write_text(wrong, encoding="utf-8")
        assert NAMES[3] in refused(calibrated("wrong.csv", "w.safetensors"))
    assert not Path("w.safetensors").exists()
