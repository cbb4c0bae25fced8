"""A column that is no class is never taken for one: left out with a note, or refused by name."""

import warnings

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import LABELS, LOGITS, NAMES, ROWS, N, pa, read, write_table

from evencover import EvencoverWarning, InputError, StandardPredictor
from evencover.data import as_source

pd = pytest.importorskip("pandas")
DOUBLES = ROWS.astype(np.float64)
KINDS = ["pandas", "arrow", "csv", "parquet"]
IGNORED = pytest.mark.filterwarnings("ignore:Ignored non-class columns")


def table(kind, folder, before=None, after=None, rows=DOUBLES, names=NAMES):
    columns = {**(before or {}), **dict(zip(names, rows.T, strict=True)), **(after or {})}
    frame, path = pd.DataFrame(columns), folder / f"p.{kind}"
    if kind == "pandas":
        return frame
    if kind == "arrow":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if kind == "csv":
        frame.to_csv(path, index=False)
    else:
        write_table(path, pa.Table.from_pandas(frame, preserve_index=False))
    return path


STRAY = {
    "Unnamed: 0": np.arange(N),
    "index": np.arange(N) + 3,
    "filename": [f"{i}.jpg" for i in range(N)],
    "__index_level_1__": np.arange(N) * 2,
}
RESERVED = [
    *("id", "label", "path", "file", "key", "split", "fold", "time", "score", "weight", "loss"),
    *("margin", "latency", "latency_ms", "latency_p99", "image_path", "rowId", "top1_score"),
    *("ce_loss", "log_loss", "sample_weights", "created_at", "inference_time", "max_prob"),
]
VALUES = {
    "float": LOGITS[:, 0].astype("f8"),
    "integer": np.arange(N) * 3,
    "text": [f"x{row}" for row in range(N)],
    "flag": np.arange(N) % 2 == 0,
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


@IGNORED
@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("values", list(VALUES))
def test_a_reserved_name_is_never_a_class(tmp_path, name, values):
    if name == "id" and values in ("float", "flag"):
        pytest.skip("these are no ids, which is an error")
    for kind in KINDS:
        given = table(kind, tmp_path, {name: VALUES[values]}, rows=LOGITS.astype("f8"))
        assert as_source(given, read_labels=False).class_names == tuple(NAMES)


@IGNORED
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "values", "rows"),
    [
        ("loss", "float", LOGITS.astype("f8")),
        ("fold", "integer", (LOGITS * 9).astype("i8")),
        ("Unnamed: 4", "float", LOGITS.astype("f8")),
        ("Unnamed: 0", "integer", (LOGITS * 9).astype("i8")),
        ("emu", "text", LOGITS.astype("f8")),
    ],
)
def test_integer_labels_need_columns_without_a_guess(tmp_path, kind, name, values, rows):
    given = table(kind, tmp_path, {name: VALUES[values]}, rows=rows)
    with pytest.raises(InputError, match="--probabilities-key"):
        as_source(given, LABELS)
    source = as_source(given, LABELS, probabilities_key=f"!{name}")
    assert list(source.class_names) == NAMES
    assert source.labels.tolist() == LABELS.tolist()


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_other_columns_names_and_orders_give_the_same_sets_or_an_error(tmp_path_factory, data):
    """Of a table of logits, in which nothing but names tells a class from another number."""
    others = data.draw(st.permutations(["n1", "loss", "b c", "7"]))
    renamed = dict(zip(NAMES, others, strict=True))
    renamed |= {name: name for name in NAMES if data.draw(st.integers(0, 4))}
    names = [renamed[name] for name in NAMES]
    stray = data.draw(
        st.lists(st.sampled_from([*RESERVED, *STRAY, "", "cow"]), max_size=2, unique=True)
    )
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=2))
    # Floating-point numbers under a name that is not reserved are a class by definition.
    more = {
        name: VALUES["text" if name == "cow" else kind]
        for name, kind in zip(stray, kinds, strict=False)
    }
    labels = LABELS if data.draw(st.booleans()) else np.array(names)[LABELS]
    rows, order = LOGITS.astype("f8"), data.draw(st.permutations(range(len(NAMES))))
    folder, kind = tmp_path_factory.mktemp("law"), data.draw(st.sampled_from(KINDS))
    given = [
        table(kind, folder / part, before, after, rows[:, order], np.array(names)[order])
        for part, before, after in (("fit", more, {}), ("test", {}, more))
        if (folder / part).mkdir() is None
    ]
    plain = StandardPredictor(from_logits=True).fit(rows, LABELS).predict_set(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        try:
            # Integers count the columns as they are stored; names follow their column.
            in_file = np.argsort(order)[labels] if labels is LABELS else labels
            model = StandardPredictor(from_logits=True).fit(given[0], in_file)
            sets = model.predict_set(given[1])
        except InputError:
            return
    assert sets.n_classes == len(NAMES)
    for row, members in enumerate(sets):
        expected = {names[member] for member in plain[row]}
        assert {sets.class_names[member] for member in members} == expected


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


# ---- names ---------------------------------------------------------------------------------------


@IGNORED
@pytest.mark.parametrize("name", ["bee", "", None, np.nan, pd.NA, pd.NaT])
def test_class_names_are_unique_and_not_missing(name):
    names = [name, "bee", "cat", "emu"]
    for class_names in (names, dict(enumerate(names)), np.array(names, dtype=object)):
        with pytest.raises(InputError, match="class_names"):
            as_source(DOUBLES, class_names=class_names)
    with pytest.raises(InputError):
        as_source(pd.DataFrame(DOUBLES, columns=names), LABELS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_label_is_not_the_class_nan(tmp_path, kind):
    names = ["nan", "None", "NaN", "emu"]
    texts = np.array(names, dtype=object)[LABELS]
    assert as_source(table(kind, tmp_path, {"label": texts}, names=names)).labels[0] == 0
    for missing in (None, np.nan):
        texts[0] = missing
        with pytest.raises(InputError, match="row 0"):
            as_source(table(kind, tmp_path, {"label": texts}, names=names))
        for labels in (texts, list(texts), pd.Series(texts), pd.Series(texts, dtype="category")):
            with pytest.raises(InputError, match="missing"):
                as_source(DOUBLES, labels, class_names=names)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [["001", "002", "003", "004"], ["1", "007", "7", "10"]])
def test_numbers_that_are_text_stay_text(tmp_path, kind, names):
    given = table(kind, tmp_path, names=names)
    source = as_source(given, np.array(names)[LABELS])
    assert (source.class_names, source.n_rows) == (tuple(names), N)
    assert source.labels.tolist() == LABELS.tolist()
    with pytest.raises(InputError, match="labels_are"):  # 1 may be the class 001, or the second
        as_source(given, LABELS)


@pytest.mark.parametrize("kind", KINDS)
def test_white_space_is_a_name(tmp_path, kind):
    names = [" ", "\u3000", "bee", "emu"]
    source = as_source(table(kind, tmp_path, names=names), np.array(names)[LABELS])
    assert source.class_names == tuple(names)
    assert source.labels.tolist() == LABELS.tolist()


# ---- CSV files without a header ------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", ["{0},{1},{2},{3}", "x{row},{0},{1},{2}", "{0},{1},{2},ant", "x,{row}5,{row}7,{row}6"]
)
@pytest.mark.parametrize("digits", [".3f", ".0f"])
def test_a_file_without_a_header_keeps_its_first_row_or_is_rejected(tmp_path, row, digits):
    numbers = [[format(9 * value, digits) for value in logits] for logits in LOGITS]
    lines = [row.format(*texts, row=index) for index, texts in enumerate(numbers)]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    try:
        assert as_source(tmp_path / "p.csv").n_rows == N
    except InputError:
        assert "x" in row or "ant" in row or digits == ".0f"


@pytest.mark.parametrize("header", ["10,20,30,40", "001,002,003,004", "label,10,20,30"])
def test_integers_above_fractions_are_a_header(tmp_path, header):
    lines = [",".join(f"{number:.4f}" for number in row) for row in LOGITS]
    if "label" in header:
        lines = ["10" + line[line.index(",") :] for line in lines]
    (tmp_path / "p.csv").write_text("\n".join([header, *lines]))
    source = as_source(tmp_path / "p.csv", labels_are="names")
    assert source.n_rows == N
    assert ",".join(source.class_names) == header.removeprefix("label,")


@pytest.mark.parametrize("names", [["ant", "bee", "cat", "emu"], None])
def test_a_label_file_loses_a_heading_and_no_label(tmp_path, names):
    labels = [str(label) if names is None else names[label] for label in LABELS]
    path = tmp_path / "y.csv"
    path.write_text("\n".join(["species", *labels]))
    assert as_source(DOUBLES, path, class_names=names).labels.tolist() == LABELS.tolist()
    path.write_text("\n".join(labels))
    with pytest.raises(InputError, match=f"{N} labels for {N - 1} rows"):
        as_source(DOUBLES[1:], path, class_names=names)
