"""Kernels over the N x K matrix: arrays in, arrays out, one row block at a time.

The C++ kernels are used where available, else the NumPy reference. Their results are bit-identical.
``EVENCOVER_KERNELS=numpy`` or ``c++`` in the environment selects one. Kernels raise `BadRow` for
rows that are not probabilities.
"""

import os
from types import ModuleType

from evencover._kernels import reference
from evencover._kernels.reference import *  # noqa: F403 - mypy reads these, C++ replaces them
from evencover._kernels.types import *  # noqa: F403
from evencover.errors import InputError


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
globals().update({name: getattr(_chosen, name) for name in reference.__all__})
