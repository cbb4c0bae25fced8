"""One small file of every kind, whole, for the mutator to damage; and those that once did harm."""

import json
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
from attacks.mutator import CORPUS, Files, read_files
from inputs import LABELS, NAMES, ROWS, K, list_array, write_arrays, write_table

ENDINGS = {
    "npy": ".npy",
    "npz": ".npz",
    "safetensors": ".safetensors",
    "csv": ".csv",
    "jsonl": ".jsonl",
    "parquet": ".parquet",
    "arrow": ".arrow",
    "hdf5": ".h5",
    "zarr": ".zarr",
    "model": ".safetensors",
}


def seeds_of(kind: str, folder: Path) -> list[Files]:
    """Whole files of this kind, and the kept corpus."""
    kept = [read_files(path) for path in sorted((CORPUS / kind).glob("*"))]
    return [read_files(path) for path in MAKERS[kind](folder)] + kept


def _npy(folder):
    for name, rows in {"c": ROWS, "half": ROWS.astype("f2"), "f": np.asfortranarray(ROWS)}.items():
        np.save(folder / f"{name}.npy", rows)
    np.save(folder / "text.npy", np.array(NAMES))
    return sorted(folder.glob("*.npy"))


def _npz(folder):
    np.savez(folder / "stored.npz", probs=ROWS, labels=LABELS, class_names=NAMES)
    np.savez_compressed(folder / "packed.npz", probs=ROWS, labels=LABELS, ids=LABELS + 7)
    return sorted(folder.glob("*.npz"))


def _safetensors(folder):
    return [write_arrays(folder, "safetensors", names=NAMES, probs=ROWS, labels=LABELS)]


def _csv(folder):
    lines = [
        [*map(str, row), str(y)] for row, y in zip(ROWS.tolist(), LABELS.tolist(), strict=True)
    ]
    text = "\n".join(",".join(line) for line in [[*NAMES, "labels"], *lines])
    (folder / "p.csv").write_text(text, encoding="utf-8")
    return [folder / "p.csv"]


def _jsonl(folder):
    records = [
        {"probs": r, "label": y} for r, y in zip(ROWS.tolist(), LABELS.tolist(), strict=True)
    ]
    (folder / "list.jsonl").write_text("\n".join(map(json.dumps, records)))
    fields = [dict(zip(NAMES, row, strict=True)) | {"id": "x"} for row in ROWS.tolist()]
    (folder / "fields.jsonl").write_text("\n".join(map(json.dumps, fields)))
    return sorted(folder.glob("*.jsonl"))


def _tables(ending):
    def make(folder):
        columns = {name: ROWS[:, place] for place, name in enumerate(NAMES)}
        texts = pa.array([f"row {y}" for y in LABELS]).dictionary_encode()
        tables = {
            "columns": pa.table(columns | {"labels": LABELS, "id": texts}),
            "fixed": pa.table({"probs": list_array("fixed"), "labels": LABELS}),
            "lists": pa.table({"probs": list_array("list"), "labels": np.array(NAMES)[LABELS]}),
        }
        for name, table in tables.items():
            write_table(folder / f"{name}{ending}", table)
        return sorted(folder.glob(f"*{ending}"))

    return make


def _hdf5(folder):
    paths = []
    for kind in ("h5", "chunked h5"):
        (folder / kind).mkdir()
        paths.append(write_arrays(folder / kind, kind, names=NAMES, probs=ROWS, labels=LABELS))
    with h5py.File(folder / "attribute.h5", "w") as file:
        file["probs"], file["labels"] = ROWS, LABELS
        file.attrs["class_names"] = NAMES
    return [*paths, folder / "attribute.h5"]


def _zarr(folder):
    paths = []
    for kind in ("zarr 2", "zarr 3", "sharded zarr"):
        (folder / kind).mkdir()
        paths.append(write_arrays(folder / kind, kind, names=NAMES, probs=ROWS, labels=LABELS))
    return paths


def _model(folder):
    import warnings

    from evencover import save
    from evencover.predictors import make_predictor

    rows = np.repeat(ROWS, 4, axis=0)
    labels = np.repeat(LABELS, 4)
    for method in ("standard", "classwise", "clustered", "pooled", "rc3p"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make_predictor(method, alpha=0.3, score="aps").fit(
                rows, labels, class_names=NAMES
            )
        save(model, folder / f"{method}.safetensors")
    assert K == 4
    return sorted(folder.glob("*.safetensors"))


MAKERS = {
    "npy": _npy,
    "npz": _npz,
    "safetensors": _safetensors,
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _tables(".parquet"),
    "arrow": _tables(".arrow"),
    "hdf5": _hdf5,
    "zarr": _zarr,
    "model": _model,
}
