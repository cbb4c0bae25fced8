"""Save and load predictors as safetensors with JSON metadata; loading runs no code.

A file holds the parameters and records of `predictors.fit.Fit`, each array once.
"""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import evencover
from evencover.arrays import Array
from evencover.data.location import as_location, existing_file, reading
from evencover.errors import InputError, one_line
from evencover.output.atomic import atomic_path, check_output
from evencover.predictors import BasePredictor, predictor_class
from evencover.predictors.fit import Fit, checksum
from evencover.scores import make_score

FORMAT = 2  # 1 is that of evencover 1.0
_KEY = "evencover"


def save(predictor: BasePredictor, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a calibrated predictor to a file; overwrite only with `force`."""
    if not isinstance(predictor, BasePredictor):
        remedy = "; save its 'predictor_'" if hasattr(predictor, "predictor_") else ""
        raise InputError(f"save must get a predictor. Got {type(predictor).__name__}{remedy}.")
    from safetensors.numpy import save as to_bytes

    metadata, arrays = Fit.of(predictor).to_arrays()
    path = check_output(path, force=force)
    metadata = {"format": FORMAT, "version": evencover.__version__, **metadata}
    metadata["checksum"] = checksum(metadata, arrays)
    with atomic_path(path) as temporary:
        temporary.write_bytes(to_bytes(arrays, {_KEY: json.dumps(metadata)}))


def load(path: str | os.PathLike[str]) -> BasePredictor:
    """Read a predictor that `save` wrote; check its checksum, types and shapes."""
    path = Path(path)
    existing_file(path)
    metadata, arrays = _read(path)
    try:
        if metadata.pop("checksum", None) != checksum(metadata, arrays):
            raise InputError("its content does not fit its checksum")
        return _restored(metadata, arrays)
    except KeyError as error:
        problem = f"{error} is missing or unknown"
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        problem = one_line(error)
    raise InputError(f"Cannot read '{path}': the model is damaged ({problem}).")


def _restored(metadata: dict[str, Any], arrays: dict[str, Array]) -> BasePredictor:
    """Build a predictor from what `Fit.to_arrays` returned."""
    cls, parameters = predictor_class(metadata["method"]), metadata["parameters"]
    predictor = cls(**parameters | {"score": make_score(parameters["score"])})
    missing = predictor.get_params().keys() - parameters.keys()
    if missing:
        raise InputError(f"it lacks {', '.join(sorted(missing))}")
    fit = Fit.from_arrays(deepcopy(predictor), metadata["fit"], arrays)
    _ = fit.rule  # raises if the score does not fit the classes
    predictor.fit_ = fit
    return predictor


def is_model(path: str | os.PathLike[str]) -> bool:
    """Return whether `save` wrote the file; safetensors may also contain data."""
    from safetensors import safe_open

    location = as_location(path)
    if location.suffix.lower() != ".safetensors" or not isinstance(location, Path):
        return False
    with reading(existing_file(location)), safe_open(location, framework="numpy") as file:
        return _KEY in (file.metadata() or {})


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    from safetensors import safe_open

    with reading(path), safe_open(path, framework="numpy") as file:
        text = (file.metadata() or {}).get(_KEY)
        if text is None:
            raise InputError(f"Cannot read '{path}': it was not written by evencover.")
        metadata = json.loads(text)
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            writer = metadata.get("version") if isinstance(metadata, dict) else None
            raise InputError(
                f"Cannot read '{path}': its format must be {FORMAT}. Got one of evencover "
                f"{writer}; calibrate again with this version."
            )
        return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
