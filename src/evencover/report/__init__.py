"""Self-contained HTML reports: coverage of every class, and comparisons of methods.

    predictor + labeled rows -> content (plain numbers) -> charts and page (text)

Data, styles, scripts and Vega are inside the file, which loads nothing from the network.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import evencover
from evencover.comparison.result import Comparison
from evencover.errors import InputError
from evencover.output.atomic import atomic_path, check_output
from evencover.predictors.base import BasePredictor
from evencover.report.content import comparison_content, report_content
from evencover.templates import asset, environment

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["require_extra", "write_comparison", "write_report"]


def write_report(
    predictor: BasePredictor,
    path: str | os.PathLike[str],
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    executor: Any = None,
    taxonomy: Any = None,
    title: str = "Coverage report",
    force: bool = False,
) -> Path:
    """Write an HTML coverage report of a calibrated predictor on held-out examples.

    Labels that are not among the classes count as misses.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    path
        The file to write; `force` replaces an existing one.
    probabilities, labels, ids, executor
        Held-out examples, as in `BasePredictor.evaluate`; they are read once, in blocks.
    taxonomy
        A `Taxonomy`, or what it is read from, to summarize example sets.
    title
        The title of the report.
    """
    path = check_output(path, force=force)
    require_extra()  # before the rows are read, which may take long
    content = report_content(
        predictor, probabilities, labels, ids=ids, executor=executor, taxonomy=taxonomy
    )
    return write_html(path, render_report(content, title))


def write_comparison(
    comparison: Comparison,
    path: str | os.PathLike[str],
    *,
    title: str = "Comparison of methods",
    force: bool = False,
) -> Path:
    """Write the report of a comparison of methods and scores; `force` replaces a file."""
    path = check_output(path, force=force)
    require_extra()
    return write_html(path, render_comparison(comparison_content(comparison), title))


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

    template = environment().get_template(f"{name}.html.j2")
    return template.render(
        title=title,
        content=content,
        version=evencover.__version__,
        data=script_json({**content, "charts": charts}),
        style=Markup(asset("page.css")),
        script=inline_script("\n".join(map(asset, ("shared.js", "charts.js", *scripts)))),
        vega=inline_script(_vega()),
    )


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


@cache
def _vega() -> str:
    """Bundle Vega as one script (900 kB); takes a few seconds, once per process."""
    import vl_convert

    # The bundle exports Vega Embed only, which includes Vega.
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
