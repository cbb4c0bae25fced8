"""Results of a study: files on disk, one tidy table, and the paper's Table 2."""

from __future__ import annotations

import csv
import hashlib
import html
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from math import sqrt
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import FloatArray
from evencover.errors import InputError
from evencover.evaluation.metrics import Metric, find_metric, metric_names, shown_in
from evencover.experiments.grid import Grid
from evencover.output.atomic import atomic_path, only_writer, remove_leftovers
from evencover.output.writers import (
    make_folder,
    read_record,
    reject_other_files,
    write_csv,
    write_record,
)
from evencover.validation import import_pandas, raise_unknown

CELL = ("dataset", "simulated", "score", "method", "parameters", "exact", "n_avg")


class Results:
    """Results of a study.

    Attributes
    ----------
    configuration
        The configuration of its grid.
    records
        The tidy table: one dict per data set, score, method, variant, n_avg and repetition.
    classes
        Per entry, over all repetitions: test rows and covered rows by class.
    class_names
        By data set, if known.
    is_complete
        Whether all results are present.
    """

    def __init__(
        self, configuration: dict[str, Any], parts: list[dict[str, Any]], is_complete: bool
    ) -> None:
        self.configuration, self.is_complete = configuration, is_complete
        self.records: list[dict[str, Any]] = [row for part in parts for row in part["records"]]
        self.classes: list[dict[str, Any]] = [row for part in parts for row in part["classes"]]
        self.class_names: dict[str, list[str]] = {}
        for part in parts:
            self.class_names |= part["class_names"] or {}

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """Read a folder that `run` wrote, complete or not."""
        path = Path(folder)
        configuration = _read_configuration(path)
        if configuration is None:
            raise InputError(f"'{path}' must be a folder of 'evencover experiment run'.")
        parts: list[Any] = []
        for file in sorted(path.glob("parts/*.json")):
            parts.append(_read_part(file, configuration))
            if parts[-1] is None:
                raise InputError(f"Cannot read '{file}': it is damaged; run the study again.")
        if not any(part["records"] for part in parts):
            raise InputError(f"'{path}' has no results yet; run the study to its end first.")
        return cls(configuration, parts, (path / "results.csv").exists())

    def summary(self) -> list[dict[str, Any]]:
        """Average every metric over the repetitions; ``..._se`` is the standard error, if any."""
        table = []
        for key, group in groupby(self.records, key=lambda row: tuple(row[name] for name in CELL)):
            rows = list(group)
            summary: dict[str, Any] = dict(zip(CELL, key, strict=True))
            summary |= {name: rows[0][name] for name in ("alpha", "n_classes")}
            summary["repetitions"] = len(rows)
            for name in ("gamma", "M"):
                known = [row[name] for row in rows if row[name] is not None]
                summary[name] = float(np.mean(known)) if known else None
            for metric in (*metric_names(), "size_median"):
                values = np.array([row[metric] for row in rows], dtype=np.float64)
                summary[metric] = float(values.mean())
                summary[f"{metric}_se"] = (
                    float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
                )
            table.append(summary)
        return table

    def class_coverage(
        self, dataset: str, score: str, method: str, n_avg: int, *, exact: bool = False
    ) -> FloatArray:
        """Return the coverage of each class over all repetitions (K,); NaN without test rows."""
        wanted: dict[str, Any] = {"dataset": dataset, "score": score, "method": method}
        wanted |= {"n_avg": n_avg, "exact": exact}
        for row in self.classes:
            if all(row[key] == value for key, value in wanted.items()):
                return coverage_of(row)
        raise InputError(f"These results do not include {wanted}.")

    def to_frame(self) -> Any:
        """Return the tidy table as a pandas data frame."""
        return import_pandas().DataFrame(self.records)


def coverage_of(row: dict[str, Any]) -> FloatArray:
    """Compute the coverage of each class (K,) from a row of `Results.classes`."""
    with np.errstate(invalid="ignore"):
        return np.array(row["covered"]) / np.array(row["rows"])


class Store:
    """The partial results of a running study, in memory and optionally in a folder."""

    def __init__(self, grid: Grid, folder: Path | None) -> None:
        self.folder = folder
        self.configuration = grid.configuration | {"digest": grid.digest}
        self.parts: dict[str, dict[str, Any]] = {}

    @classmethod
    @contextmanager
    def opened(cls, grid: Grid, folder: Path | None) -> Iterator[Store]:
        """Lock the folder for writing, and read its partial results."""
        store = cls(grid, folder)
        if folder is None:
            yield store
            return
        if _read_configuration(folder) is None:
            reject_other_files(folder, "a folder of results")
            make_folder(folder, parents=True)
        with only_writer(folder):
            store._read(folder)
            yield store

    def _read(self, folder: Path) -> None:
        known, own = _read_configuration(folder), self.configuration
        if known is None:
            write_record(folder / "configuration.json", own, indent=None)
        elif known["digest"] != own["digest"]:
            names = [key for key in own if known.get(key) != own[key]]
            raise InputError(
                f"'{folder}' has results of another configuration, which differs in "
                f"{' and '.join(name for name in names if name not in ('digest', 'title'))}; "
                "choose another folder."
            )
        make_folder(folder / "parts")
        for name in ("", "parts"):  # leftovers of an interruption
            remove_leftovers(folder / name)
        for file in folder.glob("parts/*.json"):
            part = _read_part(file, own)
            if part is not None:
                self.parts[file.stem] = part

    def write(self, name: str, part: dict[str, Any]) -> None:
        """Store the results of a unit atomically."""
        self.parts[name] = part
        if self.folder is not None:
            content = {"configuration": self.configuration["digest"]} | part
            content["checksum"] = _checksum(content)
            write_record(self.folder / "parts" / f"{name}.json", content, indent=None)

    def assemble(self, names: list[str]) -> Results:
        """Return all results; in a folder, also write one table as CSV and Parquet."""
        results = Results(self.configuration, [self.parts[name] for name in names], True)
        if not results.records:
            raise InputError(
                "The study has no results: every 'n_avg' takes all rows of its data set or more; "
                "use smaller ones."
            )
        if self.folder is not None:
            _write_parquet(self.folder / "results.parquet", results.records)
            write_csv(self.folder / "results.csv", results.records)
        return results


def _read_configuration(folder: Path) -> dict[str, Any] | None:
    return read_record(
        folder / "configuration.json",
        lambda configuration: bool(configuration["digest"]),
        "it is not the configuration of a study",
    )


def _read_part(path: Path, configuration: dict[str, Any]) -> dict[str, Any] | None:
    """Read a partial result; None if damaged or of another configuration."""
    try:
        part = read_record(path, lambda part: isinstance(part["records"], list), "")
    except InputError:
        return None
    if part is None or part.pop("checksum", None) != _checksum(part):
        return None
    return part if part["configuration"] == configuration["digest"] else None


def _checksum(part: dict[str, Any]) -> str:
    text = json.dumps(part, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _write_parquet(path: Path, records: list[dict[str, Any]]) -> None:
    """Write the table as Parquet, if pyarrow is installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return
    # A column without values has no type.
    types = {"gamma": pa.float64(), "M": pa.int64(), "seed": pa.uint64()}
    columns = {
        name: pa.array([row[name] for row in records], type=types.get(name)) for name in records[0]
    }
    with atomic_path(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


# ---- the table ---------------------------------------------------------------------------------


CITATION = (
    "Published: Ding, Angelopoulos, Bates, Jordan, Tibshirani (2023), Class-Conditional Conformal "
    "Prediction with Many Classes, NeurIPS 36, Table 2."
)
# The published numbers are for all classes of these data.
N_CLASSES = {"imagenet": 1000, "cifar-100": 100, "places365": 365, "inaturalist": 633}
# Methods within this difference of the lowest printed gap tie for best, as in the paper. CovGap
# below the noise floor counts as the noise floor.
TIE = 0.2
GAPS = ("covgap", "true_gap")


class Published(NamedTuple):
    """A printed mean and its standard error, both rounded to one decimal."""

    mean: float
    standard_error: float

    def agrees_with(self, mean: float, standard_error: float | None) -> bool:
        """Return whether another study's mean is within the joint error.

        abs(difference) <= 1.96 sqrt(se^2 + published se^2) + 0.05, for independent studies and
        rounding to one decimal.

        >>> Published(5.2, 0.1).agrees_with(5.6, 0.15), Published(5.2, 0.1).agrees_with(5.7, 0.15)
        (True, False)
        """
        joint = 1.96 * sqrt((standard_error or 0.0) ** 2 + self.standard_error**2)
        return abs(mean - self.mean) <= joint + 0.05


@cache
def _published() -> dict[tuple[str, str, str, int], dict[str, str]]:
    text = files("evencover.experiments").joinpath("published.csv").read_text("utf-8")
    return {
        (row["dataset"], row["score"], row["method"], int(row["n_avg"])): row
        for row in csv.DictReader(text.splitlines())
    }


def published(row: dict[str, Any], metric: str) -> Published | None:
    """Return the published number for a row of `Results.summary`, or None.

    The paper has none for randomized variants, other parameters, other levels than 0.1, other
    methods, or a data set with another number of classes.
    """
    if row["exact"] or row["parameters"] or row["alpha"] != 0.1:
        return None
    if row["n_classes"] != N_CLASSES.get(row["dataset"]) or metric not in ("covgap", "avg_size"):
        return None
    found = _published().get((row["dataset"], row["score"], row["method"], row["n_avg"]))
    return Published(float(found[metric]), float(found[f"{metric}_se"])) if found else None


@dataclass(frozen=True)
class Entry:
    """One number of the table."""

    mean: float
    standard_error: float | None
    is_best: bool
    published: Published | None
    digits: int

    @property
    def text(self) -> str:
        """Mean (standard error)."""
        error = "–" if self.standard_error is None else f"{self.standard_error:.{self.digits}f}"
        return f"{self.mean:.{self.digits}f} ({error})"

    @property
    def agrees(self) -> bool | None:
        """Whether it is within the joint error of the published number; None without one."""
        return self.published and self.published.agrees_with(self.mean, self.standard_error)

    @property
    def verdict(self) -> str:
        """The published number and a sign for `agrees`; empty without one."""
        if self.published is None:
            return ""
        mean, error = self.published
        return f"{mean:.1f} ({error:.1f}) {'=' if self.agrees else '≠'}"


class Line(NamedTuple):
    """One method on one data set with one score."""

    dataset: str
    score: str
    method: str
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True)
class Table:
    """The paper's Table 2 for a study."""

    n_avg: tuple[int, ...]
    metrics: tuple[Metric, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    title: str

    def render(self, style: str) -> str:
        """Render as "text", "markdown", "latex" or "html"."""
        if style not in FORMATS:
            raise_unknown("format", style, FORMATS)
        return FORMATS[style](self)

    @property
    def heads(self) -> list[str]:
        """Titles of the columns of numbers."""
        return [metric.title for _ in self.n_avg for metric in self.metrics]

    def rows(
        self, cell: Callable[[Entry], str], missing: str = "–"
    ) -> Iterator[tuple[str, str, str, list[str]]]:
        """Return data set and score (empty if repeated), method, and cells of each line."""
        above = ("", "")
        for dataset, score, method, entries in self.lines:
            cells = [missing if entry is None else cell(entry) for entry in entries]
            yield (
                "" if dataset == above[0] else dataset,
                "" if (dataset, score) == above else score,
                method,
                cells,
            )
            above = dataset, score


def _text(table: Table) -> str:
    """Render with fixed width: published numbers below, a star for the best."""
    blanks = [""] * (len(table.metrics) - 1)
    sizes = [cell for n in table.n_avg for cell in (f"n_avg={n}", *blanks)]
    rows = [["", "", "", *sizes], ["data set", "score", "method", *table.heads]]
    own = table.rows(lambda entry: ("*" if entry.is_best else "") + entry.text)
    for (*names, cells), (*_, verdicts) in zip(
        own, table.rows(lambda entry: entry.verdict, ""), strict=True
    ):
        rows += [[]] * bool(names[1])
        rows.append([*names, *cells])
        if any(verdicts):
            rows.append(["", "", "  published", *verdicts])
    widths = [max(len(row[i]) for row in rows if row) for i in range(len(sizes) + 3)]
    body = []
    for row in rows:
        names = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False)]
        # Align numbers, only some of which have a sign.
        cells = [cell if cell.endswith(("=", "≠")) else f"{cell}  " for cell in row[3:]]
        numbers = [cell.rjust(width + 2) for cell, width in zip(cells, widths[3:], strict=False)]
        body.append("  ".join([*names, *numbers]).rstrip())
    room = max(80, *map(len, body))
    notes = [fill(note.replace("Bold:", "*:"), room) for note in table.notes]
    return "\n".join([table.title, "", *body, "", *notes])


def _markdown(table: Table) -> str:
    def cell(entry: Entry) -> str:
        text = f"**{entry.text}**" if entry.is_best else entry.text
        return f"{text} [{entry.verdict}]" if entry.verdict else text

    heads = [f"n_avg={n} {m.title}" for n in table.n_avg for m in table.metrics]
    rows = [["data set", "score", "method", *heads]]
    rows += [[*names, *cells] for *names, cells in table.rows(cell)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---|---|---|" + "---:|" * len(heads))
    notes = list(table.notes)
    if any(entry and entry.verdict for line in table.lines for entry in line.entries):
        notes.insert(1, "In brackets: the published number.")
    return "\n".join([f"**{table.title}**", "", *lines, "", *notes])


def _latex(table: Table) -> str:
    """Render for the packages booktabs and xcolor."""
    n = len(table.metrics)
    spans = [rf"\multicolumn{{{n}}}{{c}}{{$n_{{\mathrm{{avg}}}}={size}$}}" for size in table.n_avg]
    lines = [
        r"\begin{table}",
        r"\centering\scriptsize",
        rf"\caption{{{_tex(table.title)}. {_tex(' '.join(table.notes))}}}",
        rf"\begin{{tabular}}{{lll{'r' * len(table.heads)}}}",
        r"\toprule",
        f" & & & {' & '.join(spans)} \\\\",
        "".join(rf"\cmidrule(lr){{{4 + i * n}-{3 + i * n + n}}}" for i in range(len(table.n_avg))),
        f"Data set & Score & Method & {' & '.join(table.heads)} \\\\",
    ]
    for dataset, score, method, cells in table.rows(_tex_entry, "--"):
        lines += [r"\midrule"] * bool(score)
        name = rf"\textsc{{{_tex(method.lower())}}}"
        lines.append(f"{_tex(dataset)} & {_tex(score)} & {name} & {' & '.join(cells)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _tex_entry(entry: Entry) -> str:
    mean, error = entry.text.replace("–", "--").split()
    text = (rf"\textbf{{{mean}}}" if entry.is_best else mean) + f" {error}"
    verdict = entry.verdict.replace("=", "$=$").replace("≠", r"$\neq$")
    return text + (rf" {{\color{{gray}}[{verdict}]}}" if verdict else "")


TEX: dict[str, str | int | None] = {
    "\\": r"\textbackslash ",
    **{sign: rf"\{sign}" for sign in "&%_#${}"},
    "²": r"$^2$",
    "≠": r"$\neq$",
    "<": r"$<$",
    "|": r"$|$",
    "–": "--",
}


def _tex(text: str) -> str:
    return text.translate(str.maketrans(TEX))


def _html(table: Table) -> str:
    """Render a standalone page without scripts."""
    n_metrics = len(table.metrics)
    spans = "".join(f'<th colspan="{n_metrics}">n_avg = {n}</th>' for n in table.n_avg)
    heads = "".join(f"<th>{head}</th>" for head in table.heads)
    body, first = [], ' class="first"'
    for *names, cells in table.rows(_html_entry):
        titles = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        numbers = "".join(f"<td>{cell}</td>" for cell in cells)
        body.append(f"<tr{first if names[1] else ''}>{titles}{numbers}</tr>")
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in table.notes)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{html.escape(table.title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th {{ font-weight: 500; text-align: left; padding: .15rem .7rem; }}
thead th {{ border-bottom: 1px solid #888; text-align: right; }}
td {{ text-align: right; padding: .15rem .7rem; white-space: nowrap; }}
tr.first > * {{ border-top: 1px solid #ccc; }}
small {{ color: #666; display: block; }} small.off {{ color: #b3400e; }}
</style>
<h1>{html.escape(table.title)}</h1>
<table><thead><tr><th></th><th></th><th></th>{spans}</tr>
<tr><th>data set</th><th>score</th><th>method</th>{heads}</tr></thead>
<tbody>
{chr(10).join(body)}
</tbody></table>
{notes}
</html>"""


def _html_entry(entry: Entry) -> str:
    text = f"<b>{entry.text}</b>" if entry.is_best else entry.text
    off = "" if entry.agrees else ' class="off"'
    return f"{text}<small{off}>{entry.verdict}</small>" if entry.verdict else text


FORMATS = {"text": _text, "markdown": _markdown, "latex": _latex, "html": _html}


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
        The value of `run` or `Results.load`.
    n_avg
        Calibration sizes; by default the paper's 10, 20, 50 and 75 if available, else all.
    metrics
        Names of metrics; by default the paper's, CovGap and AvgSize.
    exact
        Show the randomized variants.
    """
    if metrics is None:
        metrics = [metric.name for metric in shown_in("study")[:2]]
    shown = tuple(find_metric(name, "study") for name in metrics)
    rows = [row for row in results.summary() if row["exact"] == exact]
    if not rows:
        kind = "randomized (exact)" if exact else "plain"
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
        dataset = row["dataset"] + (" (simulated)" if row["simulated"] else "")
        lines.setdefault((dataset, row["score"], method_title(row)), {})[row["n_avg"]] = row
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
    """Return the lowest gap of methods on the same splits, by metric."""
    least = {name: min(row[name] for row in rows) for name in GAPS}
    least["covgap"] = max(least["covgap"], rows[0]["covgap_noise_floor"])
    return {name: round(gap, 1) for name, gap in least.items()}


def method_title(row: dict[str, Any]) -> str:
    """Return the method of a row of `Results.summary`, with parameters other than the defaults."""
    return row["method"].upper() + (f" ({row['parameters']})" if row["parameters"] else "")


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
        notes.append("Simulated data resemble the paper's data; results are not a replication.")
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
