"""The charts, in Vega-Lite, compiled to Vega here to save time when the report opens.

The report fills named data sets and sets colors, which are parameters, from its style sheet for
light, dark and print.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import vl_convert

# Parameters that hold colors; the page reads the CSS variable of the same name.
COLORS = ("ink", "muted", "line", "calm", "warn", "paper")
INK, MUTED, LINE, CALM, WARN, PAPER = (alt.ExprRef(name) for name in COLORS)


@cache  # compiling takes most of the time of a report
def report_charts(target: float | None) -> dict[str, Any]:
    """Return the Vega specifications of the charts by name; no target if classes have their own."""
    charts = {
        "coverage": class_coverage(target),
        "calibration": coverage_by_calibration_count(target),
    }
    return {name: to_vega(chart) for name, chart in charts.items()}


@cache
def comparison_charts() -> dict[str, Any]:
    """Return the Vega specification of the chart about candidates."""
    return {"pareto": to_vega(pareto())}


def to_vega(chart: Any) -> dict[str, Any]:
    """Style and compile a chart."""
    styled = (
        chart.add_params(*_params(**dict.fromkeys(COLORS, "#888")))
        .properties(width="container", background="transparent", padding=2)
        .configure(font="system-ui, sans-serif", aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=MUTED,
            titleColor=MUTED,
            gridColor=LINE,
            domainColor=LINE,
            tickColor=LINE,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=8,
            domain=False,
            ticks=False,
            labelPadding=6,
        )
    )
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return dict(vl_convert.vegalite_to_vega(styled.to_dict(validate=False), vl_version=version))


def _params(**values: Any) -> list[Any]:
    return [alt.param(name=name, value=value) for name, value in values.items()]


def _data(name: str) -> Any:
    return alt.Chart(alt.NamedData(name))


def _if(test: str, value: Any, otherwise: Any) -> dict[str, Any]:
    return {"condition": {"test": test, "value": value}, "value": otherwise}


def _class_color() -> dict[str, Any]:
    return _if("datum.below", {"expr": "warn"}, {"expr": "calm"})


def _class_opacity(shown: float | dict[str, str]) -> dict[str, Any]:
    """Fade a class that the filters leave out."""
    return _if("datum.match", shown, 0.08)


def _selected() -> Any:
    return _data("classes").transform_filter("datum.i == selected")


def _target(target: float | None, x: Any, *, named: bool) -> Any:
    """Draw the target as a dashed line, named at its left end; else one tick per class."""
    if target is None:
        ticks = _data("classes").mark_tick(color=INK, thickness=1.5, size=9, orient="horizontal")
        return ticks.encode(x=x, y=alt.Y("target:Q", title=None))
    data = alt.InlineData(values=[{"y": target, "text": f"target: {100 * target:g}%"}])
    base = alt.Chart(data).encode(y="y:Q")
    line = base.mark_rule(strokeDash=[4, 3], color=INK)
    if not named:
        return line
    base = base.encode(x=alt.value(0), text="text:N")
    style: Any = {"align": "left", "baseline": "bottom", "dx": 4, "dy": -3, "fontSize": 12}
    halo: Any = {"stroke": PAPER, "strokeWidth": 4}  # legible on other marks
    return line + base.mark_text(**style, color=INK, **halo) + base.mark_text(**style, color=INK)


def _coverage_axis() -> Any:
    return alt.Y(
        "coverage:Q",
        title=None,
        scale=alt.Scale(domainMin=alt.ExprRef("bottom"), domainMax=1, nice=False),
        axis=alt.Axis(format=".0%", tickCount=5),
    )


def class_coverage(target: float | None) -> Any:
    """Draw the coverage of every class with its interval, the largest shortfall first."""
    x = alt.X(
        "rank:Q",
        scale=alt.Scale(zero=False, nice=False, padding=6),
        axis=alt.Axis(
            grid=False, tickMinStep=1, format=",d", title="classes, largest shortfall first"
        ),
    )
    y = _coverage_axis()
    limits = {"y": alt.Y("low:Q", title=None), "y2": "high:Q"}
    stroke = alt.ExprRef("max(0.5, min(4, 0.6 * width / n))")
    haze = _class_opacity({"expr": "haze"})
    layers = (
        _data("classes")
        .mark_rule(strokeWidth=stroke)
        .encode(x=x, **limits, color=_class_color(), opacity=haze)
        + _data("classes")
        .mark_circle(size=alt.ExprRef("dot"))
        .encode(x=x, y=y, color=_class_color(), opacity=_class_opacity(1))
        + _target(target, x, named=True)
        + _selected().mark_rule(color=INK, strokeWidth=2).encode(x=x, **limits)
        + _selected()
        .mark_circle(size=90, color=INK, stroke=PAPER, strokeWidth=1.5)
        .encode(x=x, y=y)
    )
    # The report sets dots, strokes and haze, finer for more classes.
    params = _params(selected=-1, bottom=0, n=100, dot=18, haze=0.28)
    return layers.properties(height=260).add_params(*params)


def coverage_by_calibration_count(target: float | None) -> Any:
    """Draw coverage against calibration examples by class, with the mean of similar counts."""
    domain = alt.ExprRef("counts")
    x = alt.X(
        "calibration:Q",
        title="calibration examples of the class",
        scale=alt.Scale(type="symlog", constant=10, nice=False, padding=8, domain=domain),
        axis=alt.Axis(grid=False, values=alt.ExprRef("ticks"), format=",d"),
    )
    y = _coverage_axis()
    layers = (
        _data("classes")
        .mark_circle(size=30, cursor="pointer")
        .encode(x=x, y=y, color=_class_color(), opacity=_class_opacity(0.65))
        + _target(target, x, named=False)
        + _data("means")
        .mark_rule(color=INK, strokeWidth=2.5, strokeCap="round")
        .encode(x=alt.X("first:Q"), x2="last:Q", y=alt.Y("mean:Q"))
        + _selected()
        .mark_circle(size=110, color=INK, stroke=PAPER, strokeWidth=1.5)
        .encode(x=x, y=y)
    )
    params = _params(selected=-1, bottom=0, ticks=[0, 10, 100, 1000], counts=[0, 100])
    return layers.properties(height=240).add_params(*params)


def pareto() -> Any:
    """Draw shortfall against AvgSize of every candidate, standard errors, the Pareto front."""
    size = "AvgSize: labels per set (smaller is better)"
    gap = "Shortfall in points (lower is better)"
    x = alt.X(
        "avg_size:Q",
        title=size,
        scale=alt.Scale(type="log", nice=False, padding=24),
        axis=alt.Axis(grid=False, values=alt.ExprRef("ticks"), format="~r"),
    )
    y = alt.Y(
        "shortfall:Q",
        title=gap,
        scale=alt.Scale(zero=False, padding=24),
        axis=alt.Axis(tickCount=6),
    )
    shapes = [
        *("circle", "square", "triangle-up", "diamond", "cross"),
        *("triangle-down", "triangle-left", "triangle-right", "stroke"),
    ]
    shape = alt.Shape("method:N", legend=None, scale=alt.Scale(range=shapes))
    color = _if("datum.is_recommended", {"expr": "calm"}, {"expr": "muted"})
    data = _data("candidates")
    errors = data.mark_rule(color=MUTED, opacity=0.7)
    layers = (
        data.transform_filter("datum.on_pareto_front")
        .mark_line(color=MUTED, strokeDash=[2, 3], strokeWidth=1.2)
        .encode(x=x, y=y, order="avg_size:Q")
        + errors.encode(x=x, y=alt.Y("gap_low:Q", title=gap), y2="gap_high:Q")
        + errors.encode(y=y, x=alt.X("size_low:Q", title=size), x2="size_high:Q")
        + data.mark_point(filled=True, opacity=1, size=110).encode(
            x=x, y=y, color=color, shape=shape
        )
        # The report places each name where it overlaps no other, or omits it.
        + data.mark_text(
            align=alt.ExprRef("datum.align"),
            dx=alt.ExprRef("datum.dx"),
            dy=alt.ExprRef("datum.dy"),
            fontSize=12,
            color=INK,
        ).encode(x=x, y=y, text="label:N")
    )
    return layers.properties(height=400).add_params(*_params(ticks=[1, 10, 100]))
