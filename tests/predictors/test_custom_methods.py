"""A method or score of the user's own gets everything: the recipes of CONTRIBUTING.md, run.

They are written to files outside the package, as a user would, and named by entry points, as an
installed package would, down to the shell.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scoring import score_matrix

from evencover import (
    BasePredictor,
    EvencoverWarning,
    InputError,
    StandardPredictor,
    Thresholds,
    load,
    predict_to_folder,
    register,
    save,
)
from evencover.arrays import FloatArray, IntArray
from evencover.predictors import PREDICTORS, Fit, make_predictor
from evencover.scores import SCORES, Softmax, make_score

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
TEXT = GUIDE.read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.DOTALL))
ENTRY_POINTS = """
[evencover.predictors]
cautious = cautious:Cautious

[evencover.scores]
margin = margin:Margin
"""


@pytest.fixture
def plugins(tmp_path):
    """A folder on the path with the two recipes, and what pip would write beside them."""
    folder = tmp_path / "site"
    about = folder / "recipes-1.0.dist-info"
    about.mkdir(parents=True)
    for name, code in RECIPES.items():
        (folder / name).write_text(code, encoding="utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: recipes\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture
def forget():
    """Leave the registries as they were."""
    methods, scores = dict(PREDICTORS), dict(SCORES)
    yield
    for known, before in ((PREDICTORS, methods), (SCORES, scores)):
        known.clear()
        known.update(before)


@pytest.fixture
def own(forget):
    """The recipes, run in this process."""
    for code in RECIPES.values():
        exec(compile(code, "CONTRIBUTING.md", "exec"), {"__name__": "recipe"})
    return PREDICTORS["cautious"], SCORES["margin"]


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(600, 6, seed=4)


def test_a_registered_method_is_known_by_name_everywhere(own, data, tmp_path):
    cautious, _ = own
    rows, labels = data
    fitted = make_predictor("cautious", alpha=0.2).fit(rows[:400], labels[:400])
    standard = StandardPredictor(alpha=0.2).fit(rows[:400], labels[:400])
    assert isinstance(fitted, cautious)
    assert fitted.predict_set(rows) == standard.predict_set(rows)  # no class is rare here
    with pytest.raises(InputError, match="'cautious'"):
        fitted.predict_p(rows)
    save(fitted, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").predict_set(rows) == fitted.predict_set(rows)
    folder = predict_to_folder(fitted, rows, tmp_path / "sets")
    assert (folder.n_rows, folder.n_there) == (600, 0)


def test_a_registered_score_has_a_formula_that_is_followed(own, data):
    _, margin = own
    rows = data.rows
    expected = rows.max(axis=1, keepdims=True) - rows
    np.testing.assert_allclose(score_matrix(margin(), rows), expected, atol=1e-15)
    sets = StandardPredictor(score="margin").fit(*data).predict_set(rows)
    assert sets.contains(data.labels).mean() >= 0.9


@pytest.fixture
def shell(plugins, data, tmp_path):
    """Run commands in a process that finds the package; what each of them said."""
    np.savez(tmp_path / "cal.npz", probs=data.rows[:400], labels=data.labels[:400])
    np.savez(tmp_path / "test.npz", probs=data.rows[400:], labels=data.labels[400:])

    def call(*commands):
        program = f"""
import contextlib, io, json
from evencover.cli import main
said = []
for command in {commands!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(command.split())
    said.append(out.getvalue())
print(json.dumps(said))
"""
        environment = os.environ | {"PYTHONPATH": str(plugins)}
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


@pytest.mark.deep
def test_the_shell_knows_what_an_installed_package_adds(shell, tmp_path):
    (tmp_path / "grid.toml").write_text(
        'datasets = ["cal.npz"]\nmethods = ["cautious"]\nscores = ["margin"]\n'
        "n_avg = [20]\nrepetitions = 2\n"
    )
    usage, _, about, _, evaluated, _, compared, _, table = shell(
        "calibrate --help",
        "calibrate cal.npz --method cautious --score margin -o m.safetensors",
        "info m.safetensors --json",
        "predict m.safetensors test.npz -o sets.csv",
        "evaluate m.safetensors test.npz",
        "report m.safetensors test.npz -o page.html",
        "compare cal.npz --methods standard,cautious --scores margin --n-splits 2",
        "experiment run grid.toml -o results",
        "experiment table results",
    )
    assert "cautious" in usage
    about = json.loads(about)
    assert (about["method"], about["score"]["name"]) == ("cautious", "margin")
    assert "single classes" in about["guarantee"]
    assert (tmp_path / "sets.csv").exists()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "coverage of single classes is not" in page
    assert "coverage" in evaluated
    assert "cautious" in compared
    assert "CAUTIOUS" in table


class Means(NamedTuple):
    """What the method below keeps of a fit."""

    means: FloatArray
    words: tuple[str, ...]
    other: IntArray | None


class Remembering(BasePredictor):
    """Keep something of a fit."""

    method = "remembering"
    _State = Means

    def _calibrate(self, rows):
        sums = np.bincount(rows.labels, weights=rows.scores, minlength=rows.n_classes)
        means = sums / np.maximum(rows.class_counts, 1)
        self.lost_ = means
        return Thresholds(means * 2), Means(means, ("one", "two"), None)

    def _check_fit(self, fit):
        if len(fit.state.means) != fit.n_classes:
            raise InputError("'means' must have one entry per class.")


def test_the_state_of_a_method_is_kept_saved_and_checked(forget, data, tmp_path):
    register(Remembering)
    path = tmp_path / "m.safetensors"
    fitted = Remembering().fit(*data)
    assert vars(fitted).keys() == {*fitted.get_params(), "fit_"}
    save(fitted, path)
    state = load(path).fit_.state
    np.testing.assert_array_equal(state.means, fitted.fit_.state.means)
    assert state[1:] == (("one", "two"), None)
    short = state._replace(means=np.zeros(2))
    with pytest.raises(InputError, match="'means'"):
        replace(fitted.fit_, state=short)
    about, arrays = fitted.fit_.to_arrays()
    with pytest.raises(InputError, match="'means'"):
        Fit.from_arrays(Remembering(), about["fit"], arrays | {"state.means": np.zeros(2)})


def test_exact_sets_need_a_pair_of_thresholds(forget, data):
    """Coverage would otherwise be silently that of the larger rank."""
    fitted = Remembering().fit(*data)
    with pytest.raises(InputError, match="'exact'"):
        Remembering(exact=True).fit(*data)
    with pytest.raises(InputError, match="'exact'"):
        fitted.set_params(exact=True).fit_scores(np.arange(6) / 7, np.arange(6), 6)


def test_a_method_must_return_the_state_that_it_declares(forget, data):
    class Careless(Remembering):
        method = "careless"

        def _calibrate(self, rows):
            return Thresholds(np.ones(rows.n_classes)), (1, 2)

    with pytest.raises(TypeError, match="Careless"):
        Careless().fit(*data)


def test_what_cannot_be_registered_is_refused(forget):
    kinds = ((StandardPredictor, "method", "standard"), (Softmax, "name", "aps"))
    for thing in (3, dict, Softmax()):
        with pytest.raises(InputError, match="must be a BasePredictor"):
            register(thing)
    for base, attribute, taken in kinds:
        for name in (None, "", "Upper", 7):
            with pytest.raises(InputError, match=f"'{attribute}'"):
                register(type("Mine", (base,), {attribute: name}))
        with pytest.raises(InputError, match=f"'{taken}'"):
            register(type("Mine", (base,), {attribute: taken}))


def test_a_cell_that_runs_again_may_define_its_class_anew(forget):
    for _ in range(2):
        method = register(type("Mine", (StandardPredictor,), {"method": "mine"}))
        score = register(type("Mine", (Softmax,), {"name": "mine"}))
        assert type(make_predictor("Mine", score="MINE")) is method
        assert type(make_score("mine")) is score


class Point:
    """An entry point of an installed package."""

    name = "theirs"

    def __init__(self, load):
        self.load = load


@pytest.mark.parametrize("known", [PREDICTORS, SCORES], ids=["methods", "scores"])
def test_a_broken_package_is_a_warning_once(forget, known, monkeypatch):
    def broken():
        raise ImportError("No module named 'their_package'")

    theirs = type("Theirs", (known.base,), {known.attribute: "theirs"})
    points = [Point(broken), Point(lambda: 3), Point(lambda: theirs)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    monkeypatch.setattr(known, "is_complete", False)
    with pytest.warns(EvencoverWarning) as notes:
        assert "theirs" in known.names()
    first, second = (str(note.message) for note in notes)
    assert first.endswith("No module named 'their_package'.")
    assert "must be a" in second
    assert known.find("THEIRS") is theirs
