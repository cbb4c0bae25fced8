"""Files of torch.save: a tensor, a pair of tensors, or tensors under names; nothing is executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

from evencover._validation import InputError, plain_array
from evencover.data.formats.arrays import ONLY_ARRAY
from evencover.data.location import Location
from evencover.errors import needs


@contextmanager
def torch_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """The tensors, in memory; a pair is the numbers and the labels."""
    try:
        import torch
    except ImportError:
        raise needs("Files of torch.save", "torch", "torch") from None
    with nullcontext(location) if isinstance(location, Path) else location.open() as where:
        try:
            held = torch.load(where, map_location="cpu", weights_only=True)
        except UnpicklingError as error:
            raise InputError(
                f"Cannot read '{location}': it holds other things than tensors and plain values, "
                "or is damaged; save the tensors alone, torch.save({'probs': ..., 'labels': ...}, "
                "...), since nothing else in it is loaded."
            ) from error
    if isinstance(held, list | tuple) and len(held) == 2:
        held = {ONLY_ARRAY: held[0], "labels": held[1]}
    elif hasattr(held, "detach"):
        held = {ONLY_ARRAY: held}
    if not isinstance(held, Mapping):
        raise InputError(
            f"'{location}' must hold a tensor, a pair of tensors or a dictionary of tensors. "
            f"Got {type(held).__name__} instead."
        )
    is_array = {key: hasattr(value, "detach") for key, value in held.items()}
    yield {
        str(key): plain_array(value) if is_array[key] else np.asarray(value)
        for key, value in held.items()
        if is_array[key] or isinstance(value, list | tuple)
    }
