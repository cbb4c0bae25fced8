"""Classes are listed most probable first, cut to the top ones, and in every file the same."""

import numpy as np
import pytest
from set_files import ENDINGS, read_back

from evencover import ClasswisePredictor, InputError, StandardPredictor, predict_to_folder
from evencover.data import as_source
from evencover.output.writers import ListedSets, Listing, write_sets

K = 7
NAMES = [f"class {index}" for index in range(K)]


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(900, K, seed=3, ties="quantised")  # many equal probabilities


@pytest.fixture(scope="module")
def predictor(data):
    return ClasswisePredictor(alpha=0.05).fit(data.rows[:500], data.labels[:500], class_names=NAMES)


def naive(rows, lists, top=None):
    """Each set sorted by hand: (classes, probabilities)."""
    result = []
    for p, members in zip(rows, lists, strict=True):
        listed = sorted(members, key=lambda y, p=p: (-p[y], y))[:top]
        result.append((listed, [p[y] for y in listed]))
    return result


def as_lists(listed):
    bounds, classes = listed.sets.indptr[1:-1], listed.sets.to_lists()
    if listed.probabilities is None:
        return classes, None
    return classes, [part.tolist() for part in np.split(listed.probabilities, bounds)]


@pytest.mark.parametrize("top", [None, 1, 3, 100])
@pytest.mark.parametrize("with_probabilities", [False, True])
def test_sets_are_sorted_as_by_hand(predictor, data, top, with_probabilities):
    rows = data.rows[500:]
    sets = predictor.predict_set(rows)
    listing = Listing(with_probabilities, top)
    listed = ListedSets.concatenate(listing.blocks(predictor, rows))
    expected = naive(rows, sets.to_lists(), top)
    classes, probabilities = as_lists(listed)
    assert classes == [each[0] for each in expected]
    assert probabilities == ([each[1] for each in expected] if with_probabilities else None)
    assert listed.sizes.tolist() == sets.sizes.tolist()


def test_logits_are_listed_by_their_softmax(data, monkeypatch):
    monkeypatch.setattr("evencover.predictors.rule.SLICE_ELEMENTS", 50)  # several slices
    logits = np.random.default_rng(0).normal(size=(80, K)) * 3
    fitted = StandardPredictor(alpha=0.05, from_logits=True)
    fitted.fit(logits, np.arange(80) % K)
    listed = ListedSets.concatenate(Listing(with_probabilities=True).blocks(fitted, logits))
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    expected = naive(p, fitted.predict_set(logits).to_lists())
    classes, probabilities = as_lists(listed)
    assert classes == [each[0] for each in expected]
    for found, (_, values) in zip(probabilities, expected, strict=True):
        np.testing.assert_allclose(found, values)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("ids", [None, "text", "numbers", "objects"])
def test_every_format_holds_everything(tmp_path, predictor, data, ending, ids):
    rows, path = data.rows[500:], tmp_path / f"sets.{ending}"
    own = {
        None: None,
        "text": np.array([f"patiënt {row}" for row in range(400)]),
        "numbers": np.arange(400) + 10**12,
        "objects": np.array([f"p{row}" for row in range(400)], dtype=object),
    }[ids]
    listing = Listing(with_probabilities=True, top=2)
    blocks = (rows[start : start + 90] for start in range(0, 400, 90))
    n_rows = write_sets(path, listing.blocks(predictor, blocks), NAMES, ids=own)
    assert n_rows == 400
    sets = predictor.predict_set(rows)
    expected = naive(rows, sets.to_lists(), top=2)
    records = read_back(path)
    assert [record["set"] for record in records] == [each[0] for each in expected]
    assert [record["size"] for record in records] == sets.sizes.tolist()
    assert [record["accepted"] for record in records] == sets.accepted.tolist()
    assert [record["names"] for record in records] == [[NAMES[y] for y in e[0]] for e in expected]
    for record, (_, values) in zip(records, expected, strict=True):
        np.testing.assert_allclose(record["probabilities"], values, rtol=1e-5)
    if own is None:
        assert not any("id" in record for record in records)
    else:
        kind = str if ending == "csv" else type(own.tolist()[0])
        assert [record["id"] for record in records] == [kind(each) for each in own.tolist()]


@pytest.fixture
def parts(tmp_path, data):
    folder = tmp_path / "input"
    folder.mkdir()
    for number, rows in enumerate(np.array_split(data.rows[500:], 3)):
        np.save(folder / f"{number}.npy", rows)
    return folder


def test_a_folder_holds_what_one_file_would(tmp_path, predictor, data, parts):
    ids = [f"p{row}" for row in range(400)]
    listing = {"with_probabilities": True, "top": 3}
    predict_to_folder(predictor, as_source(parts), tmp_path / "sets", ids=ids, **listing)
    stream = Listing(**listing).blocks(predictor, data.rows[500:], ids=ids)
    write_sets(tmp_path / "one.parquet", stream, NAMES, ids=ids)
    files = sorted((tmp_path / "sets").glob("part-*"))
    assert len(files) == len(as_source(parts).parts()) >= 3
    found = [record for file in files for record in read_back(file)]
    assert found == read_back(tmp_path / "one.parquet")


@pytest.mark.parametrize("other", [{"with_probabilities": True}, {"top": 2}], ids=str)
def test_a_folder_that_lists_otherwise_is_refused(tmp_path, predictor, parts, other):
    folder = tmp_path / "sets"
    predict_to_folder(predictor, as_source(parts), folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(InputError, match="listing"):
        predict_to_folder(predictor, as_source(parts), folder, **other)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    (folder / "part-00001.parquet").unlink()
    again = predict_to_folder(predictor, as_source(parts), folder)
    assert again.n_there == again.n_files - 1
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    predict_to_folder(predictor, as_source(parts), folder, force=True, **other)


def test_an_interrupted_folder_says_what_is_there(tmp_path, predictor, parts, monkeypatch):
    from evencover.output import folders

    def until_the_second(path, *arguments, **more):
        if path.name == "part-00001.parquet":
            raise KeyboardInterrupt
        return write_sets(path, *arguments, **more)

    monkeypatch.setattr(folders, "write_sets", until_the_second)
    n_files = len(as_source(parts).parts())
    with pytest.raises(KeyboardInterrupt, match=f"1 of {n_files} files"):
        predict_to_folder(predictor, as_source(parts), tmp_path / "sets")
