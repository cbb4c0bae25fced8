"""Save and load predictors as safetensors with JSON metadata; loading runs no code.

Each method declares its state (`BasePredictor.state`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import evencover
from evencover.arrays import Array
from evencover.data.formats.arrays import safetensors_metadata
from evencover.data.location import as_location, existing_file, reading
from evencover.errors import InputError, NotFittedError, one_line
from evencover.output.atomic import atomic_path, reject_existing
from evencover.predictors import BasePredictor, predictor_class
from evencover.predictors.state import BY_CLASS, checksum, content_of, damage
from evencover.quantiles import Thresholds
from evencover.scores import make_score

FORMAT = 1
_KEY = "evencover"


def save(predictor: BasePredictor, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a calibrated predictor to a file; overwrite only with `force`."""
    if not isinstance(predictor, BasePredictor):
        remedy = "; save its 'predictor_'" if hasattr(predictor, "predictor_") else ""
        raise InputError(f"save must get a predictor. Got {type(predictor).__name__}{remedy}.")
    if not hasattr(predictor, "thresholds_"):
        raise NotFittedError(f"This {type(predictor).__name__} is not calibrated yet.")
    from safetensors.numpy import save as to_bytes

    path = reject_existing(path, force=force)
    about, arrays = content_of(predictor)
    about = {"format": FORMAT, "version": evencover.__version__, **about}
    about["checksum"] = checksum(about, arrays)
    with atomic_path(path) as temporary:
        temporary.write_bytes(to_bytes(arrays, {_KEY: json.dumps(about)}))


def load(path: str | os.PathLike[str]) -> BasePredictor:
    """Read a predictor that `save` wrote; check its checksum, types and shapes."""
    path = Path(path)
    existing_file(path)
    about, arrays = _read(path)
    try:
        if about.pop("checksum", None) != checksum(about, arrays):
            raise InputError("its content does not fit its checksum")
        if about["parameters"]["alpha"] == BY_CLASS:
            about["parameters"]["alpha"] = arrays["alpha"]
        predictor = _unfitted(about)
        state = {
            name: about["fitted"][name] if field.shape is None else arrays.get(name)
            for name, field in predictor.all_state().items()
        }
        parts: Any = (state.pop(f"limits_.{part}") for part in Thresholds._fields)
        predictor.limits_ = Thresholds(*parts)
        for name, value in state.items():
            setattr(predictor, name, value)
        problem = damage(predictor)
        if not problem:
            predictor._restore()
            _ = predictor.class_alpha  # fits the classes
    except KeyError as error:
        problem = f"{error} is missing or unknown"
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        problem = one_line(error)
    if problem:
        raise InputError(f"Cannot read '{path}': the model is damaged ({problem}).")
    return predictor


def is_model(path: str | os.PathLike[str]) -> bool:
    """Return whether `save` wrote the file; safetensors may also contain data."""
    location = as_location(path)
    if location.suffix.lower() != ".safetensors":
        return False
    with reading(existing_file(location)):
        return _KEY in safetensors_metadata(location)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    from safetensors import safe_open

    with reading(path), safe_open(path, framework="numpy") as file:
        text = (file.metadata() or {}).get(_KEY)
        if text is None:
            raise InputError(f"Cannot read '{path}': it was not written by evencover.")
        about = json.loads(text)
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            writer = about.get("version") if isinstance(about, dict) else None
            raise InputError(
                f"Cannot read '{path}': its format must be {FORMAT}. Got one of evencover {writer}."
            )
        return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _unfitted(about: dict[str, Any]) -> BasePredictor:
    stored = about["parameters"]
    cls = predictor_class(about["method"])
    predictor = cls(**{**stored, "score": make_score(stored["score"])})
    missing = predictor.get_params().keys() - stored.keys()
    if missing:
        raise InputError(f"it lacks {', '.join(sorted(missing))}")
    predictor._check_parameters()
    return predictor
