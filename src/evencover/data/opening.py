"""From whatever holds rows to a source: which reader it needs.

Readers of files are imported when there is a file: arrays do not wait for them (20 ms).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from evencover._validation import plain_array
from evencover.data.frames import collected, index_of, is_dask_frame, is_frame
from evencover.data.join import RowValues, join_labels, labels_of_frame
from evencover.data.names import Keys, as_class_names
from evencover.data.objects import Unpacked, is_trainer_output, rows_and_labels, unpacked
from evencover.data.source import ArraySource, IterableSource, Source
from evencover.errors import InputError


def as_source(
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    class_names: Any = None,
    logits: bool | None = None,
    probabilities_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
    complete: bool = True,
) -> Source:
    """Read arrays, memory maps, paths and iterables of row blocks alike.

    Parameters
    ----------
    probabilities
        An (N, K) array-like; a frame of pandas, polars or Dask or an Arrow table, whose columns
        name the classes and may hold labels and ids; a dictionary of arrays, or what a Trainer's
        `predict` gives; the path or address of a file, a folder or a pattern of files, a list of
        paths; an iterable of blocks of any of these, or of (block, labels) pairs; a Dask array or
        bag of paths, or a `Source`.
    labels
        (N,) class indices, or class names if these are known, or a path of files with them;
        replaces those of a file. Labels with ids (a Series with an index, a frame or file with a
        column of ids) are joined to rows with ids; other labels are in the order of the rows.
    ids
        (N,) ids of the rows, in their order; replaces those of a file.
    class_names
        One per class, or {index: name}; replaces those of a file.
    logits
        Say whether the numbers are logits, whatever the file says.
    probabilities_key, labels_key, ids_key
        What the numbers, labels and ids are called in a file, frame or dictionary, where it is
        none of the usual names. With one column per class, a pattern such as "p_*". With a file
        or frame of labels, `labels_key` is the name there.
    complete
        Whether every row must have a label where they are joined by id. If not, rows without a
        label are left out, and labels without a row ignored.
    """
    apart = isinstance(labels, str | os.PathLike) or is_frame(labels)
    keys = Keys(probabilities_key, None if apart else labels_key, ids_key)
    source = _open(probabilities, keys)
    if class_names is not None:
        source.class_names = as_class_names(class_names, source.n_classes)
        source.numbers_are_names = False
        source.check_kept_labels()
    if logits is not None:
        source.logits = logits
    if ids is not None:
        source = copy(source) if source is probabilities else source
        source._ids = plain_array(ids)
    if labels is None:
        return source
    if isinstance(labels, str | os.PathLike):
        from evencover.data.files import values_for

        found = values_for(source, labels, labels_key or "labels", ids_key)
    elif is_frame(labels):
        found = labels_of_frame(collected(labels), labels_key, ids_key)
    else:
        found = RowValues(labels, index_of(labels), is_index=True)
    return join_labels(source, found, complete=complete)


def _open(probabilities: Any, keys: Keys) -> Source:
    if isinstance(probabilities, Source):
        return probabilities
    if isinstance(probabilities, str | os.PathLike):
        from evencover.data.files import open_file

        return open_file(probabilities, keys)
    if _is_sequence_of_paths(probabilities):
        from evencover.data.files import open_files

        return open_files(probabilities, keys)
    if type(probabilities).__module__.startswith("dask."):
        return _open_dask(probabilities, keys)
    if is_frame(probabilities) or isinstance(probabilities, Mapping):
        return _from_object(unpacked(probabilities, keys))
    if is_trainer_output(probabilities):
        return _from_object(unpacked(probabilities, keys))
    if isinstance(probabilities, Iterator) or _is_sequence_of_blocks(probabilities):
        return IterableSource(probabilities)
    if hasattr(probabilities, "__array__") or isinstance(probabilities, Sequence):
        return ArraySource(probabilities)
    if isinstance(probabilities, Iterable) and not type(probabilities).__module__.startswith(
        "pyarrow"
    ):
        return IterableSource(probabilities)
    return ArraySource(probabilities)


def _from_object(found: Unpacked) -> Source:
    """An array with what was found beside it."""
    source = ArraySource(found.rows, found.class_names)
    source.logits, source.numbers_are_names = found.logits, found.numbers_are_names
    source.used, source.left_out = found.used, found.left_out
    source._ids, source.index = found.ids, found.index
    if found.labels is not None:
        source.attach_labels(found.labels)
    return source


def _is_sequence_of_paths(values: Any) -> bool:
    is_list = isinstance(values, list | tuple) and len(values) > 0
    return is_list and all(isinstance(value, str | os.PathLike) for value in values)


def _is_sequence_of_blocks(values: Any) -> bool:
    if not isinstance(values, list | tuple) or not values:
        return False
    if is_frame(values[0]) or isinstance(values[0], Mapping):
        return True
    rows, labels = rows_and_labels(values[0])
    return (
        hasattr(rows, "ndim") and rows.ndim == 2 and (labels is None or hasattr(labels, "__len__"))
    )


def _open_dask(collection: Any, keys: Keys) -> Source:
    """The source of a Dask array or frame, or of a Dask bag of paths."""
    kind = type(collection).__module__
    if is_dask_frame(collection):
        from evencover.data.formats.dask_arrays import DaskFrameSource

        return DaskFrameSource(collection, keys)
    if kind.startswith("dask.array"):
        from evencover.data.formats.dask_arrays import DaskArraySource

        return DaskArraySource(collection)
    if kind.startswith("dask.bag"):
        from evencover.data.files import open_files

        return open_files(collection.compute(), keys)
    raise InputError(
        "Of Dask's collections only arrays, frames and bags of paths can be read. "
        f"Got {type(collection).__name__} instead."
    )
