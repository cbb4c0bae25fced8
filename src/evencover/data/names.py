"""The names under which tools keep probabilities, labels and ids, in files, frames and batches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from evencover._validation import align_classes
from evencover.errors import InputError

PROBABILITY_KEYS = (
    "probs",
    "probabilities",
    "softmax",
    "pred_probs",  # cleanlab
    "prob",  # timm
    "proba",
    "predict_proba",
    "y_proba",
    "y_prob",
)
LOGIT_KEYS = ("logits", "logit")
PREDICTIONS_KEY = "predictions"  # of Hugging Face's Trainer: logits, beside "label_ids"
TRAINER_LABELS_KEY = "label_ids"
MATRIX_KEYS = (*PROBABILITY_KEYS, *LOGIT_KEYS, PREDICTIONS_KEY)
LABEL_KEYS = ("labels", "label", TRAINER_LABELS_KEY, "y_true", "y", "targets", "target")
ID_KEYS = ("ids", "id")
NAMES_KEY = "class_names"

SAVED_INDEX = "__index_level_0__"

_SAVED_INDEX = re.compile(r"__index_level_\d+__")  # as pandas and Arrow keep an index in a file
_UNNAMED = re.compile(r"|Unnamed: \d+(_level_\d+)?")
_INDEX_WORDS = ("index", "level_0")


@dataclass(frozen=True)
class Keys:
    """The names that a user says hold the numbers, the labels and the ids; None: the usual ones.

    Where each class has a column of its own, ``probabilities`` may be a pattern such as ``p_*``.
    """

    probabilities: str | None = None
    labels: str | None = None
    ids: str | None = None


USUAL = Keys()
LIGHTEVAL = Keys("model_response.logprobs", "doc.gold_index", "doc.id")  # log-likelihoods
FLAT_LIGHTEVAL = Keys(PREDICTIONS_KEY, "gold_index")  # until 0.10


def layout_keys(names: Iterable[str], keys: Keys) -> Keys:
    """The keys of lighteval's details if a table is that and nothing was said; else those given."""
    names = set(names)
    if keys == USUAL and is_flat_lighteval(names):
        return FLAT_LIGHTEVAL
    if keys != USUAL or LIGHTEVAL.probabilities not in names:
        return keys
    return Keys(*(key if key in names else None for key in astuple(LIGHTEVAL)))


def is_flat_lighteval(names: Iterable[str]) -> bool:
    """Whether a table has the columns of lighteval's details until 0.10."""
    return {"predictions", "gold_index", "choices", "full_prompt"} <= set(names)


def are_samples(names: Iterable[str]) -> bool:
    """Whether the columns are those of lighteval's details or of lm-eval's samples."""
    names = set(names)
    return bool({"model_response", "resps"} & names) or is_flat_lighteval(names)


def holds_logits(key: str, keys: Iterable[str]) -> bool | None:
    """Whether a name says that it holds logits; None if it says nothing."""
    if key in LOGIT_KEYS or key == LIGHTEVAL.probabilities:
        return True
    if key == PREDICTIONS_KEY and (TRAINER_LABELS_KEY in keys or is_flat_lighteval(keys)):
        return True
    return False if key in PROBABILITY_KEYS else None


def is_unnamed(name: str) -> bool:
    """Whether a column has no name of its own."""
    return _UNNAMED.fullmatch(name.strip()) is not None


def is_index(name: str) -> bool:
    """Whether a column is called as an index that was saved along."""
    return is_unnamed(name) or is_saved_index(name) or name in _INDEX_WORDS


def is_saved_index(name: str) -> bool:
    """Whether a frame's index was kept under this name."""
    return _SAVED_INDEX.fullmatch(name) is not None


def are_numbers(names: Iterable[str]) -> bool:
    """Whether all names are whole numbers, so that labels which are numbers are names, too."""
    return all(name.isascii() and name.isdigit() for name in names)


def as_class_names(names: Any, n_classes: int) -> list[str] | None:
    """Return one name per class from a sequence or {index: name}; None stays None."""
    if names is None:
        return None
    aligned = align_classes(names, None, n_classes, "class_names")
    return checked_names(aligned.tolist(), "'class_names'")


def checked_names(names: Iterable[object], owner: str) -> list[str]:
    """Class names as text that files can hold: no half of a character."""
    texts = [str(name) for name in names]
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{owner} must be text that UTF-8 can hold. Got {error.object[error.start]!r}."
        ) from None
    return texts


def count_up(names: Iterable[str]) -> bool:
    """Whether the names are 0, 1, 2, ...: of a frame made from an array, which name nothing."""
    return all(name == str(place) for place, name in enumerate(names))
