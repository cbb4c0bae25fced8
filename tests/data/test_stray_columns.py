"""A column that is no class is never taken for one: left out with a note, or refused by name."""

import numpy as np
import pytest
from inputs import LABELS, LOGITS, NAMES, ROWS, N, pa, read, write_table

from evencover import EvencoverWarning, InputError, StandardPredictor
from evencover.data import as_source

pd = pytest.importorskip("pandas")
DOUBLES = ROWS.astype(np.float64)
KINDS = ["pandas", "arrow", "csv", "parquet"]


def table(kind, folder, before=None, after=None, rows=DOUBLES):
    columns = {**(before or {}), **dict(zip(NAMES, rows.T, strict=True)), **(after or {})}
    if kind == "pandas":
        return pd.DataFrame(columns)
    if kind == "arrow":
        return pa.table(columns)
    path = folder / f"p.{kind}"
    if kind == "csv":
        pd.DataFrame(columns).to_csv(path, index=False)
    else:
        write_table(path, pa.table(columns))
    return path


STRAY = {
    "Unnamed: 0": np.arange(N),
    "index": np.arange(N) + 3,
    "filename": [f"{i}.jpg" for i in range(N)],
    "__index_level_1__": np.arange(N) * 2,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(STRAY))
@pytest.mark.parametrize("rows", [DOUBLES, LOGITS.astype("f8")], ids=["probabilities", "logits"])
def test_stray_columns_are_left_out_with_a_note(tmp_path, kind, name, rows):
    given = table(kind, tmp_path, {name: STRAY[name]}, {"y_true": LABELS}, rows)
    with pytest.warns(EvencoverWarning, match=f"'{name}'"):
        source = as_source(given)
    assert list(source.class_names) == NAMES
    assert list(source.columns.left_out) == [name]
    found, labels = read(source)
    np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_under_an_unknown_name_are_refused(tmp_path, kind):
    given = table(kind, tmp_path, {"truth": LABELS}, rows=LOGITS.astype("f8"))
    with pytest.raises(InputError, match=r"integers in 'truth'.*--labels-key"):
        as_source(given)
    source = as_source(given, labels_key="truth")
    assert read(source)[1].tolist() == LABELS.tolist()
    assert source.columns.used["labels"] == "truth"


def test_a_pattern_names_the_classes():
    columns = {f"p_{name}": DOUBLES[:, i] for i, name in enumerate(NAMES)}
    frame = pd.DataFrame({"loss": DOUBLES[:, 0], **columns, "n": LABELS})
    with pytest.warns(EvencoverWarning, match="'loss' .not asked for., 'n'"):
        source = as_source(frame, probabilities_key="p_*")
    assert list(source.class_names) == list(columns)


def test_classes_may_be_called_y_and_id_if_they_are_named():
    frame = pd.DataFrame(DOUBLES, columns=["y", "id", "no", "pl"])
    assert list(as_source(frame, probabilities_key="*").class_names) == ["y", "id", "no", "pl"]
    with pytest.warns(EvencoverWarning, match="'y' .a reserved name., 'id' .a reserved name"):
        assert list(as_source(frame).class_names) == ["no", "pl"]


def test_a_class_that_is_never_probable_may_be_written_as_0(tmp_path):
    lines = ["a,b,c", *["0.25,0.75,0"] * 9]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    assert read(as_source(tmp_path / "p.csv"))[0].tolist() == [[0.25, 0.75, 0]] * 9


def test_names_twice_are_refused():
    frame = pd.DataFrame(DOUBLES, columns=["a", "b", "a", "c"])
    with pytest.raises(InputError, match="'a' for the classes 0 and 2"):
        as_source(frame)


def test_the_hint_names_the_column_that_is_no_class():
    rows = np.column_stack([np.full(N, 7.0), DOUBLES])
    with pytest.raises(InputError, match="without column 0, which is 7 there, it sums to 1") as got:
        StandardPredictor().fit(rows, LABELS)
    assert "logits" not in str(got.value)
