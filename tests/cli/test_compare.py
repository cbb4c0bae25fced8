"""`evencover compare`: the table of the library, for methods and scores by name."""

import csv
import json
import re

from cli.running import assert_found, succeeded

import evencover
from evencover.data import load_filetypes
from evencover.predictors import methods_for_all
from evencover.scores import SCORES


def test_compare_prints_a_table_and_a_reason(folder, run, data):
    arguments = ("compare", "cal.npz", "--methods", "standard,classwise", "--n-splits", 3)
    shown = succeeded(run(*arguments, "--scores", "softmax"))
    assert shown.err == ""
    assert_found(r"6 classes, about 25 calibration examples each, target 90%, 3 random", shown.out)
    assert_found(r"standard \+ softmax +\d+ ", shown.out)
    method = re.findall("> (.*) [+]", shown.out)[0]
    assert_found(rf"Next: evencover calibrate cal.npz --method {method} -o model", shown.out)
    everything = succeeded(run(*arguments, "--scores", "softmax", "--all", "--alpha", 0.2)).out
    assert_found(r"into 150\s+calibration\s+and\s+150\s+test", everything)
    assert_found(r"CovGap +cost\n", everything)
    assert max(map(len, everything.splitlines()[:-1])) <= 80
    assert_found(r"calibrate cal.npz --method \w+ --alpha 0.2", everything)
    about = json.loads(succeeded(run(*arguments, "--json", "--csv", "table.csv")).out)
    result = evencover.compare(
        data.rows[:300], data.labels[:300], methods=["standard", "classwise"], n_splits=3
    )
    assert about == json.loads(json.dumps(result.to_dict()))
    with open("table.csv", encoding="utf-8", newline="") as file:
        covgaps = [float(row["covgap"]) for row in csv.DictReader(file)]
    assert covgaps == [row["covgap"] for row in result.rows()]


def test_calibration_sizes_give_a_learning_curve(folder, run, data):
    arguments = ("compare", "cal.npz", "--methods", "standard", "--scores", "softmax")
    shown = succeeded(run(*arguments, "--n-splits", 2, "--calibration-sizes", "5,0.5,10,9999"))
    assert_found("note: Calibration size 9999 is left out", shown.err)
    assert_found(r"5 per class +10 per class +150 examples", shown.out)
    few = (*arguments, "--n-splits", 2, "--calibration-sizes", "5,10")
    found = json.loads(succeeded(run(*few, "--json")).out)
    assert [row["n_calibration"] for row in found["learning_curve"]] == [30, 60]
    assert [row["n_calibration"] for row in found["candidates"]] == [60]


def test_compare_knows_all_methods_and_scores_and_their_parameters(folder, run):
    arguments = ("compare", "cal.npz", "--n-splits", 2, "--json")
    about = json.loads(succeeded(run(*arguments, "--methods", "all", "--scores", "all")).out)
    assert [(row["method"], row["score"]) for row in about["candidates"]] == [
        (method, score) for score in SCORES for method in methods_for_all()
    ]
    everything = ("--methods", "interpolated,clustered", "--scores", "saps,raps,aps")
    settings = ("--set", "tau=0", "--set", "penalty=0.5", "--set", "n-clusters=2")
    about = json.loads(succeeded(run(*arguments, *everything, *settings)).out)
    first = about["candidates"][0]
    plain = json.loads(
        succeeded(
            run(*arguments, "--methods", "standard", "--scores", "saps", "--set", "penalty=0.5")
        ).out
    )
    assert first["covgap"] == plain["candidates"][0]["covgap"]


def test_the_next_command_has_the_settings_that_the_candidate_takes(folder, run):
    settings = ("--set", "n-clusters=2", "--set", "penalty=0.5", "--set", "k_reg=2")
    arguments = ("--methods", "clustered", "--scores", "saps,raps", "--n-splits", 2)
    shown = succeeded(run("compare", "cal.npz", *arguments, *settings)).out
    next_command = shown.splitlines()[-1]
    assert "--set n-clusters=2 --set penalty=0.5" in next_command
    assert ("--set k_reg=2" in next_command) == ("--score raps" in next_command)


def test_compare_without_a_file_uses_the_bundled_file_types(run):
    arguments = ("--methods", "standard", "--scores", "softmax", "--n-splits", 2, "--json")
    shown = succeeded(run("compare", *arguments))
    assert "note: no file given: comparing on the bundled data" in shown.err
    n_rows = len(load_filetypes().labels)
    about = json.loads(shown.out)
    assert about["n_calibration"] + about["n_test"] == n_rows


def test_caps_are_compared_and_the_next_command_has_the_chosen_one(folder, run, data):
    arguments = ("compare", "cal.npz", "--methods", "pooled", "--scores", "softmax")
    shown = succeeded(run(*arguments, "--n-splits", 2, "--max-share", "none,0.05,0.01", "--all"))
    for name in (
        r"pooled \+ softmax +\d",
        r"softmax, max_share 0\.05 ",
        r"softmax, max_share 0\.01 ",
    ):
        assert_found(name, shown.out)
    only = succeeded(run(*arguments, "--n-splits", 2, "--max-share", "0.05"))
    assert_found(r"Next: evencover calibrate cal.npz --max-share 0.05 -o model", only.out)
    succeeded(run("calibrate", "cal.npz", "--max-share", "0.05", "-o", "m.safetensors"))
    assert evencover.load("m.safetensors").max_share == 0.05
    advice = succeeded(run("recommend", "cal.npz", "--max-share", "0.05"))
    assert_found("Recommended: ", advice.out)


def test_wrong_caps_are_errors_of_the_command_line(folder, run):
    for command in ("calibrate", "compare", "recommend"):
        output = ("-o", "m.safetensors") if command == "calibrate" else ()
        failed = run(command, "cal.npz", "--max-share", "1.5", *output)
        assert failed.code == 2
        assert_found("max_share", failed.err)
