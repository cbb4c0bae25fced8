"""Alpha per class, the floor, another alpha and sets cut to a few labels, in the shell."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import NAMES, K, assert_found, refused, sets_in, succeeded

import evencover
from evencover import ClasswisePredictor, PooledPredictor, load
from evencover.predictors import PREDICTORS, methods_for_all

OWN = {NAMES[1]: 0.02, NAMES[4]: "1/3"}
PAIRS = [f"--alpha-of={name}={alpha}" for name, alpha in OWN.items()]
MEANT = [0.1, 0.02, 0.1, 0.1, 1 / 3, 0.1]


def calibrate(run, *arguments, data="cal.npz", to="m.safetensors"):
    return run("calibrate", data, "-o", to, "--force", *arguments)


def write_alphas(name, alphas, heading=("class", "alpha")):
    with open(name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([heading, *alphas.items()])


# ---- alpha ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["pooled", "classwise", "standard"])
def test_alpha_of_is_the_librarys_mapping(folder, run, data, method):
    succeeded(calibrate(run, "--method", method, *PAIRS))
    found = load("m.safetensors")
    assert found.alpha_.tolist() == MEANT
    again = PREDICTORS[method](alpha={**OWN, "default": 0.1})
    again.fit(data.rows[:300], data.labels[:300], class_names=NAMES)
    assert found.thresholds_.tolist() == again.thresholds_.tolist()


def test_alphas_come_from_files_too(folder, run):
    succeeded(calibrate(run, *PAIRS))
    expected = load("m.safetensors").thresholds_.tolist()
    write_alphas("some.csv", OWN)
    write_alphas("one.csv", {NAMES[1]: 0.02})
    write_alphas("all.csv", dict(zip(NAMES, MEANT, strict=True)), ("name", "level"))
    write_alphas("rest.csv", {**OWN, "default": 0.1})
    Path("vector.txt").write_text("\n".join(map(str, MEANT)))
    ways = (["some.csv"], ["one.csv", f"{NAMES[4]}=1/3"], ["all.csv"], ["vector.txt"])
    for texts in ways:
        succeeded(calibrate(run, *(f"--alpha-of={text}" for text in texts)))
        assert load("m.safetensors").thresholds_.tolist() == expected
    succeeded(calibrate(run, "--alpha", 0.3, "--alpha-of", "rest.csv"))
    assert load("m.safetensors").thresholds_.tolist() == expected


def test_classes_without_names_go_by_index(folder, run):
    succeeded(calibrate(run, "--alpha-of", "1=0.02", "--alpha", "0.2", data="test.npz"))
    assert load("m.safetensors").alpha_.tolist() == [0.2, 0.02, 0.2, 0.2, 0.2, 0.2]
    assert "7" in refused(calibrate(run, "--alpha-of", "7=0.02", data="test.npz"))


def test_names_may_have_equals_signs_and_be_default(folder, run, data):
    names = ["a=b", "default", "a", "=", "x=0.5", "é"]
    np.savez("odd.npz", probs=data.rows[:300], labels=data.labels[:300], class_names=names)
    pairs = [f"--alpha-of={name}={(place + 1) / 100}" for place, name in enumerate(names[:5])]
    succeeded(calibrate(run, *pairs, data="odd.npz"))
    assert load("m.safetensors").alpha_.tolist() == [0.01, 0.02, 0.03, 0.04, 0.05, 0.1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--alpha-of", "oak=0.1"), "oak"),
        (("--alpha-of", f"{NAMES[0]}=2"), "'alpha'"),
        (("--alpha-of", f"{NAMES[0]}="), "'alpha'"),
        (("--alpha-of", "none.csv"), "no such file"),
        (("--alpha-of", f"{NAMES[0]}=.1", "--alpha-of", f"{NAMES[0]}=.2"), NAMES[0]),
        (("--alpha-of", "vector.txt", "--alpha-of", f"{NAMES[0]}=.2"), "--alpha-of"),
        (("--alpha-of", f"{NAMES[0]}=.1", "--method", "macro"), "'alpha'"),
        (("--floor", "1"), "'floor'"),
        (("--floor", "x"), "'floor'"),
        (("--set", "floor=0.5"), "--set"),
    ],
)
def test_bad_alphas_and_floors(folder, run, arguments, words):
    Path("vector.txt").write_text("\n".join(map(str, MEANT)))
    assert words in refused(calibrate(run, *arguments))
    assert not Path("m.safetensors").exists()


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


def test_a_folder_of_another_alpha_is_another_folder(model, run):
    succeeded(run("predict", model, "new.npy", "-o", "sets"))
    assert "--force" in refused(run("predict", model, "new.npy", "-o", "sets", "--alpha", "0.3"))


# ---- floor ---------------------------------------------------------------------------------------


def test_the_floor_is_the_librarys(folder, run, data):
    succeeded(calibrate(run, "--alpha", "0.3", "--floor", "0.9"))
    again = PooledPredictor(alpha=0.3, floor=0.9).fit(data.rows[:300], data.labels[:300])
    assert load("m.safetensors").thresholds_.tolist() == again.thresholds_.tolist()
    succeeded(calibrate(run, "--alpha", "0.3", "--floor", "none", to="plain.safetensors"))
    assert (again.thresholds_ >= load("plain.safetensors").thresholds_).all()
    assert (again.thresholds_ > load("plain.safetensors").thresholds_).any()


def test_info_shows_alphas_floor_and_classes_with_too_few_examples(folder, run, data):
    rows, labels = data.rows[:300], data.labels[:300]
    few = np.flatnonzero(labels == 2)[:3]
    kept = np.concatenate([np.flatnonzero(labels != 2), few])
    np.savez("few.npz", probs=rows[kept], labels=labels[kept], class_names=NAMES)
    succeeded(calibrate(run, *PAIRS, "--floor", "0.8", data="few.npz"))
    about = json.loads(succeeded(run("info", "m.safetensors", "--json")).out)
    assert about["class_alpha"] == MEANT
    assert about["guarantees"] == load("m.safetensors").guarantees_.tolist()
    assert np.flatnonzero(np.array(about["guarantees"]) == 0).tolist() == [2]
    shown = succeeded(run("info", "m.safetensors")).out
    assert_found(r"(?m)^alpha +0\.1 for 4 classes, 0\.02 for 1 class, ", shown)
    assert_found(rf"(?m)^other alphas +{NAMES[1]}=0\.02, {NAMES[4]}=0\.3333", shown)
    assert_found(r"(?m)^floor +0\.8$", shown)
    words = " ".join(shown.split())
    assert_found(rf"1 of {K} classes have fewer \('{NAMES[2]}'\)", words)
    succeeded(calibrate(run, "--floor", "none"))
    about = json.loads(succeeded(run("info", "m.safetensors", "--json")).out)
    assert about["class_alpha"] is None
    assert not any(about["guarantees"])
    assert "floor" not in succeeded(run("info", "m.safetensors")).out


# ---- compare and recommend -----------------------------------------------------------------------


def test_compare_takes_alphas_and_a_floor(folder, run, data):
    options = ("--scores", "softmax", "--n-splits", 2, "--json")
    asked = (*PAIRS, "--floor", "0.8")
    found = json.loads(succeeded(run("compare", "cal.npz", *options, *asked)).out)
    expected = evencover.compare(
        *(data.rows[:300], data.labels[:300]),
        **{"scores": ["softmax"], "alpha": MEANT, "n_splits": 2, "floor": 0.8},
    )
    assert found == json.loads(json.dumps(expected.to_dict()))
    found = succeeded(run("compare", "cal.npz", *options, *PAIRS, "--methods", "all")).out
    methods = {row["method"] for row in json.loads(found)["candidates"]}
    assert methods == {name for name in methods_for_all() if PREDICTORS[name]._supports_class_alpha}
    sizes = [
        json.loads(succeeded(run("compare", "cal.npz", *options, "--floor", floor)).out)
        for floor in ("none", "auto")
    ]
    pooled = [found["candidates"][-1]["avg_size"] for found in sizes]
    assert pooled[0] <= pooled[1]


def test_recommend_takes_an_alpha_and_measures_the_floor(folder, run):
    found = json.loads(succeeded(run("recommend", "cal.npz", "--json")).out)
    assert "The floor" not in found["reason"]
    asked = ("--alpha", "0.2", "--floor", "0.95")
    more = json.loads(succeeded(run("recommend", "cal.npz", "--json", *asked)).out)
    assert more["expected_sizes"] != found["expected_sizes"]
    assert_found(r"The floor adds \d+\.\d+ labels", more["reason"])


# ---- at most n labels ----------------------------------------------------------------------------


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


def test_a_floor_guarantees_more_than_pooled_does(folder, run, data):
    """With the floor, every class's threshold is at least CLASSWISE's at that level."""
    succeeded(calibrate(run, "--floor", "0.85"))
    floor = ClasswisePredictor(alpha=0.15).fit(data.rows[:300], data.labels[:300])
    assert (load("m.safetensors").thresholds_ >= floor.thresholds_).all()
