"""Answers with groups on the command line: the same in every file, and in SpeciesNet's JSON."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import refused, succeeded

from evencover import InputError, StandardPredictor, Taxonomy, evaluate, load, save

pq = pytest.importorskip("pyarrow.parquet")
NAMES = [f"{genus} {k}" for genus in ("Corvus", "Parus", "Strix") for k in range(3)]


@pytest.fixture
def rows(folder):
    """Rows that are clear about the genus and not about the species; the last are new."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 9, 3000)
    logits = rng.normal(0, 1, (3000, 9))
    logits[np.arange(3000), labels] += 1.5
    logits += 4.0 * (np.arange(9) // 3 == labels[:, None] // 3)
    rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.savez("cal.npz", probs=rows[:2500], labels=labels[:2500], class_names=NAMES)
    np.save("new.npy", rows[2500:])
    lines = ["species,genus", *(f"{name},{name.split()[0]}" for name in NAMES)]
    Path("tree.csv").write_text("\n".join(lines), encoding="utf-8")
    return rows, labels


@pytest.fixture
def calibrated(rows, run):
    accept = ("--accept-accuracy", "0.9", "--accept-mode", "overall", "--taxonomy", "tree.csv")
    succeeded(run("calibrate", "cal.npz", "-o", "m.safetensors", *accept))
    return load("m.safetensors")


def test_calibrate_fits_what_python_does(rows, calibrated):
    same = calibrated.answers("new.npy")
    predictor = type(calibrated)().fit("cal.npz")
    predictor.fit_acceptance("cal.npz", accuracy=0.9, per_class=False, taxonomy="tree.csv")
    assert predictor.answers("new.npy").names == same.names
    assert set(same.levels) == {"species", "genus", None}


@pytest.mark.parametrize("name", ["sets.csv", "sets.jsonl", "sets.parquet", "folder"])
def test_every_file_has_the_answers(calibrated, run, name):
    succeeded(run("predict", "m.safetensors", "new.npy", "-o", name))
    if name == "sets.csv":
        found = list(csv.DictReader(Path(name).read_text("utf-8").splitlines()))
        found = [{k: v or None for k, v in row.items()} for row in found]
    elif name == "sets.jsonl":
        found = [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()]
    else:
        found = pq.read_table(name).to_pylist()
    answers = calibrated.answers("new.npy")
    assert [row["answer"] for row in found] == answers.names
    assert [row["answer_level"] for row in found] == answers.levels
    p = [
        np.nan if row["answer_probability"] is None else row["answer_probability"] for row in found
    ]
    np.testing.assert_allclose(np.array(p, dtype=float), answers.probabilities, rtol=1e-5)


def test_evaluate_and_the_page_show_each_level(rows, calibrated, run):
    np.savez("test.npz", probs=rows[0][2500:], labels=rows[1][2500:], class_names=NAMES)
    out = succeeded(run("evaluate", "m.safetensors", "test.npz")).out
    succeeded(run("report", "m.safetensors", "test.npz", "-o", "page.html"))
    report = calibrated.evaluate("test.npz")
    table = {each["level"]: each for each in report.answers}
    answers = calibrated.answers("new.npy")
    for level in ("species", "genus"):
        assert table[level]["rows"] == answers.counts()[level]
    names = np.array([str(name) for name in answers.names])
    truth = np.array(NAMES)[rows[1][2500:]]
    is_right = [name in (true, true.split()[0]) for name, true in zip(names, truth, strict=True)]
    n_answered = table["all answers"]["rows"]
    assert table["all answers"]["accuracy"] == pytest.approx(np.sum(is_right) / n_answered)
    assert f"{table['genus']['share']:.1%}" in out
    page = Path("page.html").read_text("utf-8")
    assert "<bdi>genus</bdi></th>" in page
    nodes = {each["name"]: each for each in report.answering_nodes}
    assert set(nodes) == {*answers.names} - {None}
    for name, node in nodes.items():
        right = [r for r, found in zip(is_right, answers.names, strict=True) if found == name]
        assert (node["rows"], node["accuracy"]) == (len(right), pytest.approx(np.mean(right)))
        assert node["level"] == ("species" if " " in name else "genus")
    first = next(iter(nodes.values()))
    assert f"<bdi>{first['name']}</bdi>" in page
    again = evaluate(calibrated.predict_set("new.npy"), rows[1][2500:])
    assert {each["name"]: each["rows"] for each in again.answering_nodes} == {
        name: node["rows"] for name, node in nodes.items()
    }


def test_a_taxonomy_needs_an_accuracy(rows, run):
    for option in (("--taxonomy", "tree.csv"), ("--accept-mode", "overall")):
        line = refused(run("calibrate", "cal.npz", "-o", "m.safetensors", *option))
        assert line.split()[1] == option[0]
        assert "--accept-accuracy" in line
    assert not Path("m.safetensors").exists()


def test_info_shows_target_and_levels(calibrated, run):
    out = succeeded(run("info", "m.safetensors", "--json")).out
    found = json.loads(out)["answers"]
    n_answering = found.pop("classes and groups that answer")
    assert found == {
        "accuracy": 0.9,
        "confidence": 0.9,
        "levels": "species > genus",
        "for every class": False,
    }
    names = {*calibrated.answers("new.npy").names} - {None}
    assert len(names) <= n_answering <= 12


LABELS = [
    "1;aves;;;;;bird",
    "2;aves;passeriformes;turdidae;turdus;migratorius;american robin",
    "3;aves;passeriformes;turdidae;turdus;merula;blackbird",
    "4;aves;passeriformes;corvidae;corvus;corax;raven",
    "5;mammalia;carnivora;canidae;canis;lupus;wolf",
    "6;mammalia;carnivora;canidae;canis;latrans;coyote",
    "7;;;;;;blank",
]


def test_labels_of_species_net_are_a_taxonomy():
    levels = Taxonomy.read("labels", LABELS).levels()
    nodes = [*LABELS, *levels.groups]
    found = [[None if k < 0 else nodes[k] for k in row] for row in levels.node_of_class]
    assert levels.level_names == ("species", "genus", "family", "order", "class")
    turdus, canis = (
        ";aves;passeriformes;turdidae;turdus;;turdus",
        ";mammalia;carnivora;canidae;canis;;canis",
    )
    assert found[1] == [None, turdus, turdus, LABELS[3], canis, canis, None]
    assert found[4][:4] == [LABELS[0]] * 4  # the class of the model is the node
    assert levels.are_right(np.array([0, 0, 1]), np.array([2, 0, 2])).tolist() == [
        True,
        True,
        False,
    ]
    with pytest.raises(InputError, match="SpeciesNet"):
        Taxonomy.read("labels", NAMES)


def test_the_prediction_of_species_net_is_rewritten(folder, run):
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 7, 2000)
    genus = np.array([0, 1, 1, 2, 3, 3, 4])
    logits = rng.normal(0, 1, (2000, 7)) + 4.0 * (genus == genus[labels][:, None])
    logits[np.arange(2000), labels] += 1.5
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    predictions = [
        {
            "filepath": f"{row}.jpg",
            "classifications": {"classes": LABELS, "scores": p[row].tolist()},
            "prediction": LABELS[6],
            "prediction_score": 0.5,
            "prediction_source": "classifier",
        }
        for row in range(2000)
    ]
    Path("cal.json").write_text(json.dumps({"predictions": predictions}))
    lines = ["id,label", *(f"{row}.jpg,{LABELS[y]}" for row, y in enumerate(labels))]
    Path("labels.csv").write_text("\n".join(lines))
    accept = ("--accept-accuracy", "0.9", "--accept-mode", "overall", "--taxonomy", "labels")
    fit = ("--labels", "labels.csv", "-o", "m.safetensors", "--method", "standard")
    succeeded(run("calibrate", "cal.json", *fit, *accept))
    succeeded(run("predict", "m.safetensors", "cal.json", "-o", "out.json"))
    written = json.loads(Path("out.json").read_text("utf-8"))["predictions"]
    answers = load("m.safetensors").answers("cal.json")
    assert len(set(answers.levels)) > 2
    for found, name, level, score in zip(
        written, answers.names, answers.levels, answers.probabilities, strict=True
    ):
        if name is None:
            assert found.keys().isdisjoint({"prediction", "prediction_score", "prediction_source"})
        else:
            assert (found["prediction"], found["prediction_score"]) == (name, score)
            assert found["prediction_source"] == f"evencover: {level}"


def test_a_tree_in_newick_format_is_read(folder):
    Path("tree.nwk").write_text("((ant:0.1,bee:2)insects,('red cat',dog)0.9);")
    levels = Taxonomy.read("tree.nwk", ["ant", "bee", "red cat", "dog"]).levels()
    assert levels.level_names == ("class", "group")
    assert levels.groups == ("insects", "0.9")
    Path("bad.nwk").write_text("((ant,bee)insects;")
    with pytest.raises(InputError, match="Newick"):
        Taxonomy.read("bad.nwk", ["ant", "bee"])


def test_labels_of_newick_trees_have_underscores_and_comments(folder):
    Path("tree.nwk").write_text("[&R] ((red_cat:1,dog:2)[&x=1]pets:1,ant)animals;")
    levels = Taxonomy.read("tree.nwk", ["red cat", "dog", "ant"]).levels()
    assert levels.groups == ("pets", "animals")
    Path("tree.nwk").write_text("((ant,bee)0.9,(cat,dog)0.9);")  # support, not names
    with pytest.raises(InputError, match=r"0\.9"):
        Taxonomy.read("tree.nwk", ["ant", "bee", "cat", "dog"])


@pytest.mark.parametrize(
    ("text", "names", "groups"),
    [
        ("species,genus\na,G,F\nb,G,F\nc,,F", ("species", "genus", "group 2"), ("G", "F")),
        ("species,,family\na,G,F\nb,G,F\nc,,F", ("species", "group", "family"), ("G", "F")),
        ("child,parent\na,G\nb,G\nG,F\nc,F", ("class", "group", "group 2"), ("G", "F")),
        ("species,genus\na,c\nb,c\n,c", ("species", "genus"), ()),
    ],
    ids=["a row is longer", "no name", "pairs", "most lines end with a class"],
)
def test_headings_name_the_levels(folder, text, names, groups):
    Path("tree.csv").write_text(text, encoding="utf-8")
    levels = Taxonomy.read("tree.csv", ["a", "b", "c"]).levels()
    assert (levels.level_names, levels.groups) == (names, groups)
    assert len(levels.node_of_class) == len(names)


def test_headings_must_differ(folder):
    Path("tree.csv").write_text("species,group,group\na,G,F\nb,G,F\nc,,F", encoding="utf-8")
    with pytest.raises(InputError, match="different names"):
        Taxonomy.read("tree.csv", ["a", "b", "c"]).levels()


def test_the_page_shows_groups_that_answer_where_no_class_does(rows, run):
    """The label is the genus alone, so no species is ever right."""
    np.savez("genus.npz", probs=rows[0], labels=[NAMES[y].split()[0] for y in rows[1]],
             class_names=NAMES)  # fmt: skip
    predictor = StandardPredictor().fit("cal.npz")
    predictor.fit_acceptance("genus.npz", accuracy=0.9, taxonomy="tree.csv")
    save(predictor, "m.safetensors")
    np.savez("test.npz", probs=rows[0][2500:], labels=rows[1][2500:], class_names=NAMES)
    succeeded(run("report", "m.safetensors", "test.npz", "-o", "page.html"))
    report = predictor.evaluate("test.npz")
    assert report.accepted_share == 0
    assert report.answers[-1]["share"] == 1
    page = Path("page.html").read_text("utf-8")
    assert "100% <small>answered</small>" in page
    assert "<bdi>Corvus</bdi>" in page


def test_wide_columns_may_come_first(folder):
    Path("tree.csv").write_text("family,genus,species\nF,G,a\nF,G,b\nF,,c\n")
    levels = Taxonomy.read("tree.csv", ["a", "b", "c"]).levels()
    assert levels.level_names == ("species", "genus", "family")
    assert levels.groups == ("G", "F")
