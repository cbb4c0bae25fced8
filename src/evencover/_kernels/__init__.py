"""Kernels over the N x K matrix: arrays in, arrays out, one row block at a time.

The C++ kernels are used where available, else the NumPy reference. Their results are bit-identical.
``EVENCOVER_KERNELS=numpy`` or ``c++`` in the environment selects one. Kernels raise `BadRow` for
rows that are not probabilities.
"""

import os
from functools import wraps
from types import ModuleType
from typing import Any

from evencover._kernels import listed, reference
from evencover._kernels.reference import *  # noqa: F403 - mypy reads these, C++ replaces them
from evencover._kernels.types import *  # noqa: F403
from evencover._kernels.types import BadRow
from evencover.errors import InputError
from evencover.topk import TopK


def _choose(wanted: str) -> ModuleType:
    if wanted not in ("", "numpy", "c++"):
        raise InputError(
            "The environment variable EVENCOVER_KERNELS must be 'numpy' or 'c++'. "
            f"Got {wanted!r} instead; unset it to use the fastest available."
        )
    if wanted == "numpy":
        return reference
    try:
        from evencover._kernels import native
    except ImportError as error:
        if wanted == "c++":
            raise InputError(
                "The environment variable EVENCOVER_KERNELS is 'c++', but the C++ kernels were not "
                f"built ({error}); reinstall evencover with a C++17 compiler, or use 'numpy'."
            ) from error
        return reference
    return native


_chosen = _choose(os.environ.get("EVENCOVER_KERNELS", "").strip().lower())


def _for_any_rows(name: str) -> Any:
    """Return the kernel; for rows of which only some classes are listed, that of `listed`."""
    kernel = getattr(_chosen, name, None)
    for_listed = getattr(_chosen, f"listed_{name}", getattr(listed, name, None))
    if for_listed is None:
        return kernel

    @wraps(for_listed)
    def chosen(*arguments: Any, **options: Any) -> Any:
        if kernel is not None and TopK not in map(type, arguments[:2]):
            return kernel(*arguments, **options)
        try:
            return for_listed(*arguments, **options)
        except BadRow:
            return for_listed(*listed.divided(*arguments), **options)

    return chosen


globals().update({name: _for_any_rows(name) for name in reference.__all__})
score_entries = _for_any_rows("score_entries")
