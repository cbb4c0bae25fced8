"""Confidence and trees in the shell."""

import json
from pathlib import Path

from cli.running import NAMES, assert_found, refused, succeeded

from evencover import StandardPredictor, Taxonomy, load


def calibrate(run, *arguments, data="cal.npz"):
    return run("calibrate", data, "-o", "m.safetensors", *arguments)


def test_a_confidence_is_kept_and_told(folder, run, data):
    succeeded(calibrate(run, "--method", "standard", "--confidence", "0.9"))
    expected = StandardPredictor(confidence=0.9).fit(data.rows[:300], data.labels[:300])
    assert load("m.safetensors").thresholds_.tolist() == expected.thresholds_.tolist()
    shown = succeeded(run("info", "m.safetensors")).out
    assert_found(r"confidence +0\.9", shown)
    assert_found(r"(?m)^guarantee .*90%", shown)
    assert json.loads(succeeded(run("info", "m.safetensors", "--json")).out)["confidence"] == "0.9"


def test_advice_and_comparison_take_a_confidence(folder, run):
    out = succeeded(run("recommend", "cal.npz", "--confidence", "0.9")).out
    assert_found("probability 90%", out.replace("\n", " "))
    options = ("--methods", "standard", "--scores", "softmax", "--n-splits", "2")
    assert_found(
        r"with 90%\s+confidence",
        succeeded(run("compare", "cal.npz", *options, "--confidence", ".9")).out,
    )


def test_sets_in_the_words_of_a_tree(model, run):
    table = [f"{name},{'low' if place < 3 else 'high'}" for place, name in enumerate(NAMES)]
    Path("tree.csv").write_text("\n".join(table), encoding="utf-8")
    tree = Taxonomy.from_file("tree.csv", NAMES)
    options = ("--taxonomy", "tree.csv")
    succeeded(run("predict", model, "new.npy", "-o", "sets.jsonl", *options))
    lines = [json.loads(line) for line in Path("sets.jsonl").read_text("utf-8").splitlines()]
    assert [line["summary"] for line in lines] == [tree.describe(line["set"]) for line in lines]
    said = refused(run("predict", model, "new.npy", "-o", "more.csv", "--taxonomy", "none.csv"))
    assert "there is no such file" in said
    assert not Path("more.csv").exists()
