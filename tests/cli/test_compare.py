"""`evencover compare`: the table of the library, for methods and scores by name."""

import csv
import json

import numpy as np
from cli.running import assert_found, succeeded

import evencover
from evencover.data import load_languages
from evencover.predictors import methods_for_all
from evencover.scores import SCORES


def test_compare_prints_a_table_and_a_reason(folder, run, data):
    arguments = ("compare", "cal.npz", "--methods", "standard,classwise", "--n-splits", 3)
    shown = succeeded(run(*arguments, "--scores", "softmax"))
    assert shown.err == ""
    assert_found(r"3 splits into 150 calibration and 150 test", shown.out)
    assert_found(r"STANDARD +softmax", shown.out)
    about = json.loads(succeeded(run(*arguments, "--json", "--csv", "table.csv")).out)
    result = evencover.compare(
        data.rows[:300], data.labels[:300], methods=["standard", "classwise"], n_splits=3
    )
    assert about == json.loads(json.dumps(result.to_dict()))
    with open("table.csv", encoding="utf-8", newline="") as file:
        covgaps = [float(row["covgap"]) for row in csv.DictReader(file)]
    assert covgaps == [row["covgap"] for row in result.rows()]


def test_a_method_for_the_mean_class_is_excluded_only_if_coverage_of_all_rows_is_asked_for(
    tmp_path, run
):
    """MACRO covers the mean class: here the one class that is hard has most of the examples."""
    rng = np.random.default_rng(0)
    labels = rng.choice(6, size=3000, p=[0.75, *[0.05] * 5])
    logits = rng.normal(size=(3000, 6))
    logits[np.arange(3000), labels] += np.where(labels == 0, 1, 6)
    rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.savez(tmp_path / "long.npz", probs=rows, labels=labels)
    arguments = ("compare", tmp_path / "long.npz", "--methods", "standard,macro", "--n-splits", 4)
    arguments += ("--scores", "softmax", "--json")
    standard, macro = json.loads(succeeded(run(*arguments)).out)["candidates"]
    assert macro["marginal_coverage"] < 0.85
    assert not macro["covers_too_little"]
    between = (standard["avg_size"] + macro["avg_size"]) / 2
    assert macro["avg_size"] < between
    small = ("--max-size", between)
    picked = json.loads(succeeded(run(*arguments, *small)).out)["pick"]
    assert picked == {"method": "macro", "score": "softmax"}
    small += ("--min-coverage", 0.85)
    limited = json.loads(succeeded(run(*arguments, *small)).out)
    assert limited["pick"] is limited["smallest"] is limited["most_even"] is None
    assert "Use " not in limited["reason"]
    report = (*arguments[:-1], *small, "--report", tmp_path / "page.html")
    succeeded(run(*report))
    assert "No candidate meets the requirements." in (tmp_path / "page.html").read_text("utf-8")


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


def test_compare_without_a_file_uses_the_bundled_languages(run):
    arguments = ("--methods", "standard", "--scores", "softmax", "--n-splits", 2, "--json")
    shown = succeeded(run("compare", *arguments))
    assert "note: no file given: comparing on the bundled data" in shown.err
    n_rows = len(load_languages().labels)
    about = json.loads(shown.out)
    assert about["n_calibration"] + about["n_test"] == n_rows
