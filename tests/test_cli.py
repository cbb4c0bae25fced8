"""The commands, end to end: results on stdout, notes on stderr, bad input in one sentence."""

import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import evencover
from evencover import PAS, RAPS, SAPS, load
from evencover.cli import main
from evencover.data import load_languages
from evencover.predictors import method_names
from evencover.scores import SCORES

pq = pytest.importorskip("pyarrow.parquet")

K = 6
NAMES = [f"naïve {place}" for place in range(K)]
SOURCE = Path(evencover.__file__).parents[1]


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(600, K, seed=8)


@pytest.fixture
def folder(tmp_path, monkeypatch, data):
    """A working folder with calibration, test and new rows."""
    monkeypatch.chdir(tmp_path)
    rows, labels = data
    np.savez("cal.npz", probs=rows[:300], labels=labels[:300], class_names=NAMES)
    np.savez("test.npz", probs=rows[300:], labels=labels[300:])
    np.save("new.npy", rows[300:])
    np.save("labels.npy", labels[300:])
    return tmp_path


@pytest.fixture
def model(folder):
    """The name of a CLASSWISE model in the folder."""
    main(["calibrate", "cal.npz", "--method", "classwise", "-o", "model.safetensors"])
    return "model.safetensors"


class Result(NamedTuple):
    code: int
    out: str
    err: str


def environment(**more):
    """The package is found in new processes where these tests found it."""
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path} | more


def shell(*arguments, stdout=subprocess.PIPE, preexec_fn=None, **more):
    """Run the real thing."""
    done = subprocess.run(
        [sys.executable, "-m", "evencover", *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=preexec_fn,
        env=environment(**more),
        timeout=120,
        check=False,
    )
    return Result(done.returncode, done.stdout or "", done.stderr)


@pytest.fixture
def run(capsys):
    """Run a command in this process, which is quicker."""

    def command(*arguments):
        capsys.readouterr()
        code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        return Result(code, *capsys.readouterr())

    return command


def succeeded(result):
    assert result.code == 0, result.err
    return result


def refused(result):
    """Exit code 2, nothing on stdout, one line on stderr, which is a sentence of ours."""
    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("evencover: ")
    return line


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


# The walk: calibrate, info, evaluate, predict ---------------------------------------------------


def test_the_whole_walk_in_a_real_shell(folder, data):
    calibrated = succeeded(
        shell(
            *("calibrate", "cal.npz", "--method", "clustered", "--score", "aps"),
            *("--alpha", "1/5", "-o", "m.safetensors"),
        )
    )
    assert calibrated.out == "m.safetensors: clustered, calibrated on 300 rows of 6 classes\n"
    assert calibrated.err.startswith("note: Clustering is not possible")
    told = succeeded(shell("info", "m.safetensors"))
    for words in ("method +clustered", "alpha +1/5", "score +name aps", "n classes +6"):
        assert_found(words, told.out)
    evaluated = succeeded(shell("evaluate", "m.safetensors", "test.npz"))
    assert evaluated.out.startswith("300 rows, 6 classes, alpha = 0.2\n")
    assert "null cluster" in evaluated.out
    assert evaluated.err == ""
    predicted = succeeded(shell("predict", "m.safetensors", "new.npy", "-o", "sets.parquet"))
    sets = load("m.safetensors").predict_set(data.rows[300:])
    average = sets.sizes.mean()
    assert predicted.out == f"sets.parquet: 300 sets, {average:.2f} classes on average\n"
    assert pq.read_table("sets.parquet").to_pydict() == {
        "set": sets.to_lists(),
        "names": sets.to_lists(names=True),
    }


def assert_found(pattern, text):
    assert re.search(pattern, text), f"{pattern!r} is not in\n{text}"


def test_calibrate_is_the_library(folder, run, data, quietly):
    succeeded(
        run(
            *("calibrate", "cal.npz", "-o", "m.safetensors", "--method", "Clustered", "--seed", 7),
            *("--gamma", 0.4, "--n-clusters", 2, "--score", "raps", "--penalty", 0.1, "--k-reg", 2),
            *("--alpha", 0.05, "--exact", "--no-allow-empty", "--no-randomize"),
        )
    )
    model = load("m.safetensors")
    assert model.score == evencover.RAPS(randomize=False, penalty=0.1, k_reg=2)
    parameters = model.get_params() | {"score": "raps"}
    assert parameters == {
        **{"alpha": 0.05, "score": "raps", "gamma": 0.4, "n_clusters": 2, "exact": True},
        **{"allow_empty": False, "from_logits": False, "temperature": 1.0, "random_state": 7},
    }
    again = evencover.ClusteredPredictor(**model.get_params())
    quietly(again, data.rows[:300], data.labels[:300])
    np.testing.assert_array_equal(model.thresholds_, again.thresholds_)


def test_evaluate_as_json_has_the_attributes_as_keys(model, run, data):
    about = json.loads(succeeded(run("evaluate", model, "test.npz", "--json")).out)
    report = load(model).evaluate(data.rows[300:], data.labels[300:])
    for key, value in about.items():
        found = getattr(report, key)
        if key.startswith("by_"):
            found = [group._asdict() for group in found()]
        np.testing.assert_equal(value, found if isinstance(found, dict) else list_of(found))
    needed = "marginal_coverage class_coverage class_counts covgap avg_size frac_undercovered "
    needed += "macro_coverage undercov_gap overcov_gap max_gap size_quantiles n_classes_evaluated "
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


def test_info_of_a_model_is_valid_json_even_with_infinite_thresholds(folder, run):
    arguments = ("--method", "classwise", "--alpha", "0.001", "-o", "m.safetensors")
    succeeded(run("calibrate", "cal.npz", *arguments))
    text = succeeded(run("info", "m.safetensors", "--json")).out
    about = json.loads(text, parse_constant=pytest.fail)  # Infinity and NaN are not JSON
    assert about["n_infinite_thresholds"] == K
    assert about["thresholds"] == [None] * K
    assert about["class_names"] == NAMES
    succeeded(run("info", "m.safetensors"))


def test_info_of_a_clustered_model_shows_its_guarantee(folder, run):
    arguments = ("--method", "clustered", "--gamma", 0.4, "--n-clusters", 2)
    succeeded(run("calibrate", "cal.npz", *arguments, "-o", "m.safetensors"))
    assert "Proposition 3" in succeeded(run("info", "m.safetensors")).out
    about = json.loads(
        succeeded(run("info", "m.safetensors", "--json")).out, parse_constant=pytest.fail
    )
    assert "guaranteed to each cluster" in about["guarantee"]
    assert [row["cluster"] for row in about["clusters"]] == [0, 1]
    assert sum(row["n_classes"] for row in about["clusters"]) == K


def test_info_of_data(folder, run, data):
    about = json.loads(succeeded(run("info", "cal.npz", "--json")).out)
    labels = data.labels[:300]
    assert (about["n_rows"], about["n_classes"], about["has_labels"]) == (300, K, True)
    assert about["accuracy"] == pytest.approx((data.rows[:300].argmax(1) == labels).mean())
    assert about["examples_per_class"]["min"] == np.bincount(labels).min()
    assert 0 < about["class_balance"] <= 1
    unlabelled = json.loads(succeeded(run("info", "new.npy", "--json")).out)
    assert "accuracy" not in unlabelled
    labelled = succeeded(run("info", "new.npy", "--labels", "labels.npy")).out
    assert_found("accuracy +0", labelled)


def test_info_of_this_installation(run):
    assert evencover.__version__ in succeeded(run("info")).out
    assert succeeded(run("--version")).out == f"evencover {evencover.__version__}\n"


@pytest.mark.parametrize("ending", ["parquet", "npz", "jsonl", "csv"])
def test_predict_writes_every_format(model, run, data, ending):
    succeeded(run("predict", model, "new.npy", "-o", f"sets.{ending}"))
    expected = load(model).predict_set(data.rows[300:]).to_lists()
    if ending == "parquet":
        found = pq.read_table("sets.parquet")["set"].to_pylist()
    elif ending == "npz":
        with np.load("sets.npz") as file:
            found = [part.tolist() for part in np.split(file["indices"], file["indptr"][1:-1])]
    elif ending == "jsonl":
        found = sets_in("sets.jsonl")
    else:
        with open("sets.csv", encoding="utf-8", newline="") as file:
            found = [list(map(int, row["set"].split())) for row in csv.DictReader(file)]
    assert found == expected


def sets_in(name):
    return [json.loads(line)["set"] for line in Path(name).read_text("utf-8").splitlines()]


def test_labels_may_be_a_file_of_their_own(model, run, folder, data):
    expected = succeeded(run("evaluate", model, "test.npz")).out
    (folder / "indices.txt").write_text("\n".join(map(str, data.labels[300:])))
    names = [NAMES[label] for label in data.labels[300:]]
    (folder / "names.txt").write_text("\n".join(names), encoding="utf-8")
    for labels in ("labels.npy", "test.npz", "indices.txt", "names.txt"):
        assert succeeded(run("evaluate", model, "new.npy", "--labels", labels)).out == expected


def test_the_same_ids_get_the_same_sets(folder, run, data):
    succeeded(
        run("calibrate", "cal.npz", "--method", "standard", "--score", "aps", "-o", "m.safetensors")
    )
    ids = [f"patient {place}" for place in range(300)]
    (folder / "ids.txt").write_text("\n".join(ids))
    (folder / "backwards.txt").write_text("\n".join(ids[::-1]))
    np.save("backwards.npy", data.rows[300:][::-1])
    succeeded(run("predict", "m.safetensors", "new.npy", "--ids", "ids.txt", "-o", "a.jsonl"))
    succeeded(
        run("predict", "m.safetensors", "backwards.npy", "--ids", "backwards.txt", "-o", "b.jsonl")
    )
    succeeded(run("predict", "m.safetensors", "new.npy", "-o", "c.jsonl"))
    a, b, c = (sets_in(f"{name}.jsonl") for name in "abc")
    assert a == b[::-1]
    assert a != c


@pytest.mark.parametrize("how", ["key", "flag"])
def test_logits_by_key_or_by_flag(folder, run, data, how):
    key = "logits" if how == "key" else "probs"
    flag = [] if how == "key" else ["--logits"]
    np.savez("l.npz", **{key: np.log(data.rows)}, labels=data.labels)
    common = ("--method", "standard", "-o", "m.safetensors", "--temperature", 2, *flag)
    succeeded(run("calibrate", "l.npz", *common))
    model = load("m.safetensors")
    assert (model.from_logits, model.temperature) == (True, 2.0)
    assert succeeded(run("evaluate", "m.safetensors", "l.npz", *flag)).out.startswith("600 rows")


def test_parquet_in_parquet_out(folder, run, data):
    import pyarrow as pa

    rows, labels = data
    columns = {name: rows[:, place] for place, name in enumerate(NAMES)}
    table = pa.table({**columns, "label": np.array(NAMES)[labels]})
    pq.write_table(table, "all.parquet", row_group_size=100)
    succeeded(run("calibrate", "all.parquet", "--method", "classwise", "-o", "m.safetensors"))
    succeeded(run("predict", "m.safetensors", "all.parquet", "-o", "sets.parquet"))
    expected = load("m.safetensors").predict_set(rows).to_lists(names=True)
    assert pq.read_table("sets.parquet")["names"].to_pylist() == expected


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


def test_compare_knows_all_methods_and_scores_and_their_parameters(folder, run):
    arguments = ("compare", "cal.npz", "--n-splits", 2, "--json")
    about = json.loads(succeeded(run(*arguments, "--methods", "all", "--scores", "all")).out)
    assert [(row["method"], row["score"]) for row in about["candidates"]] == [
        (method, score) for score in SCORES for method in method_names()
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--method", "interpolated", "--set", "tau=0.9"), {"tau": 0.9}),
        (("--method", "fuzzy", "--set", "bandwidth=inf", "--exact"), {"bandwidth": np.inf}),
        (("--method", "rc3p", "--score", "raps", "--k-reg", "2"), {"score": RAPS(k_reg=2)}),
        (("--method", "macro", "--score", "saps", "--penalty", "0.3"), {"score": SAPS(True, 0.3)}),
        (("--method", "clustered", "--set", "gamma=0.4", "--n-clusters", "2"), {"gamma": 0.4}),
        (
            ("--method", "grouped", "--groups", "groups.txt", "--set", "over-groups=pooled"),
            {"groups": ["a", "a", "b", "b", "c", "c"], "over_groups": "pooled"},
        ),
        (
            ("--method", "standard", "--score", "pas", "--prevalence", "counts.npy"),
            {"score": PAS([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])},
        ),
        (("--method", "classwise", "--score", "pas"), {"score": PAS()}),
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
    succeeded(run("predict", "m.safetensors", "new.npy", "-o", "sets.npz"))
    sets = again.predict_set(data.rows[300:])
    assert np.load("sets.npz")["indices"].tolist() == sets.indices.tolist()
    assert_found("FracBelow50", succeeded(run("evaluate", "m.safetensors", "test.npz")).out)


def test_compare_without_a_file_uses_the_bundled_languages(run):
    arguments = ("--methods", "standard", "--scores", "softmax", "--n-splits", 2, "--json")
    shown = succeeded(run("compare", *arguments))
    assert "note: no file given: comparing on the bundled data" in shown.err
    n_rows = len(load_languages().labels)
    about = json.loads(shown.out)
    assert about["n_calibration"] + about["n_test"] == n_rows


@pytest.mark.parametrize("command", ["calibrate", "predict", "evaluate", "info", "compare"])
def test_every_command_and_every_option_has_help(run, command):
    text = succeeded(run(command, "--help")).out
    assert f"evencover {command}" in text
    assert "--labels" in text
    assert "None" not in text


def test_without_a_command_there_is_help(run):
    assert "calibrate" in succeeded(run()).out


# Notes ------------------------------------------------------------------------------------------


def test_the_calibration_file_is_no_test_file(model, run):
    result = succeeded(run("evaluate", model, "cal.npz"))
    assert result.err.startswith("note: These 300 rows are the calibration rows themselves")
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


# Bad input --------------------------------------------------------------------------------------


def test_bad_input_in_a_real_shell(folder):
    before = listing(folder)
    line = refused(shell("calibrate", "cal.npz", "--alpha", 2, "-o", "m.safetensors"))
    assert line.endswith("must be a number in (0, 1). Got 2.0 instead.")
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(((f"--alpha={alpha}",), "'alpha'") for alpha in ("0", "1", "-0.1", "2", "nan", "x", "")),
        *(((f"--alpha={alpha}",), "'alpha'") for alpha in ("inf", "1/0", "0,1", "3/2")),
        (("--method", "clusterd"), "did you mean 'clustered'"),
        (("--score", "sofmax"), "did you mean 'softmax'"),
        (("--metod", "standard"), "Did you mean --method"),
        (("--seed", "-1"), "'random_state'"),
        (("--seed", "x"), "--seed"),
        (("--temperature", "0"), "'temperature'"),
        (("--method", "clustered", "--gamma", "1.5"), "'gamma'"),
        (("--method", "clustered", "--n-clusters", "0"), "'n_clusters'"),
        (
            ("--method", "standard", "--gamma", "0.5"),
            "'gamma' is not a parameter of standard or softmax",
        ),
        (("--score", "aps", "--penalty", "0.1"), "'penalty' is not a parameter of pooled or aps"),
        (("--score", "raps", "--k-reg", "-1"), "'k_reg'"),
        (("--no-randomize",), "'randomize' is not a parameter of pooled or softmax"),
        (("--labels", "labels"), "no such file"),
        (("--ids", "ids"), "no such file"),
        (("unexpected",), "unexpected"),
    ],
)
def test_bad_options_of_calibrate(folder, run, arguments, words):
    before = listing(folder)
    assert words in refused(run("calibrate", "cal.npz", "-o", "m.safetensors", *arguments))
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("calibrat",), 'Did you mean "calibrate"'),
        (("calibrate",), "DATA"),
        (("calibrate", "cal.npz"), "--output"),
        (("predict", "model.safetensors"), "DATA"),
        (("predict", "none.safetensors", "new.npy", "-o", "sets.xlsx"), "must be one of .parquet"),
        (("predict", "model.safetensors", "new.npy", "-o", "."), "must be a new or empty folder"),
        (("predict", "model.safetensors", "new.npy", "-o", "no/sets.csv"), "'no' does not exist"),
        (("predict", "none.safetensors", "new.npy", "-o", "a.csv"), "no such file"),
        (("predict", "model.safetensors", "none.npy", "-o", "a.csv"), "no such file"),
        (("predict", "new.npy", "model.safetensors", "-o", "a.csv"), "new.npy"),
        (("evaluate", "model.safetensors", "new.npy"), "needs labels"),
        (("evaluate", "model.safetensors", "test.npz", "--labels", "cal.npz.txt"), "no such file"),
        (("evaluate", "model.safetensors", "new.npy", "--ids", "labels.npz"), "no such file"),
        (("evaluate", "model.safetensors", "wide.npy", "--labels", "labels.npy"), "the 6 classes"),
        (("predict", "model.safetensors", "wide.npy", "-o", "a.csv"), "the 6 classes"),
        (("info", "none.npz"), "no such file"),
        (("info", "readme.txt"), "its ending must be one of"),
        (("compare", "cal.npz", "--methods", "standrd"), "did you mean 'standard'"),
        (("compare", "cal.npz", "--scores", "softmax,"), "Unknown score ''"),
        (("compare", "cal.npz", "--n-splits", "1"), "'n_splits'"),
        (("compare", "cal.npz", "--set", "tau=0.5"), "'tau' is not a parameter of"),
        (("compare", "cal.npz", "--set", "gama=0.5"), "did you mean 'gamma'"),
        (("compare", "cal.npz", "--set", "gamma"), "--set takes name=value"),
        (("compare", "cal.npz", "--set", "alpha=0.2"), "--set takes name=value"),
        (("compare", "cal.npz", "--groups", "labels.npy"), "'groups' is not a parameter of"),
        (("compare", "cal.npz", "--methods", "grouped", "--groups", "none.txt"), "no such file"),
        (("compare", "cal.npz", "--scores", "pas", "--prevalence", "readme.txt"), "one number per"),
        (("calibrate", "cal.npz", "-o", "m.safetensors", "--set", "tau=0.5"), "'tau' is not"),
        (
            ("calibrate", "cal.npz", "-o", "m.safetensors", "--method", "macro", "--exact"),
            "'exact' parameter of MacroPredictor must be False",
        ),
        (("compare", "cal.npz", "--csv", "readme.txt"), "exists already"),
        (("compare", "new.npy"), "Labels are needed"),
        (("compare", "cal.npz", "--calibration-fraction", "1.5"), "'calibration_fraction'"),
    ],
)
def test_bad_commands(model, folder, run, data, arguments, words):
    np.save("wide.npy", np.full((300, K + 1), 1 / (K + 1)))
    (folder / "readme.txt").write_text("hello")
    before = listing(folder)
    assert words in refused(run(*arguments))
    assert listing(folder) == before


def changed(values, place, value):
    values = np.array(values)
    values[place] = value
    return values


BAD_DATA = {
    "NaN": (lambda p, y: (changed(p, (7, 2), np.nan), y), "NaN in row 7 of 'bad.npz', class 2"),
    "infinity": (
        lambda p, y: (changed(p, (7, 2), np.inf), y),
        "infinite value in row 7 of 'bad.npz', class 2",
    ),
    "negative": (lambda p, y: (changed(p, (7, 2), -0.5), y), "-0.5 in row 7 of 'bad.npz', class 2"),
    "sum": (
        lambda p, y: (changed(p, 7, 0.3), y),
        "Row 7 of 'bad.npz' sums to 1.8, which is off by 0.8",
    ),
    "logits": (lambda p, y: (np.log(p), y), "--logits"),
    "one dimension": (lambda p, y: (p[0], y), "shape (6,)"),
    "three dimensions": (lambda p, y: (p[None], y), "shape (1, 300, 6)"),
    "one class": (lambda p, y: (np.ones((300, 1)), y), "at least 2 classes"),
    "no rows": (lambda p, y: (p[:0], y[:0]), "at least one row"),
    "text": (lambda p, y: (p.astype(str), y), "real numbers"),
    "too large label": (lambda p, y: (p, changed(y, 7, 6)), "Got 6 in row 7"),
    "negative label": (lambda p, y: (p, changed(y, 7, -1)), "Got -1 in row 7"),
    "float labels": (lambda p, y: (p, y.astype(float)), "must be integers"),
    "missing labels": (lambda p, y: (p, None), "needs labels"),
    "a label too few": (lambda p, y: (p, y[1:]), "299 labels for 300 rows"),
    "a label too many": (lambda p, y: (p, np.append(y, 0)), "301 labels for 300 rows"),
    "pickled labels": (lambda p, y: (p, y.astype(object)), "pickled Python objects"),
    "pickled rows": (lambda p, y: (p.astype(object), y), "pickled Python objects"),
}


@pytest.mark.parametrize("what", BAD_DATA)
@pytest.mark.parametrize("command", ["calibrate", "evaluate", "predict", "compare"])
def test_bad_data(model, folder, run, data, what, command):
    spoil, words = BAD_DATA[what]
    rows, labels = spoil(data.rows[:300], data.labels[:300])
    arrays = {"probs": rows} | ({} if labels is None else {"labels": labels})
    np.savez("bad.npz", **arrays)
    arguments = {
        "calibrate": ("calibrate", "bad.npz", "-o", "new.safetensors"),
        "evaluate": ("evaluate", model, "bad.npz"),
        "predict": ("predict", model, "bad.npz", "-o", "sets.csv"),
        "compare": ("compare", "bad.npz"),
    }[command]
    before = listing(folder)
    if what == "missing labels" and command == "predict":
        succeeded(run(*arguments))
        return
    line = refused(run(*arguments))
    assert words in line or (what, command) == ("missing labels", "compare")
    assert listing(folder) == before


@pytest.mark.parametrize("name", ["cal.npz", "new.npy", "rows.parquet", "model.safetensors"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_truncated_files(model, folder, run, data, name, kept):
    import pyarrow as pa

    pq.write_table(pa.table({"probs": data.rows.tolist()}), "rows.parquet")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(kept * len(content))])
    before = listing(folder)
    data_file = "new.npy" if name == "model.safetensors" else name
    line = refused(run("predict", model, data_file, "-o", "sets.csv"))
    assert f"Cannot read '{name}'" in line
    assert listing(folder) == before


def test_a_model_of_the_future(model, run):
    with safe_open(model, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["evencover"])
    text = json.dumps(about | {"format": 99, "version": "9.0"})
    save_file(arrays, model, {"evencover": text})
    for arguments in (("info", model), ("evaluate", model, "test.npz")):
        assert "it has format 99" in refused(run(*arguments))
        assert "use evencover 9.0 or later" in refused(run(*arguments))


def test_unreadable_files(model, folder, run):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    for name in (model, "new.npy"):
        (folder / name).chmod(0)
        assert name in refused(run("predict", model, "new.npy", "-o", "sets.csv"))
        (folder / name).chmod(0o600)


def test_a_bad_number_of_threads(model, run, monkeypatch):
    monkeypatch.setenv("EVENCOVER_THREADS", "many")
    assert "EVENCOVER_THREADS" in refused(run("predict", model, "new.npy", "-o", "sets.csv"))


# What is written, and what is not ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["sets.parquet", "sets.npz", "sets.jsonl", "sets.csv"])
def test_an_existing_output_is_kept_unless_forced(model, folder, run, name):
    (folder / name).write_text("precious")
    before = listing(folder)
    assert f"'{name}' exists already" in refused(run("predict", model, "new.npy", "-o", name))
    assert (folder / name).read_text() == "precious"
    assert listing(folder) == before
    succeeded(run("predict", model, "new.npy", "-o", name, "--force"))
    assert (folder / name).read_bytes() != b"precious"
    assert listing(folder) == before


def test_an_existing_model_is_kept_unless_forced(model, folder, run):
    content = (folder / model).read_bytes()
    arguments = ("calibrate", "cal.npz", "--method", "standard", "-o", model)
    assert "exists already" in refused(run(*arguments))
    assert (folder / model).read_bytes() == content
    succeeded(run(*arguments, "--force"))
    assert load(model).method == "standard"


def test_bad_rows_at_the_end_keep_the_existing_output(model, folder, run, data):
    rows = data.rows.copy()
    rows[-1] = np.nan
    np.save("late.npy", rows)
    for ending in ("parquet", "npz", "jsonl", "csv"):
        (folder / f"sets.{ending}").write_text("precious")
        before = listing(folder)
        arguments = ("predict", model, "late.npy", "-o", f"sets.{ending}", "--force")
        assert "NaN in row 599" in refused(run(*arguments))
        assert (folder / f"sets.{ending}").read_text() == "precious"
        assert listing(folder) == before


def small_disk():
    """No file of this process may grow beyond 2 kB: write() then fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))


@pytest.mark.parametrize("name", ["sets.parquet", "sets.npz", "sets.jsonl", "sets.csv"])
def test_nothing_is_left_when_the_disk_is_full(model, folder, data, name):
    np.save("many.npy", np.tile(data.rows, (20, 1)))
    before = listing(folder)
    line = refused(shell("predict", model, "many.npy", "-o", name, preexec_fn=small_disk))
    assert f"Cannot write '{name}'" in line
    assert "Nothing was written" in line
    assert listing(folder) == before
    (folder / name).write_text("precious")
    arguments = ("predict", model, "many.npy", "-o", name, "--force")
    refused(shell(*arguments, preexec_fn=small_disk))
    assert (folder / name).read_text() == "precious"


def test_no_model_is_left_when_the_disk_is_full(folder):
    before = listing(folder)
    arguments = ("calibrate", "cal.npz", "--method", "classwise", "-o", "m.safetensors")
    line = refused(shell(*arguments, preexec_fn=small_disk))
    assert "Cannot write 'm.safetensors'" in line
    assert listing(folder) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout_is_one_sentence(model):
    with open("/dev/full", "w") as full:
        assert "No space left" in refused(shell("evaluate", model, "test.npz", stdout=full))


def test_a_reader_that_goes_away_is_no_error(model):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        result = shell("evaluate", model, "test.npz", "--json", stdout=closed)
    assert (result.code, result.err) == (141, "")


def test_a_name_too_long_is_one_sentence(folder):
    name = "a" * 300 + ".safetensors"
    before = listing(folder)
    line = refused(shell("calibrate", "cal.npz", "-o", name))
    assert "File name too long" in line
    assert listing(folder) == before


def test_an_interrupted_prediction_leaves_nothing(model, folder, data):
    np.save("many.npy", np.tile(data.rows, (3000, 1)))  # seconds of work
    before = listing(folder)
    command = [sys.executable, "-m", "evencover", "predict", model, "many.npy", "-o", "sets.jsonl"]
    process = subprocess.Popen(
        command,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has told its children to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while listing(folder) == before and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert listing(folder) == before


# Imports ----------------------------------------------------------------------------------------


def modules_after(code, folder):
    """What is in sys.modules after running the code in a new process."""
    code = f"{code}\nimport sys; print(*sorted(sys.modules), file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        check=True,
    )
    return {name.partition(".")[0] for name in result.stderr.split()}


HEAVY = {"sklearn", "scipy", "pyarrow", "matplotlib", "pandas", "polars", "torch", "dask", "rich"}


def test_importing_evencover_imports_nothing_heavy(tmp_path):
    assert not modules_after("import evencover", tmp_path) & HEAVY
    used = modules_after("from evencover import StandardPredictor, load, evaluate", tmp_path)
    assert not used & (HEAVY | {"cyclopts", "safetensors"})


@pytest.mark.parametrize("method", ["classwise", "clustered", "pooled"])
def test_predict_imports_no_scikit_learn(folder, run, method):
    own = ("--gamma", 0.4, "--n-clusters", 2) if method == "clustered" else ()
    succeeded(run("calibrate", "cal.npz", "--method", method, *own, "-o", "m.safetensors"))
    arguments = ["predict", "m.safetensors", "new.npy", "-o", "sets.npz"]
    used = modules_after(f"from evencover.cli import main; main({arguments})", folder)
    assert "safetensors" in used
    assert not used & {"sklearn", "pandas", "matplotlib", "pyarrow"}
    assert "scipy" not in used or method == "pooled"
    assert (folder / "sets.npz").exists()


@pytest.mark.parametrize(
    "module",
    [
        "comparison",
        "data",
        "engine",
        "evaluation",
        "experiments",
        "output",
        "predictors",
        "report",
        "scores",
    ],
)
def test_every_room_can_be_entered_first(module, folder):
    """A worker imports what it is sent, in any order: there must be no circles."""
    assert "evencover" in modules_after(f"import evencover.{module}", folder)
