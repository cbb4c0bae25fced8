"""The rule of a predictor, node by node: who is in the set of a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evencover._kernels import Position
from evencover._kernels.reference_rows import FIXED_POINT
from evencover._validation import SUM_TOLERANCE
from evencover.predictors.rule import Rule
from evencover.serving.graph import Graph, Symbol, row_of

# NumPy's functions on symbols.
where: Any = np.where
rint: Any = np.rint
largest: Any = np.maximum


def set_nodes(graph: Graph, rule: Rule, rows: str, item_size: int) -> dict[str, Any]:
    """The outputs as symbols, from the name of the rows."""
    n_classes, limits = len(rule.limits.upper), rule.limits
    given = Symbol(graph, rows, "rows").cast("float64")
    p, valid = _probabilities(graph, rule, given, n_classes, item_size)
    u: Any = 1.0
    if rule.scoring.score.base.is_random:
        u = Symbol(graph, "uniform", "float64").as_column()
    sorted_p, classes = graph.in_order(p, n_classes)
    first, _ = graph.in_order(p, 1)
    rank = graph.symbol(row_of(np.arange(1, n_classes + 1)))
    formula = rule.scoring.score.base.kernel
    if formula.needs_order or limits.rank_limit is not None:
        fixed = rint(sorted_p * FIXED_POINT).cast("int64")
        mass = graph.add("CumSum", fixed, np.array(1), kind="int64", exclusive=1)
        before = mass.cast("float64") / FIXED_POINT
        at = Position(sorted_p, before, rank, first, classes, u)
        inside = _is_member(graph, rule, formula.function(at), classes)
        if limits.rank_limit is not None:
            inside = inside & (rank <= graph.take(limits.rank_limit, classes))
        membership = graph.add("ScatterElements", inside, classes, inside, kind="bool", axis=1)
    else:
        every = graph.symbol(row_of(np.arange(n_classes)))
        at = Position(p, p, rank, first, every, u)
        membership = _is_member(graph, rule, formula.function(at), every)
    if not rule.allow_empty:
        empty = graph.sum(membership.cast("int64")) == 0
        _, top_class = graph.in_order(given, 1)
        every = graph.symbol(row_of(np.arange(n_classes)))
        membership = membership | (empty & (every == top_class))
    sizes = graph.sum(membership.cast("int64"))
    return {
        "membership": membership,
        "sizes": graph.add("Squeeze", sizes, np.array([1]), kind="int64"),
        "classes": _listed(graph, membership, sizes, classes, n_classes),
        "valid": graph.add("Squeeze", valid, np.array([1]), kind="bool"),
    }


def _is_member(graph: Graph, rule: Rule, scores: Any, classes: Any) -> Any:
    """`_kernels.is_member`, without the rank."""
    limits = rule.limits
    limit = graph.take(limits.upper, classes)
    if limits.lower is not None and limits.upper_probability is not None:
        coin = Symbol(graph, "coin", "float64").as_column()
        chance = graph.take(limits.upper_probability, classes)
        limit = where(coin < chance, limit, graph.take(limits.lower, classes))
    return scores <= limit


def _listed(graph: Graph, membership: Any, sizes: Any, classes: Any, n_classes: int) -> Any:
    """The members in the order of `classes`, then -1."""
    place = graph.symbol(row_of(np.arange(n_classes)))
    inside = graph.take_along(membership, classes)
    weight: Any = where(inside, 2 * n_classes - place, n_classes - place)
    _, order = graph.in_order(weight, n_classes)
    members = graph.take_along(classes, order)
    return where(place < sizes, members, -1)


def _probabilities(
    graph: Graph, rule: Rule, rows: Any, n_classes: int, item_size: int
) -> tuple[Any, Any]:
    """`probabilities` of the kernels, and whether each row holds any (n, 1)."""
    if not rule.scoring.logits:
        in_range = graph.all((rows >= 0.0) & (rows <= 2.0))
        # A row that is none gets zeros: NaN has no place in an order.
        rows = where(in_range, rows, 0.0)
        total = graph.sum(rint(rows * FIXED_POINT).cast("int64")).cast("float64")
        near = abs(total / FIXED_POINT - 1.0) <= SUM_TOLERANCE[item_size]
        return rows, in_range & near & (graph.sum(rows) < 2.0)
    usual = rows < math.inf  # neither NaN nor +inf; -inf is a masked class
    top = graph.largest(where(usual, rows, -math.inf))
    valid = graph.all(usual) & (top > -math.inf)
    shifted = where(valid, rows - where(valid, top, 0.0), 0.0)
    e = _exp_nonpositive(graph, shifted / float(rule.scoring.temperature))
    scale = 2.0 ** (62 - n_classes.bit_length())
    total = graph.sum(rint(e * scale).cast("int64")).cast("float64")
    return e / (total / scale), valid


def _exp_nonpositive(graph: Graph, x: Any) -> Any:
    """The kernels' own exp, operation by operation; powers of two come from a table."""
    x = largest(x, -701.0)
    k = rint(x * 1.4426950408889634)
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    value: Any = 1.0 / math.factorial(13)
    for n in range(12, -1, -1):
        value = value * r + 1.0 / float(math.factorial(n))
    powers = np.ldexp(1.0, -np.arange(1013))
    scaled = value * graph.take(powers, (-k).cast("int64"))
    return where(x < -700.0, 0.0, scaled)
