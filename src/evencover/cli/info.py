"""``evencover info``: describe a model, a data file or this installation."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import evencover
from evencover import _kernels
from evencover.arrays import FloatArray, IntArray
from evencover.cli.console import print_text
from evencover.cli.options import READ, Input, Json, print_json
from evencover.data.source import Source
from evencover.predictors import BasePredictor
from evencover.predictors.acceptance import Acceptance
from evencover.predictors.fit import Fit
from evencover.quantiles import is_per_class
from evencover.scores import make_score
from evencover.threads import n_threads

UNCLEAR = "no probabilities, some are below 0; if they are logits, use --logits"
# Titles of values, where they are not their names in JSON.
TITLES = {
    "n_rows": "rows",
    "n_classes": "classes",
    "n_calibration": "calibration examples",
    "n_unknown_labels": "unknown labels",
    "holds": "numbers are",
    "n_classes_without_examples": "classes without examples",
    "n_classes_below_9_examples": "classes below 9 examples",
    "guaranteed_coverage": "guaranteed, by class",
    "n_infinite_thresholds": "classes always included",
    "keep_top": "top class always included",
    "from_logits": "reads logits",
    "random_state": "seed",
}
SHARES = ("guaranteed_coverage", "accuracy", "recall_at_k", "recall_at_k_of_capped_classes")


def of_model(predictor: BasePredictor) -> dict[str, Any]:
    """Describe a model: guarantee, method, parameters, and thresholds."""
    levels = predictor.fit_.alpha
    description: dict[str, Any] = {
        "guarantee": predictor.guarantee_text,
        "guaranteed_coverage": _spread(predictor.guarantees_),
        "method": predictor.method,
        "alpha": str(levels if is_per_class(predictor.alpha) else predictor.alpha),
        "class_alpha": None if levels.is_one else levels.floats.tolist(),
        **_parameters(predictor),
        "n_classes": predictor.n_classes_,
        "n_calibration": predictor.n_calibration_,
        "examples_per_class": _spread(predictor.class_counts_),
        "n_infinite_thresholds": int(np.isinf(predictor.thresholds_).sum()),
        **_recall(predictor),
        "answers": _answers(predictor.acceptance_),
        **Fit.of(predictor).fitted_values,
    }
    return description | {
        "capped_classes": predictor.fit_.capped_shares,
        "thresholds": predictor.thresholds_.tolist(),
        "guarantees": predictor.guarantees_.tolist(),
        "class_counts": predictor.class_counts_.tolist(),
        "class_names": predictor.class_names_ and list(predictor.class_names_),
    }


def _answers(acceptance: Acceptance | None) -> dict[str, Any] | None:
    """Return the target of answers, their levels, and how many nodes answer."""
    if acceptance is None:
        return None
    return {
        "accuracy": acceptance.accuracy,
        "confidence": acceptance.confidence,
        "levels": " > ".join(acceptance.level_names),
        "for every class": acceptance.per_class,
        "classes and groups that answer": int(acceptance.can_answer.sum()),
    }


def _recall(predictor: BasePredictor) -> dict[str, Any]:
    """Return recall at k of the calibration rows, and that of classes without a threshold."""
    recall, names = predictor.fit_.recall, ("recall", "low", "high")
    if recall is None:
        return {}
    shares = {"recall_at_k": recall.interval()}
    if recall.counts[recall.capped].any():
        shares["recall_at_k_of_capped_classes"] = recall.interval(recall.capped)
    return {key: dict(zip(names, share.tolist(), strict=True)) for key, share in shares.items()}


def _parameters(predictor: BasePredictor) -> dict[str, Any]:
    """Return the parameters but alpha, as plain values; "as given" stands for one per class."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict | list | tuple | np.ndarray):
            return "as given"
        return value if isinstance(value, bool | int | float | str | None) else str(value)

    parameters = {name: plain(value) for name, value in predictor.get_params().items()}
    del parameters["alpha"]
    score = make_score(predictor.score).to_dict()
    return parameters | {"score": score, "keep_top": predictor.fit_.keep_top}


def of_data(source: Source) -> dict[str, Any]:
    """Describe data: rows, classes and, with labels, accuracy and class counts."""
    n_rows, n_right, lowest = 0, 0, np.inf
    counts = np.zeros(source.n_classes, dtype=np.int64)
    for block in source.blocks():
        n_rows += len(block.rows)
        lowest = min(lowest, float(block.rows.ravel().min(initial=np.inf)))
        if block.labels is not None:
            n_right += int((block.rows.argmax(axis=1) == block.labels).sum())
            counts += np.bincount(block.labels, minlength=source.n_classes)[: source.n_classes]
    description: dict[str, Any] = {
        "n_rows": n_rows,
        "n_classes": source.n_classes,
        "holds": "logits" if source.logits else "probabilities" if lowest >= 0 else UNCLEAR,
        "has_labels": source.has_labels,
        "has_class_names": source.class_names is not None,
    }
    columns = {"used": dict(source.columns.used), "left_out": dict(source.columns.left_out)}
    description |= {name: names for name, names in columns.items() if names}
    if source.has_labels:
        description |= {
            "accuracy": n_right / n_rows,
            "n_unknown_labels": n_rows - int(counts.sum()),
            "examples_per_class": _spread(counts),
            "n_classes_without_examples": int((counts == 0).sum()),
            "n_classes_below_9_examples": int((counts < 9).sum()),
        }
    return description


def _spread(values: IntArray | FloatArray) -> dict[str, float]:
    quantiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    return dict(zip(("min", "q25", "median", "q75", "max"), quantiles.tolist(), strict=True))


def show(description: dict[str, Any]) -> None:
    """Print a description; long lists are summed up."""
    description = dict(description)
    if "score" in description:
        score = dict(description["score"])
        description["score"] = ", ".join([score.pop("name"), *([_text(score)] if score else [])])
    thresholds = description.pop("thresholds", None)
    names = description.pop("class_names", None)
    for name in ("capped_classes", "class_alpha", "class_counts", "guarantees"):
        description.pop(name, None)
    if thresholds is not None:
        finite = np.array([value for value in thresholds if np.isfinite(value)])
        description["finite thresholds"] = _spread(finite) if len(finite) else "none"
        description["class names"] = "none" if names is None else ", ".join(names[:5]) + ", ..."
    for name, value in description.items():
        if value is not None and value != []:
            title = TITLES.get(name, name.replace("_", " "))
            print_text(f"{title:<28}{_text(value, is_share=name in SHARES)}")


def _text(value: Any, *, is_share: bool = False) -> str:
    if isinstance(value, dict):
        is_words = all(isinstance(item, str) for item in value.values())
        between, apart = (": ", "; ") if is_words else (" ", ", ")
        pairs = (
            (name or "unnamed", _text(item, is_share=is_share)) for name, item in value.items()
        )
        return apart.join(f"{name}{between}{text}" for name, text in pairs)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1%}" if is_share else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def run(file: str | None = None, /, *, as_json: Json = False, read: Input = READ) -> None:
    """Describe a model, a data file or this installation.

    Parameters
    ----------
    file
        Model or data; without it, describe this installation.
    """
    from evencover.persistence import is_model, load

    if file is None:
        description: dict[str, Any] = {
            "evencover": evencover.__version__,
            "kernels": _kernels.NAME,
            "threads": n_threads(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
    elif is_model(file):
        description = of_model(load(file))
    else:
        description = of_data(read.open(file, "reading"))
    if as_json:
        print_json(description)
    else:
        show(description)
