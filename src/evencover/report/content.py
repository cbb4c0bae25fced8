"""The content of the report: one pass over the test rows, counts, then plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.comparison.result import Comparison
from evencover.data.source import Block
from evencover.engine.blocks import fold_source
from evencover.evaluation.metrics import Confusions, EvaluationCounts, Tally, descriptions
from evencover.evaluation.report import CoverageReport, as_plain
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import require_labels
from evencover.predictors.explanations import origin_of_thresholds, prices, set_by_floor
from evencover.predictors.fit import Fit
from evencover.predictors.held_out import coverage_report, with_large_sets
from evencover.predictors.rule import SetRule, listed_labels
from evencover.quantiles import ClassAlpha, conformal_ranks
from evencover.report.verdict import State, class_states, remedies, usual_spread, verdict
from evencover.scores import make_score
from evencover.sets import PredictionSets
from evencover.taxonomy import Taxonomy
from evencover.templates import percent
from evencover.topk import TopK

MOST_NODES = 10  # classes and groups whose answers the report lists
MOST_TARGETS = 3  # different target coverages that the report lists


def report_content(
    predictor: BasePredictor,
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    executor: Any = None,
    taxonomy: Any = None,
) -> dict[str, Any]:
    """Read labeled rows once, in blocks, and return all that the report shows, ready for JSON."""
    fit = Fit.of(predictor)
    source = fit.open(probabilities, labels, ids, allow_unknown=True, groups=fit.label_groups)
    tree = None if taxonomy is None else Taxonomy.read(taxonomy, source.class_names)
    require_labels(source, "A report")
    names = None if ids is None else to_numpy(ids)
    view = partial(BlockView.of, fit.rule.for_input(source.logits), names, tree)
    merge: Any = partial(ReportCounts.merged, predictor.n_classes_)
    counts, read = fold_source(source, view, merge, ReportCounts.abridged, executor)
    report = coverage_report(fit, source, read, counts.counts)
    return describe(predictor, with_large_sets(fit, source, report, executor), counts)


# ---- rows to counts ------------------------------------------------------------------------------


class BlockView(NamedTuple):
    """A block with its sets and counts; ``names`` are the user's row ids."""

    rule: SetRule
    names: Array | None
    taxonomy: Taxonomy | None
    block: Block
    labels: IntArray
    sets: PredictionSets
    is_covered: Array
    counts: EvaluationCounts

    @classmethod
    def of(
        cls, rule: SetRule, names: Array | None, taxonomy: Taxonomy | None, block: Block
    ) -> BlockView:
        """Do all that takes time, here or on a worker; blocks run side by side."""
        assert block.labels is not None
        assert block.nodes is not None
        sets, labels = rule.sets(block), block.labels
        confusions = Confusions.of(labels, block.rows.argmax(axis=1), sets.n_classes)
        tally = Tally.of(sets, block.nodes)._replace(listed=listed_labels(block))
        counts = EvaluationCounts(tally, confusions)
        return cls(rule, names, taxonomy, block, labels, sets, sets.have(labels), counts)

    def example(self, index: int, n_members: int) -> list[Any]:
        """Return [row, covered, size, percent, members, percents] of one row.

        `percent` is the probability of the true class, `percents` those of the `n_members` most
        probable members of the set. With a taxonomy its description of the set comes last.
        """
        row, members = self.block.start + index, self.sets[index]
        names, taxonomy = self.names, self.taxonomy
        of_label, *percents = self._percents(index, np.append(self.labels[index], members))
        shown = np.argsort(-np.array(percents), kind="stable")[:n_members]
        return [
            row if names is None else names[[row]].tolist()[0],
            int(self.is_covered[index]),
            len(members),
            _rounded(of_label),
            members[shown].tolist(),
            [_rounded(percents[number]) for number in shown],
            *([] if taxonomy is None else [taxonomy.describe(members)]),
        ]

    def _percents(self, index: int, classes: IntArray) -> FloatArray:
        """Return the probabilities of these classes in a row, in percent."""
        rows, scoring = self.block.rows, self.rule.scoring
        if isinstance(rows, TopK):
            listed = slice(rows.starts[index], rows.starts[index + 1])
            is_class = rows.classes[listed] == classes[:, None]
            return 100.0 * np.where(is_class, rows.values[listed], 0).sum(axis=1)
        values = rows[index].astype(np.float64)
        if scoring.logits:
            values = np.exp(values - values.max())
        return (100 * values / values.sum())[classes]


class ReportCounts:
    """Counts of test rows, and the first few missed and covered rows of each class as examples.

    ``counts`` are those of `evaluate`.
    """

    counts: EvaluationCounts

    def __init__(self, n_classes: int) -> None:
        many = n_classes > 3000  # fewer examples keep the page small
        self.n_members = 6 if many else 10
        # How many more examples are wanted of missed (column 0) and covered rows (column 1).
        self.wanted = np.tile(np.array([2, 1] if many else [3, 2]), (n_classes, 1))
        self.examples: list[list[list[Any]]] = [[] for _ in range(n_classes)]

    @classmethod
    def merged(cls, n_classes: int, parts: Iterable[BlockView | ReportCounts]) -> ReportCounts:
        """Merge views of consecutive blocks, or counts of consecutive parts, in their order."""
        merged = cls(n_classes)

        def counts() -> Iterable[EvaluationCounts]:
            for part in parts:
                merged._add(part)
                yield part.counts

        merged.counts = EvaluationCounts.total(counts())
        return merged

    def _add(self, part: BlockView | ReportCounts) -> None:
        if isinstance(part, ReportCounts):
            for label, examples in enumerate(part.examples):
                for example in examples:
                    self.add_example(label, example)
            return
        wanted = np.append(self.wanted, 0)  # no example of an unknown label
        for row in _first_of_each(part.labels * 2 + part.is_covered, wanted).tolist():
            self.add_example(int(part.labels[row]), part.example(row, self.n_members))

    def add_example(self, label: int, example: list[Any]) -> None:
        """Keep an example of a class if one of its kind is still wanted."""
        if self.wanted[label, example[1]]:
            self.wanted[label, example[1]] -= 1
            self.examples[label].append(example)

    def abridged(self) -> ReportCounts:
        """Drop the confusions that the report does not show."""
        self.counts = self.counts.abridged()
        return self


def _first_of_each(kinds: IntArray, wanted: IntArray) -> IntArray:
    """Return the indices of the first ``wanted[kind]`` rows of each kind, ascending.

    >>> _first_of_each(np.array([1, 0, 1, 1]), np.array([5, 2])).tolist()
    [0, 1, 2]
    """
    order = np.argsort(kinds, kind="stable")
    counts = np.bincount(kinds, minlength=len(wanted))
    nth = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[nth < wanted[kinds[order]]])


def _rounded(percent: float) -> float:
    """Round to integers, below ten to one digit."""
    return round(float(percent)) if percent >= 9.95 else round(float(percent), 1)


# ---- counts to content ---------------------------------------------------------------------------


def describe(
    predictor: BasePredictor, report: CoverageReport, counts: ReportCounts
) -> dict[str, Any]:
    """Return the content of the report; columns have one entry per class or group."""
    return {
        "method": predictor.method,
        "score": make_score(predictor.score).name,
        "alpha": report.alpha,
        "target": report.target_text,
        "targets": target_values(predictor.fit_.alpha),
        "n_rows": report.n_rows,
        "n_unknown": report.n_unknown,
        "n_classes": report.n_classes,
        "n_classes_evaluated": report.n_classes_evaluated,
        "n_calibration": predictor.n_calibration_,
        "guarantee": predictor.guarantee_text,
        "guaranteed": _about_guarantees(predictor),
        "without_guarantee": []
        if predictor.floor is None
        else np.flatnonzero((predictor.guarantees_ == 0) & ~predictor.is_capped_).tolist(),
        "origin": origin_of_thresholds(predictor.fit_),
        "weights": {name: w.round(4).tolist() for name, w in predictor.fit_.weights.items()},
        "data_warnings": list(report.data_warnings),
        "metrics": as_plain(report.metrics()),
        "numbers": descriptions("report", report.target_text, report),
        "true_gap_interval": as_plain(report.true_gap_interval),
        "size_quantiles": report.size_quantiles,
        "strata": [stratum._asdict() for stratum in report.strata],
        "acceptance": _about_acceptance(report),
        "contributors": _about_contributors(report),
        "crowding": as_plain(report.crowding),
        "large_sets": report.large_sets,
        "states": [state.name.lower() for state in State],
        "verdict": verdict(report, usual_spread(predictor, report), predictor.fit_.keep_top),
        "remedies": remedies(predictor, report),
        "classes": _class_columns(predictor, report, counts),
        "groups": _about_groups(predictor),
    }


def _about_groups(predictor: BasePredictor) -> dict[str, Any]:
    """Return the group of each class (-1 for none), and whose scores each group has."""
    groups = predictor.fit_.groups
    if groups is None:
        return {"of_class": [-1] * predictor.n_classes_, "whose": [], "rows": [], "rank": []}
    counts, alpha = groups.scores.counts, predictor.fit_.alpha
    # The rank of a group's threshold among its scores; 0 where classes have their own ranks.
    ranks = 0 * counts
    if alpha.is_one:
        ranks = conformal_ranks(counts, alpha.typical, getattr(predictor, "confidence", None))
    return {
        "of_class": groups.of_class.tolist(),
        "whose": groups.whose,
        "rows": counts.tolist(),
        "rank": ranks.tolist(),
    }


def target_values(alpha: ClassAlpha) -> str:
    """Return the target coverage of all classes, or the values with their numbers of classes.

    >>> target_values(ClassAlpha.of([0.1, 0.1, 0.01], None, 3))
    '90% for 2 classes and 99% for 1 class'
    """
    shown = [percent(float(1 - value), 2) for value in alpha.values]
    if alpha.is_one:
        return shown[0]
    if len(shown) > MOST_TARGETS:
        return f"{shown[-1]} to {shown[0]}, by class"
    numbers = np.bincount(alpha.of_class, minlength=len(shown)).tolist()
    texts = [
        f"{target} for {n:,} class{'es' * (n > 1)}"
        for target, n in zip(shown, numbers, strict=True)
    ]
    return " and ".join(reversed(texts))


def _about_guarantees(predictor: BasePredictor) -> str:
    """State the range of guaranteed coverage, if classes have guarantees that differ."""
    guarantees = predictor.guarantees_[~predictor.is_capped_]
    lowest, highest = (
        percent(float(f(guarantees, initial=x)), 0) for f, x in ((np.min, 1), (np.max, 0))
    )
    if lowest == highest:
        return ""
    return f"Depending on its calibration examples, a class is guaranteed {lowest} to {highest}."


def _about_acceptance(report: CoverageReport) -> dict[str, Any]:
    """Return how many predictions are accepted and right, and the nodes to look at."""
    nodes = report.answering_nodes
    unsafe = [node for node in nodes if node["unsafe"]]
    share, accuracy = report.accepted_share, as_plain(report.accepted_accuracy)
    low, high = report.accepted_accuracy_interval.tolist()
    of_all = {"share": share, "accuracy": accuracy, "low": low, "high": high}
    if report.answers:
        of_all = report.answers[-1]
    return {
        "share": of_all["share"],
        "accuracy": of_all["accuracy"],
        "interval": [of_all["low"], of_all["high"]],
        "target": report.accept_accuracy,
        "answers": report.answers,
        "n_unsafe": len(unsafe),
        "nodes": (nodes if report.answers else unsafe)[:MOST_NODES],
    }


def _about_contributors(report: CoverageReport) -> list[dict[str, Any]]:
    """Return the classes that add the most wrong labels to sets, and how many."""
    assert report.appearances is not None
    table = []
    for index in report.largest_contributors().tolist():
        n_sets, n_right = int(report.appearances[index]), int(report.class_covered[index])
        shares = {"sets": n_sets / report.n_rows, "right": n_right / n_sets}
        table.append({"class": index, **shares, "wrong": n_sets - n_right})
    return table


def _class_columns(
    predictor: BasePredictor, report: CoverageReport, counts: ReportCounts
) -> dict[str, Any]:
    assert report.confusions is not None
    assert report.calibration_counts is not None
    assert report.size_sums is not None
    limits = report.class_coverage_interval.round(4)
    with np.errstate(invalid="ignore"):
        sizes = (report.size_sums / report.class_counts).round(2)
    names = report.class_names or [f"class {k}" for k in range(report.n_classes)]
    columns: dict[str, Any] = {
        "name": list(map(str, names)),
        "rows": report.class_counts.tolist(),
        "covered": report.class_covered.tolist(),
        "low": limits[:, 0].tolist(),
        "high": limits[:, 1].tolist(),
        "state": "".join(map(str, class_states(report).tolist())),
        "calibration": report.calibration_counts.tolist(),
        "threshold": [
            float(f"{threshold:.6g}") if np.isfinite(threshold) else None
            for threshold in predictor.thresholds_.tolist()
        ],
        "size": as_plain(sizes),
        "confused": [
            [number for pair in report.confusions.of_class(index) for number in pair]
            for index in range(report.n_classes)
        ],
        "examples": [
            sorted(examples, key=lambda example: example[1]) for examples in counts.examples
        ],
    }
    if report.class_alpha is not None:
        columns["target"] = report.class_target.round(6).tolist()
    if predictor.guarantees_.any():
        columns["guaranteed"] = predictor.guarantees_.round(4).tolist()
        columns["set_by_floor"] = set_by_floor(predictor.fit_).tolist()
    if predictor.is_capped_.any():
        capped = np.flatnonzero(predictor.is_capped_)
        columns["price"] = {str(y): prices(predictor.fit_, np.array([y])) for y in capped.tolist()}
    if report.cluster_of_class is not None and (report.cluster_of_class >= 0).any():
        columns["cluster"] = report.cluster_of_class.tolist()
    return columns


# ---- the comparison ------------------------------------------------------------------------------


def comparison_content(comparison: Comparison) -> dict[str, Any]:
    """Return `Comparison.to_dict` with names, headline and the meaning of the metrics."""
    content = comparison.to_dict()
    for row, candidate in zip(content["candidates"], comparison.candidates, strict=True):
        row["name"] = candidate.name
        row["is_recommended"] = candidate is comparison.recommended
    headline, *advice = comparison.reason.splitlines()
    metrics = descriptions("comparison", comparison.target)
    words = {"headline": headline, "advice": advice, "target": comparison.target}
    return content | words | {"n_classes": comparison.n_classes, "metrics": metrics}
