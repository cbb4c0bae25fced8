"""Tables of rows and labels that share a column of unique values are joined by it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evencover import EvencoverWarning, InputError, StandardPredictor
from evencover.data import as_source
from evencover.data.join import shared_key

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.filterwarnings("ignore:Ignored non-class columns")
N, NAMES = 40, ["ant", "bee", "cat"]
RNG = np.random.default_rng(0)
ROWS = RNG.dirichlet(np.ones(3), N)
LABELS = RNG.integers(0, 3, N)
PATHS = np.array([f"images/{number:03}.png" for number in RNG.permutation(1000)[:N]])
OTHER_ORDER = RNG.permutation(N)


def rows_table(**columns):
    return pd.DataFrame(ROWS, columns=NAMES).assign(**columns)


def labels_table(order=OTHER_ORDER, **columns):
    names = np.array(NAMES)[LABELS]
    return pd.DataFrame({"label": names, **columns}).iloc[order].reset_index(drop=True)


def write(frame, path):
    """Write a frame in the format of the extension."""
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, frame.to_dict("records"))))
    return path


FORMATS = ["frame", ".csv", ".parquet", ".jsonl"]


def given_as(kind, frame, path):
    return frame if kind == "frame" else write(frame, path.with_suffix(kind))


@pytest.mark.parametrize("name", ["path", "key", "file", "specimen"])
@pytest.mark.parametrize("rows_kind", FORMATS)
@pytest.mark.parametrize("labels_kind", FORMATS)
def test_a_shared_column_joins_labels_in_any_order(tmp_path, name, rows_kind, labels_kind):
    rows = given_as(rows_kind, rows_table(**{name: PATHS}), tmp_path / "rows")
    labels = given_as(labels_kind, labels_table(**{name: PATHS}), tmp_path / "labels")
    source = as_source(rows, labels)
    assert source.labels.tolist() == LABELS.tolist()
    assert source.ids.tolist() == PATHS.tolist()
    assert source.how_matched == f"labels were matched by id, the column {name!r}"


def test_npz_files_are_joined_by_arrays_of_any_name(tmp_path):
    order = OTHER_ORDER
    np.savez(tmp_path / "rows.npz", probs=ROWS, path=PATHS)
    np.savez(tmp_path / "labels.npz", labels=LABELS[order], path=PATHS[order])
    source = as_source(tmp_path / "rows.npz", tmp_path / "labels.npz")
    assert source.labels.tolist() == LABELS.tolist()


def test_several_files_of_rows_are_joined_by_one_table(tmp_path):
    for part in range(2):
        half = slice(part * N // 2, (part + 1) * N // 2)
        write(rows_table(path=PATHS).iloc[half], tmp_path / f"part-{part}.csv")
    labels = write(labels_table(path=PATHS), tmp_path / "labels.parquet")
    assert as_source(str(tmp_path / "part-*.csv"), labels).labels.tolist() == LABELS.tolist()


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(N)), st.sampled_from(["path", "key", "file"]), st.booleans())
def test_neither_the_order_of_labels_nor_other_columns_change_anything(order, name, has_more):
    more = {"split": ["test"] * N, "annotator": RNG.integers(0, 3, N)} if has_more else {}
    labels = labels_table(order, **{name: PATHS}, **more)
    source = as_source(
        rows_table(**{name: PATHS}, **({"split": ["test"] * N} if more else {})), labels
    )
    assert source.labels.tolist() == LABELS.tolist()


def test_a_column_of_ids_comes_first():
    ids = np.arange(N) * 7
    rows = rows_table(id=ids, path=PATHS)
    labels = labels_table(id=ids, path=PATHS[::-1])
    assert as_source(rows, labels).labels.tolist() == LABELS.tolist()
    assert as_source(rows, labels, ids_key="path").labels.tolist() == LABELS[::-1].tolist()


def test_columns_that_match_differently_need_a_choice():
    rows = rows_table(path=PATHS, key=PATHS)
    labels = labels_table(path=PATHS, key=PATHS[::-1])
    with pytest.raises(InputError, match=r"'key', 'path'.*--ids-key"):
        as_source(rows, labels)
    assert as_source(rows, labels, ids_key="path").labels.tolist() == LABELS.tolist()
    assert as_source(rows, labels_table(path=PATHS, key=PATHS)).labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    "column",
    [
        np.arange(N),  # counts
        np.arange(1, N + 1),
        np.repeat(PATHS[: N // 2], 2),  # repeats
        np.where(np.arange(N) == 3, None, PATHS),  # is missing
    ],
    ids=["0, 1, 2", "1, 2, 3", "repeats", "missing"],
)
def test_other_columns_match_by_position_with_a_warning(column):
    labels = labels_table(np.arange(N), key=column)
    with pytest.warns(EvencoverWarning, match=r"matched by position .*share no column.*ids_key"):
        source = as_source(rows_table(key=column), labels)
    assert source.labels.tolist() == LABELS.tolist()
    assert source.ids is None
    assert source.how_matched == "labels were matched by position"


def test_a_list_or_a_column_alone_is_matched_by_position_without_a_warning(tmp_path):
    rows = rows_table(path=PATHS)
    for labels in (LABELS, LABELS.tolist(), labels_table(np.arange(N))):
        assert as_source(rows, labels).labels.tolist() == LABELS.tolist()
    path = write(labels_table(np.arange(N)), tmp_path / "labels.csv")
    assert as_source(rows, path).labels.tolist() == LABELS.tolist()


def test_labels_without_a_row_are_not_used_and_counted():
    labels = labels_table(path=PATHS)
    with pytest.warns(EvencoverWarning, match=r"20 rows\); 20 without a row are not used"):
        source = as_source(rows_table(path=PATHS)[:20], labels)
    assert source.labels.tolist() == LABELS[:20].tolist()


def test_rows_without_a_label_are_an_error_that_does_not_advise_to_drop_ids():
    with pytest.raises(InputError, match="30 rows without labels") as caught:
        as_source(rows_table(path=PATHS), labels_table(range(10), path=PATHS))
    assert "position" not in str(caught.value)


def test_the_shared_column_seeds_random_numbers():
    fit = StandardPredictor(score="aps", random_state=3)
    by_path = fit.fit(rows_table(path=PATHS), labels_table(path=PATHS)).thresholds_.tolist()
    by_ids = fit.fit(ROWS, LABELS, ids=PATHS, class_names=NAMES).thresholds_.tolist()
    assert by_path == by_ids


def test_no_column_is_shared_if_values_do_not_meet():
    assert shared_key({"a": PATHS}, {"a": np.array(["x", "y"])}) is None
    assert shared_key({"a": PATHS}, {"b": PATHS}) is None
    assert shared_key({"a": ROWS[:, 0]}, {"a": ROWS[:, 0]}) is None
