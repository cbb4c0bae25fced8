"""Files that try to be more than data: code, links to other files, another file in their place."""

import json
import os
import pickle
import shutil

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from inputs import LABELS, NAMES, ROWS, K, N, assert_refused, read, write_arrays, write_table

from evencover import InputError, StandardPredictor, load, save
from evencover.data import as_source
from evencover.data.location import identity_of, reading


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
    words = "pickled Python objects, which are never loaded" if len(filters) == 2 else "read"
    assert_refused(path, words)
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
    assert_refused(tmp_path / "p.h5", r"must be in the file itself\. Got a link to '.*secret")


def test_a_soft_link_within_a_file_is_read(tmp_path):
    with h5py.File(tmp_path / "p.h5", "w") as file:
        file["deep/p"] = ROWS
        file["probs"] = h5py.SoftLink("/deep/p")
        file["labels"] = LABELS
    rows, _ = read(as_source(tmp_path / "p.h5"))
    np.testing.assert_array_equal(rows, ROWS)


def write_any(folder, ending, rows, labels):
    """A labelled file of any kind; its path."""
    path = folder / f"p.{ending}"
    if ending in ("safetensors", "h5", "zarr"):
        kind = {"zarr": "zarr 3"}.get(ending, ending)
        return write_arrays(folder, kind, probs=rows, labels=labels)
    if ending == "npz":
        np.savez(path, probs=rows, labels=labels)
    elif ending in ("parquet", "arrow"):
        import pyarrow as pa

        columns = {f"c{k}": rows[:, k] for k in range(K)} | {"labels": labels}
        write_table(path, pa.table(columns))
    elif ending == "csv":
        lines = [
            ",".join([*map(repr, map(float, r)), str(y)]) for r, y in zip(rows, labels, strict=True)
        ]
        path.write_text("\n".join([",".join([*"abcd", "labels"]), *lines]))
    else:
        records = zip(rows.tolist(), labels.tolist(), strict=True)
        path.write_text("\n".join(json.dumps({"probs": r, "labels": y}) for r, y in records))
    return path


ENDINGS = ["npz", "safetensors", "h5", "zarr", "parquet", "arrow", "csv", "jsonl"]


def replace(folder, ending, path):
    """Another file takes the place of one that is open; the same size and a later time."""
    other = folder / "other"
    other.mkdir()
    new = write_any(other, ending, ROWS[::-1], LABELS)
    if path.is_dir():
        shutil.rmtree(path)
        new.rename(path)
    else:
        os.replace(new, path)
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_is_replaced_after_its_opening_is_refused(tmp_path, ending):
    path = write_any(tmp_path, ending, ROWS, LABELS)
    source = as_source(path)
    there = pickle.loads(pickle.dumps(source.parts()))  # as a worker gets them
    replace(tmp_path, ending, path)
    with pytest.raises(InputError, match=rf"p\.{ending}' must stay as it was when it was opened"):
        StandardPredictor().fit(source)
    for part in there:
        with pytest.raises(InputError, match="must stay as it was"):
            read(part)
    as_source(path)  # it is the other file now, from its opening on


def test_a_file_that_is_half_written_anew_is_not_called_broken(tmp_path):
    path = write_any(tmp_path, "parquet", ROWS, LABELS)
    known = identity_of(path)

    def read_meanwhile():
        with reading(path, known):
            path.write_bytes(path.read_bytes()[:99])
            pq.read_table(path)

    with pytest.raises(InputError, match="must stay as it was"):
        read_meanwhile()
    with pytest.raises(InputError, match="truncated"), reading(path):
        pq.read_table(path)


@pytest.mark.parametrize("ending", ["npz", "parquet", "csv"])
def test_a_file_that_is_overwritten_while_it_is_read_is_refused(tmp_path, ending, monkeypatch):
    monkeypatch.setattr("evencover.data.source.BLOCK_ELEMENTS", 4 * K)
    path = write_any(tmp_path, ending, ROWS, LABELS)
    blocks = as_source(path).blocks()
    next(blocks)
    content = path.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="must stay as it was"):
        list(blocks)


def test_a_file_on_a_worker_may_lie_under_another_path(tmp_path):
    path = write_any(tmp_path, "zarr", ROWS, LABELS)
    (part,) = as_source(path).parts()
    moved = tmp_path / "elsewhere.zarr"
    shutil.copytree(path, moved)  # with the times of the files
    part.location = moved
    read(part)


@pytest.mark.parametrize("names", [["a", "b", "a", "c"], ("a", "b", "b", "a"), np.array([*"abca"])])
def test_a_label_that_two_classes_are_called_by_is_refused(names):
    labels = np.array(names)[LABELS]
    with pytest.raises(
        InputError, match=r"name of its own where labels are names\. Got '[ab]' for"
    ):
        StandardPredictor().fit(ROWS, labels, class_names=names)
    StandardPredictor(alpha=0.5).fit(ROWS, LABELS, class_names=names)


def test_a_model_is_one_thing_too(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    save(StandardPredictor(alpha=0.5).fit(ROWS, LABELS, class_names=NAMES), path)
    assert N > K
    before = path.stat()

    def replaced(*_):
        os.utime(path, ns=(1, before.st_mtime_ns + 5))

    monkeypatch.setattr("evencover.persistence._refuse_newer", replaced)
    with pytest.raises(InputError, match="must stay as it was"):
        load(path)
