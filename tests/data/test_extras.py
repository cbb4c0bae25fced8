"""Without an optional library, one sentence says what to install; nothing is loaded early."""

import subprocess
import sys

import numpy as np
import pytest
from inputs import ROWS, list_array, pa, write_arrays, write_table

from evencover import InputError
from evencover.data import as_source


@pytest.mark.parametrize(
    ("kind", "library", "extra"),
    [
        ("parquet", "pyarrow", "arrow"),
        ("arrow", "pyarrow", "arrow"),
        ("h5", "h5py", "hdf5"),
        ("zarr 3", "zarr", "zarr"),
    ],
)
def test_the_sentence_names_the_extra(tmp_path, monkeypatch, kind, library, extra):
    if library == "pyarrow":
        path = tmp_path / f"p.{kind}"
        write_table(path, pa.table({"probs": list_array("fixed")}))
    else:
        path = write_arrays(tmp_path, kind, probs=ROWS)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{library}.*pip install 'evencover\[{extra}\]'"):
        as_source(path)


def test_addresses_need_fsspec(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match=r"fsspec.*pip install 'evencover\[remote\]'"):
        as_source("s3://bucket/p.npy")


def test_reading_numpy_files_loads_no_optional_library(tmp_path):
    np.savez(tmp_path / "p.npz", probs=ROWS)
    program = (
        "import sys; from evencover.data import as_source; "
        f"list(as_source({str(tmp_path / 'p.npz')!r}).blocks()); "
        "print([m for m in ('pyarrow', 'zarr', 'h5py', 'fsspec', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
