"""How tables are written: text, Markdown, LaTeX, HTML."""

from __future__ import annotations

import html
from textwrap import fill

from evencover.experiments.entries import Entry, Line, TableContent


def _groups(table: TableContent) -> list[tuple[Line, str, str]]:
    """Each line with its data set and score, these empty where they repeat the line above."""
    shown, previous = [], ("", "")
    for line in table.lines:
        dataset = line.dataset if line.dataset != previous[0] else ""
        score = line.score if (line.dataset, line.score) != previous else ""
        shown.append((line, dataset, score))
        previous = (line.dataset, line.score)
    return shown


def _text(table: TableContent) -> str:
    """Fixed width; the published number is below its own, which is starred where it is best."""
    blanks = [""] * (len(table.metrics) - 1)
    sizes = [cell for n in table.n_avg for cell in (f"n_avg={n}", *blanks)]
    heads = [m.title for _ in table.n_avg for m in table.metrics]
    rows = [["", "", "", *sizes], ["data set", "score", "method", *heads], []]
    for line, dataset, score in _groups(table):
        if score and len(rows) > 3:
            rows.append([])
        cells = [("*" if e.is_best else "") + e.text if e else "–" for e in line.entries]
        rows.append([dataset, score, line.method, *cells])
        if any(entry is not None and entry.verdict for entry in line.entries):
            verdicts = [entry.verdict if entry else "" for entry in line.entries]
            rows.append(["", "", "  published", *verdicts])
    widths = [max(len(row[i]) for row in rows if row) for i in range(len(heads) + 3)]
    body = []
    for row in rows:
        names = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False)]
        # Numbers line up although only some have a sign after them.
        cells = [cell if cell.endswith(("=", "≠")) else f"{cell}  " for cell in row[3:]]
        numbers = [cell.rjust(width + 2) for cell, width in zip(cells, widths[3:], strict=False)]
        body.append("  ".join([*names, *numbers]).rstrip())
    room = max(80, *map(len, body))
    notes = [fill(note.replace("Bold:", "*:"), room) for note in table.notes]
    return "\n".join([table.title, "", *body, "", *notes])


def _markdown(table: TableContent) -> str:
    heads = [f"n_avg={n} {m.title}" for n in table.n_avg for m in table.metrics]
    lines = [
        f"| data set | score | method | {' | '.join(heads)} |",
        "|---|---|---|" + "---:|" * len(heads),
    ]
    for line, dataset, score in _groups(table):
        cells = []
        for entry in line.entries:
            cell = "–" if entry is None else entry.text
            if entry is not None and entry.is_best:
                cell = f"**{cell}**"
            cells.append(cell + (f" [{entry.verdict}]" if entry and entry.verdict else ""))
        lines.append(f"| {dataset} | {score} | {line.method} | {' | '.join(cells)} |")
    notes = list(table.notes)
    if any(entry and entry.verdict for line in table.lines for entry in line.entries):
        notes.insert(1, "In brackets: the published number.")
    return "\n".join([f"**{table.title}**", "", *lines, "", *notes])


def _latex(table: TableContent) -> str:
    """For the packages booktabs and xcolor."""
    n_metrics = len(table.metrics)
    spans = [
        rf"\multicolumn{{{n_metrics}}}{{c}}{{$n_{{\mathrm{{avg}}}}={n}$}}" for n in table.n_avg
    ]
    rules = [
        rf"\cmidrule(lr){{{4 + i * n_metrics}-{3 + (i + 1) * n_metrics}}}"
        for i in range(len(table.n_avg))
    ]
    heads = [m.title for _ in table.n_avg for m in table.metrics]
    lines = [
        r"\begin{table}",
        r"\centering\scriptsize",
        rf"\caption{{{_tex(table.title)}. {_tex(' '.join(table.notes))}}}",
        rf"\begin{{tabular}}{{lll{'r' * len(heads)}}}",
        r"\toprule",
        f" & & & {' & '.join(spans)} \\\\",
        "".join(rules),
        f"Data set & Score & Method & {' & '.join(heads)} \\\\",
    ]
    for line, dataset, score in _groups(table):
        if score:
            lines.append(r"\midrule")
        cells = [_tex_entry(entry) for entry in line.entries]
        name = rf"\textsc{{{_tex(line.method.lower())}}}"
        lines.append(f"{_tex(dataset)} & {_tex(score)} & {name} & {' & '.join(cells)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _tex_entry(entry: Entry | None) -> str:
    if entry is None:
        return "--"
    mean = f"{entry.mean:.{entry.digits}f}"
    text = rf"\textbf{{{mean}}}{entry.text[len(mean) :]}" if entry.is_best else entry.text
    verdict = entry.verdict.replace("=", "$=$").replace("≠", r"$\neq$")
    return text.replace("–", "--") + (rf" {{\color{{gray}}[{verdict}]}}" if verdict else "")


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


def _html(table: TableContent) -> str:
    """A page of its own, without scripts."""
    n_metrics = len(table.metrics)
    spans = "".join(f'<th colspan="{n_metrics}">n_avg = {n}</th>' for n in table.n_avg)
    heads = "".join(f"<th>{m.title}</th>" for _ in table.n_avg for m in table.metrics)
    body = []
    for line, dataset, score in _groups(table):
        cells = "".join(f"<td>{_html_entry(entry)}</td>" for entry in line.entries)
        names = "".join(f"<th>{html.escape(name)}</th>" for name in (dataset, score, line.method))
        body.append(f"<tr{' class=first' if score else ''}>{names}{cells}</tr>")
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


def _html_entry(entry: Entry | None) -> str:
    if entry is None:
        return "–"
    text = f"<b>{entry.text}</b>" if entry.is_best else entry.text
    if not entry.verdict:
        return text
    return f"{text}<small{'' if entry.agrees else ' class=off'}>{entry.verdict}</small>"


FORMATS = {"text": _text, "markdown": _markdown, "latex": _latex, "html": _html}
