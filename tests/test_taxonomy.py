"""Trees of classes: sets as the smallest nodes that cover them."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evencover import InputError, PredictionSets, StandardPredictor, Taxonomy, predict_to_folder
from evencover.output.writers import Listing, write_sets
from evencover.report.content import report_content

CHAINS = [
    *((f"warbler {i}", "warblers", "songbirds", "birds") for i in range(14)),
    *((f"owl {i}", "owls", "birds") for i in range(17)),
    *((f"finch {i}", "finches") for i in range(4)),
    ("finches", "songbirds"),
    ("bat", "mammals"),
]
NAMES = [chain[0] for chain in CHAINS if chain[0] != "finches"] + ["yeti"]
TREE = Taxonomy(CHAINS, NAMES)
WARBLERS, OWLS, FINCHES = range(14), range(14, 31), range(31, 35)
BAT, YETI = 35, 36


@pytest.mark.parametrize(
    ("members", "most", "words"),
    [
        ([], 4, "nothing"),
        ([3], 4, "warbler 3"),
        ([YETI], 4, "yeti"),
        ([3, BAT], 4, "warbler 3, bat"),
        ([*OWLS], 4, "all owls"),
        ([*WARBLERS, *FINCHES], 4, "all songbirds"),
        ([*WARBLERS, *FINCHES, *OWLS], 1, "all birds"),
        ([*WARBLERS[:9], *FINCHES[:2]], 1, "11 songbirds"),
        ([*WARBLERS[:9], *FINCHES[:2]], 2, "9 warblers, 2 finches"),
        ([*WARBLERS[:9], *FINCHES[:2]], 3, "9 warblers, finch 0, finch 1"),
        ([*WARBLERS[:9], *OWLS[:9], YETI], 1, "19 classes"),
        ([*WARBLERS[:3], *OWLS], 2, "3 warblers, all owls"),
        ([*WARBLERS[:9], BAT, YETI], 2, "9 warblers, 2 others"),
        ([*range(len(NAMES))], 1, "all classes"),
    ],
)
def test_nodes_are_the_smallest_that_the_number_of_words_allows(members, most, words):
    assert TREE.describe(members, most) == words


@given(st.sets(st.integers(0, len(NAMES) - 1)), st.integers(1, 8))
def test_parts_cover_the_set_and_nothing_is_counted_twice(members, most):
    parts = TREE.parts(members, most)
    assert sum(part.n_members for part in parts) == len(members)
    assert len({part.name for part in parts}) == len(parts) <= most
    for part in parts:
        if part.name in ("others", "classes"):
            assert part is parts[-1]
            assert part.n_members > 1
            continue
        inside = {i for i, path in enumerate(TREE._paths) if part.name in path}
        assert part.n_members == len(inside & members)
        assert part.n_classes == len(inside)


def test_a_part_is_vague_only_if_one_step_down_would_be_too_much():
    """Brute force over all sets of a small tree."""
    tree = Taxonomy(
        [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("x", "r"), ("y", "r")], "abcd"
    )
    for mask in itertools.product([False, True], repeat=4):
        members = np.flatnonzero(mask)
        found = tree.parts(members, 2)
        assert len(found) <= 2
        if len(members) <= 2 and set(members) not in ({0, 1}, {2, 3}):
            assert [part.text for part in found] == ["abcd"[i] for i in members]


def test_sets_and_tables(tmp_path):
    (tmp_path / "tree.csv").write_text("species,family\nant,insects\nbee,insects\ncat,mammals\n")
    tree = Taxonomy.read(tmp_path / "tree.csv", ["ant", "bee", "cat"])
    sets = PredictionSets.from_mask([[True, True, False], [True, False, True], [False] * 3])
    assert tree.describe_sets(sets) == ["all insects", "ant, cat", "nothing"]
    (tmp_path / "tree.tsv").write_text("ant\tinsects\nbee\tinsects\t\ninsects\tanimals\n")
    tabs = Taxonomy.read(tmp_path / "tree.tsv", ["ant", "bee", "cat"])
    assert tabs.describe([0, 1]) == "all animals"
    pairs = Taxonomy.read({"ant": "insects", "bee": "insects"}, ["ant", "bee", "cat"])
    assert pairs.describe([0, 1, 2]) == "all insects, cat"


@pytest.mark.parametrize(
    ("chains", "names", "sentence"),
    [
        ([("a", "x"), ("a", "y")], "ab", "'x' and 'y' for 'a'"),
        ([("a", "x"), ("x", "y"), ("y", "x")], "ab", "no cycles"),
        ([("p", "q")], "ab", "'a'"),
        ([("a", "x")], "aa", "twice"),
    ],
)
def test_trees_that_are_none_are_refused(chains, names, sentence):
    with pytest.raises(InputError, match=sentence):
        Taxonomy(chains, list(names))


def test_files_and_names_must_be_there(tmp_path):
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00")
    for path, names, words in (
        ("none.csv", ["a", "b"], "none.csv"),
        ("none.csv", None, "class names"),
        ("bad.csv", ["a", "b"], "bad.csv"),
    ):
        with pytest.raises(InputError, match=words):
            Taxonomy.read(tmp_path / path, names)


@pytest.fixture
def fitted(simulate):
    rows, labels = simulate(600, 6, seed=4)
    names = ["ant", "bee", "cat", "dog", "emu", "fox"]
    predictor = StandardPredictor(alpha=0.2).fit(rows[:300], labels[:300], class_names=names)
    return predictor, rows[300:], labels[300:]


TABLE = [("ant", "insects"), ("bee", "insects"), ("cat", "mammals"), ("dog", "mammals")]


def test_the_page_says_sets_in_words(fitted):
    predictor, rows, labels = fitted
    content = report_content(predictor, rows, labels, taxonomy=TABLE)
    tree = Taxonomy(TABLE, predictor.class_names_)
    sets = predictor.predict_set(rows)
    shown = [example for kept in content["classes"]["examples"] for example in kept]
    assert all(example[6] == tree.describe(sets[example[0]]) for example in shown)
    assert any("all insects" in example[6] for example in shown)
    plain = report_content(predictor, rows, labels)["classes"]["examples"]
    assert {len(example) for kept in plain for example in kept} == {6}


@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".csv"])
def test_files_describe_sets_in_words(fitted, tmp_path, ending):
    predictor, rows, _ = fitted
    tree = Taxonomy(TABLE, predictor.class_names_)
    path = tmp_path / f"sets{ending}"
    write_sets(path, Listing(taxonomy=tree).blocks(predictor, rows))
    if ending == ".jsonl":
        found = [json.loads(line)["summary"] for line in path.read_text().splitlines()]
    elif ending == ".csv":
        pandas = pytest.importorskip("pandas")
        found = pandas.read_csv(path)["summary"].tolist()
    else:
        found = pytest.importorskip("pyarrow.parquet").read_table(path)["summary"].to_pylist()
    assert found == tree.describe_sets(predictor.predict_set(rows))


def test_folders_describe_sets_in_words(fitted, tmp_path):
    predictor, rows, _ = fitted
    parquet = pytest.importorskip("pyarrow.parquet")
    predict_to_folder(predictor, rows, tmp_path / "sets", taxonomy=TABLE)
    files = sorted((tmp_path / "sets").glob("part-*.parquet"))
    found = [text for file in files for text in parquet.read_table(file)["summary"].to_pylist()]
    tree = Taxonomy(TABLE, predictor.class_names_)
    assert found == tree.describe_sets(predictor.predict_set(rows))
    with pytest.raises(InputError, match="way of listing classes"):
        predict_to_folder(predictor, rows, tmp_path / "sets", taxonomy=TABLE[:2])
