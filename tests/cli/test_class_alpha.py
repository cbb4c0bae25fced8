"""Alpha per class, the floor, another alpha and sets cut to a few labels, in the shell."""

import csv
import json
import re
from pathlib import Path

import numpy as np
from cli.running import NAMES, K, assert_found, refused, sets_in, succeeded

import evencover
from evencover import PooledPredictor, load
from evencover.predictors import PREDICTORS, methods_for_all

OWN = {NAMES[1]: 0.02, NAMES[4]: "1/3"}
PAIRS = [f"--alpha-of={name}={alpha}" for name, alpha in OWN.items()]
MEANT = [0.1, 0.02, 0.1, 0.1, 1 / 3, 0.1]


def calibrate(run, *arguments, data="cal.npz", to="m.safetensors"):
    return run("calibrate", data, "-o", to, "--force", *arguments)


def write_alphas(name, alphas, heading=("class", "alpha")):
    with open(name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([heading, *alphas.items()])


def test_alpha_of_is_the_library_s_mapping_and_comes_from_files_too(folder, run, data):
    expected = PooledPredictor(alpha={**OWN, "default": 0.1})
    expected.fit(data.rows[:300], data.labels[:300], class_names=NAMES)
    write_alphas("some.csv", OWN)
    write_alphas("one.csv", {NAMES[1]: 0.02})
    write_alphas("all.csv", dict(zip(NAMES, MEANT, strict=True)), ("name", "level"))
    write_alphas("rest.csv", {**OWN, "default": 0.1})
    ways = (
        PAIRS,
        ["--alpha-of=some.csv"],
        ["--alpha-of=one.csv", f"--alpha-of={NAMES[4]}=1/3"],
        ["--alpha-of=all.csv"],
        ["--alpha=0.3", "--alpha-of=rest.csv"],
    )
    for options in ways:
        succeeded(calibrate(run, *options))
        found = load("m.safetensors")
        assert found.alpha_.tolist() == MEANT
        assert found.thresholds_.tolist() == expected.thresholds_.tolist()


def test_names_may_have_equals_signs_and_be_default(folder, run, data):
    names = ["a=b", "default", "a", "=", "x=0.5", "é"]
    np.savez("odd.npz", probs=data.rows[:300], labels=data.labels[:300], class_names=names)
    pairs = [f"--alpha-of={name}={(index + 1) / 100}" for index, name in enumerate(names[:5])]
    succeeded(calibrate(run, *pairs, data="odd.npz"))
    assert load("m.safetensors").alpha_.tolist() == [0.01, 0.02, 0.03, 0.04, 0.05, 0.1]


def test_another_alpha_is_that_of_a_new_calibration(folder, run):
    succeeded(calibrate(run))
    succeeded(calibrate(run, "--alpha", "0.3", to="new.safetensors"))
    more = ("--alpha", "0.3")
    succeeded(run("predict", "m.safetensors", "new.npy", "-o", "a.jsonl", *more))
    succeeded(run("predict", "new.safetensors", "new.npy", "-o", "b.jsonl"))
    succeeded(run("predict", "m.safetensors", "new.npy", "-o", "c.jsonl"))
    assert sets_in("a.jsonl") == sets_in("b.jsonl") != sets_in("c.jsonl")
    found = succeeded(run("evaluate", "m.safetensors", "test.npz", "--json", *more)).out
    assert found == succeeded(run("evaluate", "new.safetensors", "test.npz", "--json")).out


def test_the_floor_is_the_library_s(folder, run, data):
    for text, floor in (("0.9", 0.9), ("auto", "auto"), ("none", None)):
        succeeded(calibrate(run, "--alpha", "0.3", "--floor", text))
        again = PooledPredictor(alpha=0.3, floor=floor).fit(data.rows[:300], data.labels[:300])
        assert load("m.safetensors").thresholds_.tolist() == again.thresholds_.tolist()


def test_info_shows_alphas_floor_and_classes_with_too_few_examples(folder, run, data):
    labels = data.labels[:300]
    kept = np.flatnonzero((labels != 2) | (np.cumsum(labels == 2) <= 3))
    np.savez("few.npz", probs=data.rows[kept], labels=labels[kept], class_names=NAMES)
    succeeded(calibrate(run, *PAIRS, "--floor", "0.8", data="few.npz"))
    about = json.loads(succeeded(run("info", "m.safetensors", "--json")).out)
    assert about["class_alpha"] == MEANT
    assert about["guarantees"] == load("m.safetensors").guarantees_.tolist()
    assert np.flatnonzero(np.array(about["guarantees"]) == 0).tolist() == [2]
    shown = succeeded(run("info", "m.safetensors")).out
    assert_found(r"(?m)^alpha +0\.1 for 4 classes, 0\.02 for 1 class, ", shown)
    assert_found(r"(?m)^floor +0\.8$", shown)
    words = " ".join(shown.split())
    assert_found(rf"1 of {K} classes have fewer \('{NAMES[2]}'\)", words)


def test_compare_takes_alphas_and_a_floor(folder, run, data):
    options = ("--scores", "softmax", "--n-splits", 2, "--json")
    found = json.loads(succeeded(run("compare", "cal.npz", *options, *PAIRS, "--floor", "0.8")).out)
    expected = evencover.compare(
        *(data.rows[:300], data.labels[:300]),
        **{"scores": ["softmax"], "alpha": MEANT, "n_splits": 2, "floor": 0.8},
    )
    assert found == json.loads(json.dumps(expected.to_dict()))
    found = succeeded(run("compare", "cal.npz", *options, *PAIRS, "--methods", "all")).out
    methods = {row["method"] for row in json.loads(found)["candidates"]}
    assert methods == {
        name for name in methods_for_all() if "class alpha" in PREDICTORS[name].supports
    }


def test_recommend_takes_an_alpha_and_a_floor(folder, run):
    found = succeeded(run("recommend", "cal.npz")).out
    more = succeeded(run("recommend", "cal.npz", "--alpha", "0.2", "--floor", "0.95")).out
    assert_found(r"Next: .* --alpha 0.2 --floor 0.95", more)
    assert re.findall("Expect ([0-9.]+)", more) != re.findall("Expect ([0-9.]+)", found)


def test_predict_notes_that_cut_sets_have_no_guarantee(model, run):
    assert "guarantee" not in succeeded(run("predict", model, "new.npy", "-o", "a.csv")).err
    cut = succeeded(run("predict", model, "new.npy", "-o", "b.csv", "--top", 2))
    assert_found("note: .*guarantee.*cut to 2", cut.err)


def test_evaluate_writes_one_row_per_class(folder, model, run, data):
    before = succeeded(run("evaluate", model, "test.npz")).out
    written = run("evaluate", model, "test.npz", "--csv", "classes.csv")
    assert before.splitlines()[0] in succeeded(written).out
    with open("classes.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    report = load(model).evaluate(data.rows[300:], data.labels[300:])
    columns = report.class_columns()
    assert list(rows[0]) == list(columns)
    assert [row["name"] for row in rows] == NAMES
    for name in ("coverage", "target"):
        assert [float(row[name]) for row in rows] == list(columns[name])
    kept = Path("classes.csv").read_bytes()
    assert "--force" in refused(run("evaluate", model, "new.npy", "--csv", "classes.csv"))
    failed = run("evaluate", model, "new.npy", "--csv", "classes.csv", "--force")
    assert "labels" in refused(failed)
    assert Path("classes.csv").read_bytes() == kept
