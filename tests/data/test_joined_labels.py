"""Labels in another file or frame are matched to rows by id, or by position."""

import json

import numpy as np
import pytest

from evencover import EvencoverWarning, InputError, StandardPredictor
from evencover.data import as_source

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

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


def given_as(kind, frame, path):
    """Return the frame itself, or the path of a file in the format of the extension."""
    path = path.with_suffix(kind)
    if kind == ".csv":
        frame.to_csv(path, index=False)
    elif kind == ".parquet":
        frame.to_parquet(path, index=False)
    elif kind == ".jsonl":
        path.write_text("\n".join(map(json.dumps, frame.to_dict("records"))))
    return path if kind else frame


@pytest.mark.parametrize("rows_kind", ["", ".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("labels_kind", ["", ".csv", ".parquet", ".jsonl"])
def test_the_column_of_ids_joins_labels_in_any_order(tmp_path, rows_kind, labels_kind):
    rows = given_as(rows_kind, rows_table(path=PATHS), tmp_path / "rows")
    labels = given_as(labels_kind, labels_table(path=PATHS), tmp_path / "labels")
    source = as_source(rows, labels, ids_key="path")
    assert source.labels.tolist() == LABELS.tolist()
    assert source.ids.tolist() == PATHS.tolist()
    assert source.how_matched == "labels were matched by id"


def test_npz_and_several_files_are_joined_by_ids(tmp_path):
    np.savez(tmp_path / "rows.npz", probs=ROWS, path=PATHS)
    np.savez(tmp_path / "y.npz", labels=LABELS[OTHER_ORDER], path=PATHS[OTHER_ORDER])
    source = as_source(tmp_path / "rows.npz", tmp_path / "y.npz", ids_key="path")
    assert source.labels.tolist() == LABELS.tolist()
    for part in range(2):
        half = rows_table(path=PATHS).iloc[part * N // 2 : (part + 1) * N // 2]
        given_as(".csv", half, tmp_path / f"part-{part}")
    source = as_source(tmp_path / "part-*.csv", labels_table(path=PATHS), ids_key="path")
    assert source.labels.tolist() == LABELS.tolist()


def test_the_key_takes_precedence_over_usual_ids_and_seeds_random_numbers():
    rows = rows_table(id=np.arange(N) * 7, path=PATHS)
    labels = labels_table(id=np.arange(N) * 7, path=PATHS[::-1])
    assert as_source(rows, labels).labels.tolist() == LABELS.tolist()
    source = as_source(rows, labels, ids_key="path")
    assert source.labels.tolist() == LABELS[::-1].tolist()
    fit = StandardPredictor(score="aps", random_state=3)
    by_path = fit.fit(source).thresholds_.tolist()
    by_ids = fit.fit(ROWS, LABELS[::-1], ids=PATHS, class_names=NAMES).thresholds_.tolist()
    assert by_path == by_ids


def test_an_index_is_no_id_and_another_one_is_an_error(tmp_path):
    names = pd.Series(np.array(NAMES)[LABELS])
    left_over = names.set_axis(np.arange(N) * 3 + 1)  # of a split
    for rows, labels in ((rows_table(), left_over), (rows_table().set_index(PATHS), names)):
        source = as_source(rows, labels)
        assert (source.labels.tolist(), source.ids) == (LABELS.tolist(), None)
    for index in (np.arange(N), PATHS, pd.date_range("2024-01-01", periods=N)):
        rows, labels = rows_table().set_index(index), names.set_axis(index).iloc[OTHER_ORDER]
        for given in (labels, labels.to_frame("label")):
            with pytest.raises(InputError, match="another index"):
                as_source(rows, given)
        assert as_source(rows, labels.loc[index]).labels.tolist() == LABELS.tolist()
    with pytest.raises(InputError, match="another index"):
        as_source(rows_table().set_index(PATHS), left_over)
    joined = as_source(rows_table(id=PATHS), labels_table(id=PATHS).iloc[OTHER_ORDER])
    assert joined.labels.tolist() == LABELS.tolist()  # ids settle it
    rows_table().set_index(PATHS).to_parquet(tmp_path / "p.parquet")
    assert as_source(tmp_path / "p.parquet").ids is None
    by_key = as_source(tmp_path / "p.parquet", ids_key="__index_level_0__")
    assert by_key.ids.tolist() == PATHS.tolist()


@pytest.mark.parametrize("rows_kind", ["", ".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("labels_kind", ["", ".csv", ".parquet", ".jsonl"])
def test_a_shared_column_of_ids_must_be_named(tmp_path, rows_kind, labels_kind):
    rows = given_as(rows_kind, rows_table(path=PATHS), tmp_path / "rows")
    for order in (np.arange(N), OTHER_ORDER):
        labels = given_as(labels_kind, labels_table(order, path=PATHS), tmp_path / "labels")
        with pytest.raises(InputError, match=r"'path' in both.*--ids-key path"):
            as_source(rows, labels)


def test_a_table_without_ids_is_matched_by_position_with_a_warning(tmp_path):
    for columns in ({"path": PATHS}, {"split": ["a"] * N}, {"note": [*map(str, range(N))]}):
        rows = rows_table(**{name: columns[name] for name in columns if name != "path"})
        with pytest.warns(EvencoverWarning, match=r"matched by position .*--ids-key"):
            source = as_source(rows, labels_table(np.arange(N), **columns))
        assert source.labels.tolist() == LABELS.tolist()
        assert (source.ids, source.how_matched) == (None, "labels were matched by position")
    path = given_as(".csv", labels_table(np.arange(N)), tmp_path / "labels")
    for alone in (LABELS, LABELS.tolist(), labels_table(np.arange(N)), path):
        assert as_source(rows_table(path=PATHS), alone).labels.tolist() == LABELS.tolist()


def test_labels_without_a_row_are_counted_and_rows_without_a_label_an_error():
    with pytest.warns(EvencoverWarning, match=r"20 rows\); 20 without a row are not used"):
        source = as_source(rows_table(id=PATHS)[:20], labels_table(id=PATHS))
    assert source.labels.tolist() == LABELS[:20].tolist()
    with pytest.raises(InputError, match="30 rows without labels"):
        as_source(rows_table(id=PATHS), labels_table(range(10), id=PATHS))
    with pytest.raises(InputError, match=f"earlier id, such as {PATHS[7]}"):
        as_source(rows_table(id=PATHS), labels_table([*range(N), 7], id=PATHS))
