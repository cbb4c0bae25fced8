"""The paper's Table 2 for a study, next to the published numbers: Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from itertools import product
from math import inf, sqrt

from evencover.errors import InputError
from evencover.experiments.study import Results, Row
from evencover.text_tables import folded
from evencover.validation import raise_unknown

CITATION = (
    "In brackets: Ding, Angelopoulos, Bates, Jordan, Tibshirani (2023), Class-Conditional "
    "Conformal Prediction with Many Classes, NeurIPS 36, Table 2."
)
# The published numbers are for all classes of these data.
N_CLASSES = {"imagenet": 1000, "cifar-100": 100, "places365": 365, "inaturalist": 633}
METRIC_TITLES = {"covgap": "CovGap", "avg_size": "AvgSize"}
NAMES = ("data set", "score", "method")
BEST_WITHIN = 0.2  # points of CovGap, as in the paper


def make_table(
    results: Results,
    style: str = "markdown",
    *,
    n_avg: Sequence[int] | None = None,
    exact: bool = False,
) -> str:
    """Show a study's CovGap and AvgSize as the paper's Table 2.

    Parameters
    ----------
    results
        The value of `run` or `Results.load`.
    style
        "markdown", "csv", or "latex", which needs the packages booktabs and graphicx, and prints a
        CovGap in bold if it is within 0.2 of the lowest one of its data set, score and size.
    n_avg
        Calibration sizes; all by default.
    exact
        Show the randomized variants.
    """
    if style not in (*STYLES, "latex"):
        raise_unknown("format", style, (*STYLES, "latex"))
    rows = [row for row in results.summary() if row["exact"] == exact]
    if not rows:
        kind = "randomized (exact)" if exact else "plain"
        raise InputError(f"These results have no {kind} variants to show.")
    available = sorted({row["n_avg"] for row in rows})
    sizes = available if n_avg is None else list(n_avg)
    for n in sizes:
        if n not in available:
            raise_unknown("n_avg", n, map(str, available))
    lines: dict[tuple[str, ...], dict[int, Row]] = {}
    for row in rows:
        dataset = row["dataset"] + (" (simulated)" if row["simulated"] else "")
        lines.setdefault((dataset, row["score"], row["title"]), {})[row["n_avg"]] = row
    columns = list(product(sizes, METRIC_TITLES))
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
    title = results.title or "Class-conditional coverage"
    if style == "latex":
        return _latex(title, lines, sizes, notes)
    heads = [*NAMES, *(f"n_avg={n} {METRIC_TITLES[metric]}" for n, metric in columns)]
    body = [
        [*names, *(_cell(line.get(n), metric) for n, metric in columns)]
        for names, line in lines.items()
    ]
    return STYLES[style](title, [heads, *body], notes)


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
    return "\n".join([f"**{title}**", "", head, f"|{rule}|", *body, "", *map(folded, notes)])


def _csv(title: str, table: list[list[str]], notes: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    return text.getvalue().removesuffix("\n")


STYLES: dict[str, Callable[..., str]] = {"markdown": _markdown, "csv": _csv}


# ---- LaTeX ---------------------------------------------------------------------------------------

TEX: dict[str, str | int | None] = {
    **{sign: rf"\{sign}" for sign in "&%_#${}"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"},
    **{"²": "$^2$", "≠": r"$\neq$", "≤": r"$\leq$", "–": "--"},
    **{sign: f"${sign}$" for sign in "=<>|"},
    **{sign: f"{{{sign}}}" for sign in "[]"},  # after \\, a bracket would be an argument
}


def _tex(text: str) -> str:
    return text.replace("<=", "≤").translate(str.maketrans(TEX))


def _latex(
    title: str, lines: dict[tuple[str, ...], dict[int, Row]], sizes: list[int], notes: list[str]
) -> str:
    """Write a table with a heading per size, in which names do not recur."""
    lowest: dict[tuple[str, str, int], float] = {}
    for (dataset, score, _), line in lines.items():
        for n, row in line.items():
            key = dataset, score, n
            lowest[key] = min(lowest.get(key, inf), round(row["covgap"], 1))
    body: list[str] = []
    before = ("", "", "")
    for (dataset, score, method), line in lines.items():
        if body and (dataset, score) != before[:2]:
            body.append(r"\addlinespace")
        names = ["" if dataset == before[0] else dataset]
        names += ["" if (dataset, score) == before[:2] else score, method]
        before = dataset, score, method
        cells = [_tex(name) for name in names]
        for n, metric in product(sizes, METRIC_TITLES):
            cell = _tex(_cell(line.get(n), metric))
            if n in line and metric == "covgap":
                above = round(line[n]["covgap"], 1) - lowest[dataset, score, n]
                mean, _, rest = cell.partition(" ")
                cell = rf"\textbf{{{mean}}} {rest}" if above <= BEST_WITHIN + 1e-9 else cell
            cells.append(cell)
        body.append(" & ".join(cells) + r" \\")
    starts = range(len(NAMES) + 1, len(NAMES) + 2 * len(sizes), 2)
    groups = [rf"\multicolumn{{2}}{{c}}{{{_tex(f'n_avg = {n}')}}}" for n in sizes]
    heads = [*NAMES, *list(METRIC_TITLES.values()) * len(sizes)]
    best = f"Bold: CovGap within {BEST_WITHIN} of the lowest."
    caption = _tex(" ".join([f"{title}.", *notes, best]))
    return "\n".join(
        [
            r"% \usepackage{booktabs,graphicx}",
            r"\begin{table}",
            r"\centering\scriptsize\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{caption}}}\medskip",
            # Published numbers double the width: shrink a table that is wider than the text.
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{lll{'rr' * len(sizes)}}}",
            r"\toprule",
            " & ".join([*[""] * len(NAMES), *groups]) + r" \\",
            " ".join(rf"\cmidrule(lr){{{start}-{start + 1}}}" for start in starts),
            " & ".join(heads) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
        ]
    )
