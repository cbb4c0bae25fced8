"""The paper's Table 2 for a study, next to the published numbers: Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from itertools import product
from math import sqrt

from evencover.errors import InputError
from evencover.experiments.study import Results, Row
from evencover.validation import raise_unknown

CITATION = (
    "In brackets: Ding, Angelopoulos, Bates, Jordan, Tibshirani (2023), Class-Conditional "
    "Conformal Prediction with Many Classes, NeurIPS 36, Table 2."
)
# The published numbers are for all classes of these data.
N_CLASSES = {"imagenet": 1000, "cifar-100": 100, "places365": 365, "inaturalist": 633}
METRICS = {"covgap": "CovGap", "avg_size": "AvgSize"}


def make_table(
    results: Results,
    style: str = "markdown",
    *,
    exact: bool = False,
) -> str:
    """Show a study's CovGap and AvgSize as the paper's Table 2.

    Parameters
    ----------
    results
        The value of `run` or `Results.load`.
    style
        "markdown", "latex" (with booktabs) or "csv".
    exact
        Show the randomized variants.
    """
    if style not in STYLES:
        raise_unknown("format", style, STYLES)
    escape, write = STYLES[style]
    rows = [row for row in results.summary() if row["exact"] == exact]
    if not rows:
        kind = "randomized (exact)" if exact else "plain"
        raise InputError(f"These results have no {kind} variants to show.")
    sizes = sorted({row["n_avg"] for row in rows})
    lines: dict[tuple[str, ...], dict[int, Row]] = {}
    for row in rows:
        dataset = row["dataset"] + (" (simulated)" if row["simulated"] else "")
        lines.setdefault((dataset, row["score"], row["title"]), {})[row["n_avg"]] = row
    columns = list(product(sizes, METRICS))
    heads = ["data set", "score", "method"]
    heads += [f"n_avg={n} {title}" for n, title in product(sizes, METRICS.values())]
    table = [heads]
    for line_names, line in lines.items():
        table.append([*line_names, *(_cell(line.get(n), metric) for n, metric in columns)])
    splits = f"{rows[0]['repetitions']} splits, alpha = {rows[0]['alpha']:g}"
    notes = [f"Mean (standard error) over {splits}."]
    if any(row["simulated"] for row in rows):
        notes.append("Simulated data resemble the paper's data; results are not a replication.")
    cells = [(line[n], metric) for line in lines.values() for n, metric in columns if n in line]
    signs = "".join(beside_published(row, metric)[-1:] for row, metric in cells)
    if signs:
        notes.append(
            f"{CITATION} '=': within the joint error, |difference| <= 1.96 sqrt(se² + published "
            f"se²) + 0.05 (rounding); '≠': not. Within it: {signs.count('=')} of {len(signs)}."
        )
    if not results.is_complete:
        notes.append("The study is not complete yet.")
    title = escape(results.title or "Class-conditional coverage")
    escaped = [[escape(text) for text in row] for row in table]
    return write(title, escaped, [escape(note) for note in notes])


# ---- the published numbers -----------------------------------------------------------------------


@cache
def _published() -> dict[tuple[str, str, str, int], dict[str, str]]:
    text = files("evencover.experiments").joinpath("published.csv").read_text("utf-8")
    return {
        (row["dataset"], row["score"], row["method"], int(row["n_avg"])): row
        for row in csv.DictReader(text.splitlines())
    }


def published(row: Row, metric: str) -> tuple[float, float] | None:
    """Return the published mean and standard error for a row, or None.

    The paper has none for randomized variants, other parameters, other levels than 0.1, other
    methods, or a data set with another number of classes.
    """
    if row["exact"] or row["parameters"] or row["alpha"] != 0.1:
        return None
    if row["n_classes"] != N_CLASSES.get(row["dataset"]):
        return None
    printed = _published().get((row["dataset"], row["score"], row["method"], row["n_avg"]))
    return (float(printed[metric]), float(printed[f"{metric}_se"])) if printed else None


def beside_published(row: Row, metric: str) -> str:
    """Return the published number and "=" if the row's is within the joint error, else "≠".

    abs(difference) <= 1.96 sqrt(se^2 + published se^2) + 0.05, for independent studies and rounding
    to one decimal. Empty if no number was published.
    """
    printed = published(row, metric)
    if printed is None:
        return ""
    mean, error = printed
    joint = 1.96 * sqrt((row[f"{metric}_se"] or 0.0) ** 2 + error**2) + 0.05
    return f"{mean:.1f} ({error:.1f}) {'=' if abs(row[metric] - mean) <= joint else '≠'}"


# ---- formats -----------------------------------------------------------------------------------


def _cell(row: Row | None, metric: str) -> str:
    """Format a mean with its standard error, and the published number."""
    if row is None:
        return "–"
    error, printed = row[f"{metric}_se"], beside_published(row, metric)
    text = f"{row[metric]:.1f} ({'–' if error is None else f'{error:.1f}'})"
    return f"{text} [{printed}]" if printed else text


def _markdown(title: str, table: list[list[str]], notes: list[str]) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = [[c.ljust(width) for c, width in zip(row, widths, strict=True)] for row in table]
    head, *body = [f"| {' | '.join(row)} |" for row in padded]
    rule = "|".join("-" * (width + 1) + ("-" if n < 3 else ":") for n, width in enumerate(widths))
    return "\n".join([f"**{title}**", "", head, f"|{rule}|", *body, "", *notes])


def _latex(title: str, table: list[list[str]], notes: list[str]) -> str:
    head, *body = [f"{' & '.join(row)} \\\\" for row in table]
    start = [r"\begin{table}", r"\centering\scriptsize", rf"\caption{{{title}. {' '.join(notes)}}}"]
    tabular = rf"\begin{{tabular}}{{lll{'r' * (len(table[0]) - 3)}}}"
    end = [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join([*start, tabular, r"\toprule", head, r"\midrule", *body, *end])


def _csv(title: str, table: list[list[str]], notes: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue().removesuffix("\n")


TEX: dict[str, str | int | None] = {
    "\\": r"\textbackslash ",
    **{sign: rf"\{sign}" for sign in "&%_#${}"},
    **{"²": r"$^2$", "≠": r"$\neq$", "=": "$=$", "<": r"$<$", "|": r"$|$", "–": "--"},
}


def _tex(text: str) -> str:
    return text.translate(str.maketrans(TEX))


STYLES: dict[str, tuple[Callable[[str], str], Callable[..., str]]] = {
    "markdown": (str, _markdown),
    "latex": (_tex, _latex),
    "csv": (str, _csv),
}
