"""Rows, and models that tell classes, rows and ids apart: a mistake in any of them changes sets."""

import csv
import json
from functools import cache

import numpy as np

from evencover import ClasswisePredictor, StandardPredictor, TopK


@cache
def simulated(n_rows, n_classes, seed=0):
    """Rows, and labels drawn from them, so that every class needs another threshold."""
    rng = np.random.default_rng([seed, n_rows, n_classes])
    rows = rng.dirichlet(np.linspace(0.2, 0.8, n_classes), n_rows)
    labels = (rng.random((n_rows, 1)) > np.cumsum(rows, axis=1)).sum(axis=1)
    return rows, labels.clip(max=n_classes - 1)


def calibrated(n_classes, class_names=None, **parameters):
    """A model with a finite threshold of its own for every class; APS makes it depend on ids."""
    rows, labels = simulated(60 * n_classes, n_classes, seed=1)
    parameters = {"alpha": 0.3, "score": "aps", "keep_top": False} | parameters
    model = ClasswisePredictor(**parameters)
    how = {} if class_names is None else {"class_names": class_names, "labels_are": "indices"}
    return model.fit(rows, labels, ids=np.arange(len(rows)), **how)


def fitted(rows, labels=None, *, options=None, **how):
    """A model whose one threshold depends on the label and the id of every row."""
    parameters = {"alpha": 0.3, "score": "aps", "keep_top": False} | (options or {})
    return StandardPredictor(**parameters).fit(rows, labels, **how)


def named_sets(sets):
    """Sets by the names of the classes, or by their indices as text."""
    names, lists = sets.class_names, sets.to_lists()
    return [frozenset(str(y) if names is None else names[y] for y in row) for row in lists]


def state_of(model):
    """What a fit found."""
    return model.class_names_, model.class_counts_.tolist(), model.thresholds_.tolist()


def best(rows, k):
    """The classes of the k largest numbers of each row, and the numbers."""
    classes = np.argsort(-rows, axis=1, kind="stable")[:, :k]
    return classes, np.take_along_axis(rows, classes, axis=1)


def top_of(rows, k, class_names=None):
    """The k most probable classes of each row."""
    return TopK(*best(rows, k), n_classes=rows.shape[1], class_names=class_names)


def entries_of(rows, k, names=None):
    """The k best of each row as a text-classification pipeline gives them."""
    labels = range(rows.shape[1]) if names is None else names
    return [
        [{"label": labels[y], "score": p} for y, p in zip(classes, scores, strict=True)]
        for classes, scores in zip(*(part.tolist() for part in best(rows, k)), strict=True)
    ]


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_cells(path, lines):
    """Write lines of cells as CSV, or as TSV."""
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(lines)
    return path


def with_header(names, rows, **columns):
    """Lines of cells: a column per class, and these."""
    lines = zip(rows.tolist(), *columns.values(), strict=True)
    return [[*names, *columns], *([*row, *cells] for row, *cells in lines)]
