"""The charts, in Vega-Lite; compiled to Vega here, so that the page need not do it when it opens.

Data come from the page itself (named data sets), and so do colours: each is a parameter that the
page sets from its style sheet, for light, dark and print.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import vl_convert

from evencover.evaluation.metrics import find_metric

# Names of the parameters that hold colours; the page reads the CSS variable of the same name.
COLOURS = ("ink", "muted", "line", "calm", "warn", "paper")


@cache  # compiling takes most of the time of a report
def report_charts(target: float) -> dict[str, Any]:
    """Vega specifications of the charts about classes, by name."""
    charts = {
        "coverage": class_coverage(target),
        "calibration": coverage_by_calibration_count(target),
        "sizes": set_sizes(),
        "scores": score_distribution(),
    }
    return {name: to_vega(chart) for name, chart in charts.items()}


@cache
def comparison_charts() -> dict[str, Any]:
    """Vega specifications of the chart about candidates."""
    return {"pareto": to_vega(pareto())}


def to_vega(chart: Any) -> dict[str, Any]:
    """Compile a chart."""
    colours = [alt.param(name=name, value="#888") for name in COLOURS]
    spec = _styled(chart.add_params(*colours)).to_dict(validate=False)
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return dict(vl_convert.vegalite_to_vega(spec, vl_version=version))


def _styled(chart: Any) -> Any:
    muted, line = _colour("muted"), _colour("line")
    return (
        chart.properties(width="container", background="transparent", padding=2)
        .configure(font="system-ui, sans-serif", aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=muted,
            titleColor=muted,
            gridColor=line,
            domainColor=line,
            tickColor=line,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=8,
            domain=False,
            ticks=False,
            labelPadding=6,
        )
    )


def _colour(name: str) -> Any:
    return alt.ExprRef(name)


def _by_state() -> dict[str, Any]:
    """Colour of a class: one for those likely below the aim, one for all others."""
    calm = {"expr": "calm"}
    return {"condition": {"test": "datum.below", "value": {"expr": "warn"}}, "value": calm}


def _fading(shown: float | dict[str, str]) -> dict[str, Any]:
    """Opacity of a class: nearly gone if the filters leave it out."""
    return {"condition": {"test": "datum.match", "value": shown}, "value": 0.08}


def _classes() -> Any:
    return alt.Chart(alt.NamedData("classes"))


def _picked() -> Any:
    """The class that the reader has chosen."""
    return _classes().transform_filter("datum.i == picked")


def _target(target: float, *, named: bool = True) -> Any:
    """The coverage aimed at, as a dashed line, with its name where there is room for it."""
    data = alt.InlineData(values=[{"y": target, "text": f"aim: {100 * target:g}%"}])
    base = alt.Chart(data).encode(y="y:Q")
    line = base.mark_rule(strokeDash=[4, 3], color=_colour("ink"))
    if not named:
        return line
    return line + _label(base, stroke=_colour("paper"), strokeWidth=4) + _label(base)


def _label(base: Any, **halo: Any) -> Any:
    """A line's name above its left end; a halo keeps it legible on other marks."""
    return base.mark_text(
        align="left", baseline="bottom", dx=4, dy=-3, fontSize=12, color=_colour("ink"), **halo
    ).encode(x=alt.value(0), text="text:N")


def _coverage_axis(title: str | None) -> Any:
    return alt.Y(
        "coverage:Q",
        title=title,
        scale=alt.Scale(domainMin=alt.ExprRef("bottom"), domainMax=1, nice=False),
        axis=alt.Axis(format=".0%", tickCount=5),
    )


def class_coverage(target: float) -> Any:
    """Coverage of every class with its interval, from the lowest to the highest."""
    picked = alt.param(name="picked", value=-1)
    bottom = alt.param(name="bottom", value=0)
    x = alt.X(
        "rank:Q",
        scale=alt.Scale(zero=False, nice=False, padding=6),
        axis=alt.Axis(
            grid=False, tickMinStep=1, format=",d", title="classes, from the least covered"
        ),
    )
    y = _coverage_axis(None)
    limits = {"y": alt.Y("low:Q", title=None), "y2": "high:Q"}
    interval = (
        _classes()
        .mark_rule(strokeWidth=alt.ExprRef("max(0.5, min(4, 0.6 * width / n))"))
        .encode(x=x, **limits, color=_by_state(), opacity=_fading({"expr": "haze"}))
    )
    dot = (
        _classes()
        .mark_circle(size=alt.ExprRef("dot"))
        .encode(x=x, y=y, color=_by_state(), opacity=_fading(1))
    )
    chosen = _picked().mark_rule(color=_colour("ink"), strokeWidth=2).encode(x=x, **limits)
    chosen_dot = (
        _picked()
        .mark_circle(size=90, color=_colour("ink"), stroke=_colour("paper"), strokeWidth=1.5)
        .encode(x=x, y=y)
    )
    layers = interval + dot + _target(target) + chosen + chosen_dot
    # Dots, strokes and haze grow finer with the number of classes; the page sets them.
    fine = {"n": 100, "dot": 18, "haze": 0.28}
    sizes = [alt.param(name=name, value=value) for name, value in fine.items()]
    return layers.properties(height=260).add_params(picked, bottom, *sizes)


def coverage_by_calibration_count(target: float) -> Any:
    """Coverage of every class against its calibration rows, with the mean of similar counts."""
    picked = alt.param(name="picked", value=-1)
    bottom = alt.param(name="bottom", value=0)
    domain = alt.ExprRef("counts")
    x = alt.X(
        "calibration:Q",
        title="calibration rows of the class",
        scale=alt.Scale(type="symlog", constant=10, nice=False, padding=8, domain=domain),
        axis=alt.Axis(grid=False, values=alt.ExprRef("ticks"), format=",d"),
    )
    y = _coverage_axis(None)
    dot = (
        _classes()
        .mark_circle(size=30, cursor="pointer")
        .encode(x=x, y=y, color=_by_state(), opacity=_fading(0.65))
    )
    mean = (
        alt.Chart(alt.NamedData("means"))
        .mark_rule(color=_colour("ink"), strokeWidth=2.5, strokeCap="round")
        .encode(x=alt.X("first:Q"), x2="last:Q", y=alt.Y("mean:Q"))
    )
    chosen = (
        _picked()
        .mark_circle(size=110, color=_colour("ink"), stroke=_colour("paper"), strokeWidth=1.5)
        .encode(x=x, y=y)
    )
    ticks = alt.param(name="ticks", value=[0, 10, 100, 1000])
    counts = alt.param(name="counts", value=[0, 100])
    layers = dot + _target(target, named=False) + mean + chosen
    return layers.properties(height=240).add_params(picked, bottom, ticks, counts)


def set_sizes() -> Any:
    """How many classes the sets hold."""
    bars = (
        alt.Chart(alt.NamedData("sizes"))
        .mark_rect(color=_colour("calm"), opacity=0.85)
        .encode(
            x=alt.X(
                "left:Q",
                title="classes in a set",
                scale=alt.Scale(nice=False, zero=False),
                axis=alt.Axis(grid=False, tickMinStep=1, format=",d"),
            ),
            x2="right:Q",
            y=alt.Y(
                "share:Q",
                title=None,
                scale=alt.Scale(domainMin=0),
                axis=alt.Axis(format=".0%", tickCount=4),
            ),
            y2=alt.Y2Datum(0),
        )
    )
    return bars.properties(height=240)


def score_distribution() -> Any:
    """Scores of one class as bars against those of its group as an outline, and the threshold.

    The axis is stretched so that all calibration scores together would be flat.
    """
    x = alt.X(
        "left:Q",
        title="score of the true class: easy on the left, hard on the right",
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=alt.Axis(
            grid=False,
            values=alt.ExprRef("ticks"),
            labelExpr="labels[indexof(ticks, datum.value)]",
            labelOverlap=True,
        ),
    )
    y = alt.Y("density:Q", title=None, axis=None, scale=alt.Scale(domainMin=0))
    colour = {
        "condition": {"test": "datum.missed", "value": {"expr": "warn"}},
        "value": {"expr": "calm"},
    }
    bars = (
        alt.Chart(alt.NamedData("bars"))
        .mark_rect(opacity=0.75)
        .encode(x=x, x2="right:Q", y=y, y2=alt.Y2Datum(0), color=colour)
    )
    outline = (
        alt.Chart(alt.NamedData("outline"))
        .mark_line(interpolate="step-after", color=_colour("ink"), strokeWidth=1.5)
        .encode(x=alt.X("left:Q"), y=y, order="left:Q")
    )
    line = alt.Chart(alt.NamedData("threshold")).encode(x=alt.X("place:Q"))
    rule = line.mark_rule(color=_colour("ink"), strokeDash=[4, 3])
    label = line.mark_text(
        baseline="top",
        dy=-14,
        align=alt.ExprRef("datum.place > 0.6 ? 'right' : 'left'"),
        dx=alt.ExprRef("datum.place > 0.6 ? -5 : 5"),
        color=_colour("ink"),
        fontSize=12,
    ).encode(y=alt.value(0), text="text:N")
    ticks = alt.param(name="ticks", value=[0, 1])
    labels = alt.param(name="labels", value=["0", "1"])
    layers = bars + outline + rule + label
    return layers.properties(height=120).add_params(ticks, labels)


def pareto() -> Any:
    """True gap against AvgSize of every candidate with standard errors, and the Pareto front."""
    size = f"{find_metric('avg_size', 'comparison').title}: classes in a set (smaller is better)"
    gap = f"{find_metric('true_gap', 'comparison').title} in points (lower is more even)"
    x = alt.X(
        "avg_size:Q",
        title=size,
        scale=alt.Scale(type="log", nice=False, padding=24),
        axis=alt.Axis(grid=False, values=alt.ExprRef("ticks"), format="~r"),
    )
    y = alt.Y(
        "true_gap:Q",
        title=gap,
        scale=alt.Scale(zero=False, padding=24),
        axis=alt.Axis(tickCount=6),
    )
    data = alt.Chart(alt.NamedData("candidates"))
    front = (
        data.transform_filter("datum.on_pareto_front")
        .mark_line(color=_colour("muted"), strokeDash=[2, 3], strokeWidth=1.2)
        .encode(x=x, y=y, order="avg_size:Q")
    )
    errors = data.mark_rule(color=_colour("muted"), opacity=0.7)
    vertical = errors.encode(x=x, y=alt.Y("gap_low:Q", title=gap), y2="gap_high:Q")
    horizontal = errors.encode(y=y, x=alt.X("size_low:Q", title=size), x2="size_high:Q")
    dots = _candidate_dots(data).encode(x=x, y=y)
    # The page places each name where it meets no other one, or leaves it out.
    names = data.mark_text(
        align=alt.ExprRef("datum.align"),
        dx=alt.ExprRef("datum.dx"),
        dy=alt.ExprRef("datum.dy"),
        fontSize=12,
        color=_colour("ink"),
    ).encode(x=x, y=y, text="label:N")
    ticks = alt.param(name="ticks", value=[1, 10, 100])
    layers = front + vertical + horizontal + dots + names
    return layers.properties(height=400).add_params(ticks)


def _candidate_dots(data: Any) -> Any:
    colour = {
        "condition": {"test": "datum.is_pick", "value": {"expr": "calm"}},
        "value": {"expr": "muted"},
    }
    shapes = alt.Scale(
        range=[
            *("circle", "square", "triangle-up", "diamond", "cross"),
            *("triangle-down", "triangle-left", "triangle-right", "stroke"),
        ]
    )
    return data.mark_point(filled=True, opacity=1, size=110).encode(
        color=colour, shape=alt.Shape("method:N", legend=None, scale=shapes)
    )
