"""evaluate() and CoverageReport: coverage and set sizes, from counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evencover.answers import Levels
from evencover.arrays import Array, FloatArray, IntArray, data_frame, to_numpy
from evencover.classes import Classes
from evencover.errors import InputError
from evencover.evaluation.conditional import worst_slab
from evencover.evaluation.metrics import METRICS, Confusions, CoverageMetrics, Tally, shown_in
from evencover.evaluation.recall import RecallAtK
from evencover.evaluation.statistics import clopper_pearson, likely_below, share_with_limits
from evencover.evaluation.suppliers import Suppliers
from evencover.quantiles import ClassAlpha
from evencover.sets import PredictionSets
from evencover.templates import Card, Shown
from evencover.text_tables import folded
from evencover.validation import raise_unknown, whole_number

# Attributes in `CoverageReport.to_dict`, next to the metrics.
ALWAYS = (
    *("alpha", "n_rows", "n_classes", "n_classes_evaluated", "true_gap_interval"),
    *("size_quantiles", "class_coverage", "class_counts", "class_coverage_interval"),
    *("likely_below", "too_few_to_judge", "labels_fit", "data_warnings"),
)
IF_KNOWN = (
    *("class_alpha", "accepted", "accepted_right", "appearances", "guarantees", "is_capped"),
    *("share", "calibration_counts", "cluster_of_class", "class_names"),
)
IF_ACCEPTED = ("accepted_share", "accepted_accuracy", "accepted_accuracy_interval", "is_unsafe")


class ClassView(NamedTuple):
    """Describe one class: coverage, its 95% confidence interval, and likely causes.

    ``confused_with`` lists (class, how many of its test rows had that class first instead);
    ``appears`` states in how many sets the class is, and how often it is right there.
    """

    class_index: int
    name: str
    coverage: float
    coverage_low: float
    coverage_high: float
    test_rows: int
    calibration_rows: int | None
    threshold: float | None
    guarantee: float | None
    cluster: int | None
    confused_with: tuple[tuple[int, int], ...]
    appears: str = ""


def _share(part: Any, whole: IntArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(part / whole)


def _total(counts: IntArray | None) -> int:
    return 0 if counts is None else int(counts.sum())


def _first_of(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def evaluate(
    sets: PredictionSets,
    labels: Any,
    alpha: Any = 0.1,
    *,
    class_names: Sequence[str] | None = None,
    labels_are: str | None = None,
    features: Any = None,
) -> CoverageReport:
    """Measure coverage and size of prediction sets on held-out rows.

    Parameters
    ----------
    sets
        The sets of N rows.
    labels
        (N,) true class indices, or class names.
    alpha
        The level the sets were made for.
    class_names
        One per class; by default those of the sets.
    labels_are
        "indices" or "names": what integers are, if a class has a number as its name.
    features
        (N, D) numbers that describe the rows, for worst-slab coverage: inputs, an embedding, or
        the probabilities. `worst_slab` in `evencover.evaluation` has more options.

    >>> sets = PredictionSets.from_mask([[True, False], [True, True], [True, False]])
    >>> report = evaluate(sets, [0, 0, 1], alpha=0.1)
    >>> report.class_coverage.tolist(), round(report.covgap, 1), round(report.avg_size, 3)
    ([1.0, 0.0], 50.0, 1.333)
    """
    if not isinstance(sets, PredictionSets):
        raise InputError(
            f"'sets' must be PredictionSets. Got {type(sets).__name__}; see "
            "PredictionSets.from_mask."
        )
    if len(sets) == 0:
        raise InputError("There must be at least one row to evaluate. Got none.")
    names = sets.class_names if class_names is None else class_names
    classes = Classes(sets.n_classes, None if names is None else tuple(names))
    levels = None if sets.answers is None else sets.answers.hierarchy
    how: Any = {"labels_are": labels_are, "groups": () if levels is None else levels.groups}
    nodes = classes.label_indices(labels, len(sets), allow_unknown=True, **how)
    indices = np.minimum(nodes, sets.n_classes)
    if names is not None and indices.min() == sets.n_classes:
        raise classes.unknown_label(to_numpy(labels).ravel()[0], "row 0")
    slab = None if features is None else worst_slab(sets.have(indices), features)
    tally = Tally.of(sets, nodes)
    about: dict[str, Any] = {"class_names": names, "worst_slab": slab, "levels": levels}
    return CoverageReport.from_tally(tally, alpha, **about)


@dataclass(frozen=True, eq=False, repr=False)
class CoverageReport(CoverageMetrics, Shown):
    """Coverage and set sizes on test rows. Metrics over classes skip those without test rows.

    Gaps are in percentage points, as in the paper. ``alpha`` is the target miscoverage; where
    classes have their own, ``class_alpha`` (K,), it is the mean over the test rows. `to_dict` lists
    every number. ``data_warnings`` are signs that the examples differ from the calibration set.
    ``labels_fit`` is False if the labels do not belong to the rows; coverage has no meaning then.
    ``appearances`` (K,) counts the sets that contain each class; ``accepted`` and
    ``accepted_right`` (K,) count accepted predictions of each class and those that are right.
    ``listed_counts`` (K,) counts top-k rows that list their label; None for rows of all classes.
    Where groups may answer, ``answered`` and ``answered_right`` (M,) count the rows that each node
    of ``levels`` answers.
    With `max_share`, ``is_capped`` and ``share`` (K,) are those of the predictor. ``large_sets``
    states which few classes supply most labels, if that is so.
    ``covered_sizes`` (K + 1,) counts covered rows by the size of their set. ``worst_slab`` is the
    part of the feature space with the lowest coverage, if `evaluate` got features.
    """

    class_names: Sequence[str] | None = None
    calibration_counts: IntArray | None = None
    cluster_of_class: IntArray | None = None
    thresholds: FloatArray | None = None
    guarantees: FloatArray | None = None
    is_capped: Array | None = None
    share: FloatArray | None = None
    confusions: Confusions | None = None
    size_sums: IntArray | None = None
    appearances: IntArray | None = None
    accepted: IntArray | None = None
    accepted_right: IntArray | None = None
    accept_accuracy: float = 0.95
    data_warnings: tuple[str, ...] = ()
    labels_fit: bool = True
    listed_counts: IntArray | None = None
    answered: IntArray | None = None
    answered_right: IntArray | None = None
    levels: Levels | None = None
    large_sets: str = ""

    @classmethod
    def from_tally(cls, tally: Tally, alpha: Any, **about_classes: Any) -> CoverageReport:
        """Make a report from counts."""
        names, n_classes = about_classes.get("class_names"), len(tally.rows)
        levels = ClassAlpha.of(alpha, names, n_classes, "evaluate")
        level = float(levels.typical)
        if not levels.is_one:
            about_classes["class_alpha"] = levels.floats
            level = float(tally.rows @ levels.floats / max(1, tally.rows.sum()))
        counted = ["size_sums", "n_unknown", "appearances", "accepted", "accepted_right"]
        counted += ["answered", "answered_right", "covered_sizes"]
        about_classes |= {name: getattr(tally, name) for name in counted}
        about_classes["listed_counts"] = tally.listed
        return cls(level, tally.rows, tally.covered, tally.sizes, **about_classes)

    @cached_property
    def class_coverage_interval(self) -> FloatArray:
        """Exact (Clopper-Pearson) 95% confidence limits of each class's coverage (K, 2)."""
        return clopper_pearson(self.class_covered, self.class_counts)

    @property
    def recall(self) -> RecallAtK | None:
        """Which labels top-k rows list; None for rows of all classes."""
        if self.listed_counts is None:
            return None
        limits = np.zeros(self.n_classes) if self.thresholds is None else self.thresholds
        return RecallAtK(self.class_counts, self.listed_counts, np.isinf(limits))

    @property
    def recall_at_k(self) -> tuple[FloatArray, FloatArray] | None:
        """Recall at k: the share of listed labels, and its 95% confidence interval (3,), twice.

        The second is of classes without a finite threshold, whose coverage it limits.
        """
        recall = self.recall
        return None if recall is None else (recall.interval(), recall.interval(recall.capped))

    # ---- accepted predictions, and labels that make sets large ----------------------------------

    @property
    def accepted_share(self) -> float:
        """Fraction of rows whose most probable class is accepted without a review.

        NaN if accepted rows were not counted.
        """
        n_rows = max(1, self.size_counts.sum())
        return np.nan if self.accepted is None else float(self.accepted.sum() / n_rows)

    @property
    def accepted_accuracy(self) -> float:
        """Accuracy among accepted predictions; NaN if none is accepted."""
        return float(self._acceptance[0])

    @property
    def accepted_accuracy_interval(self) -> FloatArray:
        """Exact 95% confidence limits of the accuracy among accepted predictions (2,)."""
        return self._acceptance[1:]

    @property
    def _acceptance(self) -> FloatArray:
        return share_with_limits(_total(self.accepted_right), _total(self.accepted))

    @cached_property
    def is_unsafe(self) -> Array:
        """Whether a class's accepted predictions are significantly too often wrong (K,).

        Exact binomial tests against ``accept_accuracy``, at a 5% false discovery rate.
        """
        if self.accepted is None or self.accepted_right is None:
            return np.zeros(self.n_classes, dtype=bool)
        return likely_below(self.accepted_right, self.accepted, 1 - self.accept_accuracy)

    @cached_property
    def answers(self) -> list[dict[str, Any]]:
        """The answers of each level, and all together: rows, share, accuracy, and its 95% limits.

        Empty where no groups may answer.
        """
        if self.answered is None or self.answered_right is None or self.levels is None:
            return []
        table, of_node = [], self.levels.level_of_node
        for number, name in enumerate((*self.levels.level_names, "all answers")):
            here = of_node == number if number < self.levels.n_levels else slice(None)
            n, right = int(self.answered[here].sum()), int(self.answered_right[here].sum())
            accuracy, low, high = share_with_limits(right, n).tolist()
            counts = {"level": name, "rows": n, "share": n / max(1, int(self.size_counts.sum()))}
            table.append(counts | {"accuracy": as_plain(accuracy), "low": low, "high": high})
        return table

    @cached_property
    def answering_nodes(self) -> list[dict[str, Any]]:
        """The classes and groups that answer: unsafe ones, then groups, the most frequent first.

        Each has its level, rows, accuracy with 95% limits, and whether it is unsafe, as in
        `is_unsafe`. Without groups the answers are the accepted predictions.
        """
        levels, answered, right = self.levels, self.answered, self.answered_right
        if levels is None or answered is None or right is None:
            levels, answered, right = (
                Levels.of_classes(self.n_classes),
                self.accepted,
                self.accepted_right,
            )
        if answered is None or right is None:
            return []
        nodes = np.flatnonzero(answered)
        n, accuracy = answered[nodes], right[nodes] / answered[nodes]
        is_unsafe = likely_below(right, answered, 1 - self.accept_accuracy)[nodes]
        is_class = nodes < self.n_classes
        order = np.lexsort((-n, is_class, np.where(is_unsafe, accuracy, 0), ~is_unsafe))
        names = [*self._names(np.arange(self.n_classes)), *levels.groups]
        columns = {
            "name": [names[node] for node in nodes],
            "level": [levels.level_names[level] for level in levels.level_of_node[nodes]],
            "rows": n.tolist(),
            "accuracy": accuracy.tolist(),
            **dict(zip(("low", "high"), clopper_pearson(right[nodes], n).T.tolist(), strict=True)),
            "unsafe": is_unsafe.tolist(),
        }
        rows = [*zip(*columns.values(), strict=True)]
        return [dict(zip(columns, rows[index], strict=True)) for index in order]

    def largest_contributors(self, k: int = 10) -> IntArray:
        """Find the classes that add the most wrong labels to sets, the worst first."""
        if self.appearances is None:
            return np.zeros(0, dtype=np.int64)
        added = self.appearances - self.class_covered
        return np.argsort(-added, kind="stable")[: min(k, int((added > 0).sum()))]

    @cached_property
    def suppliers(self) -> Suppliers:
        """The few classes, at most 5%, that supply more than half of the labels in sets."""
        if self.appearances is None:
            return Suppliers(np.zeros(0, dtype=np.int64), np.nan)
        return Suppliers.of(self.appearances, self.appearances - self.class_covered)

    @property
    def crowding(self) -> float:
        """Share of all labels in sets that `largest_contributors` add wrongly; NaN if unknown."""
        if self.appearances is None:
            return np.nan
        classes = self.largest_contributors()
        wrong = (self.appearances - self.class_covered)[classes].sum()
        return float(wrong / max(1, self.appearances.sum()))

    def _appears(self, index: int) -> str:
        if self.appearances is None:
            return ""
        n_sets, n_right = int(self.appearances[index]), int(self.class_covered[index])
        right = f", right in {n_right / n_sets:.1%}" if n_sets else ""
        return f"appears in {n_sets / self.n_rows:.1%} of sets{right}"

    # ---- single classes ---------------------------------------------------------------------

    def worst_classes(self, k: int = 10) -> list[ClassView]:
        """List the k classes with the lowest upper confidence limits of coverage, lowest first.

        A class with low coverage on few test rows comes late.
        """
        whole_number(k, "k", "worst_classes", 1)
        high = np.where(self.evaluated, self.class_coverage_interval[:, 1], np.inf)
        order = np.lexsort((np.nan_to_num(self.class_coverage, nan=np.inf), high))
        return [self.class_view(int(index)) for index in order[: min(k, self.n_classes_evaluated)]]

    def class_view(self, index: int) -> ClassView:
        """Collect all that is known about one class."""

        def of_class(values: Any) -> Any:
            return None if values is None else np.asarray(values)[index].item()

        low, high = self.class_coverage_interval[index].tolist()
        return ClassView(
            class_index=index,
            name=self._names(np.array([index]))[0],
            coverage=float(self.class_coverage[index]),
            coverage_low=low,
            coverage_high=high,
            test_rows=int(self.class_counts[index]),
            calibration_rows=of_class(self.calibration_counts),
            threshold=of_class(self.thresholds),
            guarantee=of_class(self.guarantees),
            cluster=of_class(self.cluster_of_class),
            confused_with=() if self.confusions is None else tuple(self.confusions.of_class(index)),
            appears=self._appears(index),
        )

    # ---- ways to read it ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return every number under its attribute's name, ready for JSON (NaN becomes None)."""
        names = [*ALWAYS, *IF_KNOWN]
        names += IF_ACCEPTED if self.accepted is not None else ()
        names += ("answers", "answering_nodes") if self.answers else ()
        values = self.metrics() | {name: getattr(self, name) for name in names}
        values |= {"n_unknown_labels": self.n_unknown, "large_sets": self.large_sets}
        values["strata"] = [stratum._asdict() for stratum in self.strata]
        if self.recall_at_k is not None:
            recalls = ("recall_at_k", "recall_at_k_of_capped_classes")
            values |= zip(recalls, self.recall_at_k, strict=True)
        return {name: as_plain(values[name]) for name in values if values[name] is not None}

    def class_columns(self) -> dict[str, Any]:
        """Return what is known about the classes, one value per class in each column."""
        columns = {
            "class": np.arange(self.n_classes),
            "test_rows": self.class_counts,
            "target": self.class_target,
            "coverage": self.class_coverage,
            "coverage_low": self.class_coverage_interval[:, 0],
            "coverage_high": self.class_coverage_interval[:, 1],
            "name": self.class_names,
            "calibration_rows": self.calibration_counts,
            "guaranteed": self.guarantees,
            "is_capped": self.is_capped,
            "share_of_other_sets": self.share,
            "cluster": self.cluster_of_class,
            "likely_below": self.likely_below,
            "sets_with_it": self.appearances,
            "right_when_in_set": None
            if self.appearances is None
            else _share(self.class_covered, self.appearances),
            "accepted": self.accepted,
            "accepted_accuracy": None
            if self.accepted is None
            else _share(self.accepted_right, self.accepted),
            "is_unsafe": None if self.accepted is None else self.is_unsafe,
        }
        return {name: values for name, values in columns.items() if values is not None}

    def to_pandas(self, of: str = "classes") -> Any:
        """Build a pandas data frame with one row per class, or per metric (``of="metrics"``)."""
        if of == "classes":
            return data_frame(self.class_columns(), None)
        if of != "metrics":
            raise_unknown("table", of, ("classes", "metrics"))
        columns = {
            "metric": [metric.title for metric in METRICS],
            "value": [metric.of(self) for metric in METRICS],
            "unit": [metric.unit for metric in METRICS],
            "meaning": [metric.describe(self.target_text, self) for metric in METRICS],
        }
        return data_frame(columns, [metric.name for metric in METRICS])

    def summary(self, *, everything: bool = True) -> list[tuple[str, str, str]]:
        """List numbers as (name, value, meaning) for people: what matters, or all metrics."""
        target, sizes = self.target_text, self.size_quantiles
        below = np.flatnonzero(self.likely_below)
        below = below[np.argsort(self.class_coverage[below], kind="stable")]
        names = f": {_first_of(self._names(below))}" if len(below) else ""
        rows = [
            ("overall coverage", f"{self.marginal_coverage:.1%}", f"of {self.n_rows:,} examples; "
             f"target {100 * (1 - self.alpha):.4g}%"),
            ("labels per set", f"{self.avg_size:.1f}", f"median {sizes['50']}, 95% have at most "
             f"{sizes['95']}"),
            (f"below {target}", str(len(below)), f"of {self.n_classes_evaluated:,} classes, "
             f"significantly{names}"),
            ("typical shortfall", "–" if np.isnan(self.shortfall) else f"{self.shortfall:.1f}",
             f"points of a class below {target}, noise-corrected"),
        ]  # fmt: skip
        if self.accepted is not None:
            rows += self._acceptance_summary()
        if not self.labels_fit:
            rows.insert(0, ("labels", "no fit", "coverage has no meaning: see data_warnings"))
        if everything:
            rows += [
                (metric.title, metric.text(metric.of(self)), metric.describe(target, self))
                for metric in shown_in("report")
                if metric.name not in ("marginal_coverage", "avg_size", "shortfall")
            ]
        few, missing = int(self.too_few_to_judge.sum()), self.n_classes - self.n_classes_evaluated
        if few:
            rows.append(("not judged", str(few), "classes with too few test rows to be named"))
        if self.n_unknown:
            unknown = "labels that are not among the classes; counted as misses"
            rows.append(("unknown", str(self.n_unknown), unknown))
        if self.recall_at_k is not None:
            rows.append(self._recall_summary(*self.recall_at_k))
        if missing:
            rows.append(("skipped", str(missing), "classes without test rows"))
        return rows

    @property
    def target_text(self) -> str:
        """The target coverage of every class, or "target" if classes have their own."""
        return "target" if self.class_alpha is not None else f"{100 * (1 - self.alpha):.4g}%"

    def _acceptance_summary(self) -> list[tuple[str, str, str]]:
        """Show how many predictions are accepted without a review, and how many are right."""
        low, high = self.accepted_accuracy_interval.tolist()
        meaning = "are answered with their class" if self.answers else "need no review"
        rows = [("accepted", f"{self.accepted_share:.1%}", f"of predictions {meaning}")]
        if _total(self.accepted):
            meaning = f"of these are right; 95% interval {low:.1%} to {high:.1%}"
            rows.append(("  accuracy", f"{self.accepted_accuracy:.1%}", meaning))
        for each in self.answers[1:]:
            text = "no answer at this level"
            if each["rows"]:
                text = "of predictions; {accuracy:.1%} right, 95% interval {low:.1%} to {high:.1%}"
            rows.append((f"  {each['level']}"[:17], f"{each['share']:.1%}", text.format(**each)))
        if unsafe := [node["name"] for node in self.answering_nodes if node["unsafe"]]:
            what = "classes and groups" if self.answers else "predicted classes"
            meaning = f"{what} significantly below {100 * self.accept_accuracy:.4g}%"
            rows.append(("  unsafe", str(len(unsafe)), f"{meaning}: {_first_of(unsafe)}"))
        return rows

    def _names(self, classes: IntArray) -> list[str]:
        return [str(k if self.class_names is None else self.class_names[k]) for k in classes]

    def _recall_summary(self, recall: FloatArray, capped: FloatArray) -> tuple[str, str, str]:
        """Show how many labels are listed: no set contains the others."""
        text = f"of labels are listed (95% CI {recall[1]:.1%} to {recall[2]:.1%})"
        if not np.isnan(capped[0]):
            text += f"; of classes without a finite threshold {capped[0]:.1%}"
            text += f" ({capped[1]:.1%} to {capped[2]:.1%})"
        return "recall at k", f"{recall[0]:.1%}", text

    def lines(self, *, everything: bool = False) -> list[str]:
        """Return the `summary` as aligned lines."""
        rows = self.summary(everything=everything)
        return [f"{name:<18}{value:>8}   {meaning}" for name, value, meaning in rows]

    @property
    def _heading(self) -> str:
        return f"{self.n_rows:,} examples, {self.n_classes:,} classes, target {self.target_text}"

    def _card(self) -> Card:
        heads = ["least covered", "coverage", "95% interval", "test rows"]
        rows = [
            (
                view.name,
                f"{view.coverage:.0%}",
                f"{view.coverage_low:.0%} to {view.coverage_high:.0%}",
                f"{view.test_rows:,}",
            )
            for view in self.worst_classes(5)
        ]
        lines = [*filter(None, [self.large_sets]), *self.data_warnings]
        return Card(self._heading, self.summary(everything=False), heads, rows, lines)

    def __str__(self) -> str:
        return "\n".join(filter(None, [self._heading, folded(self.large_sets), *self.lines()]))

    __repr__ = __str__


def as_plain(value: Any) -> Any:
    """Return a value as JSON holds it: arrays as lists, and None for NaN and infinite numbers."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: as_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
