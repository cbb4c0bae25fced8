"""A small picture of a comparison for notebooks: evenness against size, in SVG of its own."""

from __future__ import annotations

from html import escape
from math import isfinite, log10
from typing import Any

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 14, 40  # room for the axes
TICKS = [digit * 10**power for power in range(-1, 6) for digit in (1, 2, 5)]
INK = 'fill="currentColor" font-size="12"'


def picture(found: Any) -> str:
    """True gap against AvgSize of every candidate; the points that the advice names have names.

    Colours follow the notebook's, and pointing at a mark tells its name and numbers.
    """
    shown = [c for c in found.candidates if isfinite(c.mean("true_gap")) and c.mean("avg_size") > 0]
    if len(shown) < 2:
        return ""
    sizes, gaps = [c.mean("avg_size") for c in shown], [c.mean("true_gap") for c in shown]
    low, high = log10(min(sizes)) - 0.05, log10(max(sizes)) + 0.05
    top = 1.1 * max(*gaps, 1.0)

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(size) - low) / (high - low)

    def y(gap: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * gap / top

    parts = [
        f'<text x="{x(tick):.0f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" {INK}>'
        f"{tick:g}</text>"
        for tick in TICKS
        if low <= log10(tick) <= high
    ]
    step = next((tick for tick in TICKS if top / tick < 6), top)
    for place in range(int(top / step) + 1):
        height = f"{y(place * step):.0f}"
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}" '
            'stroke="currentColor" stroke-opacity="0.15"/>'
            f'<text x="{LEFT - 6}" y="{height}" dy="4" text-anchor="end" {INK}>'
            f"{place * step:g}</text>"
        )
    named = (found.pick, found.smallest, found.most_even)
    for candidate, size, gap in zip(shown, sizes, gaps, strict=True):
        is_pick = candidate is found.pick
        colour = "#4682b4" if is_pick else "currentColor"
        tip = f"{escape(candidate.name)}: {gap:.1f} points, {size:.1f} classes"
        parts.append(
            f'<circle cx="{x(size):.0f}" cy="{y(gap):.0f}" r="{6 if is_pick else 4}" '
            f'fill="{colour}" fill-opacity="{1 if is_pick else 0.6}">'
            f"<title>{tip}</title></circle>"
        )
        if any(candidate is each for each in named):
            fits = x(size) > LEFT + 7 * len(candidate.name)  # to its lower left nothing is better
            parts.append(
                f'<text x="{x(size) + (-6 if fits else 9):.0f}" '
                f'y="{y(gap) + (16 if fits else -7):.0f}" '
                f'text-anchor="{"end" if fits else "start"}" {INK}>'
                f"{escape(candidate.name)}</text>"
            )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" style="max-width:100%" role="img" '
        f'aria-label="TrueGap against AvgSize of {len(shown)} candidates">{"".join(parts)}'
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle" {INK}>'
        "AvgSize: classes in a set</text>"
        f'<text transform="rotate(-90)" x="{-(TOP + HEIGHT - BOTTOM) / 2:.0f}" y="12" '
        f'text-anchor="middle" {INK}>TrueGap, points</text></svg>'
    )
