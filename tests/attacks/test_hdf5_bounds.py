"""What an HDF5 file says is larger than it is refused before anybody takes the memory."""

import re
import struct
import zlib

import h5py
import numpy as np
import pytest
from inputs import NAMES, ROWS, read

from evencover import InputError
from evencover.data import as_source

HUGE = 1 << 30
STORES = {
    "plain": {},
    "chunked": {"chunks": (3,)},
    "packed": {"chunks": (4,), "compression": "gzip", "shuffle": True},
    "shuffled": {"chunks": (4,), "compression": "gzip", "shuffle": True},
}


def written(path, options, attribute=False, libver="earliest"):
    with h5py.File(path, "w", libver=libver) as file:
        file["probs"] = ROWS
        if attribute:
            file.attrs["class_names"] = NAMES
        else:
            kind = h5py.string_dtype()
            file.create_dataset("class_names", data=np.array(NAMES, dtype=kind), **options)
    return path


def with_a_huge_text(entries):
    return struct.pack("<I", HUGE) + entries[4:]


def with_a_huge_column(columns):
    """The same where the first bytes of all entries come first, then the second ones."""
    changed = bytearray(columns)
    changed[0 : 4 * 4 : 4] = struct.pack("<I", HUGE)
    return bytes(changed)


@pytest.mark.parametrize("store", STORES)
def test_a_text_longer_than_its_file_is_refused(tmp_path, store):
    path = written(tmp_path / "p.h5", STORES[store])
    assert as_source(path).class_names == NAMES
    with h5py.File(path, "r+") as file:
        names = file["class_names"]
        begin = names.id.get_offset()
        if begin is None:
            _, raw = names.id.read_direct_chunk((0,))
            skipped = 0
            if store == "packed":
                columns = np.frombuffer(zlib.decompress(raw), np.uint8).reshape(16, 4)
                changed = with_a_huge_text(columns.T.tobytes())
                columns = np.frombuffer(changed, np.uint8).reshape(4, 16).T
                raw = zlib.compress(columns.tobytes())
            elif store == "shuffled":  # the mask says that it is not packed after that
                raw, skipped = with_a_huge_column(zlib.decompress(raw)), 0b10
            else:
                raw = with_a_huge_text(raw)
            names.id.write_direct_chunk((0,), raw, skipped)
    if begin is not None:
        content = bytearray(path.read_bytes())
        content[begin : begin + 4] = struct.pack("<I", HUGE)
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"its texts have 1\.07e\+09 characters"):
        as_source(path)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_so_is_one_in_an_attribute(tmp_path, libver):
    path = written(tmp_path / "p.h5", {}, attribute=True, libver=libver)
    assert as_source(path).class_names == NAMES
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL")
    entry = content.index(struct.pack("<IQ", len(NAMES[0].encode()), heap))
    content[entry : entry + 4] = struct.pack("<I", HUGE)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"its texts have|checksum"):  # newer headers have a sum
        as_source(path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_header_is_refused(tmp_path, number):
    path = tmp_path / "p.h5"
    with h5py.File(path, "w", libver="latest") as file:  # whose headers have a checksum
        file["labels"], file["probs"] = np.zeros(len(ROWS), dtype=int), ROWS
        file["nowhere"] = h5py.SoftLink("/gone")
    assert as_source(path).has_labels
    content = bytearray(path.read_bytes())
    headers = [found.start() for found in re.finditer(b"OHDR", content)]
    assert len(headers) == 3  # of the file and of both arrays: no array may seem not to be there
    content[headers[number] + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="checksum"):
        as_source(path)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_chunk_beyond_the_end_is_refused(tmp_path, libver):
    path = tmp_path / "p.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("probs", data=ROWS, chunks=(3, 4), compression="gzip")
        chunk = file["probs"].id.get_chunk_info(2)
    assert np.array_equal(read(as_source(path))[0], ROWS)
    content = bytearray(path.read_bytes())
    begin = content.index(struct.pack("<Q", chunk.byte_offset))
    content[begin : begin + 8] = struct.pack("<Q", len(content) - 1)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"it says that a chunk has \d+ bytes, and has|checksum"):
        read(as_source(path))


def test_a_long_text_that_all_classes_share_is_refused(tmp_path):
    """Each is as long as it says; together they are not in the file."""
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as file:
        file["probs"] = np.full((2, 400), 1 / 400, "f4")
        names = ["x" * 50_000, *map(str, range(399))]
        file["class_names"] = np.array(names, dtype=h5py.string_dtype())
        begin = file["class_names"].id.get_offset()
    content = bytearray(path.read_bytes())
    content[begin : begin + 6400] = 400 * content[begin : begin + 16]
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"its texts have 2e\+07 characters"):
        as_source(path)
