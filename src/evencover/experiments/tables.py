"""The paper's table of a study, as text, Markdown, LaTeX or HTML, with the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from evencover._validation import InputError, raise_unknown
from evencover.experiments.formats import FORMATS, METRICS
from evencover.experiments.published import CITATION, Published, published
from evencover.experiments.results import Results

# Methods whose CovGap, as printed, is within this of the lowest are all called best, as in the
# paper.
TIE = 0.2


@dataclass(frozen=True)
class Entry:
    """One number of the table.

    ``agrees`` is None where nothing was published.
    """

    mean: float
    standard_error: float | None
    is_best: bool
    published: Published | None
    digits: int = 1

    @property
    def text(self) -> str:
        """Mean (standard error)."""
        error = "–" if self.standard_error is None else f"{self.standard_error:.{self.digits}f}"
        return f"{self.mean:.{self.digits}f} ({error})"

    @property
    def agrees(self) -> bool | None:
        """Whether it is within the joint error of the published number."""
        if self.published is None:
            return None
        return self.published.agrees_with(self.mean, self.standard_error)

    @property
    def verdict(self) -> str:
        """The published number and a sign for `agrees`; empty where there is none."""
        if self.published is None:
            return ""
        sign = "=" if self.agrees else "≠"
        return f"{self.published.mean:.1f} ({self.published.standard_error:.1f}) {sign}"


@dataclass(frozen=True)
class Line:
    """One method on one data set with one score."""

    dataset: str
    score: str
    method: str
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True)
class Table:
    """The table, before it has a format."""

    n_avg: tuple[int, ...]
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    title: str

    def render(self, style: str) -> str:
        """As "text", "markdown", "latex" or "html"."""
        if style not in FORMATS:
            raise_unknown("format", style, FORMATS)
        return FORMATS[style](self)


def make_table(
    results: Results,
    *,
    n_avg: Sequence[int] | None = None,
    metrics: Sequence[str] = ("covgap", "avg_size"),
    exact: bool = False,
) -> Table:
    """Arrange a study's results as the paper's Table 1.

    Parameters
    ----------
    results
        What `run` returned, or `Results.load`.
    n_avg
        Which calibration sizes; by default the paper's 10, 20, 50 and 75 as far as they are
        there, else all.
    metrics
        "covgap", "avg_size", "frac_undercovered".
    exact
        Show the randomised variants instead.
    """
    for metric in metrics:
        if metric not in METRICS:
            raise_unknown("metric", metric, METRICS)
    rows = [row for row in results.summary() if row["exact"] == exact]
    if not rows:
        kind = "randomised (exact)" if exact else "plain"
        raise InputError(f"These results have no {kind} variants to show.")
    there = sorted({row["n_avg"] for row in rows})
    if n_avg is None:
        n_avg = [n for n in there if n in (10, 20, 50, 75)] or there
    for n in n_avg:
        if n not in there:
            raise InputError(f"These results have n_avg {', '.join(map(str, there))}. Got {n}.")
    best = {
        key: round(min(row["covgap"] for row in group), 1)
        for key, group in groupby(sorted(rows, key=_block), key=_block)
    }
    lines: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault(_names(row), {})[row["n_avg"]] = row
    table = tuple(
        Line(*key, tuple(_entry(by_n.get(n), m, best) for n in n_avg for m in metrics))
        for key, by_n in lines.items()
    )
    title = results.configuration["title"] or "Class-conditional coverage"
    return Table(tuple(n_avg), tuple(metrics), table, tuple(_notes(results, rows, table)), title)


def _block(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["dataset"], row["score"], row["n_avg"]


def _names(row: dict[str, Any]) -> tuple[str, str, str]:
    method = row["method"].upper() + (f" ({row['parameters']})" if row["parameters"] else "")
    return row["dataset"] + (" (twin)" if row["simulated"] else ""), row["score"], method


def _entry(row: dict[str, Any] | None, metric: str, best: dict[Any, float]) -> Entry | None:
    if row is None:
        return None
    return Entry(
        row[metric],
        row[f"{metric}_se"],
        metric == "covgap" and round(row["covgap"], 1) - best[_block(row)] < TIE + 0.01,
        published(row, metric),
        3 if metric == "frac_undercovered" else 1,
    )


def _notes(results: Results, rows: list[dict[str, Any]], lines: tuple[Line, ...]) -> list[str]:
    alpha, repetitions = rows[0]["alpha"], rows[0]["repetitions"]
    notes = [
        f"Mean (standard error) over {repetitions} splits, alpha = {alpha:g}. "
        f"Bold: best CovGap, within {TIE}."
    ]
    if any(row["simulated"] for row in rows):
        notes.append(
            "Twins are simulated: tuned to resemble the paper's data, not a replication of it."
        )
    entries = [entry for line in lines for entry in line.entries if entry is not None]
    verdicts = [entry.agrees for entry in entries if entry.agrees is not None]
    if verdicts:
        notes.append(
            f"{CITATION} '=': within the joint error, |difference| <= 1.96 sqrt(se² + published "
            f"se²) + 0.05 (rounding); '≠': not. Within it: {sum(verdicts)} of {len(verdicts)}."
        )
    if not results.is_complete:
        notes.append("The study is not complete yet.")
    return notes
