"""Self-contained HTML: the report and the comparison (Jinja, Vega), and the monitor's page."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import evencover
from evencover.errors import InputError
from evencover.monitoring import CoverageMonitor, summary
from evencover.monitoring.summary import STRONGEST
from evencover.output.atomic import atomic_path, reject_existing

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def require_extra() -> None:
    """Raise InputError, before any work is done, if the report extra is not installed."""
    try:
        import altair
        import jinja2
        import vl_convert
    except ImportError as error:
        raise InputError(
            f"The report needs altair, vl-convert-python and jinja2, and {error.name} is not "
            "installed; install them with pip install 'evencover[report]'."
        ) from None
    del altair, jinja2, vl_convert


def render_report(content: dict[str, Any], title: str) -> str:
    """Return the report on one predictor."""
    from evencover.report.charts import report_charts

    charts = report_charts(None if "target" in content["classes"] else 1 - content["alpha"])
    return _render("report", content, charts, ("table.js", "detail.js", "report.js"), title)


def render_comparison(content: dict[str, Any], title: str) -> str:
    """Return the report of a comparison."""
    from evencover.report.charts import comparison_charts

    return _render("comparison", content, comparison_charts(), ("comparison.js",), title)


def _render(
    name: str, content: dict[str, Any], charts: dict[str, Any], scripts: Sequence[str], title: str
) -> str:
    from markupsafe import Markup

    template = _environment().get_template(f"{name}.html.j2")
    return template.render(
        title=title,
        content=content,
        version=evencover.__version__,
        data=script_json({**content, "charts": charts}),
        style=Markup(_asset("page.css")),
        script=inline_script("\n".join(map(_asset, ("shared.js", "charts.js", *scripts)))),
        vega=inline_script(_vega()),
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("evencover.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    return environment


def percent(share: float, digits: int = 1) -> str:
    """Format a share as a percentage, without a trailing .0.

    >>> percent(0.9), percent(0.8975)
    ('90%', '89.8%')
    """
    return f"{round(100 * share, digits):g}%"


def script_json(value: Any) -> Markup:
    r"""Return JSON for a script element: no character in it can end the element.

    >>> print(script_json("</script>"))
    "\u003c/script\u003e"
    """
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def inline_script(source: str) -> Markup:
    """Return a script for a script element."""
    from markupsafe import Markup

    return Markup(source.replace("</script", r"<\/script").replace("<!--", r"<\!--"))


def write_html(path: Path, html: str) -> Path:
    """Write a page atomically."""
    with atomic_path(path) as temporary:
        # A class name may contain half a surrogate pair, which UTF-8 cannot encode.
        temporary.write_bytes(html.encode("utf-8", "replace"))
    return path


def _asset(name: str) -> str:
    return files("evencover.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """Bundle Vega as one script (900 kB); takes a few seconds, once per process."""
    import vl_convert

    # The bundle exports Vega Embed only, which includes Vega.
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


# ---- the monitor's page ------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, BOTTOM = 760, 220, 46, 24
MOST_CLASSES, MOST_PERIODS, FEW_PERIODS = 50, 60, 8
STYLE = """
:root{color-scheme:light dark;--ink:#1c1c1c;--muted:#666;--line:#ddd;--calm:#2b6cb0;--warn:#c2410c}
@media (prefers-color-scheme:dark){:root{
--ink:#eee;--muted:#aaa;--line:#444;--calm:#7ab8f5;--warn:#fb923c}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);max-width:800px;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}.muted{color:var(--muted)}
.alarm{color:var(--warn);font-weight:600}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .5rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;min-width:8rem;overflow-wrap:anywhere}
th,td:last-child{white-space:nowrap}.wide{overflow-x:auto}
svg{width:100%;min-width:34rem;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--muted)}
""".strip()


def write_watch_page(
    monitor: CoverageMonitor, path: str | os.PathLike[str], *, title: str = "Coverage"
) -> Path:
    """Write `watch_html` to a file atomically."""
    return write_html(reject_existing(path, force=True), watch_html(monitor, title))


def watch_html(monitor: CoverageMonitor, title: str = "Coverage", *, refresh: int = 0) -> str:
    """Return the page as text; a browser reloads it every `refresh` seconds."""
    found = summary(monitor)
    again = f'<meta http-equiv="refresh" content="{int(refresh)}">' if refresh else ""
    tests = (_sentence(found[name]) for name in ("below_target", "overall", "score_shift"))
    levels = found["alarm_level"]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"{again}<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<p>{found['rows']:,} labeled examples; target coverage "
            f"{found['target_text']} (alpha {escape(str(monitor.predictor.class_alpha))}, "
            f"tolerance {monitor.tolerance:g}).</p>",
            *tests,
            *(f'<p class="alarm">{escape(sentence)}</p>' for sentence in found["warnings"]),
            *_unknown(found["unknown_labels"]),
            "<h2>Coverage by period</h2>",
            _chart(found["periods"][-MOST_PERIODS:], found["target"]),
            "<h2>Classes with the strongest evidence</h2>",
            f'<p class="muted">Alarm level (e-value): {levels["class"]:,g} for the next class, '
            f"{levels['one']:,g} for each test over all classes. Low and high bound coverage for "
            "all classes at once. Since: the period in which the evidence begins.</p>",
            _table(found["classes"]),
            "<h2>Coverage of these classes by period</h2>",
            _by_period(found["classes"][:STRONGEST], found["periods"][-FEW_PERIODS:]),
            "<h2>Drift of set sizes and predicted classes</h2>",
            _drift(found["drift"]),
            "</body></html>\n",
        ]
    )


def _sentence(test: dict[str, Any]) -> str:
    kind = ' class="alarm"' if test["alarm"] else ""
    return f"<p{kind}>{escape(test['message'])}</p>"


def _unknown(labels: dict[str, int]) -> list[str]:
    if not labels:
        return []
    names = ", ".join(f"{escape(label)} ({times:,})" for label, times in labels.items())
    return [f"<p>Labels that are not among the classes count as misses: {names}.</p>"]


def _chart(periods: Sequence[dict[str, Any]], target: float) -> str:
    """Draw the coverage of each period."""
    if not periods:
        return '<p class="muted">No labeled examples yet.</p>'
    least = min([0.5, *(each["coverage"] for each in periods)])
    low = floor(10 * least) / 10
    across = np.linspace(LEFT + 10, WIDTH - 10, len(periods)) if len(periods) > 1 else [WIDTH / 2]

    def up(value: float) -> float:
        return (HEIGHT - BOTTOM) * (1 - (value - low) / (1 - low)) + 6

    marks = [
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{up(v):.1f}" y2="{up(v):.1f}" stroke="var(--line)"/>'
        f'<text x="{LEFT - 6}" y="{up(v) + 4:.1f}" text-anchor="end">{v:.0%}</text>'
        for v in np.arange(low, 1.01, 0.1)
    ]
    height = up(target)
    marks.append(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{height:.1f}" y2="{height:.1f}" stroke="var(--muted)" '
        'stroke-dasharray="4 4"/>'
    )
    for x, each in zip(across, periods, strict=True):
        value = each["coverage"]
        color = "warn" if value < target else "calm"
        text = f"{each['period']}: coverage {value:.3f}, {each['rows']:,} examples"
        marks.append(
            f'<circle cx="{x:.1f}" cy="{up(value):.1f}" r="5" fill="var(--{color})">'
            f"<title>{escape(text)}</title></circle>"
        )
    for place in {0, len(periods) - 1}:
        anchor = "middle" if len(periods) == 1 else ("start" if place == 0 else "end")
        marks.append(
            f'<text x="{across[place]:.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">'
            f"{escape(periods[place]['period'])}</text>"
        )
    return (
        f'<div class="wide"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Coverage by period">{"".join(marks)}</svg></div>'
        '<p class="muted">Coverage of the examples served in each period. Dashed line: target '
        "coverage.</p>"
    )


def _table(classes: Sequence[dict[str, Any]]) -> str:
    shown = [each for each in classes if each["rows"]][:MOST_CLASSES]
    if not shown:
        return '<p class="muted">No labeled examples yet.</p>'
    titles = ["class", "examples", "coverage", "low", "high", "e-value", "shift e-value", "since"]
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = "".join(map(_row, shown))
    return f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _row(each: dict[str, Any]) -> str:
    shift = "" if each["shift_e_value"] is None else f"{each['shift_e_value']:.3g}"
    cells = [
        *(escape(str(each["class"])), f"{each['rows']:,}", f"{each['coverage']:.3f}"),
        *(f"{each['interval'][0]:.3f}", f"{each['interval'][1]:.3f}"),
        *(f"{each['e_value']:.3g}", shift, escape(each["since"] or "")),
    ]
    kind = ' class="alarm"' if each["alarm"] or each["shifted"] else ""
    return f"<tr{kind}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _by_period(classes: Sequence[dict[str, Any]], periods: Sequence[dict[str, Any]]) -> str:
    """Return a table of coverage and rows, classes by the latest periods."""
    names = [each["period"] for each in periods]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = []
    for each in classes:
        own = {period["period"]: period for period in each["periods"]}
        if own:
            cells = (
                f"<td>{own[name]['coverage']:.2f} ({own[name]['rows']:,})</td>"
                if name in own
                else "<td></td>"
                for name in names
            )
            lines.append(f"<tr><td>{escape(str(each['class']))}</td>{''.join(cells)}</tr>")
    if not lines:
        return '<p class="muted">No labeled examples yet.</p>'
    return (
        f'<div class="wide"><table><tr><th>class</th>{head}</tr>{"".join(lines)}</table></div>'
        '<p class="muted">Coverage (labeled examples).</p>'
    )


def _drift(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return '<p class="muted">No comparison yet: drift needs reference rows and new rows.</p>'
    drifted = [each for each in found if each["drifted"]][:MOST_CLASSES]
    if not drifted:
        return "<p>No significant drift from the reference.</p>"
    rows = "".join(
        f"<tr><td>{escape(each['what'])}</td><td>{each['before']:.1%}</td>"
        f"<td>{each['now']:.1%}</td><td>{each['e_value']:.3g}</td></tr>"
        for each in drifted
    )
    return (
        '<p>Drift does not measure coverage.</p><div class="wide"><table><tr><th>fraction</th>'
        f"<th>reference</th><th>now</th><th>e-value</th></tr>{rows}</table></div>"
    )
