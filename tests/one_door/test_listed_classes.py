"""Rows know how many classes they list: fewer than in calibration warns, and a rank is no class."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from cli.running import refused, succeeded
from one_door.material import (
    best,
    calibrated,
    entries_of,
    fitted,
    simulated,
    state_of,
    top_of,
    write_lines,
)

import evencover.data.readers as source_module
from evencover import (
    APS,
    RAPS,
    SAPS,
    ClasswisePredictor,
    EvencoverWarning,
    InputError,
    Score,
    Softmax,
    StandardPredictor,
    TopK,
    save,
)

K = 12
NAMES = [f"class {y}" for y in range(K)]
ROWS, LABELS = simulated(400, K)
NEW, NEW_LABELS = simulated(100, K, seed=2)


def warnings_of(use, *arguments, **how):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use(*arguments, **how)
    return [str(each.message) for each in caught if issubclass(each.category, EvencoverWarning)]


def about(first, second, messages):
    """The warnings that name both numbers."""
    numbers = [rf"(?<![\d.]){number}(?![\d.%])" for number in (first, second)]
    return [text for text in messages if all(re.search(number, text) for number in numbers)]


# ---- fewer classes than in calibration ---------------------------------------------------------


def varied(rows, lengths):
    """Rows that list different numbers of classes."""
    classes, values = best(rows, max(lengths))
    sizes = np.resize(lengths, len(rows))
    is_listed = np.arange(max(lengths)) < sizes[:, None]
    starts = np.append(0, np.cumsum(sizes))
    return TopK.from_csr(starts, classes[is_listed], values[is_listed], rows.shape[1])


@pytest.mark.parametrize("small_blocks", [False, True])
def test_rows_that_list_fewer_classes_warn_once_with_both_numbers(monkeypatch, small_blocks):
    if small_blocks:
        monkeypatch.setattr(source_module, "BLOCK_ELEMENTS", 8)
    new = top_of(NEW, 2)
    for calibration, k in (
        (top_of(ROWS, 10), 10),
        (top_of(ROWS, 3), 3),
        (ROWS, K),
        (top_of(ROWS, K), K),
        (varied(ROWS, [10, 7, 9]), 7),
    ):
        model = StandardPredictor().fit(calibration, LABELS)
        assert len(about(2, k, warnings_of(model.predict_set, new))) == 1


def test_the_smallest_number_of_listed_classes_counts(tmp_path):
    model = StandardPredictor().fit(top_of(ROWS, 10), LABELS)
    assert len(about(4, 10, warnings_of(model.predict_set, varied(NEW, [10, 4, 6])))) == 1
    path = write_lines(tmp_path / "top4.jsonl", entries_of(NEW, 4))
    assert len(about(4, 10, warnings_of(model.predict_set, path))) == 1


def test_as_many_classes_are_no_reason_to_warn():
    for calibration, k in ((top_of(ROWS, 5), 5), (varied(ROWS, [9, 5]), 5), (top_of(ROWS, 5), 8)):
        model = StandardPredictor().fit(calibration, LABELS)
        assert warnings_of(model.predict_set, top_of(NEW, k)) == []
    model = StandardPredictor().fit(ROWS, LABELS)
    for new in (NEW, top_of(NEW, K)):
        assert warnings_of(model.predict_set, new) == []


def test_a_model_remembers_it(folder, run):
    save(StandardPredictor().fit(ROWS, LABELS), "m.safetensors")
    write_lines(folder / "new.jsonl", entries_of(NEW, 2))
    done = succeeded(run("predict", "m.safetensors", "new.jsonl", "-o", "s.jsonl"))
    assert len(about(2, K, done.err.splitlines())) == 1


def test_an_update_lowers_it():
    model = StandardPredictor().fit(top_of(ROWS, 10), LABELS)
    model.partial_fit(top_of(NEW, 4), NEW_LABELS)
    assert about(10, 4, warnings_of(model.predict_set, top_of(NEW, 4))) == []
    assert len(about(2, 4, warnings_of(model.predict_set, top_of(NEW, 2)))) == 1


# ---- rows that list all classes ----------------------------------------------------------------


@pytest.mark.parametrize("decimals", [3, 4, 6])
@pytest.mark.parametrize("score", ["softmax", "aps", "raps", "saps"])
def test_rounded_rows_are_the_same_dense_and_with_all_classes_listed(tmp_path, decimals, score):
    """Their sums are a little below or above 1, and dense rows are divided by them."""
    n_classes = 60
    (rows, labels), (new, _) = simulated(200, n_classes), simulated(60, n_classes, seed=2)
    rows, new = rows.round(decimals), new.round(decimals)
    assert (new.sum(axis=1) < 1 - 1e-7).any()
    dense, listed = (
        StandardPredictor(alpha=0.3, score=score, keep_top=False).fit(given, labels)
        for given in (rows, top_of(rows, n_classes))
    )
    assert listed.thresholds_.tolist() == dense.thresholds_.tolist()
    expected = dense.predict_set(new).to_lists()
    path = write_lines(tmp_path / "all.jsonl", entries_of(new, n_classes))
    for model in (dense, listed):
        for given in (top_of(new, n_classes), path):
            assert model.predict_set(given).to_lists() == expected
            assert np.array_equal(model.predict_p(given).toarray(), dense.predict_p(new))


# ---- acceptance --------------------------------------------------------------------------------


def completed(rows, first):
    """Dense rows in which unlisted classes, from this one on, get as much as they can have."""
    dense, smallest = (
        rows.to_dense().astype(float),
        np.minimum.reduceat(rows.values, rows.starts[:-1]),
    )
    is_listed = rows.with_values(np.ones(rows.size)).to_dense() > 0
    for y in np.roll(np.arange(K), -first):
        rest = np.minimum(smallest, np.maximum(0, 1 - dense.sum(axis=1)))
        dense[:, y] = np.where(is_listed[:, y], dense[:, y], rest)
    return dense


SCORES = ["softmax", "pas", APS(), APS(randomize=False), RAPS(penalty=0.1, k_reg=1), SAPS()]


@pytest.mark.parametrize("score", SCORES, ids=str)
@pytest.mark.parametrize("keep_top", [False, True])
def test_a_row_is_accepted_by_its_set_only_if_no_other_class_could_be_in_it(score, keep_top):
    n_accepted, n_alone, ids = 0, 0, [f"row {n}" for n in range(len(NEW))]
    for alpha in (0.3, 0.5):
        model = StandardPredictor(alpha=alpha, keep_top=keep_top, score=score).fit(ROWS, LABELS)
        for k in (1, 2, 3, 6):
            rows = top_of(NEW, k)
            sets = model.predict_set(rows, ids=ids)
            n_accepted, n_alone = (
                n_accepted + sets.accepted.sum(),
                n_alone + (sets.sizes == 1).sum(),
            )
            for first in range(K):
                dense = model.predict_set(completed(rows, first), ids=ids)
                assert dense.accepted[sets.accepted].all()
            blocks = model.predict_set_blocks(rows, ids=ids)
            assert (
                np.concatenate([part.accepted for part in blocks]).tolist()
                == sets.accepted.tolist()
            )
            assert model.evaluate(rows, NEW_LABELS, ids=ids).accepted.sum() == sets.accepted.sum()
    assert 0 < n_accepted < n_alone


class Unknown(Softmax):
    """A score that does not say how small it can be for classes that are not listed."""

    name = "unknown"
    least_unlisted = Score.least_unlisted


def test_rows_are_not_accepted_by_their_set_if_nothing_is_known_of_other_classes():
    model = StandardPredictor(alpha=0.5).fit(ROWS, LABELS)
    # Others cannot have what these leave: they are not the largest probabilities of a row.
    assert not model.predict_set(TopK([[3]], [[0.001]], n_classes=K)).accepted.any()
    assert not model.predict_set([[{"label": 3, "score": 0.001}]]).accepted.any()
    assert model.predict_set(top_of(NEW, 3)).accepted.any()
    model = StandardPredictor(alpha=0.5, score=Unknown()).fit(ROWS, LABELS)
    assert not model.predict_set(top_of(NEW, 3)).accepted.any()
    assert model.predict_set(NEW).accepted.any()
    unlimited = ClasswisePredictor(alpha=0.1).fit(ROWS[LABELS > 0], LABELS[LABELS > 0])
    assert not unlimited.predict_set(top_of(NEW, 3)).accepted.any()


def test_rows_without_unlisted_mass_are_accepted_as_dense_rows_are():
    model = StandardPredictor(alpha=0.3).fit(ROWS, LABELS)
    expected = model.predict_set(NEW).accepted
    assert expected.any()
    assert model.predict_set(top_of(NEW, K)).accepted.tolist() == expected.tolist()
    certain = np.zeros((3, K))
    certain[:, 4] = 1
    accepted = model.predict_set(certain).accepted.tolist()
    assert accepted == [True] * 3
    assert (
        model.predict_set(TopK([[4]] * 3, [[1.0]] * 3, n_classes=K)).accepted.tolist() == accepted
    )


def test_cutoffs_accept_top_k_rows():
    """A cutoff compares the probability of the top class, which every row lists."""
    model = StandardPredictor(alpha=0.3).fit(ROWS, LABELS)
    model.fit_acceptance(ROWS, LABELS, accuracy=0.3)
    expected = model.predict_set(NEW).accepted.tolist()
    assert any(expected)
    assert model.predict_set(top_of(NEW, 1)).accepted.tolist() == expected


# ---- ranked lists as dense rows ----------------------------------------------------------------


def ranked(rows):
    """Rank r is taken for class r."""
    return -np.sort(-rows, axis=1)


def test_ranked_lists_are_no_dense_rows(tmp_path):
    rows, model = ranked(ROWS[:60]), StandardPredictor().fit(ROWS, LABELS)
    np.savez(tmp_path / "p.npz", probs=rows, labels=LABELS[:60])
    lists = [{"scores": row, "label": y} for row, y in zip(rows.tolist(), LABELS.tolist())]  # noqa: B905
    path = write_lines(tmp_path / "p.jsonl", lists)
    frame = pd.DataFrame(rows, columns=NAMES)
    for given in (rows, np.log(rows), frame, rows.astype(np.float16), rows.tolist()):
        from_logits = given is not frame and bool(np.min(given) < 0)
        with pytest.raises(InputError, match="allow_sorted"):
            StandardPredictor(from_logits=from_logits).fit(given, LABELS[:60])
    for use in (model.evaluate, fitted):
        with pytest.raises(InputError, match="allow_sorted"):
            use(rows, LABELS[:60])
        with pytest.raises(InputError, match="allow_sorted"):
            use(tmp_path / "p.npz")
    with pytest.raises(InputError):
        fitted(path)


def test_they_are_found_in_small_blocks_and_batches(monkeypatch):
    rows = ranked(ROWS[:60])
    with pytest.raises(InputError, match="allow_sorted"):
        fitted([(rows[n : n + 7], LABELS[n : min(n + 7, 60)]) for n in range(0, 60, 7)])
    monkeypatch.setattr(source_module, "BLOCK_ELEMENTS", 4 * K)
    with pytest.raises(InputError, match="allow_sorted"):
        fitted(rows, LABELS[:60])


def test_an_option_allows_sorted_rows():
    rows, labels = ranked(ROWS[:60]), LABELS[:60]
    model = StandardPredictor(score="aps").fit(rows, labels, allow_sorted=True)
    assert model.n_calibration_ == 60
    assert model.evaluate(rows, labels, allow_sorted=True).n_rows == 60


def test_sorted_rows_on_the_command_line(folder, run):
    save(StandardPredictor().fit(ROWS, LABELS), "m.safetensors")
    rows, labels = ranked(ROWS[:45]), LABELS[:45]
    np.savez("p.npz", probs=rows, labels=labels)
    calibrate = ("calibrate", "p.npz", "-o", "new.safetensors")
    for command in (calibrate, ("evaluate", "m.safetensors", "p.npz")):
        assert "--allow-sorted" in refused(run(*command))
        succeeded(run(*command, "--allow-sorted"))
    assert (folder / "new.safetensors").exists()


def rows_that_may_decrease():
    rows, labels = ranked(ROWS[:60]), LABELS[:60]
    one_rises = rows.copy()
    one_rises[37, [0, 1]] = one_rises[37, [1, 0]]
    four = ranked(simulated(60, 4)[0])
    return {
        "one rises": (one_rises, labels),
        "few rows": (rows[:19], labels[:19]),
        "few classes": (four, labels % 4),
        "labels all 0": (rows, np.zeros(60, dtype=int)),
        "constant": (np.full((60, K), 1 / K), labels),
    }


@pytest.mark.parametrize("name", rows_that_may_decrease())
def test_other_rows_may_decrease(name):
    rows, labels = rows_that_may_decrease()[name]
    model = StandardPredictor().fit(rows, labels)
    assert model.n_calibration_ == len(labels)
    assert model.evaluate(rows, labels).n_rows == len(labels)


def test_twenty_rows_of_five_classes_are_enough():
    rows, labels = ranked(simulated(20, 5)[0]), [1] + [0] * 19
    with pytest.raises(InputError, match="allow_sorted"):
        fitted(rows, labels)
    ties = np.tile([0.4, 0.2, 0.2, 0.2, 0.0], (20, 1))
    with pytest.raises(InputError, match="allow_sorted"):
        fitted(ties, labels)


def test_prediction_takes_sorted_rows():
    model = StandardPredictor().fit(ROWS, LABELS)
    assert len(model.predict_set(ranked(NEW))) == len(NEW)


def test_equal_numbers_of_nonzeros_only_warn():
    classes, values = best(ROWS, 3)
    rows = np.zeros_like(ROWS)
    np.put_along_axis(rows, classes, values / values.sum(axis=1, keepdims=True), axis=1)
    with pytest.warns(EvencoverWarning, match=r"(?i)zero|top"):
        model = StandardPredictor(score="aps").fit(rows, LABELS)
    assert state_of(model)[1] == np.bincount(LABELS, minlength=K).tolist()


def test_a_model_with_thresholds_by_class_is_fitted_to_entries_as_to_top_k_rows():
    names = [NAMES[y] for y in range(K)]
    expected = calibrated(K, names)
    ids, texts = np.arange(len(NEW)), [names[y] for y in NEW_LABELS]
    in_memory = calibrated(K, names).partial_fit(entries_of(NEW, 4, names), texts, ids=ids + 10_000)
    expected.partial_fit(top_of(NEW, 4), NEW_LABELS, ids=ids + 10_000)
    assert state_of(in_memory) == state_of(expected)


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_no_rows_are_rows_of_no_listed_classes(k, dtype):
    rows = TopK(np.zeros((0, k), dtype), np.zeros((0, k)), n_classes=3)
    assert (rows.shape, rows.size, rows.starts.tolist()) == ((0, 3), 0, [0])
    assert calibrated(3).predict_set(rows).to_lists() == []
