"""The paper's table of a study, as text, Markdown, LaTeX or HTML, with the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from evencover._validation import InputError, raise_unknown
from evencover.evaluation.metrics import Metric, find_metric, shown_in
from evencover.experiments.entries import Entry, Line, TableContent
from evencover.experiments.formats import FORMATS
from evencover.experiments.published import CITATION, published
from evencover.experiments.results import Results

# Methods whose gap, as printed, is within this of the lowest are all called best, as in the paper;
# but a CovGap below what test noise alone gives is no better than that.
TIE = 0.2
GAPS = ("covgap", "true_gap")


class Table(TableContent):
    """The table, which can be shown in several formats."""

    def render(self, style: str) -> str:
        """As "text", "markdown", "latex" or "html"."""
        if style not in FORMATS:
            raise_unknown("format", style, FORMATS)
        return FORMATS[style](self)


def make_table(
    results: Results,
    *,
    n_avg: Sequence[int] | None = None,
    metrics: Sequence[str] | None = None,
    exact: bool = False,
) -> Table:
    """Arrange a study's results as the paper's Table 2.

    Parameters
    ----------
    results
        What `run` returned, or `Results.load`.
    n_avg
        Which calibration sizes; by default the paper's 10, 20, 50 and 75 as far as they are
        there, else all.
    metrics
        Names of metrics that a study shows; by default the paper's, CovGap and AvgSize.
    exact
        Show the randomised variants instead.
    """
    if metrics is None:
        metrics = [metric.name for metric in shown_in("study")[:2]]
    shown = tuple(find_metric(name, "study") for name in metrics)
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
        key: _best_gaps(list(group)) for key, group in groupby(sorted(rows, key=_block), key=_block)
    }
    lines: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault(_names(row), {})[row["n_avg"]] = row
    table = tuple(
        Line(*key, tuple(_entry(by_n.get(n), m, best) for n in n_avg for m in shown))
        for key, by_n in lines.items()
    )
    title = results.configuration["title"] or "Class-conditional coverage"
    notes = _notes(results, rows, table, [metric.title for metric in shown if metric.name in GAPS])
    return Table(tuple(n_avg), shown, table, tuple(notes), title)


def _block(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["dataset"], row["score"], row["n_avg"]


def _best_gaps(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The lowest gap of methods on the same splits, by metric."""
    least = {name: min(row[name] for row in rows) for name in GAPS}
    least["covgap"] = max(least["covgap"], rows[0]["covgap_noise_floor"])
    return {name: round(gap, 1) for name, gap in least.items()}


def _names(row: dict[str, Any]) -> tuple[str, str, str]:
    method = row["method"].upper() + (f" ({row['parameters']})" if row["parameters"] else "")
    return row["dataset"] + (" (twin)" if row["simulated"] else ""), row["score"], method


def _entry(
    row: dict[str, Any] | None, metric: Metric, best: dict[Any, dict[str, float]]
) -> Entry | None:
    if row is None:
        return None
    name = metric.name
    return Entry(
        row[name],
        row[f"{name}_se"],
        name in GAPS and round(row[name], 1) - best[_block(row)][name] < TIE + 0.01,
        published(row, name),
        metric.digits if metric.unit == "share" else 1,  # the paper prints one decimal
    )


def _notes(
    results: Results, rows: list[dict[str, Any]], lines: tuple[Line, ...], gaps: list[str]
) -> list[str]:
    alpha, repetitions = rows[0]["alpha"], rows[0]["repetitions"]
    notes = [f"Mean (standard error) over {repetitions} splits, alpha = {alpha:g}."]
    if gaps:
        notes[0] += f" Bold: best {' and '.join(gaps)}, within {TIE}."
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
