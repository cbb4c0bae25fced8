"""Addresses through fsspec, tried on its file system in memory."""

import pickle

import fsspec
import numpy as np
import pytest
from inputs import FILES, LABELS, ROWS, assert_holds, read, write_file

from evencover import InputError
from evencover.data import as_source
from evencover.data.labels import separate_labels

ADDRESS = "memory://bucket/data"


@pytest.fixture
def upload(tmp_path):
    """A function that puts a file or a folder into the store and returns its address."""
    system = fsspec.filesystem("memory")

    def put(path):
        system.put(str(path), f"/bucket/data/{path.name}", recursive=path.is_dir())
        return f"{ADDRESS}/{path.name}"

    yield put
    system.rm("/bucket", recursive=True)


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_from_afar(tmp_path, upload, block_elements, kind):
    source = as_source(upload(write_file(tmp_path / "p", kind)), LABELS)
    expected = ROWS.astype(np.float64) if kind == "csv" else ROWS
    assert_holds(source, expected)
    parts = pickle.loads(pickle.dumps(source.parts()))
    np.testing.assert_array_equal(np.concatenate([read(part)[0] for part in parts]), expected)


def test_folders_and_patterns_from_afar(tmp_path, upload):
    (tmp_path / "parts").mkdir()
    for number, start, stop in ((2, 0, 7), (10, 7, 23)):
        np.savez(
            tmp_path / "parts" / f"{number}.npz", probs=ROWS[start:stop], labels=LABELS[start:stop]
        )
        np.save(tmp_path / "parts" / f"{number}.npy", LABELS[start:stop])
    address = upload(tmp_path / "parts")
    assert_holds(as_source(f"{address}/*.npz"))
    assert_holds(as_source(f"{address}/*.npz", f"{address}/*.npy"))
    assert separate_labels(f"{address}/*.npy").values.tolist() == LABELS.tolist()
    with pytest.raises(InputError, match=r"must have one format\. Got \.npy, \.npz"):
        as_source(address)


def test_file_addresses_are_paths(tmp_path):
    np.save(tmp_path / "a b.npy", ROWS)
    assert_holds(as_source((tmp_path / "a b.npy").as_uri(), LABELS))


def test_addresses_that_lead_nowhere():
    with pytest.raises(InputError, match=r"memory://bucket/absent\.npy': there is no such file"):
        as_source("memory://bucket/absent.npy")
    with pytest.raises(InputError, match="no file matches"):
        as_source("memory://bucket/absent*.npy")
    with pytest.raises(InputError, match=r"Cannot read 'nowhere://a\.npy'.*Protocol not known"):
        as_source("nowhere://a.npy")
