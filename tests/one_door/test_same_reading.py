"""What was always read rightly: the sets of every file are those of its arrays."""

import json
from itertools import cycle, product

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import zarr
from one_door.material import fitted, named_sets, simulated, write_cells, write_lines
from safetensors.numpy import save_file

N, K = 60, 5
NAMES = ["ant", "bee", "çédille", "海", "x y"]
PROBABILITIES, LABELS = simulated(N, K, seed=6)
LOGITS = np.log(PROBABILITIES) + 1
IDS = np.random.default_rng(7).permutation(10_000)[:N]

FORMATS = [
    *("npy", "npz", "compressed npz", "safetensors", "hdf5", "zarr"),
    *("list parquet", "parquet", "feather", "csv", "tsv", "jsonl"),
]
TEXT = ("csv", "tsv", "jsonl")  # which hold the decimals of a number
# What is stored with the rows: class names, integer or text ids, and labels as indices or names.
STORED = [
    {},
    {"labels": "indices"},
    {"names": True},
    {"names": True, "labels": "names"},
    {"ids": "integers", "labels": "indices"},
    {"ids": "texts", "names": True, "labels": "names"},
]
WHERE = ["file", "folder", "glob", "list"]
PIECES = [1, 7, 20, N]  # rows of a row group, chunk or record batch


def cases():
    """Every format with every type of number; the rest takes turns."""
    pieces, where = cycle(PIECES), cycle([*WHERE, "file"])
    for kind, dtype, logits, stored in product(
        FORMATS, ("f2", "f4", "f8"), (False, True), range(len(STORED))
    ):
        if kind == "npy" and stored:  # which holds rows alone
            continue
        if logits and kind == "compressed npz" and stored in (1, 3):  # as npz
            continue
        name = f"{kind} {dtype} {'logits' if logits else 'probabilities'} {stored}"
        parts, size = next(where), next(pieces)
        yield pytest.param(
            kind, dtype, logits, STORED[stored], parts, size, id=f"{name} {parts} {size}"
        )


def numbers_key(logits):
    return "logits" if logits else "probs"


def as_stored(stored, rows):
    """Names, ids and labels of these rows, as a file stores them."""
    ids = None if "ids" not in stored else IDS[rows].tolist()
    ids = [f"row {n}" for n in ids] if stored.get("ids") == "texts" else ids
    labels = None if "labels" not in stored else LABELS[rows].tolist()
    labels = [NAMES[y] for y in labels] if stored.get("labels") == "names" else labels
    return (NAMES if stored.get("names") else None), ids, labels


def write(path, kind, numbers, stored, rows, logits, size):
    """Write some of the rows."""
    names, ids, labels = as_stored(stored, rows)
    numbers, key = numbers[rows], numbers_key(logits)
    columns = {name: v for name, v in {"id": ids, "label": labels}.items() if v is not None}
    arrays = {key: numbers, **{f"{name}s": np.array(v) for name, v in columns.items()}}
    if kind == "npy":
        np.save(path, numbers)
    elif kind.endswith("npz"):
        save = np.savez_compressed if "compressed" in kind else np.savez
        save(path, **arrays, **({} if names is None else {"class_names": names}))
    elif kind == "safetensors":
        about = None if names is None else {"class_names": json.dumps(names)}
        held = {k: np.ascontiguousarray(v) for k, v in arrays.items() if v.dtype.kind != "U"}
        save_file(held, path, about)
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                values = values.astype(object) if values.dtype.kind == "U" else values
                chunks = (min(max(size, 7), len(values)), K) if values.ndim == 2 else None
                file.create_dataset(name, data=values, chunks=chunks)
            if names is not None:
                file["class_names"] = names
    elif kind == "zarr":
        group = zarr.open_group(path, mode="w", zarr_format=2)  # which specifies text
        for name, values in arrays.items():
            group.create_array(name, data=values, chunks=(max(size, 7), K)[: values.ndim])
        if names is not None:
            group.attrs["class_names"] = names
    elif kind == "jsonl":
        cells = zip(*columns.values(), strict=True) if columns else [()] * len(numbers)
        lines = []
        for row, more in zip(numbers.astype("f8").tolist(), cells, strict=True):
            held = {key: row} if names is None else dict(zip(names, row, strict=True))
            lines.append(held | dict(zip(columns, more, strict=True)))
        write_lines(path, lines)
    elif kind in ("csv", "tsv"):
        cells = zip(*columns.values(), strict=True) if columns else [()] * len(numbers)
        rows_of_cells = zip(numbers.astype("f8").tolist(), cells, strict=True)
        lines = [[*row, *more] for row, more in rows_of_cells]
        heading = [*(names or range(K)), *columns]
        write_cells(path, [heading, *lines] if names or columns else lines)
    else:
        write_table(path, kind, numbers, names, key, columns, size)


def write_table(path, kind, numbers, names, key, columns, size):
    if kind == "list parquet":
        lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), K)
        table = pa.table({key: lists, **columns})
        if names is not None:
            table = table.replace_schema_metadata({"class_names": json.dumps(names)})
    else:
        heading = names or list(map(str, range(K)))
        table = pa.table({name: numbers[:, y] for y, name in enumerate(heading)} | columns)
    if kind == "feather":
        feather.write_feather(table, path, chunksize=size)
    else:
        pq.write_table(table, path, row_group_size=size)


def is_stated(kind, stored):
    """Whether the file says that its numbers are logits: by the name of an array or a list."""
    by_class = kind in ("parquet", "feather", "csv", "tsv")
    return not (kind == "npy" or by_class or (kind == "jsonl" and stored.get("names")))


@pytest.mark.parametrize(("kind", "dtype", "logits", "stored", "where", "size"), list(cases()))
def test_a_file_gives_the_sets_of_its_arrays(kind, dtype, logits, stored, where, size, tmp_path):
    numbers = (LOGITS if logits else PROBABILITIES).astype(dtype)
    extension = kind.split()[-1].replace("hdf5", "h5")
    cuts = [0, N] if where == "file" else [0, 13, 40, N]
    paths = [tmp_path / "rows" / f"part-{n}.{extension}" for n in range(len(cuts) - 1)]
    paths[0].parent.mkdir()
    for path, start, stop in zip(paths, cuts, cuts[1:], strict=False):
        write(path, kind, numbers, stored, slice(start, stop), logits, size)
    given = {"file": paths[0], "folder": paths[0].parent, "list": paths}.get(
        where, str(paths[0].parent / f"part-*.{extension}")
    )
    names, ids, labels = as_stored(stored, slice(None))
    if kind == "safetensors":  # which holds no text: it goes along
        how = {"ids": ids} if stored.get("ids") == "texts" else {}
        how |= {"labels": labels} if stored.get("labels") == "names" else {}
    else:
        how = {}
    if "labels" not in stored:
        how |= {"labels": LABELS}
    if kind in TEXT:
        numbers = numbers.astype("f8")
    options = {} if not logits or is_stated(kind, stored) else {"from_logits": True}
    found = fitted(given, **how, options=options)
    expected = fitted(numbers, LABELS, ids=ids, class_names=names, options={"from_logits": logits})
    assert found.class_names_ == expected.class_names_
    assert found.thresholds_.tolist() == expected.thresholds_.tolist()
    sets = found.predict_set(given, ids=how.get("ids"))
    assert named_sets(sets) == named_sets(expected.predict_set(numbers, ids=ids))
