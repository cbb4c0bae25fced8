"""The one pass over the test rows that the page is made from, here or on other workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.comparison.result import Comparison
from evencover.data.source import Block
from evencover.engine.blocks import fold_source
from evencover.evaluation.metrics import descriptions
from evencover.evaluation.report import Confusions, CoverageReport, Tally
from evencover.evaluation.statistics import clopper_pearson
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import Sharing
from evencover.predictors.fitting import align_to_calibration, require_labels
from evencover.predictors.rule import SetRule
from evencover.predictors.shift_checks import ScoreBins
from evencover.quantiles import GroupedScores
from evencover.report.page import percent
from evencover.report.verdict import State, class_states, remedies, usual_spread, verdict
from evencover.scores import make_score
from evencover.sets import PredictionSets
from evencover.taxonomy import Taxonomy


class Gathered(NamedTuple):
    """What one pass over the test rows leaves behind.

    ``histogram`` (K, B) counts the scores of each class's rows by `score_bins`;
    ``covered_by_size`` (K + 1,) counts covered rows by their set's size.
    """

    report: CoverageReport
    histogram: IntArray
    covered_by_size: IntArray
    examples: Examples


class BlockView(NamedTuple):
    """A block and what was found out about its rows."""

    block: Block
    sets: PredictionSets
    is_covered: Array
    top_classes: IntArray
    bins: IntArray
    scores_by_bin: IntArray
    names: Array | None
    temperature: float | None


class Seen(NamedTuple):
    """What is kept of consecutive rows; as in `Gathered`, and all scores by `ScoreBins`."""

    tally: Tally
    confusions: Confusions
    histogram: IntArray
    covered_by_size: IntArray
    scores_by_bin: IntArray
    examples: list[Example]


@dataclass(frozen=True)
class Look:
    """Looks at one block: ``edges`` bound the bins of scores, ``names`` are the user's row ids.

    ``calibration_edges`` are those of the predictor's `ScoreBins`; none, if it keeps none.
    """

    rule: SetRule
    edges: FloatArray
    calibration_edges: FloatArray
    names: Array | None

    def __call__(self, block: Block, ids: Array | None) -> BlockView:
        """All that takes time; blocks may be looked at side by side."""
        assert block.labels is not None
        scoring = self.rule.scoring
        scores = scoring.score.from_base(scoring.true_labels(block, ids), block.labels)
        sets = self.rule.sets(block, ids)
        own = slice(block.start, block.start + len(block.rows))
        return BlockView(
            block,
            sets,
            sets.contains(block.labels),
            block.rows.argmax(axis=1),
            np.searchsorted(self.edges[1:-1], scores, side="left"),
            ScoreBins.histogram(self.calibration_edges, scores),
            None if self.names is None else self.names[own],
            scoring.temperature if scoring.logits else None,
        )


@dataclass(frozen=True)
class Together:
    """Merges views of consecutive blocks, and what was seen in consecutive parts."""

    n_classes: int
    n_bins: int
    taxonomy: Taxonomy | None = None

    def __call__(self, parts: Iterable[BlockView | Seen]) -> Seen:
        """One after the other: only rows that may still be shown become examples."""
        tally, confusions = Tally.zeros(self.n_classes), [Confusions.none(self.n_classes)]
        histogram = np.zeros((self.n_classes, self.n_bins), dtype=np.int64)
        covered_by_size = np.zeros(self.n_classes + 1, dtype=np.int64)
        scores_by_bin = np.zeros(1, dtype=np.int64)
        examples = Examples(self.n_classes, self.taxonomy)
        for part in parts:
            scores_by_bin = scores_by_bin + part.scores_by_bin
            if isinstance(part, Seen):
                tally = tally + part.tally
                confusions.append(part.confusions)
                histogram += part.histogram
                covered_by_size += part.covered_by_size
                examples.take(part.examples)
                continue
            labels, sizes = part.block.labels, part.sets.sizes
            assert labels is not None
            tally = tally + Tally.of_rows(labels, part.is_covered, sizes, self.n_classes)
            confusions.append(Confusions.of(labels, part.top_classes, self.n_classes))
            np.add.at(histogram, (labels, part.bins), 1)
            np.add.at(covered_by_size, sizes[part.is_covered], 1)
            examples.take(
                examples.among(part.block, part.sets, part.is_covered, part.names, part.temperature)
            )
            if len(confusions) == 256:  # memory must not grow with the number of rows
                confusions = [Confusions.total(confusions)]
        together = Confusions.total(confusions)
        return Seen(
            tally,
            together,
            histogram,
            covered_by_size,
            scores_by_bin,
            examples.in_order(),
        )


def gather(
    predictor: BasePredictor,
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    groups: Any = None,
    executor: Any = None,
    taxonomy: Any = None,
) -> Gathered:
    """Read labelled rows once, in blocks, and keep only what the page needs."""
    source = align_to_calibration(predictor, probabilities, labels)
    tree = None if taxonomy is None else Taxonomy.read(taxonomy, source.class_names)
    require_labels(source, "A report")
    n_classes, edges = predictor.n_classes_, score_bins(predictor).edges
    names = None if ids is None else to_numpy(ids)
    known = np.zeros(0) if predictor.score_edges_ is None else predictor.score_edges_
    look: Any = Look(predictor.rule(logits=source.logits, groups=groups), edges, known, names)
    together = Together(n_classes, len(edges) - 1, tree)
    seen: Seen = fold_source(source, ids, look, together, most_confused, executor)
    report = predictor.coverage_report(source, seen.tally, seen.confusions, seen.scores_by_bin)
    examples = Examples(n_classes)
    examples.take(seen.examples)
    return Gathered(report, seen.histogram, seen.covered_by_size, examples)


def most_confused(seen: Seen) -> Seen:
    """Only the confusions that are shown."""
    return seen._replace(confusions=seen.confusions.most_frequent())


MANY_EMPTY = 0.01  # from this share on, the page says how to avoid empty sets


def size_histogram(size_counts: IntArray, most: int = 40) -> dict[str, list[int]]:
    """Sets counted by size, in at most about `most` bars of equal width.

    >>> size_histogram(np.array([1, 5, 2, 0]))
    {'from': [0, 1, 2], 'to': [0, 1, 2], 'count': [1, 5, 2]}
    """
    largest = int(np.flatnonzero(size_counts)[-1])
    width = max(1, -(-(largest + 1) // most))
    starts = np.arange(0, largest + 1, width)
    counts = np.add.reduceat(size_counts[: largest + 1], starts)
    ends = np.minimum(starts + width - 1, len(size_counts) - 1)
    return {"from": starts.tolist(), "to": ends.tolist(), "count": counts.tolist()}


def coverage_by_size(size_counts: IntArray, covered: IntArray) -> list[dict[str, Any]]:
    """Rows and covered rows by the size of their set: 0, 1, 2, 3 to 5, 6 to 10, 11 to 20, ...

    Both inputs (K + 1,) count by size; a record has the 95% limits of its coverage, too. Sizes
    that no set has are left out.

    >>> [(r["from"], r["to"], r["coverage"]) for r in
    ...  coverage_by_size(np.array([1, 4, 0, 1, 1]), np.array([0, 3, 0, 1, 1]))]
    [(0, 0, 0.0), (1, 1, 0.75), (3, 4, 1.0)]
    """
    n_classes, table = len(size_counts) - 1, []
    for first, after in pairwise(_steps(n_classes)):
        rows, hits = int(size_counts[first:after].sum()), int(covered[first:after].sum())
        if rows:
            low, high = clopper_pearson(hits, rows).round(4).tolist()
            counts = {"from": first, "to": min(after - 1, n_classes), "rows": rows, "covered": hits}
            table.append(counts | {"coverage": hits / rows, "low": low, "high": high})
    return table


def _steps(n_classes: int) -> list[int]:
    """Where the ranges of sizes begin: every size up to 3, then after 5, 10, 20, 50, 100, ..."""
    steps, power = [0, 1, 2, 3], 1
    while steps[-1] <= n_classes:
        steps += [5 * power + 1, 10 * power + 1, 20 * power + 1]
        power *= 10
    return steps


def about_empty_sets(predictor: BasePredictor, report: CoverageReport) -> str:
    """The share of empty sets and the option that avoids them, if there are many; else nothing."""
    if report.empty_share <= MANY_EMPTY or not predictor.allow_empty:
        return ""
    return (
        f"{percent(report.empty_share)} of the sets are empty. Calibrate with allow_empty=False "
        "(--no-allow-empty in the shell) to keep the most probable class in each of them."
    )


N_BINS = 20


class Bins(NamedTuple):
    """Bins of scores, each with about as many calibration scores as any other.

    Scores crowd at one end (most softmax scores are near 0, thresholds near 1), so equal steps
    would show one full bar and hide what matters. ``edges`` (B + 1,) are scores; ``places``
    (B + 1,) is where they are drawn: the share of calibration scores up to there.
    """

    edges: FloatArray
    places: FloatArray


def score_bins(predictor: BasePredictor) -> Bins:
    """Bins for the scores of all classes alike, so that classes can be compared by eye."""
    kept = sharing_of(predictor).scores.scores
    scores = np.sort(kept[np.isfinite(kept)])
    if len(scores) == 0:
        return _bins_without_scores(predictor.thresholds_)
    inner = np.unique(np.quantile(scores, np.arange(1, N_BINS) / N_BINS, method="inverted_cdf"))
    inner = _snapped(inner[inner < scores[-1]], predictor.thresholds_, scores)
    shares = np.searchsorted(scores, inner, side="right") / len(scores)
    return Bins(
        np.concatenate([[min(scores[0], 0.0)], inner, [max(scores[-1], np.nextafter(0, 1))]]),
        np.concatenate([[0.0], shares, [1.0]]),
    )


def _bins_without_scores(thresholds: FloatArray) -> Bins:
    """For methods that keep no scores: finest where the thresholds are, bars of equal width."""
    finite = thresholds[np.isfinite(thresholds)]
    top = max(1.0, finite.max(initial=1.0))
    crowd = np.quantile(finite, np.arange(1, 10) / 10) if len(finite) else finite
    edges = np.unique(np.concatenate([np.linspace(0, top, 11), crowd]))
    return Bins(edges, np.linspace(0, 1, len(edges)))


def _snapped(edges: FloatArray, thresholds: FloatArray, scores: FloatArray) -> FloatArray:
    """Move the nearest free edge to each threshold, if few: no bin is then partly covered."""
    wanted = np.unique(thresholds[np.isfinite(thresholds)])
    if not 0 < len(wanted) <= len(edges) // 2:
        return edges
    places, moved = np.searchsorted(scores, edges, side="right"), edges.copy()
    free = np.ones(len(edges), dtype=bool)
    for threshold in wanted:
        distance = np.abs(places - np.searchsorted(scores, threshold, side="right"))
        nearest = int(np.where(free, distance, len(scores) + 1).argmin())
        free[nearest], moved[nearest] = False, threshold
    return np.unique(moved[moved < scores[-1]])


def threshold_columns(predictor: BasePredictor, report: CoverageReport) -> dict[str, Any]:
    """One entry per class: its threshold and where in the bins that is; None if in every set.

    Both are None everywhere for a method that has no thresholds of classes.
    """
    if report.thresholds is None:
        return {name: [None] * report.n_classes for name in ("threshold", "place")}
    bins, thresholds = score_bins(predictor), report.thresholds
    places = np.interp(thresholds, bins.edges, bins.places)
    finite = np.isfinite(thresholds)
    return {
        "threshold": [
            float(f"{q:.6g}") if known else None
            for q, known in zip(thresholds.tolist(), finite, strict=True)
        ],
        "place": [
            round(place, 4) if known else None
            for place, known in zip(places.tolist(), finite, strict=True)
        ],
    }


def weight_columns(predictor: BasePredictor) -> dict[str, list[float]]:
    """What each class's threshold comes from, in shares; nothing if the method has no such."""
    return {name: shares.round(4).tolist() for name, shares in predictor._weights().items()}


def group_columns(predictor: BasePredictor) -> dict[str, Any]:
    """The bins and, with one entry per group, calibration rows, conformal rank, scores by bin."""
    bins, sharing = score_bins(predictor), sharing_of(predictor)
    groups = sharing.scores
    ranks = predictor.group_ranks(groups.counts)
    # An edge belongs to the bin on its left, as a score equal to the threshold is covered.
    counts = [
        np.diff(np.searchsorted(groups.of(g), bins.edges[1:-1], "right"), prepend=0, append=n)
        for g, n in enumerate(groups.counts.tolist())
    ]
    return {
        "of_class": sharing.group_of_class.tolist(),
        "whose": list(sharing.whose),
        "reference": list(sharing.reference),
        "rows": groups.counts.tolist(),
        "rank": ranks.tolist(),
        "histogram": [int(count) for group in counts for count in group],
        "bin_edges": _distinct(bins.edges),
        "bin_places": bins.places.round(4).tolist(),
    }


def _distinct(edges: FloatArray) -> list[float]:
    """Edges with four digits, or as many as it takes to tell them apart.

    >>> _distinct(np.array([0.123456, 0.99996, 1.0]))
    [0.12346, 0.99996, 1.0]
    """
    short = edges.tolist()
    for digits in range(4, 17):
        short = [float(f"{edge:.{digits}g}") for edge in edges.tolist()]
        if len(set(short)) == len(short):
            break
    return short


def sharing_of(predictor: BasePredictor) -> Sharing:
    """The calibration scores behind each threshold; no groups if the method keeps none."""
    sharing = predictor._sharing()
    if sharing is not None:
        return sharing
    nowhere = np.full(predictor.n_classes_, -1, dtype=np.int64)
    return Sharing(GroupedScores(np.zeros(0), np.zeros(1, dtype=np.int64)), nowhere, (), ())


class Example(NamedTuple):
    """A row and its set, of which the most probable members are kept.

    ``percent`` is the probability of the true class in percent; ``percents`` those of ``members``;
    ``summary`` says the whole set in the words of a taxonomy, if there is one.
    """

    label: int
    covered: bool
    row: int | str
    size: int
    percent: float
    members: list[int]
    percents: list[float]
    summary: str = ""


class Examples:
    """The first few covered and missed rows of each class, whatever the blocks they come in.

    Parameters
    ----------
    n_classes
        K; with very many classes fewer rows and shorter sets are kept, to keep the page small.
    taxonomy
        A tree of classes in whose words sets are said, too.
    """

    def __init__(self, n_classes: int, taxonomy: Taxonomy | None = None) -> None:
        self.taxonomy = taxonomy
        many = n_classes > 3000
        self.n_members = 6 if many else 10
        # How many more are wanted, by class, of missed (column 0) and covered rows (column 1).
        self.room = np.tile(np.array([2, 1] if many else [3, 2]), (n_classes, 1))
        self.kept: list[list[Example]] = [[] for _ in range(n_classes)]

    def among(
        self,
        block: Block,
        sets: PredictionSets,
        covered: Array,
        ids: Array | None,
        temperature: float | None,
    ) -> list[Example]:
        """The rows of a block that may be wanted.

        `covered` (n,) says whose set holds the label; `ids` (n,) are what the user calls the rows,
        if not by their place; `temperature` is None unless the rows are logits.
        """
        labels = block.labels
        assert labels is not None
        places = _first_of_each(labels * 2 + covered, self.room.ravel())
        examples = []
        for place in places.tolist():
            label, members = int(labels[place]), sets[place]
            chances = _percentages(block.rows[place], temperature)
            shown = members[np.argsort(-chances[members], kind="stable")][: self.n_members]
            examples.append(
                Example(
                    label,
                    bool(covered[place]),
                    block.start + place if ids is None else ids[place : place + 1].tolist()[0],
                    len(members),
                    _short(chances[label]),
                    shown.tolist(),
                    [_short(chance) for chance in chances[shown]],
                    "" if self.taxonomy is None else self.taxonomy.describe(members),
                )
            )
        return examples

    def take(self, examples: list[Example]) -> None:
        """Keep what there is room for; blocks must come in order."""
        for example in examples:
            kind = int(example.covered)
            if self.room[example.label, kind]:
                self.room[example.label, kind] -= 1
                self.kept[example.label].append(example)

    def in_order(self) -> list[Example]:
        """All that are kept; rows of the same class in the order of the data."""
        return [example for kept in self.kept for example in kept]

    def columns(self) -> list[list[list[Any]]]:
        """By class, missed rows first: [row, covered, size, percent, members, percents, summary].

        The last is left out without a taxonomy.
        """
        return [
            [
                [e.row, int(e.covered), e.size, e.percent, e.members, e.percents]
                + ([e.summary] if e.summary else [])
                for e in sorted(kept, key=lambda example: example.covered)
            ]
            for kept in self.kept
        ]


def _first_of_each(kinds: IntArray, wanted: IntArray) -> IntArray:
    """Places of the first ``wanted[kind]`` rows of each kind, ascending.

    >>> _first_of_each(np.array([1, 0, 1, 1]), np.array([5, 2])).tolist()
    [0, 1, 2]
    """
    order = np.argsort(kinds, kind="stable")
    counts = np.bincount(kinds, minlength=len(wanted))
    nth = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[nth < wanted[kinds[order]]])


def _percentages(row: Array, temperature: float | None) -> FloatArray:
    values = row.astype(np.float64)
    if temperature is not None:
        values = np.exp((values - values.max()) / temperature)
    return 100 * values / values.sum()


def _short(percent: float) -> float:
    """Whole percents; one digit more below ten."""
    return round(float(percent)) if percent >= 9.95 else round(float(percent), 1)


def report_content(
    predictor: BasePredictor,
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    groups: Any = None,
    executor: Any = None,
    taxonomy: Any = None,
) -> dict[str, Any]:
    """Everything the page shows, ready for JSON: columns with one entry per class or group."""
    rows: Any = {"ids": ids, "groups": groups, "executor": executor, "taxonomy": taxonomy}
    return describe(predictor, gather(predictor, probabilities, labels, **rows))


def describe(predictor: BasePredictor, seen: Gathered) -> dict[str, Any]:
    """`report_content` of what was gathered."""
    report = seen.report
    spread = usual_spread(report, *_calibrating_rows(predictor))
    return {
        "method": predictor.method,
        "score": make_score(predictor.score).name,
        "alpha": report.alpha,
        "exact": predictor.exact,
        "allow_empty": predictor.allow_empty,
        "n_rows": report.n_rows,
        "n_classes": report.n_classes,
        "n_classes_evaluated": report.n_classes_evaluated,
        "n_calibration": predictor.n_calibration_,
        "guarantee": in_percent(predictor.promise, report.alpha),
        "has_thresholds": report.thresholds is not None,
        "origin": predictor.origin,
        "weights": weight_columns(predictor),
        "facts": predictor._class_facts(),
        "doubts": list(report.doubts),
        "metrics": {name: _or_none(value) for name, value in report.metrics().items()},
        "numbers": descriptions("report", percent(1 - report.alpha), report),
        "true_gap_interval": [_or_none(limit) for limit in report.true_gap_interval],
        "size_quantiles": report.size_quantiles,
        "size_over_classes": round(report.avg_size_over_classes, 2),
        "sizes": size_histogram(report.size_counts),
        "coverage_by_size": coverage_by_size(report.size_counts, seen.covered_by_size),
        "empty_sets": about_empty_sets(predictor, report),
        "states": [state.name.lower() for state in State],
        "verdict": verdict(report, spread),
        "remedies": remedies(predictor, report),
        "classes": class_columns(seen) | threshold_columns(predictor, report),
        "groups": group_columns(predictor),
    }


def in_percent(sentence: str, alpha: float) -> str:
    """A sentence about 1 - alpha with the number in its place.

    >>> in_percent("Coverage of 1 - alpha is guaranteed, not of 1 - 2 alpha.", 0.1)
    'Coverage of 90% is guaranteed, not of 80%.'
    """
    twice = percent(max(0.0, 1 - 2 * alpha))
    return sentence.replace("1 - 2 alpha", twice).replace("1 - alpha", percent(1 - alpha))


def _or_none(value: float) -> float | None:
    """JSON has no NaN; a true gap is unknown where no class has two test rows."""
    return None if np.isnan(value) else value


def _calibrating_rows(predictor: BasePredictor) -> tuple[IntArray, IntArray]:
    """The group of each class, and the rows behind each group; all rows where there are none."""
    sharing = sharing_of(predictor)
    if (sharing.group_of_class < 0).any():
        return np.zeros_like(sharing.group_of_class), np.array([predictor.n_calibration_])
    return sharing.group_of_class, sharing.scores.counts


def class_columns(seen: Gathered) -> dict[str, Any]:
    """One entry per class in each column; counts are whole numbers, shares have four digits."""
    report = seen.report
    assert report.confusions is not None
    assert report.calibration_counts is not None
    assert report.size_sums is not None
    states = class_states(report)
    limits = report.class_coverage_interval.round(4)
    with np.errstate(invalid="ignore"):
        sizes = (report.size_sums / report.class_counts).round(2)
    columns: dict[str, Any] = {
        "name": class_names(report),
        "rows": report.class_counts.tolist(),
        "covered": report.class_covered.tolist(),
        "low": limits[:, 0].tolist(),
        "high": limits[:, 1].tolist(),
        "state": "".join(map(str, states.tolist())),
        "calibration": report.calibration_counts.tolist(),
        "size": [None if np.isnan(size) else size for size in sizes.tolist()],
        "confused": [
            [number for pair in report.confusions.of_class(index) for number in pair]
            for index in range(report.n_classes)
        ],
        "histogram": seen.histogram.ravel().tolist(),
        "examples": seen.examples.columns(),
    }
    if report.cluster_of_class is not None and (report.cluster_of_class >= 0).any():
        columns["cluster"] = report.cluster_of_class.tolist()
    return columns


def class_names(report: CoverageReport) -> list[str]:
    """The classes' names, with a stand-in where there is none."""
    given = [""] * report.n_classes if report.class_names is None else report.class_names
    names = (str(name) for name in given)
    return [name if name.strip() else f"class {place}" for place, name in enumerate(names)]


def comparison_content(comparison: Comparison) -> dict[str, Any]:
    """`Comparison.to_dict`, with names and places for the page."""
    content = comparison.to_dict()
    for row, candidate in zip(content["candidates"], comparison.candidates, strict=True):
        row["name"] = candidate.name
        row["is_pick"] = candidate is comparison.pick
    content["headline"] = _headline(comparison)
    advice = f"Use {comparison.best.name}: "
    content["lead"] = _lead(content["headline"], content["reason"], advice)
    content["metrics"] = descriptions("comparison", "the aim")
    return content


def _headline(comparison: Comparison) -> str:
    name = comparison.best.name
    if comparison.pick is None:
        return "No candidate meets the requirements."
    if len(comparison.candidates) == 1:
        return f"Only {name} was tried."
    others = [each for each in comparison.allowed if each is not comparison.pick]
    if others and not any(comparison.difference_to_best(each).is_clear for each in others):
        return f"Nothing is clearly best; {name} has the lowest cost."
    return f"Use {name}: the best balance of even coverage and small sets."


def _lead(headline: str, reason: str, advice: str) -> str:
    """The reason, without saying again what the headline has said."""
    if not headline.startswith(advice):
        return reason
    rest = reason.removeprefix(advice)
    return rest[:1].upper() + rest[1:]
