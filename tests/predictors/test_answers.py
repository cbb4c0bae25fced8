"""Answers at the finest level: nodes of ragged hierarchies, the same on every path."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from evencover import InputError, StandardPredictor, Taxonomy, TopK, evaluate, load, save
from evencover.answers import REVIEW

NAMES = [f"species {k}" for k in range(12)] + ["genus 1", "lone", "outsider"]
K = len(NAMES)
# Three species per genus, two genera per family; species 11 has no genus; "genus 1" is a class.
TABLE = [[f"species {k}", f"genus {k // 3}", f"family {k // 6}"] for k in range(11)]
TABLE += [["species 11", "", "family 1"], ["", "genus 1", "family 0"], ["lone", "genus 9", ""]]
TREE = Taxonomy(TABLE, NAMES, ["species", "genus", "family"])


def ancestors(name):
    """Return a node and all that it belongs to, straight from the table."""
    found = {name}
    for row in TABLE:
        cells = [cell for cell in row if cell]
        if name in cells:
            found |= set(cells[cells.index(name) :])
    return found


@pytest.fixture(scope="module")
def data():
    """Rows that confuse the species of a genus, and sometimes the genera of a family."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, K, 6000)
    logits = rng.normal(0, 1.3, (6000, K))
    near = {k: [j for j in range(12) if j // 3 == k // 3] for k in range(12)}
    for row, label in enumerate(labels):
        logits[row, label] += 1.5
        logits[row, near.get(label, [label])] += 3
        logits[row, range(label // 6 * 6, min(label // 6 * 6 + 6, 12))] += 1.5
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    return (p[:3000], labels[:3000]), (p[3000:], labels[3000:])


@pytest.fixture(scope="module")
def fitted(data):
    predictor = StandardPredictor().fit(*data[0], class_names=NAMES)
    return predictor.fit_acceptance(
        *data[0], accuracy=0.93, per_class=False, taxonomy=TREE, class_names=NAMES
    )


def test_levels_are_columns_and_groups_with_one_class_are_that_class():
    levels = TREE.levels()
    nodes = [*NAMES, *levels.groups]
    found = [[None if k < 0 else nodes[k] for k in row] for row in levels.node_of_class]
    assert levels.level_names == ("species", "genus", "family")
    assert found[0] == NAMES
    genera = [f"genus {k // 3}" for k in range(11)]
    assert found[1] == [*genera, None, "genus 1", "lone", None]
    assert found[2] == [f"family {k // 6}" for k in range(12)] + ["family 0", None, None]
    own = dict(zip(nodes, levels.level_of_node.tolist(), strict=True))
    assert (own["species 3"], own["genus 1"], own["genus 0"], own["family 1"]) == (0, 1, 1, 2)
    asked = [{nodes[k] for k in np.flatnonzero(levels.asked(level))} for level in range(3)]
    assert asked == [set(NAMES), {f"genus {k}" for k in range(4)}, {"family 0", "family 1"}]


def test_levels_of_chains_are_heights():
    """A group has all of its classes at the height of its longest chain."""
    chains = [("a", "x", "r"), ("b", "x"), ("c", "r"), ("d", "s"), ("r", "u")]
    levels = Taxonomy(chains, "abcd").levels()
    assert levels.level_names == ("class", "group", "group 2", "group 3")
    nodes = np.array([*"abcd", *levels.groups, "none"])
    assert nodes[levels.node_of_class[1]].tolist() == ["x", "x", "none", "d"]
    assert nodes[levels.node_of_class[2]].tolist() == ["r", "r", "r", "none"]
    assert nodes[levels.node_of_class[3]].tolist() == ["r", "r", "r", "none"]
    asked = [set(nodes[np.flatnonzero(levels.asked(level))]) for level in range(4)]
    assert asked == [set("abcd"), {"x"}, {"r"}, set()]  # u has the classes of r


def test_a_group_must_be_in_a_wider_column_than_its_members():
    with pytest.raises(InputError, match="wider column"):
        Taxonomy([("a", "x", "y"), ("b", "", "x")], "ab", ["class", "genus", "family"]).levels()
    # A class may stand in the first column and be a genus elsewhere.
    levels = Taxonomy([("a", "x"), ("b", "x"), ("x", "")], "abx", ["class", "genus"]).levels()
    assert levels.node_of_class.tolist() == [[0, 1, 2], [2, 2, 2]]
    assert levels.level_of_node.tolist() == [0, 0, 1]


def test_a_node_is_right_if_it_is_the_label_or_an_ancestor():
    levels = TREE.levels()
    nodes = [*NAMES, *levels.groups]
    labels = np.arange(1 + len(nodes))  # K is not among the classes; groups follow
    for node, name in enumerate(nodes):
        is_right = levels.are_right(np.full(len(labels), node), labels)
        expected = [name in ancestors(label) for label in nodes]
        expected.insert(K, False)
        if name == "lone":  # "genus 9" has no other class, and is that class
            expected[1 + nodes.index("genus 9")] = True
        if name != "genus 9":
            assert is_right.tolist() == expected
    assert not levels.are_right(np.full(K, REVIEW), np.arange(K)).any()


def test_answers_follow_their_definition(data, fitted):
    p = data[1][0]
    acceptance, answers = fitted.acceptance_, fitted.answers(p)
    levels = acceptance.levels
    for row in range(400):
        expected, probability = None, None
        for level in range(3):
            sums = {}
            for k, node in enumerate(levels.node_of_class[level].tolist()):
                if node >= 0:
                    sums[node] = sums.get(node, 0.0) + p[row, k]
            best = max(sums, key=sums.get)
            if 1 - sums[best] <= acceptance.node_limits[level, best]:
                expected, probability = [*NAMES, *levels.groups][best], sums[best]
                break
        assert answers.names[row] == expected
        if expected is not None:
            assert answers.probabilities[row] == pytest.approx(probability)
    counts = answers.counts()
    assert min(counts.values()) > 10
    assert sum(counts.values()) == len(p)
    frame = answers.to_pandas()
    assert frame["answer_level"].isna().equals(frame["answer"].isna())
    assert frame["answer_probability"].notna().sum() == len(p) - counts["review"]


def test_all_paths_give_the_same_answers(data, fitted, tmp_path):
    p = data[1][0]
    answers, sets = fitted.answers(p), fitted.predict_set(p)
    save(fitted, tmp_path / "m.safetensors")
    with ThreadPoolExecutor(2) as executor:
        on_threads = fitted.answers(p, executor=executor)
    blocks = list(fitted.predict_set_blocks(iter([p[:7], p[7:]])))
    others = [
        sets.answers,
        on_threads,
        load(tmp_path / "m.safetensors").answers(p),
        fitted.with_alpha(0.2).answers(p),
        type(answers).concatenate([part.answers for part in blocks]),
        type(answers).concatenate([fitted.answers(p[i : i + 1]) for i in range(len(p))]),
        sets[::-1].answers[::-1],
        sets.top(1).answers,
    ]
    for other in others:
        assert np.array_equal(other.nodes, answers.nodes)
        assert np.array_equal(other.probabilities, answers.probabilities, equal_nan=True)
    top = p.argmax(axis=1)
    assert (answers.nodes[sets.accepted] == top[sets.accepted]).all()
    assert sets.accepted.mean() > 0.1


def test_evaluation_counts_answers_by_node(data, fitted):
    rows, labels = data[1]
    answers = fitted.answers(rows)
    is_right = np.array(
        [name in ancestors(NAMES[y]) for name, y in zip(answers.names, labels, strict=True)]
    )
    report = fitted.evaluate(rows, labels, class_names=NAMES)
    nodes = answers.nodes
    n_nodes = answers.hierarchy.n_nodes
    assert report.answered.tolist() == np.bincount(nodes[nodes >= 0], minlength=n_nodes).tolist()
    right = nodes[is_right & (nodes >= 0)]
    assert report.answered_right.tolist() == np.bincount(right, minlength=n_nodes).tolist()
    assert is_right[nodes >= 0].mean() > 0.85


def coarse(labels):
    """Return names of labels, of which every third is that of a group, or of nothing known."""
    texts = [NAMES[label] for label in labels]
    for n in range(0, len(texts), 3):
        texts[n] = [*sorted(ancestors(texts[n]) - {texts[n]}), "unknown", "unknown"][n % 2]
    return texts


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_coarse_labels_count_from_their_own_level_up(data, fitted):
    rows, labels = data[1]
    texts = coarse(labels)
    names = fitted.answers(rows).names
    right = [
        name
        for name, text in zip(names, texts, strict=True)
        if name in ancestors(text) or (name, text) == ("lone", "genus 9")  # its only class
    ]
    nodes = [*NAMES, *fitted.acceptance_.groups]
    expected = [right.count(name) for name in nodes]
    coarse_right = [n for n, t in zip(names, texts, strict=True) if n == t and t not in NAMES]
    assert len(coarse_right) > 100
    halves = [(rows[:1000], texts[:1000]), (rows[1000:], texts[1000:])]
    with ThreadPoolExecutor(2) as executor:
        reports = [
            fitted.evaluate(rows, texts, class_names=NAMES),
            fitted.evaluate(iter(halves), class_names=NAMES),
            fitted.evaluate(rows, texts, class_names=NAMES, executor=executor),
            evaluate(fitted.predict_set(rows), texts, class_names=NAMES),
        ]
    for report in reports:
        assert report.answered_right.tolist() == expected
        assert report.n_unknown == sum(text not in NAMES for text in texts)


def test_labels_of_a_group_teach_what_wider_answers_are_worth(data):
    """Species are never right where only the genus is known."""
    rows, labels = data[0]
    texts = [f"genus {label // 3}" if label < 11 else NAMES[label] for label in labels]
    predictor = StandardPredictor().fit(rows, labels, class_names=NAMES)
    how = {"accuracy": 0.8, "per_class": True, "taxonomy": TREE, "class_names": NAMES}
    predictor.fit_acceptance(rows, texts, **how)
    counts = predictor.answers(data[1][0]).counts()
    assert counts["genus"] > 500
    assert not set(predictor.answers(data[1][0]).names) & {f"species {k}" for k in range(11)}


def test_an_accepted_class_that_contains_the_label_is_right():
    """A class may be a group of others, and the label one of these."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.8, 1, 2000)
    rows = np.stack([(1 - p) / 2, (1 - p) / 2, p], axis=1)
    labels = rng.choice(3, 2000, p=[0.4, 0.2, 0.4])
    names, how = ["a", "b", "G"], {"class_names": ["a", "b", "G"]}
    half, other = slice(1000), slice(1000, None)
    predictor = StandardPredictor().fit(rows[half], labels[half], class_names=names)
    predictor.fit_acceptance(rows[half], labels[half], taxonomy=[("a", "G"), ("b", "G")], **how)
    report = predictor.evaluate(rows[other], labels[other], **how)
    assert report.accepted_accuracy == report.accepted_share == 1
    assert not report.is_unsafe.any()


def test_top_k_rows_sum_what_they_list(data, fitted):
    p = data[1][0][:500]
    order = np.argsort(-p, axis=1)[:, :3]
    listed = np.take_along_axis(p, order, axis=1)
    known = np.zeros_like(p)
    np.put_along_axis(known, order, listed, axis=1)
    rows = TopK(order, listed, class_names=NAMES)
    shuffled = TopK(order[:, ::-1], listed[:, ::-1], class_names=NAMES)
    levels = fitted.acceptance_.levels
    scoring = fitted.rule().scoring
    for level in (1, 2):
        scores, nodes = scoring.top_nodes(rows, levels, level)
        members = levels.node_of_class[level] == nodes[:, None]
        assert scores == pytest.approx(1 - (known * members).sum(axis=1))
        again = scoring.top_nodes(shuffled, levels, level)
        assert np.array_equal(again[0], scores)
        assert np.array_equal(again[1], nodes)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_top_k_rows_may_have_labels_that_are_no_classes(data, fitted):
    rows, labels = data[1]
    texts, order = coarse(labels), np.argsort(-rows, axis=1)
    listed = TopK(order, np.take_along_axis(rows, order, axis=1), class_names=NAMES)
    dense, found = (fitted.evaluate(given, texts, class_names=NAMES) for given in (rows, listed))
    assert found.answered_right.tolist() == dense.answered_right.tolist()
    assert found.covered_sizes.tolist() == dense.covered_sizes.tolist()
    assert found.covered_sizes.sum() == found.class_covered.sum()
    again = [StandardPredictor().fit(given, texts, class_names=NAMES) for given in (rows, listed)]
    assert again[0].thresholds_.tolist() == again[1].thresholds_.tolist()


def test_answers_need_cutoffs(data):
    predictor = StandardPredictor().fit(*data[0])
    with pytest.raises(InputError, match="fit_acceptance"):
        predictor.answers(data[1][0])
    predictor.fit_acceptance(*data[0], accuracy=0.7, per_class=False)
    answers = predictor.answers(data[1][0])
    assert set(answers.levels) == {"class", None}
    accepted = predictor.predict_set(data[1][0]).accepted
    assert [name is not None for name in answers.names] == accepted.tolist()
    with pytest.raises(InputError, match="15 classes"):
        predictor.fit_acceptance(*data[0], taxonomy=Taxonomy([("a", "x")], "ab"))
