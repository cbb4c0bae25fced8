"""The page: one self-contained HTML file that shows which classes are below the aim, and why.

    predictor + labelled rows -> content (plain numbers) -> charts and page (text)

Everything is inside the file: data, styles, scripts, Vega. It opens from disk and asks for nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from evencover.comparison.result import Comparison
from evencover.output.atomic import atomic_path, refuse_existing
from evencover.predictors.base import BasePredictor
from evencover.report.content import comparison_content, report_content
from evencover.report.page import require_extra

__all__ = [
    "comparison_html",
    "report_html",
    "require_extra",
    "write_comparison",
    "write_report",
]


def report_html(
    predictor: BasePredictor,
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    groups: Any = None,
    executor: Any = None,
    taxonomy: Any = None,
    title: str = "Coverage report",
) -> str:
    """The page about a calibrated predictor on held-out rows, as text.

    Parameters
    ----------
    predictor
        A calibrated predictor.
    probabilities, labels, ids, groups, executor
        Held-out rows, as in `BasePredictor.evaluate`; they are read once, in blocks.
    taxonomy
        A `Taxonomy`, or what it is read from: example sets are said in its words, too.
    title
        What the page is called.
    """
    from evencover.report.page import render_report

    require_extra()  # before the rows are read, which may take long
    rows: Any = {"ids": ids, "groups": groups, "executor": executor, "taxonomy": taxonomy}
    return render_report(report_content(predictor, probabilities, labels, **rows), title)


def write_report(
    predictor: BasePredictor,
    path: str | os.PathLike[str],
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    groups: Any = None,
    executor: Any = None,
    taxonomy: Any = None,
    title: str = "Coverage report",
    force: bool = False,
) -> Path:
    """Write `report_html` to a file, whole or not at all; an existing one only with `force`."""
    path = refuse_existing(path, force=force)
    rows: Any = {"ids": ids, "groups": groups, "executor": executor, "taxonomy": taxonomy}
    return _write(path, report_html(predictor, probabilities, labels, title=title, **rows))


def comparison_html(comparison: Comparison, title: str = "Comparison of methods") -> str:
    """The page about a comparison of methods and scores, as text."""
    from evencover.report.page import render_comparison

    require_extra()
    return render_comparison(comparison_content(comparison), title)


def write_comparison(
    comparison: Comparison,
    path: str | os.PathLike[str],
    *,
    title: str = "Comparison of methods",
    force: bool = False,
) -> Path:
    """Write `comparison_html` to a file, whole or not at all."""
    path = refuse_existing(path, force=force)
    return _write(path, comparison_html(comparison, title))


def _write(path: Path, html: str) -> Path:
    with atomic_path(path) as temporary:
        # A class name may hold half a surrogate pair, which UTF-8 cannot.
        temporary.write_bytes(html.encode("utf-8", "replace"))
    return path
