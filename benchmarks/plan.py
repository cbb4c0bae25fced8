"""Sizes of the full benchmark, and of small ones that only check the harness."""

from __future__ import annotations

from dataclasses import dataclass, replace

ALPHA = 0.1
OURSELVES = "evencover"
BASELINE = "numpy_sort"  # runs in our own environment
PEERS = ("torchcp", "mapie", "puncc", "crepes")

# Comparisons with evencover. The third entry is whether APS is randomized (the default of every
# package that offers it).
COMPARISONS: tuple[tuple[str, str, bool, tuple[str, ...]], ...] = (
    ("clustered", "aps", True, ("torchcp",)),
    ("standard", "aps", True, ("mapie", "puncc", "torchcp", BASELINE)),
    ("standard", "softmax", False, ("mapie", "puncc", "torchcp", BASELINE)),
    ("classwise", "softmax", False, ("puncc", "torchcp", BASELINE)),
)

# From the peers' source code; the table shows the resulting coverage and average size.
KNOWN_DIFFERENCES = {
    ("clustered", "aps", "torchcp"): (
        "classes too rare to cluster are always included; a uniform per class, so sets have holes"
    ),
    ("standard", "aps", "torchcp"): "a uniform per class at prediction, so sets have holes",
    ("standard", "aps", "numpy_sort"): "other random numbers",
    ("standard", "aps", "mapie"): "other random numbers",
    ("standard", "aps", "puncc"): "other random numbers",
}

# If definitions agree, sets must be equal. Methods that a peer lacks are reported.
AGREEMENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("standard", "softmax", ("mapie", "puncc", "torchcp", "crepes", BASELINE)),
    ("classwise", "softmax", ("puncc", "torchcp", "crepes", BASELINE)),
    ("standard", "aps", ("mapie", "puncc", "torchcp", BASELINE)),
)


@dataclass(frozen=True)
class Plan:
    """Sizes of a run.

    Attributes
    ----------
    peers : packages with an environment of their own.
    n_rows, n_classes : calibration rows and test rows each, and classes.
    repetitions : fresh processes per contestant in each comparison.
    repeats : measurements inside one process, for what takes only milliseconds.
    agreement_rows : test rows whose sets are compared.
    crepes_rows : the same for crepes, by method: too slow for more rows, and so not timed.
    scaling_rows, scaling_classes : (rows, classes) of the points of the two plots.
    memory_times : how often the test rows are repeated in the large file; 0 skips it.
    fit_shapes : (rows, classes) of the scores that POOLED and CLUSTERED are fitted on.
    n_splits : of `compare` on the bundled data.
    one_row_calls : rows that are predicted one at a time.
    """

    peers: tuple[str, ...]
    n_rows: int
    n_classes: int
    repetitions: int
    repeats: int
    agreement_rows: int
    crepes_rows: dict[str, int]
    scaling_rows: tuple[tuple[int, int], ...]
    scaling_classes: tuple[tuple[int, int], ...]
    memory_times: int
    fit_shapes: tuple[tuple[int, int], ...]
    n_splits: int
    one_row_calls: int


FULL = Plan(
    peers=PEERS,
    n_rows=50_000,
    n_classes=1000,
    repetitions=3,
    repeats=7,
    agreement_rows=10_000,
    crepes_rows={"standard": 100, "classwise": 2},
    scaling_rows=tuple((n, 1000) for n in (3_125, 6_250, 12_500, 25_000, 50_000)),
    scaling_classes=tuple((5_000, k) for k in (100, 300, 1_000, 3_000, 10_000)),
    memory_times=20,
    fit_shapes=((50_000, 1_000), (100_000, 10_000), (1_000_000, 10_000)),
    n_splits=10,
    one_row_calls=400,
)

SMALL = Plan(
    peers=(),
    n_rows=2_000,
    n_classes=50,
    repetitions=2,
    repeats=2,
    agreement_rows=2_000,
    crepes_rows={},
    scaling_rows=((500, 50), (1_000, 50), (2_000, 50)),
    scaling_classes=((500, 20), (500, 50), (500, 200)),
    memory_times=10,
    fit_shapes=((2_000, 50),),
    n_splits=2,
    one_row_calls=20,
)

# With peers, each of which takes seconds to start.
QUICK = replace(SMALL, peers=PEERS, repetitions=1, crepes_rows={"standard": 20, "classwise": 2})
