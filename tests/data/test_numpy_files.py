"""NumPy files of any type and order give the same rows; a broken one gives one sentence."""

import io
import zipfile

import numpy as np
import pytest
from inputs import LABELS, LOGITS, NAMES, ROWS, assert_holds, assert_refused

from evencover import StandardPredictor
from evencover.data import as_source


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_order_and_type(tmp_path, block_elements, order, dtype):
    rows = np.asarray(ROWS, dtype=dtype, order=order)
    np.save(tmp_path / "p.npy", rows)
    source = as_source(tmp_path / "p.npy", LABELS)
    assert source.logits is None
    expected = rows if rows.dtype.isnative else rows.astype(rows.dtype.newbyteorder("="))
    assert_holds(source, expected)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_npz_stored_or_compressed(tmp_path, block_elements, save, order, dtype):
    rows = np.asarray(ROWS, dtype=dtype, order=order)
    save(tmp_path / "p.npz", labels=LABELS, extra=np.arange(7), probs=rows, class_names=NAMES)
    source = as_source(tmp_path / "p.npz")
    assert list(source.class_names) == NAMES
    assert_holds(source, rows)


def test_logits_may_be_said_beside_the_file(tmp_path):
    np.savez(tmp_path / "p.npz", probs=LOGITS, labels=LABELS)
    named_logits = tmp_path / "l.npz"
    np.savez(named_logits, logits=LOGITS, labels=LABELS)
    said = StandardPredictor().fit(as_source(tmp_path / "p.npz", logits=True))
    named = StandardPredictor().fit(named_logits)
    probabilities = StandardPredictor(from_logits=True).fit(LOGITS, LABELS)
    assert said.thresholds_[0] == named.thresholds_[0] == probabilities.thresholds_[0]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"probs": ROWS, "logits": LOGITS}, r"probs \(23, 4\), logits \(23, 4\)"),
        ({"probs": ROWS.astype(str)}, "real numbers"),
        ({"probs": ROWS.astype(complex)}, "real numbers"),
        ({"probs": ROWS.astype(object)}, "pickled Python objects"),
        ({"probs": ROWS, "labels": LABELS.astype(object)}, "pickled Python objects"),
        ({"probs": ROWS, "class_names": np.array(NAMES, dtype=object)}, "pickled Python objects"),
    ],
)
def test_npz_that_break_a_rule(tmp_path, arrays, words):
    np.savez(tmp_path / "bad.npz", **arrays)
    assert_refused(tmp_path / "bad.npz", words)


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "arrow", "feather"])
@pytest.mark.parametrize("content", [b"", b"not such a file", b"\x93NUMPY", b"PK\x03\x04", b"PAR1"])
def test_files_that_are_something_else(tmp_path, ending, content):
    path = tmp_path / f"bad.{ending}"
    path.write_bytes(content)
    assert_refused(path, "does not match its extension")


def test_files_that_are_not_there(tmp_path):
    assert_refused(tmp_path / "absent.npy", "no such file")
    (tmp_path / "folder.npy").mkdir()
    assert_refused(tmp_path / "folder.npy", "the folder has no file")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_npz_whose_matrix_is_shorter_than_it_says(tmp_path, compression):
    buffer = io.BytesIO()
    np.save(buffer, ROWS)
    with zipfile.ZipFile(tmp_path / "bad.npz", "w", compression) as archive:
        archive.writestr("probs.npy", buffer.getvalue()[:-8])
        archive.writestr("more.npy", buffer.getvalue())  # what a careless memory map would show
    assert_refused(tmp_path / "bad.npz", "truncated")


def test_damage_in_a_compressed_npz_is_noticed(tmp_path):
    np.savez_compressed(tmp_path / "p.npz", probs=np.tile(ROWS, (50, 1)))
    damaged = bytearray((tmp_path / "p.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (tmp_path / "p.npz").write_bytes(damaged)
    assert_refused(tmp_path / "p.npz", "truncated")


@pytest.mark.parametrize("names", [("probs.npy", "probs.npy"), ("probs.npy", "probs")])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice_is_refused(tmp_path, names):
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as archive:
        for name, rows in zip(names, (ROWS, ROWS[::-1]), strict=True):
            held = io.BytesIO()
            np.save(held, rows)
            archive.writestr(name, held.getvalue())
    assert_refused(tmp_path / "p.npz", "'probs'")
