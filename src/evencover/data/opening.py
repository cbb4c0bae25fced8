"""From whatever holds rows to a source: which reader it needs.

Readers of files are imported when there is a file: arrays do not wait for them (20 ms).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from evencover.data.source import ArraySource, IterableSource, Source, rows_and_labels
from evencover.errors import InputError


def as_source(
    probabilities: Any,
    labels: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    logits: bool | None = None,
) -> Source:
    """Read arrays, memory maps, paths and iterables of row blocks alike.

    Parameters
    ----------
    probabilities
        An (N, K) array-like, the path or address of a file, a folder or a pattern of files, a list
        of paths, an iterable of (n, K) blocks or of (block, labels) pairs, a Dask array or bag of
        paths, or a `Source`.
    labels
        (N,) class indices, or class names if these are known, or a path of files with them;
        replaces those of a file.
    class_names
        One per class; replaces those of a file.
    logits
        Say whether the numbers are logits, whatever the file says.
    """
    source = _open(probabilities)
    if class_names is not None:
        if len(class_names) != source.n_classes:
            raise InputError(
                f"'class_names' must have one entry per class. Got {len(class_names)} names "
                f"for {source.n_classes} classes."
            )
        source.class_names = [str(name) for name in class_names]
    if logits is not None:
        source.logits = logits
    if isinstance(labels, str | os.PathLike):
        from evencover.data.files import labels_for

        labels = labels_for(source, labels)
    if labels is not None:
        source.attach_labels(labels)
    return source


def _open(probabilities: Any) -> Source:
    if isinstance(probabilities, Source):
        return probabilities
    if isinstance(probabilities, str | os.PathLike):
        from evencover.data.files import open_file

        return open_file(probabilities)
    if _is_sequence_of_paths(probabilities):
        from evencover.data.files import open_files

        return open_files(probabilities)
    if type(probabilities).__module__.startswith("dask."):
        return _open_dask(probabilities)
    if isinstance(probabilities, Iterator) or _is_sequence_of_blocks(probabilities):
        return IterableSource(probabilities)
    if hasattr(probabilities, "__array__") or isinstance(probabilities, Sequence):
        return ArraySource(probabilities)
    if isinstance(probabilities, Iterable) and not type(probabilities).__module__.startswith(
        "pyarrow"
    ):
        return IterableSource(probabilities)
    return ArraySource(probabilities)


def _is_sequence_of_paths(values: Any) -> bool:
    is_list = isinstance(values, list | tuple) and len(values) > 0
    return is_list and all(isinstance(value, str | os.PathLike) for value in values)


def _is_sequence_of_blocks(values: Any) -> bool:
    if not isinstance(values, list | tuple) or not values:
        return False
    rows, labels = rows_and_labels(values[0])
    return (
        hasattr(rows, "ndim") and rows.ndim == 2 and (labels is None or hasattr(labels, "__len__"))
    )


def _open_dask(collection: Any) -> Source:
    """The source of a Dask array, or of a Dask bag of paths."""
    kind = type(collection).__module__
    if kind.startswith("dask.array"):
        from evencover.data.formats.dask_arrays import DaskArraySource

        return DaskArraySource(collection)
    if kind.startswith("dask.bag"):
        from evencover.data.files import open_files

        return open_files(collection.compute())
    raise InputError(
        "Of Dask's collections an array, or a bag of paths, can be read. "
        f"Got {type(collection).__name__} instead."
    )
