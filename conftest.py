"""Doctests of the C++ wrapper are collected only where the kernels were built."""

import importlib.util

collect_ignore = []
if importlib.util.find_spec("evencover._kernels._native") is None:
    collect_ignore.append("src/evencover/_kernels/native.py")
