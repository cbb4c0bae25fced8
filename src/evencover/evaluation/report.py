"""evaluate(): how well sets cover each class, and the metrics that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from evencover._validation import (
    Array,
    FloatArray,
    InputError,
    IntArray,
    class_labels,
    import_pandas,
    whole_number,
)
from evencover.evaluation.binomial import clopper_pearson, covgap_noise_floor
from evencover.evaluation.confusions import Confusions
from evencover.quantiles import Alpha, exact_alpha
from evencover.sets import PredictionSets


class Tally(NamedTuple):
    """Counts that decide every metric; the tallies of two parts of the data add up.

    ``rows`` and ``covered`` (K,) count test rows, and those whose set holds their label, by class;
    ``sizes`` (K + 1,) counts sets by size.
    """

    rows: IntArray
    covered: IntArray
    sizes: IntArray

    @classmethod
    def zeros(cls, n_classes: int) -> Tally:
        """The tally of no rows."""
        return cls(*(np.zeros(n, dtype=np.int64) for n in (n_classes, n_classes, n_classes + 1)))

    @classmethod
    def of(cls, sets: PredictionSets, labels: IntArray) -> Tally:
        """Count one part of the data."""
        return cls.of_rows(labels, sets.contains(labels), sets.sizes, sets.n_classes)

    @classmethod
    def of_rows(cls, labels: IntArray, is_covered: Array, sizes: IntArray, n_classes: int) -> Tally:
        """Count rows by what is known of their sets."""
        return cls(
            np.bincount(labels, minlength=n_classes),
            np.bincount(labels[is_covered], minlength=n_classes),
            np.bincount(sizes, minlength=n_classes + 1),
        )

    def __add__(self, other: Tally) -> Tally:  # type: ignore[override]
        return Tally(*(a + b for a, b in zip(self, other, strict=True)))


class GroupCoverage(NamedTuple):
    """Coverage of a group of classes: of its rows, and on average over its classes."""

    group: str
    n_classes: int
    n_rows: int
    coverage: float
    mean_class_coverage: float
    covgap: float


class ClassView(NamedTuple):
    """One class: its coverage with 95% limits, and what may explain it.

    ``confused_with`` lists (class, how many of its test rows had that class first instead).
    """

    class_index: int
    name: str
    coverage: float
    coverage_low: float
    coverage_high: float
    test_rows: int
    calibration_rows: int | None
    threshold: float | None
    cluster: int | None
    confused_with: tuple[tuple[int, int], ...]


def evaluate(
    sets: PredictionSets,
    labels: Any,
    alpha: Alpha = 0.1,
    *,
    class_names: Sequence[str] | None = None,
    calibration_counts: Any = None,
    cluster_of_class: Any = None,
) -> CoverageReport:
    """Measure coverage and size of prediction sets on held-out rows.

    Parameters
    ----------
    sets
        The sets of N rows.
    labels
        (N,) true class indices.
    alpha
        The level the sets were made for.
    class_names
        One per class; by default those of the sets.
    calibration_counts, cluster_of_class
        (K,), optional; with them the report also groups
        classes by how much calibration data they had, and by cluster.

    >>> sets = PredictionSets.from_mask([[True, False], [True, True], [True, False]])
    >>> report = evaluate(sets, [0, 0, 1], alpha=0.1)
    >>> report.class_coverage.tolist(), round(report.covgap, 1), round(report.avg_size, 3)
    ([1.0, 0.0], 50.0, 1.333)
    """
    if not isinstance(sets, PredictionSets):
        raise InputError(
            f"'sets' must be PredictionSets. Got {type(sets).__name__} instead; "
            "PredictionSets.from_mask takes a boolean matrix."
        )
    if len(sets) == 0:
        raise InputError("There must be at least one row to evaluate. Got none.")
    labels = class_labels(labels, sets.n_classes, len(sets))
    return CoverageReport.from_tally(
        Tally.of(sets, labels),
        alpha,
        class_names=sets.class_names if class_names is None else class_names,
        calibration_counts=calibration_counts,
        cluster_of_class=cluster_of_class,
    )


@dataclass(frozen=True, eq=False)
class CoverageReport:
    """What evaluation found. Metrics over classes skip those without test rows.

    Gaps are in percentage points, as in the paper. `to_dict` lists every number.
    """

    alpha: float
    class_counts: IntArray
    class_covered: IntArray
    size_counts: IntArray
    class_names: Sequence[str] | None = None
    calibration_counts: IntArray | None = None
    cluster_of_class: IntArray | None = None
    thresholds: FloatArray | None = None
    confusions: Confusions | None = None

    @classmethod
    def from_tally(cls, tally: Tally, alpha: Alpha, **about_classes: Any) -> CoverageReport:
        """From counts, wherever they were taken."""
        for name in ("calibration_counts", "cluster_of_class"):
            if about_classes.get(name) is not None:
                about_classes[name] = np.asarray(about_classes[name])
        return cls(float(exact_alpha(alpha, "evaluate")), *tally, **about_classes)

    # ---- metrics -----------------------------------------------------------------------------

    @property
    def n_rows(self) -> int:
        """Number of test rows."""
        return int(self.class_counts.sum())

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self.class_counts)

    @property
    def evaluated(self) -> Array:
        """Which classes have test rows (K,)."""
        return self.class_counts > 0

    @property
    def n_classes_evaluated(self) -> int:
        """How many classes have test rows; metrics over classes are means over these."""
        return int(self.evaluated.sum())

    @property
    def marginal_coverage(self) -> float:
        """Share of rows whose set holds their label."""
        return float(self.class_covered.sum() / self.n_rows)

    @cached_property
    def class_coverage(self) -> FloatArray:
        """Coverage of each class (K,); NaN for classes without test rows."""
        with np.errstate(invalid="ignore"):
            return self.class_covered / self.class_counts

    @cached_property
    def class_coverage_interval(self) -> FloatArray:
        """Exact (Clopper-Pearson) 95% confidence limits of each class's coverage (K, 2)."""
        return clopper_pearson(self.class_covered, self.class_counts)

    @cached_property
    def _gaps(self) -> FloatArray:
        return 100 * (self.class_coverage[self.evaluated] - (1 - self.alpha))

    @property
    def covgap(self) -> float:
        """Mean over classes of abs(coverage - (1 - alpha)), in percentage points."""
        return float(np.abs(self._gaps).mean())

    @cached_property
    def covgap_noise_floor(self) -> float:
        """The CovGap expected on this test set from a method with exactly 1 - alpha everywhere."""
        return covgap_noise_floor(self.class_counts[self.evaluated], self.alpha)

    @property
    def undercov_gap(self) -> float:
        """Mean over classes of the shortfall max(0, 1 - alpha - coverage), in percentage points."""
        return float(np.maximum(-self._gaps, 0).mean())

    @property
    def overcov_gap(self) -> float:
        """Mean over classes of the excess max(0, coverage - (1 - alpha)), in percentage points."""
        return float(np.maximum(self._gaps, 0).mean())

    @property
    def max_gap(self) -> float:
        """The largest abs(coverage - (1 - alpha)) of a class, in percentage points."""
        return float(np.abs(self._gaps).max())

    @property
    def frac_undercovered(self) -> float:
        """Share of classes with coverage <= 1 - alpha - 0.1 (the paper's FracUnderCov)."""
        # In counts, because 0.9 - 0.1 in floating point would miss a coverage of exactly 0.8.
        limit = 1 - exact_alpha(self.alpha) - exact_alpha(0.1)
        rows, covered = self.class_counts[self.evaluated], self.class_covered[self.evaluated]
        is_under = [
            hits * limit.denominator <= n * limit.numerator
            for hits, n in zip(covered.tolist(), rows.tolist(), strict=True)
        ]
        return float(np.mean(is_under))

    @property
    def frac_below_half(self) -> float:
        """Share of classes with coverage below 1/2 (FracBelow50 of Ding et al. 2025)."""
        return float((2 * self.class_covered < self.class_counts)[self.evaluated].mean())

    @property
    def macro_coverage(self) -> float:
        """Mean coverage over classes, each counted once."""
        return float(self.class_coverage[self.evaluated].mean())

    @property
    def avg_size(self) -> float:
        """Mean number of classes in a set."""
        return float(self.size_counts @ np.arange(len(self.size_counts)) / self.n_rows)

    @property
    def size_quantiles(self) -> dict[str, int]:
        """Set sizes that 0, 5, 25, 50, 75, 95 and 100% of the rows do not exceed."""
        cumulative = np.cumsum(self.size_counts)
        ranks = {str(q): max(1, -(-q * self.n_rows // 100)) for q in (0, 5, 25, 50, 75, 95, 100)}
        return {q: int(np.searchsorted(cumulative, rank)) for q, rank in ranks.items()}

    # ---- groups of classes -------------------------------------------------------------------

    def by_group(
        self, group_of_class: Any, names: Sequence[str] | None = None
    ) -> list[GroupCoverage]:
        """Coverage of groups of classes, leaving out group -1 and classes without test rows."""
        groups = np.asarray(group_of_class)
        if groups.shape != (self.n_classes,):
            raise InputError(
                f"'group_of_class' must have one entry per class. "
                f"Got shape {groups.shape} for {self.n_classes} classes."
            )
        table = []
        for group in np.unique(groups[(groups >= 0) & self.evaluated]):
            members = (groups == group) & self.evaluated
            rows, coverage = self.class_counts[members], self.class_coverage[members]
            table.append(
                GroupCoverage(
                    str(group) if names is None else names[group],
                    int(members.sum()),
                    int(rows.sum()),
                    float(self.class_covered[members].sum() / rows.sum()),
                    float(coverage.mean()),
                    float(100 * np.abs(coverage - (1 - self.alpha)).mean()),
                )
            )
        return table

    def by_cluster(self) -> list[GroupCoverage]:
        """Coverage per cluster of a clustered predictor; the null cluster comes last."""
        if self.cluster_of_class is None:
            raise InputError("This report knows no clusters; pass 'cluster_of_class' to evaluate.")
        clusters = self.cluster_of_class
        last = int(clusters.max()) + 1
        names = [f"cluster {m}" for m in range(last)] + ["null cluster"]
        return self.by_group(np.where(clusters < 0, last, clusters), names)

    def by_calibration_count(self) -> list[GroupCoverage]:
        """Coverage of the classes by how many calibration rows they had."""
        if self.calibration_counts is None:
            raise InputError(
                "This report knows no calibration counts; pass 'calibration_counts' to evaluate."
            )
        edges = np.array([0, 1, 10, 20, 50, 100, 200, 500, 1000])
        names = ["no rows"]
        names += [f"{a} to {b - 1} rows" for a, b in pairwise(edges[1:])]
        names += [f"{edges[-1]} rows or more"]
        bins = np.searchsorted(edges, self.calibration_counts, side="right") - 1
        return self.by_group(bins, names)

    def worst_classes(self, k: int = 10) -> list[ClassView]:
        """The k classes that are most surely undercovered.

        Ranked by the upper confidence limit of their coverage, lowest first: a class comes early
        if even the kindest reading of its test rows leaves it short, not if it merely had few.
        """
        whole_number(k, "k", "worst_classes", 1)
        high = np.where(self.evaluated, self.class_coverage_interval[:, 1], np.inf)
        order = np.lexsort((np.nan_to_num(self.class_coverage, nan=np.inf), high))
        return [self.class_view(int(index)) for index in order[: min(k, self.n_classes_evaluated)]]

    def class_view(self, index: int) -> ClassView:
        """All that is known about one class."""

        def own(values: Any) -> Any:
            return None if values is None else np.asarray(values)[index].item()

        low, high = self.class_coverage_interval[index].tolist()
        return ClassView(
            class_index=index,
            name=str(index) if self.class_names is None else str(self.class_names[index]),
            coverage=float(self.class_coverage[index]),
            coverage_low=low,
            coverage_high=high,
            test_rows=int(self.class_counts[index]),
            calibration_rows=own(self.calibration_counts),
            threshold=own(self.thresholds),
            cluster=own(self.cluster_of_class),
            confused_with=() if self.confusions is None else tuple(self.confusions.of_class(index)),
        )

    # ---- ways to read it ---------------------------------------------------------------------

    METRICS = (
        "marginal_coverage",
        "covgap",
        "covgap_noise_floor",
        "avg_size",
        "frac_undercovered",
        "frac_below_half",
        "macro_coverage",
        "undercov_gap",
        "overcov_gap",
        "max_gap",
    )

    def to_dict(self) -> dict[str, Any]:
        """Every number under its attribute's name, ready for JSON (NaN becomes None)."""
        result: dict[str, Any] = {"alpha": self.alpha, "n_rows": self.n_rows}
        result |= {"n_classes": self.n_classes, "n_classes_evaluated": self.n_classes_evaluated}
        result |= {name: getattr(self, name) for name in self.METRICS}
        result |= {
            "size_quantiles": self.size_quantiles,
            "class_coverage": _json_numbers(self.class_coverage),
            "class_counts": self.class_counts.tolist(),
            "class_coverage_interval": self.class_coverage_interval.tolist(),
        }
        if self.class_names is not None:
            result["class_names"] = list(self.class_names)
        if self.cluster_of_class is not None:
            result["by_cluster"] = [group._asdict() for group in self.by_cluster()]
        if self.calibration_counts is not None:
            result["calibration_counts"] = self.calibration_counts.tolist()
            result["by_calibration_count"] = [g._asdict() for g in self.by_calibration_count()]
        return result

    def to_frame(self) -> Any:
        """One row per class, as a pandas data frame."""
        columns: dict[str, Any] = {
            "class": np.arange(self.n_classes),
            "test_rows": self.class_counts,
            "coverage": self.class_coverage,
            "coverage_low": self.class_coverage_interval[:, 0],
            "coverage_high": self.class_coverage_interval[:, 1],
        }
        extra = {
            "name": self.class_names,
            "calibration_rows": self.calibration_counts,
            "cluster": self.cluster_of_class,
        }
        return import_pandas().DataFrame(
            columns | {k: v for k, v in extra.items() if v is not None}
        )

    def summary(self) -> list[tuple[str, str, str]]:
        """The metrics as (name, value, meaning) for people."""
        n_under = round(self.frac_undercovered * self.n_classes_evaluated)
        under = f"{n_under} of {self.n_classes_evaluated} classes are 10 points or more below"
        sizes = self.size_quantiles
        size = f"classes in a set; median {sizes['50']}, 95% have at most {sizes['95']}"
        aim = f"of all rows; the aim is {1 - self.alpha:g}"
        rows = [
            ("coverage", f"{self.marginal_coverage:.3f}", aim),
            ("CovGap", f"{self.covgap:.2f}", "mean distance of a class's coverage from the aim"),
            ("noise floor", f"{self.covgap_noise_floor:.2f}", "CovGap of a perfect method here"),
            ("FracUnderCov", f"{self.frac_undercovered:.3f}", under),
            ("FracBelow50", f"{self.frac_below_half:.3f}", "of classes are covered less than half"),
            ("UnderCovGap", f"{self.undercov_gap:.2f}", "mean shortfall of a class from the aim"),
            ("MacroCov", f"{self.macro_coverage:.3f}", "mean coverage of a class"),
            ("AvgSize", f"{self.avg_size:.2f}", size),
        ]
        missing = self.n_classes - self.n_classes_evaluated
        if missing:
            rows.append(("skipped", str(missing), "classes without test rows"))
        return rows

    def __str__(self) -> str:
        lines = [f"{self.n_rows} rows, {self.n_classes} classes, alpha = {self.alpha:g}"]
        lines += [f"{name:<13}{value:>9}   {text}" for name, value, text in self.summary()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th>{name}</th><td>{value}</td><td>{text}</td></tr>"
            for name, value, text in self.summary()
        )
        return f"<table><caption>{str(self).splitlines()[0]}</caption>{cells}</table>"


def _json_numbers(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]
