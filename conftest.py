"""One thread of linear algebra per worker, since workers are as many as cores.

Doctests of the C++ wrapper are collected only where the kernels were built, and those of the
service only where its extra is installed.
"""

import gc
import importlib.util
import os

import pytest

# Read when NumPy is imported, which is later.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

collect_ignore = []
if importlib.util.find_spec("evencover._kernels._native") is None:
    collect_ignore.append("src/evencover/_kernels/native.py")
if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("msgspec") is None:
    collect_ignore += [f"src/evencover/serving/{name}.py" for name in ("bodies", "http")]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Thousands of tests live until the end: the garbage collector need not look at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
