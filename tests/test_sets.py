"""PredictionSets: rows of class indices, and every way there and back."""

import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

from evencover import ConformalClassifier, InputError, PredictionSets, StandardPredictor

masks = st.integers(1, 12).flatmap(
    lambda k: st.lists(st.lists(st.booleans(), min_size=k, max_size=k), min_size=1, max_size=20)
)


def lists_of(mask):
    return [[y for y, inside in enumerate(row) if inside] for row in mask]


@given(masks, st.randoms(use_true_random=False))
def test_sets_know_their_members(mask, random):
    sets = PredictionSets.from_mask(mask)
    expected = lists_of(mask)
    labels = [random.randrange(len(mask[0])) for _ in mask]
    assert len(sets) == len(mask)
    assert sets.to_mask().tolist() == mask
    assert sets.to_lists() == expected
    assert [row.tolist() for row in sets] == expected
    assert [sets[i].tolist() for i in range(len(sets))] == expected
    assert [sets[i - len(sets)].tolist() for i in range(len(sets))] == expected
    assert sets.sizes.tolist() == [len(row) for row in expected]
    contained = [y in row for y, row in zip(labels, expected, strict=True)]
    assert sets.contains(labels).tolist() == contained


@given(masks, st.data())
def test_taking_rows_keeps_their_sets(mask, data):
    sets, expected = PredictionSets.from_mask(mask), lists_of(mask)
    rows = data.draw(st.lists(st.integers(-len(mask), len(mask) - 1)))
    assert sets[np.array(rows, dtype=int)].to_lists() == [expected[i] for i in rows]
    assert sets[1:].to_lists() == expected[1:]
    assert sets[::-1].to_lists() == expected[::-1]
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(mask), max_size=len(mask))))
    assert sets[chosen].to_lists() == [e for e, c in zip(expected, chosen, strict=True) if c]
    cut = data.draw(st.integers(0, len(mask)))
    assert PredictionSets.concatenate([sets[:cut], sets[cut:]]) == sets
    assert PredictionSets.concatenate(iter([sets[:cut], sets[cut:]]), len(sets)) == sets


def test_parts_of_a_known_number_of_rows_are_not_kept():
    """The sets grow, so the room for those of later rows is too small again and again."""
    left, rows = [], [[True] * n + [False] * (9 - n) for n in range(1, 10)]

    def parts():
        for row in rows:
            yield (part := PredictionSets.from_mask([row]))
            left.append(weakref.ref(part))
            del part
            assert all(earlier() is None for earlier in left[:-1])

    sets = PredictionSets.concatenate(parts(), len(rows))
    assert sets == PredictionSets.from_mask(rows)
    assert len(sets.indices) == 45


def test_a_large_first_set_does_not_reserve_memory_for_as_large_others():
    first, others = PredictionSets.from_mask([[True]]), PredictionSets.from_mask([[False]] * 39)
    sets = PredictionSets.concatenate(iter([first, others]), 40)
    assert sets.sizes.tolist() == [1] + [0] * 39
    assert len(sets.indices.base) == 16


def test_accepted_rows_of_parts_stay_accepted():
    by_size = PredictionSets.from_mask([[True, False], [True, True]])
    by_rule = PredictionSets.from_csr(by_size.indptr, by_size.indices, 2, None, np.array([0, 1]))
    assert PredictionSets.concatenate([by_size] * 2).accepted.tolist() == [1, 0, 1, 0]
    assert PredictionSets.concatenate([by_size, by_rule]).accepted.tolist() == [1, 0, 0, 1]
    assert PredictionSets.concatenate([by_rule, by_size]).accepted.tolist() == [0, 1, 1, 0]


def test_sets_are_equal_if_all_rows_are():
    a = PredictionSets.from_mask([[True, False], [True, True]])
    assert a == PredictionSets.from_mask([[True, False], [True, True]])
    assert a != PredictionSets.from_mask([[False, True], [True, True]])
    assert a != PredictionSets.from_mask([[True, True], [True, False]])
    assert a != PredictionSets.from_mask([[True, False, False], [True, True, False]])
    assert a != "sets"


def test_names_take_the_place_of_indices():
    sets = PredictionSets.from_mask([[True, False], [False, False]], class_names=["cat", "dog"])
    assert sets.to_lists(names=True) == [["cat"], []]
    assert sets[1:].class_names == ["cat", "dog"]
    assert repr(sets) == "PredictionSets(2 rows, 2 classes, average size 0.50, 1 empty)"
    with pytest.raises(InputError, match="no class names"):
        PredictionSets.from_mask([[True]]).to_lists(names=True)


MASK = [[True, False, True], [False] * 3, [False, True, False]]
NAMES = ["ant", "<bee>", "çédille"]


def test_labels_may_be_class_names():
    sets = PredictionSets.from_mask(MASK, NAMES)
    labels = ["çédille", "ant", "ant"]
    assert sets.contains(labels).tolist() == [True, False, False]
    assert sets.contains(np.array(labels)).tolist() == sets.contains([2, 0, 0]).tolist()
    with pytest.raises(InputError, match=r"one of the 3 class names. Got 'cedille' in row 1"):
        sets.contains(["ant", "cedille", "ant"])


@pytest.mark.parametrize("names", [None, NAMES])
def test_frames_hold_the_sets_by_name_where_there_are_names(names):
    sets = PredictionSets.from_mask(MASK, names)
    expected = {"set": sets.to_lists(names=names is not None), "size": [2, 0, 1]}
    expected["accepted"] = [False, False, True]
    pytest.importorskip("pandas")
    assert sets.to_pandas().to_dict("list") == expected


@pytest.mark.parametrize("n_rows", [1, 20, 3000])
@pytest.mark.parametrize("logits", [False, True])
def test_the_most_probable_class_comes_first(simulate, n_rows, logits):
    rows, labels = simulate(600 + n_rows, 40, seed=1)
    rows = np.log(rows) if logits else rows
    fitted = StandardPredictor(alpha=0.02, from_logits=logits).fit(rows[:600], labels[:600])
    new = rows[600:]
    sets = fitted.predict_set(new)
    assert sets.sizes.max() > 2
    for members, row in zip(sets, new, strict=True):
        assert members.tolist() == sorted(members.tolist(), key=lambda y, row=row: (-row[y], y))


def test_frames_keep_the_index_of_the_input(simulate):
    pd = pytest.importorskip("pandas")
    rows, labels = simulate(300, 5, seed=1)
    index = pd.Index([f"patient {n}" for n in range(100)], name="who")
    frame = pd.DataFrame(rows[200:], columns=list("abcde"), index=index)
    fitted = StandardPredictor().fit(rows[:200], labels[:200], class_names=list("abcde"))
    sets = fitted.predict_set(frame)
    assert sets.to_pandas().index.equals(index)
    assert sets.to_pandas().index.name == "who"
    assert sets[3:5].to_pandas().index.tolist() == ["patient 3", "patient 4"]
    assert fitted.predict_set(rows[200:]).to_pandas().index.tolist() == list(range(100))
    model = ConformalClassifier(GaussianNB()).fit(pd.DataFrame(rows[:200]), labels[:200])
    found = model.predict_set(pd.DataFrame(rows[200:], index=index))
    assert found.to_pandas().index.equals(index)


def test_sets_without_rows_or_members():
    empty = PredictionSets(np.array([0]), np.array([], dtype=np.int32), 3)
    assert (len(empty), empty.to_mask().shape, empty.to_lists()) == (0, (0, 3), [])
    assert PredictionSets.from_mask(np.zeros((2, 3), dtype=bool)).to_lists() == [[], []]


@pytest.mark.parametrize(
    ("indptr", "indices", "name"),
    [
        ([0, 2], [1], "'indptr'"),
        ([1, 2], [1, 1], "'indptr'"),
        ([0, 2, 1, 2], [0, 1], "'indptr'"),
        ([0, 1], [3], "'indices'"),
        ([0, 1], [-1], "'indices'"),
    ],
)
def test_impossible_sets_are_rejected(indptr, indices, name):
    with pytest.raises(InputError, match=name):
        PredictionSets(np.array(indptr), np.array(indices), 3)


def test_rows_labels_and_masks_that_do_not_exist():
    sets = PredictionSets.from_mask([[True, False]])
    for row in (1, -2):
        with pytest.raises(IndexError):
            sets[row]
    for mask in ([[1, 0]], [True, False]):
        with pytest.raises(InputError, match="'mask'"):
            PredictionSets.from_mask(mask)
    for labels in ([2], [0, 0]):
        with pytest.raises(InputError, match="'labels'"):
            sets.contains(labels)
