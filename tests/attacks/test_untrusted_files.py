"""Damaged files, and files with code, links, misplaced tensors, or another file in their place."""

import json
import os
import pickle
import random
import shutil
import struct

import h5py
import numpy as np
import pytest
import safetensors
from depth import size
from inputs import LABELS, ROWS, K, assert_refused, read, write_arrays, write_file

from evencover import InputError, StandardPredictor, load, save
from evencover.data import as_source


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("filters", [["vlen-utf8", "pickle"], ["pickle"], ["Pickle"]], ids=str)
@pytest.mark.parametrize("where", ["filters", "compressor"])
def test_a_zarr_store_runs_no_code(tmp_path, monkeypatch, filters, where):
    """numcodecs up to 0.16.5 knows the codec from the start; later ones once it is imported."""
    from numcodecs import pickles, registry

    monkeypatch.setitem(registry.codec_registry, "pickle", pickles.Pickle)
    monkeypatch.setitem(registry.codec_registry, "Pickle", pickles.Pickle)
    path = write_arrays(tmp_path, "zarr 2", probs=ROWS, labels=LABELS)
    codecs = [{"id": name} for name in filters]
    about = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "fill_value": None}
    about |= {"order": "C", "compressor": None, "filters": codecs}
    if where == "compressor":
        about |= {"compressor": codecs[-1], "filters": codecs[:-1] or None}
    (path / "class_names").mkdir()
    (path / "class_names" / ".zarray").write_text(json.dumps(about))
    (path / "class_names" / "0").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert_refused(path, "pickle" if len(filters) == 2 else "read")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("kind", ["link", "group", "virtual", "raw"])
@pytest.mark.parametrize("key", ["probs", "labels"])
def test_hdf5_reads_nothing_but_the_file_itself(tmp_path, kind, key):
    values = {"probs": ROWS, "labels": LABELS}
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file[key] = values[key]
    values[key].tofile(tmp_path / "secret.bin")
    with h5py.File(tmp_path / "p.h5", "w") as file:
        for name in values.keys() - {key}:
            file[name] = values[name]
        if kind == "link":
            file[key] = h5py.ExternalLink("secret.h5", key)
        elif kind == "group":
            file["elsewhere"] = h5py.ExternalLink("secret.h5", "/")
            file[key] = h5py.SoftLink(f"/elsewhere/{key}")
        elif kind == "virtual":
            layout = h5py.VirtualLayout(values[key].shape, values[key].dtype)
            layout[:] = h5py.VirtualSource("secret.h5", key, values[key].shape)
            file.create_virtual_dataset(key, layout)
        else:
            size = values[key].nbytes
            raw = [(str(tmp_path / "secret.bin"), 0, size)]
            file.create_dataset(key, values[key].shape, values[key].dtype, external=raw)
    assert_refused(tmp_path / "p.h5", "secret")


def write_safetensors(path, **places):
    """Write 2 x 2 tensors with the offsets that are given."""
    about = '"{}": {{"dtype": "F32", "shape": [2, 2], "data_offsets": {}}}'
    tensors = [about.format(name, list(place)) for name, place in places.items()]
    header = f"{{{', '.join(tensors)}}}".encode()
    content = np.full(8, 0.5, dtype="<f4").tobytes()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)


@pytest.mark.parametrize("place", [(-16, 0), (8, 24), (0, 12), (0, 15), (16, 0), "more"])
def test_tensors_lie_where_their_shapes_say_and_nowhere_else(tmp_path, place):
    path = tmp_path / "p.safetensors"
    write_safetensors(path, probs=(0, 16), other=(16, 32))
    assert as_source(path).n_rows == 2
    if place == "more":
        path.write_bytes(path.read_bytes() + b"\0")
    else:
        write_safetensors(path, probs=place, other=(16, 32))
    assert_refused(path)


CHANGED = "must not change"
KINDS = ["npz", "safetensors", "h5", "zarr 3", "parquet", "arrow", "csv", "jsonl"]


def replace(folder, kind, path):
    """Another file takes the place of one that is open; the same size and a later time."""
    other = folder / "other"
    other.mkdir()
    new = write_file(other / "p", kind, ROWS[::-1])
    if path.is_dir():
        shutil.rmtree(path)
        new.rename(path)
    else:
        os.replace(new, path)
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_replaced_after_its_opening_is_refused(tmp_path, kind):
    path = write_file(tmp_path / "p", kind)
    source = as_source(path)
    there = pickle.loads(pickle.dumps(source.parts()))  # as a worker gets them
    replace(tmp_path, kind, path)
    for part in (source, *there):
        with pytest.raises(InputError, match=CHANGED):
            read(part)
    as_source(path)  # it is the other file now, from its opening on


@pytest.mark.parametrize("kind", ["npz", "parquet", "csv"])
def test_a_file_that_is_overwritten_while_it_is_read_is_refused(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("evencover.data.readers.BLOCK_ELEMENTS", 4 * K)
    path = write_file(tmp_path / "p", kind)
    blocks = as_source(path).blocks()
    next(blocks)
    content = path.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match=CHANGED):
        list(blocks)


def test_a_model_that_is_replaced_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    save(StandardPredictor(alpha=0.5).fit(ROWS, LABELS), path)
    opened = safetensors.safe_open

    def replaced(*arguments, **named):
        os.utime(path, ns=(1, 1))
        return opened(*arguments, **named)

    monkeypatch.setattr(safetensors, "safe_open", replaced)
    with pytest.raises(InputError, match=CHANGED):
        load(path)


N_DAMAGED = size(short=20, deep=2000)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("h5", "zarr 3")])
@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_flipped_bits_are_read_or_rejected(tmp_path, kind):
    path = write_file(tmp_path / "p", kind)
    whole, rng, n_rejected = path.read_bytes(), random.Random(kind), 0
    for _ in range(N_DAMAGED):
        content, place = bytearray(whole), rng.randrange(len(whole))
        content[place] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            read(as_source(path))
        except InputError:
            n_rejected += 1
    assert n_rejected > 0
