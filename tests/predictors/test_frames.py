"""Frames are read as files are: names, labels and ids come with the columns."""

import re

import numpy as np
import pytest

from evencover import (
    EvencoverWarning,
    InputError,
    StandardPredictor,
    evaluate,
)
from evencover.data import as_source, load_languages

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
REORDERED = "put into the order of the calibration data"


@pytest.fixture(scope="module")
def languages():
    """Eighty of them: frames have a column for each."""
    p, y, names = load_languages()
    p, y = p[y < 80, :80], y[y < 80]
    return p / p.sum(axis=1, keepdims=True), y, [str(name) for name in names[:80]]


KINDS = [pd.DataFrame, pl.DataFrame, pa.table]
kinds = pytest.mark.parametrize("kind", KINDS, ids=["pandas", "polars", "arrow"])


def columns_of(p, names, **more):
    return {name: p[:, place] for place, name in enumerate(names)} | more


@kinds
def test_names_labels_and_ids_come_with_a_frame(languages, kind):
    p, y, names = languages
    ids = np.arange(len(y)) + 1000
    frame = kind(columns_of(p, names, label=y, id=ids))
    source = as_source(frame)
    assert list(source.class_names) == names
    assert source.ids.tolist() == ids.tolist()
    expected = StandardPredictor(score="aps").fit(p, y, ids=ids)
    found = StandardPredictor(score="aps").fit(frame)
    assert list(found.class_names_) == names
    assert found.thresholds_.tolist() == expected.thresholds_.tolist()
    assert found.predict_set(frame) == expected.predict_set(p, ids=ids)


@kinds
def test_columns_in_another_order_are_put_right(languages, kind):
    p, y, names = languages
    predictor = StandardPredictor().fit(kind(columns_of(p[::2], names)), y[::2])
    expected = predictor.predict_set(p[1::2])
    frame = kind(columns_of(p[1::2, ::-1], names[::-1]))
    with pytest.warns(EvencoverWarning, match=REORDERED):
        sets = predictor.predict_set(frame)
    assert sets == expected
    text = np.array(names)[y[1::2]].tolist()
    covered = expected.contains(y[1::2])
    assert covered.mean() > 0.8
    assert sets.contains(text).tolist() == covered.tolist()
    assert evaluate(sets, text).marginal_coverage == covered.mean()
    for labels in (text, y[1::2]):  # names, and numbers in the order of the calibration data
        with pytest.warns(EvencoverWarning, match=REORDERED):
            report = predictor.evaluate(frame, labels)
        assert report.marginal_coverage == covered.mean()
    with pytest.warns(EvencoverWarning, match=REORDERED):
        p_values = predictor.predict_p(frame)
    np.testing.assert_array_equal(p_values, predictor.predict_p(p[1::2]))


def test_files_in_another_order_are_put_right_too(languages, tmp_path):
    p, y, names = languages
    predictor = StandardPredictor().fit(pd.DataFrame(p, columns=names), y)
    text = np.array(names)[y]
    expected = predictor.predict_set(p)
    folder = tmp_path / "parts"
    folder.mkdir()
    frame = pd.DataFrame(p[:, ::-1], columns=names[::-1]).assign(label=text)
    frame.to_parquet(tmp_path / "p.parquet")
    frame.iloc[:900].to_parquet(folder / "1.parquet", index=False)
    frame.iloc[900:].to_parquet(folder / "2.parquet", index=False)
    for path in (tmp_path / "p.parquet", folder):
        with pytest.warns(EvencoverWarning, match=REORDERED):
            assert predictor.predict_set(path) == expected
        with pytest.warns(EvencoverWarning) as notes:
            report = predictor.evaluate(path)
        assert any(REORDERED in str(note.message) for note in notes)
        assert report.marginal_coverage == expected.contains(y).mean()


def test_numbers_as_labels_beside_reordered_columns_are_unclear(languages):
    p, y, names = languages
    predictor = StandardPredictor().fit(pd.DataFrame(p, columns=names), y)
    frame = pd.DataFrame(p[:, ::-1], columns=names[::-1]).assign(label=y)
    with (
        pytest.warns(EvencoverWarning, match=REORDERED),
        pytest.raises(InputError, match="must be class names"),
    ):
        predictor.evaluate(frame)


def test_missing_and_unknown_names_are_refused_by_name(languages):
    p, y, names = languages
    predictor = StandardPredictor().fit(pd.DataFrame(p, columns=names), y)
    other = pd.DataFrame(p, columns=["klingon", *names[1:]])
    words = f"no {re.escape(repr(names[0]))} and the unknown 'klingon'"
    with pytest.raises(InputError, match=words):
        predictor.predict_set(other)
    with pytest.raises(InputError, match="Got the unknown 'klingon'"):
        predictor.predict_set(pd.DataFrame(p, columns=names).assign(klingon=0.0))


def test_columns_that_only_count_are_places_and_in_another_order_names(languages):
    p, y, _ = languages
    frame = pd.DataFrame(p)
    predictor = StandardPredictor().fit(frame, y)
    assert predictor.class_names_ is None
    with pytest.warns(EvencoverWarning, match=REORDERED):
        assert predictor.predict_set(frame[frame.columns[::-1]]) == predictor.predict_set(p)


def test_classes_called_by_numbers_have_labels_called_so(languages):
    p, y, _ = languages
    frame = pd.DataFrame(p, columns=np.arange(p.shape[1]) + 1)  # classes_ of scikit-learn
    expected = StandardPredictor().fit(p, y)
    found = StandardPredictor().fit(frame, y + 1, labels_are="names")
    assert found.class_counts_.tolist() == expected.class_counts_.tolist()
    assert found.thresholds_.tolist() == expected.thresholds_.tolist()
    by_index = StandardPredictor().fit(frame, y, labels_are="indices")
    assert by_index.thresholds_.tolist() == expected.thresholds_.tolist()
    with pytest.raises(InputError, match="labels_are"):
        StandardPredictor().fit(frame, y)


def test_text_labels_are_taken_wherever_labels_are(languages):
    p, y, names = languages
    text = np.array(names)[y].tolist()
    expected = StandardPredictor().fit(p, y)
    for labels in (text, pd.Series(text), pd.Series(text, dtype="category"), pl.Series(text)):
        found = StandardPredictor().fit(pd.DataFrame(p, columns=names), labels)
        assert found.thresholds_.tolist() == expected.thresholds_.tolist()
    with pytest.raises(InputError, match="because the classes have no names"):
        expected.predict_set(p).contains(text)


def test_a_note_when_alpha_seems_to_be_the_coverage(languages):
    p, y, _ = languages
    with pytest.warns(
        EvencoverWarning, match="alpha is 0.9, the target miscoverage; .* use alpha=0.1"
    ):
        StandardPredictor(alpha=0.9).fit(p, y)


@pytest.mark.parametrize("kind", ["Float64", "Float32", "double[pyarrow]"])
def test_nullable_numbers_must_not_be_missing(kind):
    frame = pd.DataFrame({"ant": [0.5, 0.25, 0.75], "bee": [0.5, 0.75, 0.25]}, dtype=kind)
    fitted = StandardPredictor(alpha=0.5).fit(frame, [0, 1, 0])
    assert len(fitted.predict_set(frame)) == 3
    frame.iloc[1, 1] = pd.NA
    for entry in (fitted.predict_set, lambda each: StandardPredictor().fit(each, [0, 1, 0])):
        with pytest.raises(InputError, match="row 1"):
            entry(frame)
