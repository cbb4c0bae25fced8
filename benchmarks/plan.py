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
    agreement_rows : test rows whose sets are compared.
    crepes_rows : the same for crepes, by method: too slow for more rows, and so not timed.
    memory_times : how often the test rows are repeated in the large file; 0 skips it.
    one_row_calls : rows that are predicted one at a time.
    """

    peers: tuple[str, ...]
    n_rows: int
    n_classes: int
    repetitions: int
    agreement_rows: int
    crepes_rows: dict[str, int]
    memory_times: int
    one_row_calls: int


FULL = Plan(
    peers=PEERS,
    n_rows=50_000,
    n_classes=1000,
    repetitions=3,
    agreement_rows=10_000,
    crepes_rows={"standard": 100, "classwise": 2},
    memory_times=20,
    one_row_calls=400,
)

SMALL = Plan(
    peers=(),
    n_rows=2_000,
    n_classes=50,
    repetitions=2,
    agreement_rows=2_000,
    crepes_rows={},
    memory_times=10,
    one_row_calls=20,
)

# With peers, each of which takes seconds to start.
QUICK = replace(SMALL, peers=PEERS, repetitions=1, crepes_rows={"standard": 20, "classwise": 2})
