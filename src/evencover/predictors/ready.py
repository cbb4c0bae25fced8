"""A few rows at a time: the rule made ready once, and no threads, sources or copies."""

from __future__ import annotations

from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from evencover._validation import FLOAT_TYPES, Array, plain_array
from evencover.predictors.method import Method
from evencover.predictors.rule import Rule

FEW_ELEMENTS = 1 << 16  # up to so many numbers it takes longer to start threads than to use one

# The rule of each predictor that was asked for a few rows, and what it was made of.
_ready: WeakKeyDictionary[Method, tuple[list[Any], Rule]] = WeakKeyDictionary()


def few_rows(predictor: Method, values: Any) -> Array | None:
    """An array or tensor that is small enough for one thread, as it is; None for all else."""
    if "row groups" in predictor.needs:
        return None
    if type(values) is not np.ndarray:
        if not hasattr(values, "detach"):
            return None
        values = plain_array(values)
    is_few = values.ndim == 2 and 0 < values.size <= FEW_ELEMENTS and values.dtype in FLOAT_TYPES
    has_classes = is_few and values.shape[1] == getattr(predictor, "n_classes_", 0)
    return values if has_classes else None


def ready_rule(predictor: Any) -> Rule:
    """Its rule, made anew only where a parameter or anything learnt is another object by now."""
    now = list(vars(predictor).values())
    before, rule = _ready.get(predictor, ((), None))
    if rule is not None and len(before) == len(now) and all(map(is_, before, now)):
        return rule
    rule = predictor.rule()
    # Limits that were computed from the thresholds would not see these edited in place.
    if rule.limits.upper is predictor.thresholds_:
        _ready[predictor] = now, rule
    return rule
