"""The same rows, ids and labels in every form that evencover reads."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from one_door.material import write_cells
from safetensors.numpy import save_file

from evencover import TopK


class Content(NamedTuple):
    """What a form holds; labels are names or indices, and each of the rest may be missing."""

    rows: np.ndarray  # (N, K)
    names: list[str] | None = None
    ids: list[Any] | None = None
    labels: list[Any] | None = None

    def __repr__(self):
        rows = [[float(f"{number:.3g}") for number in row] for row in self.rows.tolist()]
        return f"Content({rows}, {self.names}, {self.ids}, {self.labels})"

    def take(self, order):
        """Other rows, or these in another order."""
        ids, labels = (v and [v[row] for row in order] for v in (self.ids, self.labels))
        return self._replace(rows=self.rows[order], ids=ids, labels=labels)

    def with_classes(self, order):
        """The same classes in another order; only names can state it."""
        assert self.labels is None or isinstance(self.labels[0], str)
        return self._replace(rows=self.rows[:, order], names=[self.names[y] for y in order])

    @property
    def columns(self):
        """Names of the columns of a table."""
        return list(map(str, range(self.rows.shape[1]))) if self.names is None else self.names

    @property
    def others(self):
        """The columns next to the classes."""
        columns = {"id": self.ids, "label": self.labels}
        return {name: values for name, values in columns.items() if values is not None}

    @property
    def apart(self):
        """Arguments that go with rows without names of their own."""
        how = {"ids": self.ids, "labels": self.labels, "class_names": self.names}
        return {name: values for name, values in how.items() if values is not None}


class NotStorableError(Exception):
    """A form has no place for something, so there is nothing to read."""


def in_arrays(content, folder):
    return content.rows, content.apart


def in_pandas(content, folder):
    names = content.names or list(range(content.rows.shape[1]))
    parts = [pd.DataFrame(content.rows, columns=names), pd.DataFrame(content.others)]
    return pd.concat(parts, axis=1), {}


def in_arrow(content, folder):
    columns = [pa.array(column) for column in content.rows.T.copy()]
    try:
        columns += map(pa.array, content.others.values())
    except (pa.ArrowException, TypeError) as error:
        raise NotStorableError from error
    return pa.Table.from_arrays(columns, names=[*content.columns, *content.others]), {}


def in_polars(content, folder):
    columns = [*zip(content.columns, content.rows.T, strict=True), *content.others.items()]
    try:
        return pl.DataFrame([pl.Series(name, values, strict=True) for name, values in columns]), {}
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise NotStorableError from error


def named_arrays(content):
    arrays = {"probs": content.rows, "ids": content.ids, "labels": content.labels}
    arrays |= {"class_names": content.names}
    arrays = {name: np.array(values) for name, values in arrays.items() if values is not None}
    if any(values.dtype == object for values in arrays.values()):
        raise NotStorableError
    return arrays


def in_dictionary(content, folder):
    return named_arrays(content), {}


def in_npz(content, folder):
    np.savez(folder / "p.npz", **named_arrays(content))
    return folder / "p.npz", {}


def in_npy(content, folder):
    np.save(folder / "p.npy", content.rows)
    return folder / "p.npy", content.apart


def in_safetensors(content, folder):
    """It has no text, but for class names, so text goes along."""
    arrays = named_arrays(content)
    arrays.pop("class_names", None)
    texts = {name for name, values in arrays.items() if values.dtype.kind == "U"}
    about = None if content.names is None else {"class_names": json.dumps(content.names)}
    kept = {k: np.ascontiguousarray(v) for k, v in arrays.items() if k not in texts}
    save_file(kept, folder / "p.safetensors", about)
    return folder / "p.safetensors", {name: arrays[name].tolist() for name in texts}


def in_parquet(content, folder):
    pq.write_table(in_arrow(content, folder)[0], folder / "p.parquet", row_group_size=7)
    return folder / "p.parquet", {}


def in_feather(content, folder):
    feather.write_feather(in_arrow(content, folder)[0], folder / "p.feather", chunksize=7)
    return folder / "p.feather", {}


def cells_of(content):
    others = (
        zip(*content.others.values(), strict=True) if content.others else [()] * len(content.rows)
    )
    rows = zip(content.rows.tolist(), others, strict=True)
    return ([*row, *("" if cell is None else cell for cell in cells)] for row, cells in rows)


def in_csv(content, folder, name="p.csv"):
    lines = [[*content.columns, *content.others], *cells_of(content)]
    return write_cells(folder / name, lines), {}


def in_tsv(content, folder):
    return in_csv(content, folder, "p.tsv")


def write_records(path, records):
    """Write (key, value) pairs, of which two may have the same key."""
    try:
        lines = [
            ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record)
            for record in records
        ]
    except TypeError as error:
        raise NotStorableError from error
    Path(path).write_text("".join(f"{{{line}}}\n" for line in lines), encoding="utf-8")
    return path


def others_of(content):
    """The pairs next to the numbers of each row."""
    columns = [[(name, value) for value in values] for name, values in content.others.items()]
    return list(zip(*columns, strict=True)) if columns else [()] * len(content.rows)


def in_json_lines(content, folder):
    rows = content.rows.tolist()
    if content.names is None:
        numbers = [[("probs", row)] for row in rows]
    else:
        numbers = [list(zip(content.names, row, strict=True)) for row in rows]
    records = [[*n, *more] for n, more in zip(numbers, others_of(content), strict=True)]
    return write_records(folder / "dense.jsonl", records), {}


def ranked(content):
    """Classes of each row, the most probable first, and their numbers."""
    classes = np.argsort(-content.rows, axis=1, kind="stable")
    values = np.take_along_axis(content.rows, classes, axis=1).tolist()
    names = content.names or list(range(content.rows.shape[1]))
    return [[names[y] for y in row] for row in classes.tolist()], values


def entries(content):
    lists = zip(*ranked(content), strict=True)
    return [[{"label": y, "score": p} for y, p in zip(*row, strict=True)] for row in lists]


def in_entries(content, folder):
    records = [
        [("output", row), *more]
        for row, more in zip(entries(content), others_of(content), strict=True)
    ]
    return write_records(folder / "entries.jsonl", records), {}


def in_memory_entries(content, folder):
    return entries(content), content._replace(names=None).apart


def in_lists(content, folder):
    lists = zip(*ranked(content), others_of(content), strict=True)
    records = [[("classes", classes), ("scores", scores), *more] for classes, scores, more in lists]
    return write_records(folder / "lists.jsonl", records), {}


def in_list_columns(content, folder):
    classes, scores = ranked(content)
    try:
        table = pa.table({"classes": classes, "scores": scores, **content.others})
    except (pa.ArrowException, TypeError) as error:
        raise NotStorableError from error
    pq.write_table(table, folder / "lists.parquet", row_group_size=7)
    return folder / "lists.parquet", {}


def in_timm(content, folder):
    """Columns by rank, as timm's inference.py writes them."""
    kind, ranks = ("index" if content.names is None else "label"), range(content.rows.shape[1])
    heading = [*(f"{kind}_{rank}" for rank in ranks), *(f"prob_{rank}" for rank in ranks)]
    others = [[value for _, value in pairs] for pairs in others_of(content)]
    lines = [[*classes, *scores, *("" if cell is None else cell for cell in cells)]
             for classes, scores, cells in zip(*ranked(content), others, strict=True)]  # fmt: skip
    return write_cells(folder / "timm.csv", [[*heading, *content.others], *lines]), {}


def in_top_k(content, folder):
    classes = np.argsort(-content.rows, axis=1, kind="stable")
    values = np.take_along_axis(content.rows, classes, axis=1)
    how = content._replace(names=None).apart
    return TopK(classes, values, content.rows.shape[1], content.names), how


DENSE = {
    "arrays": in_arrays,
    "pandas": in_pandas,
    "polars": in_polars,
    "arrow": in_arrow,
    "dictionary": in_dictionary,
    "npz": in_npz,
    "npy": in_npy,
    "safetensors": in_safetensors,
    "parquet": in_parquet,
    "feather": in_feather,
    "csv": in_csv,
    "tsv": in_tsv,
    "json lines": in_json_lines,
}
LISTED = {
    "entries": in_entries,
    "entries in memory": in_memory_entries,
    "parallel lists": in_lists,
    "list columns": in_list_columns,
    "timm": in_timm,
    "TopK": in_top_k,
}
FORMS = DENSE | LISTED
TEXT = ("csv", "tsv", "timm")  # whose cells have no types
APART = ("arrays", "npy")  # whose names go along


def given(form, content, folder):
    """Return rows in a form, and the arguments of `fit` that go with them."""
    return FORMS[form](content, folder)


def written_labels(kind, content, folder):
    """Labels with their ids, to be joined: a frame, or the path of a file."""
    frame = pd.DataFrame(content.others)
    path = folder / f"y.{kind}"
    if kind == "pandas":
        return frame
    if kind == "parquet":
        frame.to_parquet(path, index=False)
    elif kind == "jsonl":
        write_records(path, [list(record.items()) for record in frame.to_dict("records")])
    elif kind == "npz":
        np.savez(path, ids=np.array(content.ids), labels=np.array(content.labels))
    else:
        write_cells(path, [list(frame), *zip(*content.others.values(), strict=True)])
    return path


LABEL_FILES = ["pandas", "parquet", "jsonl", "npz", "csv", "tsv"]
