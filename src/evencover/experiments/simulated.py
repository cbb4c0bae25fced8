"""Simulate data sets with published class counts and a tuned latent space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.readers import RawBlock, Reader, rows_per_block, rows_per_part
from evencover.data.source import Contents, Labels, Source
from evencover.randomness import RandomStream, check_random_state, random_order, row_indices
from evencover.threads import map_on_threads
from evencover.validation import raise_unknown, real_number


class _Parameters(NamedTuple):
    """Published class counts of a score file, and a latent space that was tuned to its results.

    CMA-ES tuned the latent space, so that CovGap and AvgSize of STANDARD, CLASSWISE and CLUSTERED
    with softmax, APS and RAPS come near those of Ding et al. (2023). The bends follow from the
    published share of the rarest 5% of the classes and from the total.
    """

    n_rows: int
    n_classes: int
    count_quantiles: tuple[float, ...]  #: rows per class at the levels `SHARES`
    count_bends: tuple[float, float]  #: exponents of the counts' curve in its first and last part
    dimensions: int  #: of the latent space
    separation: float  #: distance of class centers from the origin, in units of a row's noise
    group_size: float  #: classes per group of confusable ones
    group_share: float  #: share of the centers' variance that a group has in common
    class_spread: float  #: standard deviation of the logarithm of the classes' noise
    class_skew: float  #: its skew
    class_awareness: float  #: exponent by which noisy classes have flatter logits; 2: calibrated
    confidence_spread: float  #: how much overconfidence differs, independently of the noise
    row_spread: float  #: as `class_spread`, for the rows within a class
    row_skew: float
    row_awareness: float
    sharpness: float  #: factor of all logits; above 1 is overconfident
    haze: float  #: weight of the fourth root of the odds: the tail of small probabilities
    prior: float  #: weight of the logarithm of the class counts in the logits


# fmt: off
SIMULATED = {
    "imagenet": _Parameters(
        1153051, 1000, (663, 1159, 1168, 1176, 1184, 1201), (7.730595649796566, 50.0),
        24, 5.9, 11.8, 0.12, 0.13, 0.285, 0.664, 0.11, 0.342, 0.1, 1.38, 1.07, 0.034, 0.0,
    ),
    "cifar-100": _Parameters(
        30000, 100, (257, 290, 301.5, 310.25, 316.1, 330), (7.87635255118857, 50.0),
        31, 2.98, 4.19, 0.626, 0.0868, 0.328, 0.177, 0.0591, 0.395, -0.166, 1.44, 0.711, 0.000217,
        0.0,
    ),
    "places365": _Parameters(
        183996, 365, (300, 493, 508, 523, 538.6, 576), (7.698319255270021, 50.0),
        29, 3.95, 8.83, 0.427, 0.102, 0.142, 0.667, 0.0318, 0.36, -0.194, 1.2, 0.926, 9.21e-05, 0.0,
    ),
    "inaturalist": _Parameters(
        1324900, 633, (250, 373, 697, 1822, 5099.4, 68838),
        (0.7959224150384663, 12.106862045252383), 21, 4.95, 8.0, 0.474, 0.194, 0.129, 0.938, 0.142,
        0.317, -0.0594, 1.19, 0.961, 0.00378, 0.651,
    ),
}
# fmt: on
SHARES = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 1.0])  # levels of `count_quantiles`


def class_counts(parameters: _Parameters, n_classes: int | None = None) -> IntArray:
    """Return ascending rows per class along the published quantiles; they sum to n_rows.

    With fewer classes, neighbors are merged and their counts averaged. Rows per class and imbalance
    stay the same.
    """
    n_rows, share = parameters.n_rows, np.linspace(0, 1, parameters.n_classes)
    last = len(SHARES) - 2
    part = np.minimum(np.searchsorted(SHARES, share, side="right") - 1, last)
    t = (share - SHARES[part]) / np.diff(SHARES)[part]
    quantiles, (bend_low, bend_high) = np.array(parameters.count_quantiles), parameters.count_bends
    height = np.where(part == 0, 1 - (1 - t) ** bend_low, np.where(part == last, t**bend_high, t))
    curve = quantiles[part] + (quantiles[part + 1] - quantiles[part]) * height
    curve[1:-1] *= (n_rows - curve[0] - curve[-1]) / curve[1:-1].sum()  # by 0.2% at most
    counts = _rounded(curve, n_rows)
    if n_classes is None or n_classes == len(counts):
        return counts
    total = np.interp(
        np.linspace(0, len(counts), n_classes + 1),
        np.arange(len(counts) + 1),
        np.append(0, np.cumsum(counts)),
    )
    ratio = n_classes / len(counts)
    return _rounded(np.diff(total) * ratio, round(n_rows * ratio))


def _rounded(values: FloatArray, total: int) -> IntArray:
    """Round to integers that sum to `total`, preserving their order."""
    ends = np.rint(np.cumsum(values)).astype(np.int64)
    ends[-1] = total
    return np.sort(np.diff(ends, prepend=0))


# Points and centers are bounded multiples of these steps. Their products are integers below 2**24
# steps, so the float32 matrix product is exact in any order.
POINT_STEP, POINT_LIMIT = 2.0**-4, 32.0
CENTRE_STEP, CENTRE_LIMIT = 2.0**-6, 8.0

# Random numbers per row and per class.
SLOTS = 64
EXTRA_SLOT, ORDER_SLOT = SLOTS - 2, SLOTS - 1


def load_simulated(name: str, *, scale: float = 1.0, random_state: int = 0) -> Source:
    """Simulate one of the paper's score files.

    Parameters
    ----------
    name
        "imagenet", "cifar-100", "places365" or "inaturalist".
    scale
        Fraction of the classes, in (0, 1]; rows per class and imbalance stay the same. At least 10
        classes are kept.
    random_state
        Random seed of classes and rows.

    Returns
    -------
    Source
        Rows that are computed whenever they are read. ``reader.rows(start, stop)`` computes some.

    Notes
    -----
    A row of class y is a point ``x = c_y + s e`` of a latent space: c_y is the center of its class,
    e standard noise and ``s = s_y s_row`` its scale. Classes differ in difficulty, and so do the
    rows of a class. The logits are those of linear discriminant analysis, ``x . c_k - |c_k|^2 /
    2``, times a sharpness that decreases with s. The probabilities are proportional to ``v + haze
    v^(1/4)``, where ``v = exp(logit - largest logit)``.

    Class counts follow the score files of Ding et al. (2023), "Class-conditional conformal
    prediction with many classes". The other parameters were tuned to their CovGap and AvgSize.

    Examples
    --------
    >>> from evencover.experiments import load_simulated
    >>> source = load_simulated("cifar-100", scale=0.1)
    >>> source.n_rows, source.n_classes
    (3000, 10)
    """
    if name not in SIMULATED:
        raise_unknown("simulated data set", name, SIMULATED)
    parameters = SIMULATED[name]
    scale = real_number(scale, "scale", "load_simulated", 0, 1, open_low=True)
    n_classes = min(parameters.n_classes, max(10, round(scale * parameters.n_classes)))
    classes = _SimulatedClasses(
        parameters, n_classes, check_random_state(random_state, "load_simulated")
    )
    reader = SimulatedReader(
        classes=classes,
        class_of_row=classes.class_of_row(),
        n_classes=n_classes,
        n_rows=int(classes.counts.sum()),
        name=f"simulated {name}",
    )
    return Source.of(Contents(reader=reader, labels=Labels(reader.class_of_row)))


class _SimulatedClasses:
    """Centers, noise and sharpness of the classes: functions of the parameters and the seed."""

    def __init__(self, parameters: _Parameters, n_classes: int, random_state: int) -> None:
        self.parameters, self.random_state, self.n_classes = parameters, random_state, n_classes
        p = parameters
        self.counts = class_counts(p, n_classes)[self._shuffled(0)]
        # Stratified: every seed has the same difficulties, assigned to different classes.
        noise = np.exp(p.class_spread * _skewed(_normal_scores(n_classes), p.class_skew))
        confidence = np.exp(p.confidence_spread * _normal_scores(n_classes))
        self.noise = noise[self._shuffled(1)]
        self.sharpness = p.sharpness * confidence[self._shuffled(2)]
        self.sharpness *= self.noise**-p.class_awareness

        n_groups = max(2, round(n_classes / p.group_size))
        group = self._shuffled(3) % n_groups
        own = self._class_normals(0)
        shared = self._class_normals(n_classes)[group]
        centers = np.sqrt(1 - p.group_share) * own + np.sqrt(p.group_share) * shared
        # Fewer classes are easier to separate, so their centers are closer.
        nearer = np.sqrt(np.log(n_classes) / np.log(p.n_classes))
        centers *= nearer * p.separation / np.sqrt(p.dimensions)
        self.centers = _in_steps(centers, CENTRE_STEP, CENTRE_LIMIT)
        # Less than a step of the products, to avoid ties between classes.
        between_steps = self._shuffled(4) / n_classes * CENTRE_STEP * POINT_STEP
        self.offsets = (
            p.prior * np.log(self.counts / self.counts.mean())
            - (self.centers.astype(np.float64) ** 2).sum(axis=1) / 2
            + between_steps
        ).astype(np.float32)

    def class_of_row(self) -> IntArray:
        """Return the class of every row (N,), in random order."""
        ids = _slot_ids(int(self.counts.sum()), ORDER_SLOT)
        order = random_order(self.random_state, RandomStream.SIMULATED_ROWS, ids)
        return np.repeat(np.arange(self.n_classes), self.counts)[order]

    def _shuffled(self, purpose: int) -> IntArray:
        """Return a random order of the classes for one purpose."""
        ids = _slot_ids(self.n_classes, purpose) + np.uint64(1 << 32)
        return random_order(self.random_state, RandomStream.SIMULATED_CLASSES, ids)

    def _class_normals(self, first: int) -> FloatArray:
        """Draw standard normal coordinates, one row for each of K classes or groups."""
        ids = (row_indices(first, first + self.n_classes) * np.uint64(SLOTS))[:, None]
        return self.normals(
            RandomStream.SIMULATED_CLASSES,
            ids + np.arange(self.parameters.dimensions, dtype=np.uint64),
        )

    def normals(self, use: RandomStream, ids: Array) -> FloatArray:
        """Scale sums of four 16-bit uniforms: nearly normal, and identical everywhere."""
        bits = _kernels.random_bits(self.random_state, int(use), ids.ravel())
        total = bits.view(np.uint16).reshape(*ids.shape, 4).sum(axis=-1, dtype=np.int64)
        return (total - 2 * (2**16 - 1)) * (np.sqrt(3.0) / 2**16)


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedReader(Reader):
    """Computes rows; every row is a function of (seed, row id)."""

    classes: _SimulatedClasses
    class_of_row: IntArray

    def rows(self, start: int, stop: int) -> Array:
        """Compute probabilities of rows `start` to `stop` - 1 as float32."""
        classes, class_of_row = self.classes, self.class_of_row[start:stop]
        p, first = classes.parameters, self.first_row + start
        ids = row_indices(first, first + len(class_of_row))[:, None] * np.uint64(SLOTS)
        slots = np.append(np.arange(p.dimensions), EXTRA_SLOT).astype(np.uint64)
        normals = classes.normals(RandomStream.SIMULATED_ROWS, ids + slots)
        difficulty = np.exp(p.row_spread * _skewed(normals[:, -1], p.row_skew))
        points = normals[:, :-1] * (classes.noise[class_of_row] * difficulty)[:, None]
        points += classes.centers[class_of_row]
        rows = _in_steps(points, POINT_STEP, POINT_LIMIT) @ classes.centers.T
        rows += classes.offsets
        sharpness = classes.sharpness[class_of_row] * difficulty**-p.row_awareness
        rows *= sharpness.astype(np.float32)[:, None]
        rows -= rows.max(axis=1, keepdims=True)
        np.exp(rows, out=rows)
        tail = np.sqrt(rows)
        np.sqrt(tail, out=tail)
        tail *= np.float32(p.haze)
        rows += tail
        rows /= rows.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
        return rows

    def row_blocks(self) -> Iterator[RawBlock]:
        """Compute blocks ahead on threads."""
        step = rows_per_block(self.n_classes)
        starts = range(0, len(self.class_of_row), step)
        return map(RawBlock, map_on_threads(lambda i: self.rows(i, i + step), starts))

    def split(self) -> list[Reader]:
        """Split into ranges of rows, which workers compute."""
        step = rows_per_part(self.n_classes)
        starts = range(0, len(self.class_of_row), step)
        classes = [self.class_of_row[start : start + step] for start in starts]
        return [
            replace(self.cut(start, len(part)), class_of_row=part)
            for start, part in zip(starts, classes, strict=True)
        ]


def _skewed(normal: FloatArray, skew: float) -> FloatArray:
    """Skew normal numbers: (exp(skew z) - 1) / skew."""
    return np.expm1(skew * normal) / skew


def _normal_scores(n: int) -> FloatArray:
    from scipy.special import ndtri

    return ndtri((np.arange(n) + 0.5) / n)


def _in_steps(values: FloatArray, step: float, limit: float) -> Array:
    return (np.rint(values / step) * step).clip(-limit, limit).astype(np.float32)


def _slot_ids(n: int, slot: int) -> Array:
    """Return ids of the random numbers of n rows, or classes, in one slot."""
    return row_indices(0, n) * np.uint64(SLOTS) + np.uint64(slot)
