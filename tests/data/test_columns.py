"""Labels and ids may come from files of their own."""

import numpy as np
import pytest
from inputs import LABELS, NAMES, pa, write_arrays, write_table

from evencover import InputError
from evencover.data.labels import class_values_from_file, separate_labels


@pytest.mark.parametrize("text", ["2\n0\n1\n", "2\r\n0\r\n1", "\ufeff2\n0\n1\n", " 2 \n\n0\n1\n\n"])
def test_a_column_of_numbers_as_text(tmp_path, text):
    (tmp_path / "y.txt").write_text(text, encoding="utf-8", newline="")
    column = separate_labels(tmp_path / "y.txt").values
    assert column.dtype == np.int64
    assert column.tolist() == [2, 0, 1]


@pytest.mark.parametrize("labels", [LABELS, np.array(NAMES)[LABELS]])
@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "tsv"])
@pytest.mark.parametrize("named", [True, False])
def test_a_column_of_a_table(tmp_path, labels, ending, named):
    path = tmp_path / f"y.{ending}"
    if ending in ("csv", "tsv"):
        mark = "," if ending == "csv" else "\t"
        lines = [f"{i}{mark}{y}" if named else str(y) for i, y in enumerate(labels)]
        path.write_text("\n".join([f"id{mark}label"] * named + lines), encoding="utf-8")
    else:
        columns = {"id": np.arange(len(labels)), "label": labels} if named else {"truth": labels}
        write_table(path, pa.table(columns))
    assert separate_labels(path).values.tolist() == labels.tolist()


@pytest.mark.parametrize("kind", ["npz", "safetensors", "h5", "zarr 3"])
def test_a_column_of_an_array_file(tmp_path, kind):
    path = write_arrays(tmp_path, kind, label=LABELS, ids=LABELS + 5)
    assert separate_labels(path).values.tolist() == LABELS.tolist()
    assert separate_labels(path, "ids").values.tolist() == (LABELS + 5).tolist()
    with pytest.raises(InputError, match="'none'"):
        separate_labels(path, "none")


def test_tables_without_the_column(tmp_path):
    write_table(tmp_path / "y.parquet", pa.table({"a": LABELS, "b": LABELS}))
    (tmp_path / "y.csv").write_text("a,b\n1,2\n")
    for name in ("y.parquet", "y.csv"):
        with pytest.raises(InputError, match=f"{name}' must have a column 'labels'. Got a, b"):
            separate_labels(tmp_path / name)
    (tmp_path / "y.csv").write_text("id,label\n1,2\n3\n")
    with pytest.raises(InputError, match=r"y\.csv' must have 2 columns. Got 1 in row 1"):
        separate_labels(tmp_path / "y.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_values_of_classes(tmp_path, ending):
    """Pairs where a file names its classes; values alone where it does not."""
    pandas = pytest.importorskip("pandas")
    path = tmp_path / f"x.{ending}"
    values = pandas.Series([3, 1, 2], index=["bee", "ant", "emu"], name="count")

    def read(series):
        if ending == "csv":
            series.to_csv(path)
        elif ending == "parquet":
            series.to_frame().to_parquet(path)
        else:
            classes = np.array([str(each) for each in series.index])
            np.savez(path, **{"class": classes, "count": series})
        return class_values_from_file(path, "prevalence")

    pairs = [("bee", 3), ("ant", 1), ("emu", 2)]
    assert read(values) == read(values.rename_axis("species")) == pairs
    assert read(values.set_axis([2, 0, 1])) == [("2", 3), ("0", 1), ("1", 2)]
    if ending == "csv":
        for heading in ("", "prevalence\n"):
            path.write_text(f"{heading}3\n1\n2\n")
            assert class_values_from_file(path, "prevalence") == [3, 1, 2]
        path.write_text("id,class,prevalence\n9,bee,0.5\n8,ant,0.5\n")
        assert class_values_from_file(path, "prevalence") == [("bee", "0.5"), ("ant", "0.5")]
        path.write_text("id,species,prevalence\n9,bee,0.5\n8,ant,0.5\n")
        with pytest.raises(InputError, match="'class'"):
            class_values_from_file(path, "prevalence")
    elif ending == "parquet":
        assert read(values.reset_index(drop=True)) == [3, 1, 2]
