"""Self-contained HTML reports: coverage of every class, and comparisons of methods.

    predictor + labeled rows -> content (plain numbers) -> charts and page (text)

Data, styles, scripts and Vega are inside the file, which loads nothing from the network.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from evencover.comparison.result import Comparison
from evencover.output.atomic import check_output
from evencover.predictors.base import BasePredictor
from evencover.report.content import comparison_content, report_content
from evencover.report.page import render_comparison, render_report, require_extra, write_html

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
