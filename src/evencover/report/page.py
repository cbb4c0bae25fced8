"""Self-contained HTML: the report and the comparison (Jinja, Vega), and the monitor's page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import evencover
from evencover.errors import InputError, needs
from evencover.output.atomic import atomic_path

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
def _environment(what: str = "Reports") -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise needs(what, "jinja2", "report") from None

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

WIDTH, HEIGHT, LEFT, BOTTOM = 760, 220, 46, 24  # of the chart
MOST_CLASSES, MOST_PERIODS, FEW_PERIODS = 50, 60, 8


def monitor_html(summary: dict[str, Any], title: str = "Coverage", *, refresh: int = 0) -> str:
    """Return the page of a monitor's `summary`; a browser reloads it every `refresh` seconds."""
    classes = [row for row in summary["classes"] if row["rows"]][:MOST_CLASSES]
    periods = [row["period"] for row in summary["periods"]][-FEW_PERIODS:]
    history = []
    for row in classes:
        if "periods" not in row:  # only the first ones have theirs
            break
        of_period = {period["period"]: period for period in row["periods"]}
        history.append((row["class"], [of_period.get(period) for period in periods]))
    drifted = [change for change in summary["drift"] if change["drifted"]][:MOST_CLASSES]
    template = _environment("Pages of a monitor").get_template("monitor.html.j2")
    return template.render(
        summary=summary,
        title=title,
        refresh=refresh,
        classes=classes,
        chart=_chart(summary["periods"][-MOST_PERIODS:], summary["target"]),
        periods=periods,
        history=history,
        drifted=drifted,
    )


def _chart(periods: Sequence[dict[str, Any]], target: float) -> dict[str, Any] | None:
    """Place the coverage of each period, the grid and the target; None without periods."""
    if not periods:
        return None
    low = floor(10 * min([0.5, *(period["coverage"] for period in periods)])) / 10
    across = np.linspace(LEFT + 10, WIDTH - 10, len(periods)) if len(periods) > 1 else [WIDTH / 2]

    def up(value: float) -> float:
        return round((HEIGHT - BOTTOM) * (1 - (value - low) / (1 - low)) + 6, 1)

    return {
        **{"width": WIDTH, "height": HEIGHT, "left": LEFT, "target": up(target)},
        "grid": [(up(value), f"{value:.0%}") for value in np.arange(low, 1.01, 0.1)],
        "points": [
            (round(float(x), 1), up(period["coverage"]), period)
            for x, period in zip(across, periods, strict=True)
        ],
    }
