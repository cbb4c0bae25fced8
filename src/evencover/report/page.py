"""Content and charts into one HTML file, with its styles, its scripts and Vega inside."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import evencover
from evencover._validation import InputError

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def require_extra() -> None:
    """Refuse, before any work is done, if what draws the page is not installed."""
    try:
        import altair
        import jinja2
        import vl_convert
    except ImportError as error:
        raise InputError(
            f"The page needs altair, vl-convert-python and jinja2, and {error.name} is not "
            "installed; install them with pip install 'evencover[report]'."
        ) from None
    del altair, jinja2, vl_convert


def render_report(content: dict[str, Any], title: str) -> str:
    """The page about one predictor."""
    from evencover.report.charts import report_charts

    charts = report_charts(1 - content["alpha"])
    scripts = ("shared.js", "charts.js", "table.js", "detail.js", "report.js")
    return _render("report.html.j2", content, charts, scripts, title)


def render_comparison(content: dict[str, Any], title: str) -> str:
    """The page about a comparison."""
    from evencover.report.charts import comparison_charts

    return _render(
        "comparison.html.j2",
        content,
        comparison_charts(),
        ("shared.js", "charts.js", "comparison.js"),
        title,
    )


def _render(
    template: str,
    content: dict[str, Any],
    charts: dict[str, Any],
    scripts: tuple[str, ...],
    title: str,
) -> str:
    from markupsafe import Markup

    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            content=content,
            version=evencover.__version__,
            data=script_json({**content, "charts": charts}),
            style=Markup(_asset("page.css")),
            script=inline_script("\n".join(_asset(name) for name in scripts)),
            vega=inline_script(_vega()),
        )
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
    """A share as a percentage, without a trailing .0.

    >>> percent(0.9), percent(0.8975)
    ('90%', '89.8%')
    """
    return f"{round(100 * share, digits):g}%"


def script_json(value: Any) -> Markup:
    r"""JSON that may stand inside a script element: no character in it can end the element.

    >>> print(script_json("</script>"))
    "\u003c/script\u003e"
    """
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def inline_script(source: str) -> Markup:
    """A script that may stand inside a script element."""
    from markupsafe import Markup

    return Markup(source.replace("</script", r"<\/script").replace("<!--", r"<\!--"))


def _asset(name: str) -> str:
    return files("evencover.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """Vega as one script (900 kB), taking a few seconds to put together, once per process."""
    import vl_convert

    # Only Vega Embed comes out of the bundle whole; it brings Vega along.
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
