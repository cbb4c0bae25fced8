"""What the NumPy kernels read from rows: probabilities, and where classes stand among them.

Sums of probabilities are taken in 64-bit fixed point (p * 2**52, rounded once), which is exact
and so the same in any order: with a sort, without one, or stopped early.
"""

from __future__ import annotations

import math

import numpy as np

from evencover._kernels.bad_row import BadRow
from evencover._validation import Array, FloatArray, IntArray, is_near_one

FIXED_POINT = 2.0**52

# 12! down to 0!, for Horner's scheme after the first coefficient 1 / 13!.
_FACTORIALS = [float(math.factorial(n)) for n in range(12, -1, -1)]


def exp_nonpositive(x: FloatArray) -> FloatArray:
    """exp(x) for x <= 0 from IEEE basic operations only.

    Libraries' exp differ in the last bit, which would move scores between machines and kernels.
    Cody-Waite reduction and a degree-13 Taylor polynomial: within 2 ulp; 0 below -700.
    """
    x = np.maximum(x, -701.0)
    k = np.rint(x * 1.4426950408889634)
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    value = np.full_like(r, 1.0 / math.factorial(13))
    for factorial in _FACTORIALS:
        value = value * r + 1.0 / factorial
    return np.where(x < -700.0, 0.0, np.ldexp(value, k.astype(np.int32)))


def probabilities(rows: Array, *, logits: bool, temperature: float) -> FloatArray:
    """The rows as float64 probabilities; `BadRow` if they are none.

    Logits go through a stable softmax whose denominator is summed in fixed point.
    """
    n_classes = rows.shape[1]
    p = rows.astype(np.float64, copy=False)
    if not logits:
        in_range = ((p >= 0) & (p <= 2)).all(axis=1)  # False for NaN
        with np.errstate(invalid="ignore", over="ignore"):
            total = fixed_point(p).sum(axis=1)
            wraps = ~(p.sum(axis=1) < 2)  # 4097 ones are 1 again in 64 bits
            near = is_near_one(np.abs(total / FIXED_POINT - 1), rows)
        bad = ~(in_range & near) | wraps
        _refuse(bad)
        return p
    top = p.max(axis=1, keepdims=True)
    bad = ~np.isfinite(top[:, 0])  # NaN and +inf spread to the maximum; -inf is a masked class
    _refuse(bad)
    e = exp_nonpositive((p - top) / temperature)
    scale = 2.0 ** (62 - n_classes.bit_length())  # the sum of K values <= scale fits 63 bits
    total = np.rint(e * scale).astype(np.int64).sum(axis=1)
    return e / (total.astype(np.float64) / scale)[:, None]


def _refuse(bad: Array) -> None:
    if bad.any():
        raise BadRow(int(bad.argmax()))


def fixed_point(p: FloatArray) -> IntArray:
    """Probabilities as whole multiples of 2**-52."""
    return np.rint(p * FIXED_POINT).astype(np.int64)


def label_position(p: FloatArray, labels: IntArray) -> tuple[FloatArray, IntArray]:
    """Mass before each row's label in decreasing order of probability, and its 1-based rank.

    One pass, no sort. Equal probabilities are ordered by class index.
    """
    own = p[np.arange(len(labels)), labels][:, None]
    columns = np.arange(p.shape[1])
    before = (p > own) | ((p == own) & (columns < labels[:, None]))
    mass = np.where(before, fixed_point(p), 0).sum(axis=1)
    return mass / FIXED_POINT, before.sum(axis=1) + 1


def positions(p: FloatArray) -> tuple[FloatArray, IntArray]:
    """`label_position` for every class at once: (n, K) masses and ranks."""
    order = np.argsort(-p, axis=1, kind="stable")
    mass = np.zeros(p.shape, dtype=np.int64)
    np.cumsum(np.take_along_axis(fixed_point(p), order, axis=1)[:, :-1], axis=1, out=mass[:, 1:])
    before, rank = np.empty_like(mass), np.empty_like(mass)
    np.put_along_axis(before, order, mass, axis=1)
    np.put_along_axis(rank, order, np.arange(1, p.shape[1] + 1)[None, :], axis=1)
    return before / FIXED_POINT, rank
