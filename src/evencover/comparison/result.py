"""The result of a comparison: the recommendation, alternatives, and exclusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import FloatArray, data_frame
from evencover.comparison.splits import CalibrationSize
from evencover.comparison.trials import Outcome
from evencover.evaluation.metrics import metric_names, shown_in
from evencover.evaluation.report import CoverageReport, as_plain
from evencover.evaluation.statistics import root_and_error, squared_gaps, squared_shortfalls
from evencover.evaluation.suppliers import Suppliers
from evencover.predictors.fit import as_json
from evencover.templates import Card, Shown
from evencover.text_tables import NO_BREAK, aligned, folded
from evencover.validation import raise_unknown

MOST_LISTED = 6  # of candidates that a line lists
MOST_SELECTED = 4  # candidates in the short table
MOST_COST = 2  # times the lowest cost; candidates beyond are no alternative
MOST_CLASSES = 3  # that the recommendation names
MOST_NOISE = 0.05  # standard error of a named class's coverage, if two are that precise
# Roots of means of squares, which are averaged over the splits before the root.
SQUARES = {"true_gap": squared_gaps, "shortfall": squared_shortfalls}


class Difference(NamedTuple):
    """How much larger a candidate's cost is than the best one's, over the same splits."""

    mean: float
    standard_error: float
    is_significant: bool


@dataclass(frozen=True, eq=False, repr=False)
class Candidate:
    """One method with one score: its report and its cost on each split.

    ``target`` is the coverage that the method targets: of all rows, or the mean over classes
    ("macro_coverage"). ``predictor`` has the method's parameters, and ``suppliers`` are the few
    classes with most labels, on the first split.
    """

    method: str
    score: str
    reports: tuple[CoverageReport, ...]
    costs: tuple[float, ...]
    target: str = "marginal_coverage"
    predictor: Any = None
    suppliers: Suppliers | None = None

    @classmethod
    def of(cls, method: str, score: str, tried: Sequence[Outcome]) -> Candidate:
        """Summarize the outcomes on all splits."""
        return cls(
            method,
            score,
            tuple(outcome.report for outcome in tried),
            tuple(outcome.cost for outcome in tried),
            "marginal_coverage" if tried[0].predictor.fit_.targets_average else "macro_coverage",
            replace(tried[0].predictor),  # without the fit
            tried[0].suppliers,
        )

    @property
    def max_share(self) -> Any:
        """The cap on the share of sets that a class may enter, None if there is none."""
        return as_json(getattr(self.predictor, "max_share", None))

    @property
    def name(self) -> str:
        """The method, the score and the cap, as shown."""
        cap = "" if self.max_share is None else f", max_share {self.max_share}"
        return f"{self.method} + {self.score}{cap}"

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.reports)} splits>"

    def values(self, metric: str) -> FloatArray:
        """Return a metric on each split; "cost" is one, too."""
        if metric == "cost":
            return np.array(self.costs)
        return np.array([getattr(report, metric) for report in self.reports])

    def mean(self, metric: str) -> float:
        """Compute a metric's mean over the splits; that of `SQUARES` before their root."""
        return self._mean_and_error(metric)[0]

    def standard_error(self, metric: str) -> float:
        """Compute the standard error of the mean over the splits, as in the paper (ddof = 1)."""
        return self._mean_and_error(metric)[1]

    def _mean_and_error(self, metric: str) -> tuple[float, float]:
        if metric in SQUARES:
            by_split = [
                SQUARES[metric](report.class_covered, report.class_counts, report.alphas)
                for report in self.reports
            ]
            measured = [squares[~np.isnan(squares)] for squares in by_split]
            values = np.array([squares.mean() for squares in measured if len(squares)])
        else:
            values = self.values(metric)
        if not len(values):  # no class has enough test rows
            return np.nan, np.nan
        mean, n = float(values.mean()), len(values)
        error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
        return root_and_error(mean, error) if metric in SQUARES else (mean, error)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """The result of `compare` at one calibration size, and at ``smaller`` ones if there are any.

    Attributes
    ----------
    candidates
        One per method and score.
    alpha, n_splits
        The level, and the number of splits.
    n_calibration, n_test
        The number of rows in each part of a split.
    calibration_size
        What was asked for: examples of each class, or a fraction of all rows.
    smaller
        Comparisons at smaller calibration sizes, ascending: the learning curve.
    large_sets
        Which few classes supply most labels in the sets of `best`, and what a cap would give.
    """

    candidates: tuple[Candidate, ...]
    alpha: float
    n_splits: int
    n_calibration: int
    n_test: int
    calibration_size: CalibrationSize = 0.5
    smaller: tuple[Comparison, ...] = ()
    large_sets: str = ""

    @property
    def by_size(self) -> tuple[Comparison, ...]:
        """The comparisons at all calibration sizes, ascending."""
        return (*self.smaller, self)

    @property
    def target(self) -> str:
        """Target coverage in words: of every class, or each class's own."""
        return "its target" if self._is_per_class else f"{100 * (1 - self.alpha):.4g}%"

    @property
    def _is_per_class(self) -> bool:
        return self.candidates[0].reports[0].class_alpha is not None

    @property
    def _short_target(self) -> str:
        return "target" if self._is_per_class else self.target

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return self.candidates[0].reports[0].n_classes

    @property
    def noise_floor(self) -> float:
        """The CovGap that a method with exactly 1 - alpha for every class would show."""
        return self.candidates[0].mean("covgap_noise_floor")

    # ---- eligible candidates -----------------------------------------------------------------

    def costs_too_much(self, candidate: Candidate) -> bool:
        """Whether sets of all K classes, which cost K, would cost no more."""
        return candidate.mean("cost") >= self.n_classes

    def covers_too_little(self, candidate: Candidate) -> bool:
        """Whether the coverage that it targets is significantly below 1 - alpha.

        By more than two standard deviations of one split's coverage, its calibration's included.
        """
        target, test_variance = 1 - self.alpha, 1 / self.n_test
        if candidate.target != "marginal_coverage":
            # Of a mean over classes, which have as many rows in calibration as in the test.
            counts = candidate.reports[0].class_counts[candidate.reports[0].evaluated]
            test_variance = float((1 / counts).sum()) / len(counts) ** 2
            means = [r.class_target[r.evaluated].mean() for r in candidate.reports]
            target = float(np.mean(means))
        variance = test_variance * (1 + self.n_test / self.n_calibration)
        shortfall = target - candidate.mean(candidate.target)
        return bool(shortfall > 2 * np.sqrt(target * (1 - target) * variance))

    def _is_standard(self, candidate: Candidate) -> bool:
        """Whether all its costs are those of STANDARD, as CLUSTERED's are with few examples."""
        standard = [c for c in self.candidates if c.method == "standard"]
        known = [(c.score, c.costs) for c in standard]
        return candidate not in standard and (candidate.score, candidate.costs) in known

    @cached_property
    def allowed(self) -> list[Candidate]:
        """Candidates that cover enough."""
        return [candidate for candidate in self.candidates if not self.covers_too_little(candidate)]

    # ---- points to choose from --------------------------------------------------------------

    @cached_property
    def best(self) -> Candidate:
        """The lowest cost among those allowed; if there are none, among all."""
        return min(self.allowed or self.candidates, key=lambda candidate: candidate.mean("cost"))

    @property
    def recommended(self) -> Candidate | None:
        """The recommended candidate: `best`, or None if none is allowed."""
        return self.best if self.allowed else None

    @property
    def smallest(self) -> Candidate | None:
        """The smallest sets among those allowed, unless twice as costly as the best."""
        return min(self._offered, key=lambda candidate: candidate.mean("avg_size"), default=None)

    @property
    def most_even(self) -> Candidate | None:
        """The lowest shortfall among those allowed, unless twice as costly; None if unknown."""
        measured = [c for c in self._offered if not np.isnan(c.mean("shortfall"))]
        return min(measured, key=lambda c: (c.mean("shortfall"), c.mean("avg_size")), default=None)

    @property
    def baseline(self) -> Candidate | None:
        """What others are compared with: STANDARD with the recommended score, or with the first."""
        standard = [candidate for candidate in self.candidates if candidate.method == "standard"]
        same_score = [c for c in standard if c.score == self.best.score]
        return next(iter([*same_score, *standard]), None)

    @property
    def runner_up(self) -> Candidate | None:
        """The lowest cost among those allowed but `best`."""
        others = [candidate for candidate in self.allowed if candidate is not self.best]
        return min(others, key=lambda candidate: candidate.mean("cost"), default=None)

    @property
    def selection(self) -> list[Candidate]:
        """The few candidates to choose from: `best`, and those that others may prefer."""
        points = (self.best, self.most_even, self.baseline, self.smallest, self.runner_up)
        chosen: dict[int, Candidate] = {id(point): point for point in points if point is not None}
        return list(chosen.values())[:MOST_SELECTED]

    @property
    def _offered(self) -> list[Candidate]:
        """Candidates to name next to the recommended one, not twice as costly or uninformative."""
        most = min(self.n_classes, MOST_COST * self.best.mean("cost"))
        return [c for c in self.allowed if c is self.recommended or c.mean("cost") < most]

    def difference_to_best(self, candidate: Candidate) -> Difference:
        """Compute the paired difference in cost to `best` over the same splits.

        Splits of one data set overlap, so the standard error is corrected for that (Nadeau and
        Bengio 2003). Which candidate is best is itself subject to sampling noise, and a table has
        many pairs: a difference is significant only if it is so for all pairs at once (Bonferroni
        at 5%). So of twenty tables of equally good candidates, at most about one calls any of them
        significantly worse. With one split, none is significant.
        """
        from scipy.special import stdtrit

        differences = candidate.values("cost") - self.best.values("cost")
        mean = float(differences.mean())
        if self.n_splits < 2:
            return Difference(mean, float("nan"), False)
        overlap = 1 / self.n_splits + self.n_test / self.n_calibration
        error = float(np.sqrt(overlap * differences.var(ddof=1)))
        n = len(self.candidates)
        limit = float(stdtrit(self.n_splits - 1, 1 - 0.05 / max(1, n * (n - 1))))
        return Difference(mean, error, mean > limit * error and mean > 0)

    def is_on_pareto_front(self, candidate: Candidate) -> bool:
        """Whether no other candidate has both a lower shortfall and smaller sets."""
        points = np.array([[c.mean("shortfall"), c.mean("avg_size")] for c in self.candidates])
        point = np.array([candidate.mean("shortfall"), candidate.mean("avg_size")])
        return not ((points <= point).all(axis=1) & (points < point).any(axis=1)).any()

    # ---- the recommendation in words ---------------------------------------------------------

    @property
    def reason(self) -> str:
        """State the recommendation, its gain and price, and exclusions, line by line."""
        best, lines = self.best, [f"Recommended: {self.best.name}", *self._gain()]
        if self.recommended is None:
            lines = [f"No candidate reaches {self.target}. The lowest cost has {best.name}."]
        if self.costs_too_much(best):
            lines.append(
                f"Sets of all {self.n_classes} classes cost no more. Add calibration examples or "
                "improve the model."
            )
        if self.large_sets:
            lines.append(self.large_sets)
        for problem, applies in {
            f"Coverage significantly below {self.target}": self.covers_too_little,
            f"Cost no lower than that of all {self.n_classes} classes": self.costs_too_much,
            "The same sets as standard": self._is_standard,
        }.items():
            excluded = [c for c in self.candidates if applies(c) and c is not self.recommended]
            names = [candidate.name for candidate in excluded]
            more = [f"{len(names) - MOST_LISTED} more"] if len(names) > MOST_LISTED else []
            if names:
                lines.append(f"{problem}: {', '.join([*names[:MOST_LISTED], *more])}.")
        return "\n".join(lines)

    def _gain(self) -> list[str]:
        """State what `best` gains over the baseline, its price in labels, and for which classes."""
        best, other = self.best, self.baseline
        if other is None:
            return [f"It has {best.mean('avg_size'):.1f} labels per set."]
        if other is best:
            return ["It is the baseline; no candidate has a lower cost."]
        n_best, n_other = (round(c.mean("n_likely_below")) for c in (best, other))
        gain = f"{n_best:,} instead of {n_other:,} classes are below {self.target}"
        if n_best == n_other:
            gain = f"as many classes are below {self.target} ({n_best:,})"
        shortfalls = best.mean("shortfall"), other.mean("shortfall")
        if not np.isnan(shortfalls).any():
            gain += " and the shortfall is {:.1f} instead of {:.1f} points".format(*shortfalls)
        added = best.mean("avg_size") - other.mean("avg_size")
        price = f"for {added:.1f} more labels per set"
        if added < 0.05:
            price = "with sets of the same size"
        if added <= -0.05:
            price = f"with {-added:.1f} fewer labels per set"
        gain = f"Compared with {other.name}, {gain}, {price}."
        return [gain, *self._helped_classes()]

    def _helped_classes(self) -> list[str]:
        """Name classes that the baseline covers too little in most splits, and what `best` does."""
        best, other = self.best, self.baseline
        names = best.reports[0].class_names
        if other is None or names is None:
            return []
        is_below = np.sum([report.likely_below for report in other.reports], axis=0)
        classes = np.flatnonzero(2 * is_below > len(other.reports))
        counts = np.maximum(np.sum([report.class_counts for report in other.reports], axis=0), 1)
        before, after = (
            np.sum([report.class_covered for report in candidate.reports], axis=0) / counts
            for candidate in (other, best)
        )
        # Splits repeat the same examples, so a mean is as noisy as one test on all of them.
        n_examples = counts / self.n_splits * (1 + self.n_calibration / self.n_test)
        variance = np.maximum(before * (1 - before), after * (1 - after)) / n_examples
        precise = classes[variance[classes] < MOST_NOISE**2]
        named = precise if len(precise) > 1 else classes
        worst = named[np.argsort(before[named], kind="stable")][:MOST_CLASSES]
        changes = [
            f"{names[y]} {before[y]:.0%} -> {after[y]:.0%}".replace(" ", NO_BREAK) for y in worst
        ]
        more = f", and {len(classes) - len(worst)} more" if len(classes) > len(worst) else ""
        when = " in most splits" if self.n_splits > 1 else ""
        text = f"Undercovered by {other.name}{when}: {', '.join(changes)}{more}."
        return [text] if changes else []

    # ---- ways to read it ---------------------------------------------------------------------

    @property
    def _points(self) -> dict[str, Candidate | None]:
        names = ("recommended", "most_even", "baseline", "smallest")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        names = ("alpha", "n_splits", "n_calibration", "n_test", "noise_floor")
        points = {
            name: point
            and {"method": point.method, "score": point.score, "max_share": point.max_share}
            for name, point in self._points.items()
        }
        numbers = {name: getattr(self, name) for name in names}
        curve = {"learning_curve": self.rows()} if self.smaller else {}
        return {**numbers, "candidates": self._rows(), **points, "reason": self.reason, **curve}

    def to_pandas(self, of: str = "candidates") -> Any:
        """Build a pandas data frame of `rows`, or of all metrics by split (``of="splits"``)."""
        if of not in ("candidates", "splits"):
            raise_unknown("table", of, ("candidates", "splits"))
        records = self.rows() if of == "candidates" else self._splits()
        return data_frame({name: [row[name] for row in records] for name in records[0]}, None)

    def _splits(self) -> list[dict[str, Any]]:
        return [
            {"method": candidate.method, "score": candidate.score, "max_share": candidate.max_share}
            | {"n_calibration": result.n_calibration, "split": split, "cost": cost}
            | {name: getattr(report, name) for name in metric_names()}
            for result in self.by_size
            for candidate in result.candidates
            for split, (cost, report) in enumerate(
                zip(candidate.costs, candidate.reports, strict=True)
            )
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per calibration size and candidate.

        It has all metrics with standard errors, and how the candidate compares with the best one.
        """
        return [row for result in self.by_size for row in result._rows()]

    def _rows(self) -> list[dict[str, Any]]:
        metrics = ("cost", *(metric.name for metric in shown_in("comparison")))
        table = []
        for candidate in self.candidates:
            row: dict[str, Any] = {"method": candidate.method, "score": candidate.score}
            row["max_share"] = candidate.max_share
            row["n_calibration"] = self.n_calibration
            for name in metrics:
                row[name] = as_plain(candidate.mean(name))
                row[f"{name}_se"] = as_plain(candidate.standard_error(name))
            difference = self.difference_to_best(candidate)
            row |= {
                "cost_above_best": difference.mean,
                "cost_above_best_se": difference.standard_error,
                "significantly_above_best": difference.is_significant,
                "on_pareto_front": self.is_on_pareto_front(candidate),
                "costs_too_much": self.costs_too_much(candidate),
                "covers_too_little": self.covers_too_little(candidate),
                "note": ", ".join(self.roles(candidate, among_all=True)),
            }
            table.append(row)
        return table

    def roles(self, candidate: Candidate, *, among_all: bool = False) -> list[str]:
        """Return the roles of a candidate, or why it is excluded.

        Next to all candidates, one of those that cost too much may have smaller or more even sets.
        """
        if self.covers_too_little(candidate):
            return ["coverage too low"]
        points = self._points.items()
        titles = {"recommended": "best trade-off", "most_even": "most even"}
        if among_all:
            for name, metric in (("most_even", "shortfall"), ("smallest", "avg_size")):
                if any(c.mean(metric) < candidate.mean(metric) for c in self.candidates):
                    titles[name] = f"{titles.get(name, name)} at a low cost"
        roles = [titles.get(name, name) for name, point in points if point is candidate]
        return ["cost too high"] if self.costs_too_much(candidate) and not roles else roles

    def is_tied(self, candidate: Candidate) -> bool:
        """Whether its cost is not significantly above the lowest one, and it is allowed."""
        is_other = candidate in self.allowed and candidate is not self.best
        return is_other and not self.difference_to_best(candidate).is_significant

    def table(self, candidates: Sequence[Candidate] | None = None) -> str:
        """Return the table of the `selection` with roles, or of others with CovGap and cost."""
        titles, cells = self._table(candidates)
        return aligned(titles, cells, left=(len(titles) - 1,) if candidates is None else ())

    def _table(
        self, candidates: Sequence[Candidate] | None = None
    ) -> tuple[list[str], list[list[str]]]:
        is_short, below = candidates is None, self._short_target
        classes = f"classes\n{'below' if is_short else '<'} {below}"
        titles = ["", classes, "shortfall\nin points", "labels\nper set"]
        titles += ["overall\ncoverage", *([""] if is_short else ["CovGap", "cost"])]
        cells = []
        for candidate in self.selection if candidates is None else candidates:
            shortfall = candidate.mean("shortfall")
            row = [
                f"{'>' if candidate is self.recommended else ' '} {candidate.name}",
                f"{candidate.mean('n_likely_below'):.0f}",
                "–" if np.isnan(shortfall) else f"{shortfall:.1f}",
                f"{candidate.mean('avg_size'):.1f}",
                f"{candidate.mean('marginal_coverage'):.1%}",
            ]
            if is_short:
                runner_up = "runner-up" if candidate is self.runner_up else ""
                row.append(next(iter(self.roles(candidate)), runner_up))
            else:
                mark, error = "=" if self.is_tied(candidate) else " ", ""
                if self.n_splits > 1:
                    error = f"±{candidate.standard_error('cost'):.1f}"
                cost = f"{candidate.mean('cost'):.1f}{error}{mark}"
                row += [f"{candidate.mean('covgap'):.1f}", cost]
            cells.append(row)
        return titles, cells

    def curve_table(self) -> str:
        """Return labels per set and shortfall of every candidate at every calibration size."""
        titles = ["labels per set, shortfall with", *(result.size_text for result in self.by_size)]
        cells = [
            [
                candidates[0].name,
                *(f"{c.mean('avg_size'):.1f}, {c.mean('shortfall'):.1f}" for c in candidates),
            ]
            for candidates in zip(*(result.candidates for result in self.by_size), strict=True)
        ]
        return aligned(titles, cells)

    @property
    def size_text(self) -> str:
        """The calibration size in words."""
        if isinstance(self.calibration_size, int):
            return f"{self.calibration_size} per class"
        return f"{self.n_calibration:,} examples"

    def heading(self) -> str:
        """Describe the data, the target and the splits."""
        tested = np.any([report.evaluated for report in self.candidates[0].reports], axis=0)
        n_tested = int(tested.sum())
        classes = f"{self.n_classes:,} classes"
        classes += "" if n_tested == self.n_classes else f" ({n_tested:,} in the data)"
        about = "" if isinstance(self.calibration_size, int) else "about "
        per_class = self.n_calibration / n_tested
        examples = f"{per_class:.0f}" if per_class >= 10 else f"{per_class:.2g}"
        target = "targets by class" if self._is_per_class else f"target {self.target}"
        return (
            f"{classes}, {about}{examples} calibration examples each, {target}, "
            f"{self.n_splits} random splits"
        )

    def summary(self, *, everything: bool = False, more: str = "rows()") -> str:
        """Show what to choose from, and the recommendation; `more` names where the rest is."""
        table = [self.table(self.candidates if everything else None)]
        n_more = len(self.candidates) - len(self.selection)
        meaning = [
            f"Classes below {self._short_target}: significantly, at a 5% false discovery rate. "
            f"Shortfall: how far a typical class falls below {self.target}, noise-corrected."
        ]
        if everything:
            meaning.append(
                f"CovGap: sampling noise alone gives {self.noise_floor:.1f}. Cost: labels per set "
                "plus a penalty for misses, ± its standard error; '=' is not distinguishable from "
                f"the lowest with {self.n_splits} splits. Means over splits into "
                f"{self.n_calibration:,} calibration and {self.n_test:,} test examples."
            )
        elif n_more:
            table.append(f"  {n_more} more: {more}")
        curve = ["", self.curve_table()] if self.smaller else []
        reason = map(folded, self.reason.splitlines())
        text = [folded(self.heading()), "", *table, "", *map(folded, meaning), "", *reason, *curve]
        return "\n".join(text)

    def _card(self) -> Card:
        return self.card_with(self.heading(), self.reason.splitlines())

    def card_with(self, title: str, lines: Sequence[str]) -> Card:
        """Show the short table in notebooks, with other words."""
        titles, cells = self._table()
        return Card(title, (), [title.replace("\n", " ") for title in titles], cells, lines)

    def __str__(self) -> str:
        return self.summary()

    __repr__ = __str__
