"""Templates of the report, and the cards by which notebooks show a value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment


def asset(name: str) -> str:
    """Read a template, a style sheet or a script of the report."""
    return files("evencover").joinpath("report", "assets", name).read_text(encoding="utf-8")


def percent(share: float, digits: int = 1) -> str:
    """Format a share as a percentage, without a trailing .0.

    >>> percent(0.9), percent(0.8975)
    ('90%', '89.8%')
    """
    return f"{round(100 * share, digits):g}%"


@cache
def environment() -> Environment:
    """Make what renders the templates; raise ImportError without jinja2."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = percent
    return made


class Card(NamedTuple):
    """What a notebook shows of a value: figures as (title, value, meaning), a table, and lines."""

    title: str
    figures: Sequence[tuple[str, str, str]] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    lines: Sequence[str] = ()


class Shown:
    """A value that notebooks show as a card; as text if jinja2 is not installed."""

    def _card(self) -> Card:
        raise NotImplementedError

    def _repr_html_(self) -> str | None:
        try:
            template = environment().get_template("notebook.html.j2")
        except ImportError:
            return None
        return template.render(card=self._card())
