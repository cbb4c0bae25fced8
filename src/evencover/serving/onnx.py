"""Prediction sets as an ONNX graph: NumPy's arithmetic on symbols adds its nodes.

A score's own formula runs on symbols in place of arrays, so the graph has the same operations in
the same order, in float64 and 64-bit integers: its results are bit-identical.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

import evencover
from evencover import _kernels
from evencover._kernels import Position
from evencover._kernels.reference import FIXED_POINT
from evencover.answers import NO_NODE, REVIEW
from evencover.arrays import FloatArray
from evencover.errors import InputError, import_extra
from evencover.output.atomic import atomic_path, check_output
from evencover.predictors.acceptance import Acceptance
from evencover.predictors.base import BasePredictor
from evencover.predictors.fit import Fit
from evencover.predictors.rule import SetRule
from evencover.rounding import SUM_TOLERANCE

# Only operations that IEEE arithmetic fixes to the last bit.
ARITHMETIC = "add Add, subtract Sub, multiply Mul, divide Div, maximum Max, minimum Min, "
ARITHMETIC += "negative Neg, absolute Abs, sqrt Sqrt, rint Round"
TRUTHS = "less Less, less_equal LessOrEqual, greater Greater, greater_equal GreaterOrEqual, "
TRUTHS += "equal Equal, logical_and And, bitwise_and And, logical_or Or, bitwise_or Or, "
TRUTHS += "logical_not Not, invert Not"
OPERATIONS = {
    getattr(np, name): (operation, kind)
    for kind, pairs in (("", ARITHMETIC), ("bool", TRUTHS))
    for name, operation in map(str.split, pairs.split(", "))
}
IN_FLOAT64 = {"Div", "Sqrt", "Round"}
PREFIX = "evencover/"


class Graph:
    """Nodes and constants, as they are added; all names begin with PREFIX."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[Any, Any] = {}

    def add(self, operation: str, *inputs: Any, kind: str, **how: Any) -> Any:
        """Add a node; return an output for each word of `kind`: "float64", "int64" or "bool".

        The inputs are symbols and constant arrays.
        """
        from onnx import helper

        name = f"{PREFIX}{operation}_{len(self.nodes)}"
        names = [x.name if isinstance(x, Symbol) else self.constant(x) for x in inputs]
        outputs = [Symbol(self, f"{name}_{i}", each) for i, each in enumerate(kind.split())]
        node = helper.make_node(operation, names, [each.name for each in outputs], name, **how)
        self.nodes.append(node)
        return outputs if len(outputs) > 1 else outputs[0]

    def constant(self, values: Any) -> str:
        """Add a constant array, once; return its name."""
        from onnx import numpy_helper

        values = np.asarray(values, _kind(values))
        key = (values.dtype, values.shape, values.tobytes())
        if key not in self.constants:
            name = f"{PREFIX}constant_{len(self.constants)}"
            self.constants[key] = numpy_helper.from_array(values, name)
        return self.constants[key].name


class Symbol(NDArrayOperatorsMixin):
    """A value of the graph; NumPy's functions of it become nodes."""

    __array_priority__: ClassVar[float] = 1000.0  # arrays hand the operation over, too

    def __init__(self, graph: Graph, name: str, kind: str) -> None:
        self.graph, self.name, self.kind = graph, name, kind

    def node(self, operation: str, *inputs: Any, **how: Any) -> Any:
        """Add a node with this value as its first input; return a symbol of the same kind."""
        return self.graph.add(operation, self, *inputs, **({"kind": self.kind} | how))

    def cast(self, kind: str) -> Any:
        """Convert to another type."""
        from onnx import helper

        to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self if kind == self.kind else self.node("Cast", kind=kind, to=to)

    def sum(self) -> Any:
        """Sum each row (n, 1).

        Of integers it is the last running sum: ONNX Runtime's ReduceSum of them is rounded to 53
        bits (seen in 1.31), its CumSum is exact.
        """
        if self.kind == "int64":
            return self.node("CumSum", 1).columns([-1])
        return self.node("ReduceSum", [1], keepdims=1)

    def all(self) -> Any:
        """Check whether all of a row is true (n, 1)."""
        return (~self).cast("int64").sum() == 0

    def in_order(self, k: int) -> Any:
        """Return the k largest of each row, and their indices; ties by index."""
        return self.node("TopK", [k], kind=f"{self.kind} int64", axis=1)

    def columns(self, indices: Any) -> Any:
        """Return some columns (n, k)."""
        return self.node("Gather", indices, axis=1)

    def take_along(self, indices: Any) -> Any:
        """Return the entries of each row at its indices."""
        return self.node("GatherElements", indices, axis=1)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **how: Any) -> Any:
        if function is np.not_equal:
            return ~np.equal(*inputs)
        if function not in OPERATIONS or method != "__call__" or how:
            raise _unknown(function)
        operation, kind = OPERATIONS[function]
        values = _alike(inputs, in_float64=operation in IN_FLOAT64)
        return self.graph.add(operation, *values, kind=kind or _kind(values[0]))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is not np.where or len(args) != 3 or kwargs:
            raise _unknown(function)
        values = _alike(args[1:])
        return self.graph.add("Where", args[0], *values, kind=_kind(values[0]))


def _unknown(function: Any) -> InputError:
    return InputError(
        f"A score's formula can be exported if it is made of sums, products, quotients, minima, "
        f"maxima, comparisons and np.where. Got '{function.__name__}'."
    )


def _kind(value: Any) -> str:
    """Return the type that a symbol, an array or a number has in the graph."""
    if isinstance(value, Symbol):
        return value.kind
    return {"b": "bool", "f": "float64"}.get(np.asarray(value).dtype.kind, "int64")


def _alike(values: Sequence[Any], *, in_float64: bool = False) -> list[Any]:
    """Convert symbols and constants to one type, as NumPy would."""
    kinds = {_kind(value) for value in values}
    kind = "float64" if len(kinds) > 1 or (in_float64 and "int64" in kinds) else kinds.pop()
    return [v.cast(kind) if isinstance(v, Symbol) else np.asarray(v, kind) for v in values]


# NumPy's functions on symbols.
where: Any = np.where
rint: Any = np.rint


def take(values: Any, indices: Any) -> Any:
    """Return the entries of a constant (K,) at indices (n, k)."""
    if not isinstance(indices, Symbol):
        return values[indices]
    return indices.graph.add("Gather", values, indices, kind=_kind(values), axis=0)


def set_nodes(graph: Graph, rule: SetRule, rows: str, item_size: int) -> dict[str, Any]:
    """Return the outputs as symbols, from the name of the rows; those of one number as (n, 1)."""
    n_classes, limits = len(rule.thresholds.upper), rule.thresholds
    numbers = Symbol(graph, rows, "rows").cast("float64")
    p, valid = _probabilities(rule, numbers, n_classes, item_size)
    u: Any = _random_input(graph, "uniform") if rule.scoring.score.base.is_random else 1.0
    sorted_p, classes = p.in_order(n_classes)
    order = classes
    if rule.scoring.logits:  # unequal ones may have equal probabilities
        _, order = where(valid, numbers, 0.0).in_order(n_classes)
    top_class = order.columns([0])
    first, _ = p.in_order(1)
    every = np.arange(n_classes)[None, :]
    formula = rule.scoring.score.base.kernel
    if formula.needs_order or limits.rank_limit is not None:
        mass = rint(sorted_p * FIXED_POINT).cast("int64").node("CumSum", 1, exclusive=1)
        before = mass.cast("float64") / FIXED_POINT
        position = Position(sorted_p, before, every + 1, first, classes, u)
        inside = _is_member(graph, rule, formula.function(position), classes)
        if limits.rank_limit is not None:
            inside = inside & (every + 1 <= take(limits.rank_limit, classes))
        membership = inside.node("ScatterElements", classes, inside, axis=1)
    else:
        position = Position(p, p, every + 1, first, every, u)
        membership = _is_member(graph, rule, formula.function(position), every)
    if rule.keep_top:
        membership = membership | (every == top_class)
    sizes = membership.cast("int64").sum()
    accepted = (sizes == 1) & membership.take_along(top_class)
    if rule.acceptance is not None:
        accepted = 1.0 - p.take_along(top_class) <= take(rule.acceptance.limits, top_class)
    answers = where(accepted & valid, top_class, REVIEW)
    if rule.acceptance is not None:
        answers = _with_groups(rule.acceptance, p, valid, answers)
    return {
        "membership": membership,
        "sizes": sizes,
        "classes": _listed(membership, sizes, order, n_classes),
        "valid": valid,
        "accepted": accepted & valid,
        "answers": answers,
    }


def _random_input(graph: Graph, name: str) -> Any:
    """Return an input with one number per row as (n, 1)."""
    return Symbol(graph, name, "float64").node("Unsqueeze", [1])


def _with_groups(acceptance: Acceptance, p: Any, valid: Any, answers: Any) -> Any:
    """Write the levels of `SetRule.accept` that are wider than classes."""
    grid = rint(p * FIXED_POINT) / FIXED_POINT
    for level, limits in enumerate(acceptance.node_limits[1:], start=1):
        nodes, starts, order = acceptance.levels.by_node(level)
        mass = grid.columns(order).node("CumSum", 1)
        before = mass.columns(np.maximum(starts - 1, 0))
        until = mass.columns(np.append(starts[1:], len(order)) - 1)
        sums = until - where(starts[None, :] > 0, before, 0.0)
        most, best = where(nodes[None, :] != NO_NODE, sums, -1.0).in_order(1)
        of_nodes = np.where(nodes == NO_NODE, -math.inf, limits[nodes])
        is_answered = (answers == REVIEW) & valid & (1.0 - most <= take(of_nodes, best))
        answers = where(is_answered, take(nodes, best), answers)
    return answers


def _is_member(graph: Graph, rule: SetRule, scores: Any, classes: Any) -> Any:
    """Write `_kernels.is_member`, without the rank."""
    limits = rule.thresholds
    limit = take(limits.upper, classes)
    if limits.lower is not None and limits.upper_probability is not None:
        is_upper = _random_input(graph, "draw") < take(limits.upper_probability, classes)
        limit = where(is_upper, limit, take(limits.lower, classes))
    return scores <= limit


def _listed(membership: Any, sizes: Any, order: Any, n_classes: int) -> Any:
    """List the members in this order of the classes, then -1."""
    column = np.arange(n_classes)[None, :]
    inside = membership.take_along(order)
    _, members_first = where(inside, 2 * n_classes - column, n_classes - column).in_order(n_classes)
    return where(column < sizes, order.take_along(members_first), -1)


def _probabilities(rule: SetRule, rows: Any, n_classes: int, item_size: int) -> tuple[Any, Any]:
    """Write the kernels' `probabilities`, and whether each row is valid (n, 1)."""
    if not rule.scoring.logits:
        in_range = ((rows >= 0.0) & (rows <= 2.0)).all()
        # A row that is none gets zeros: NaN has no place in an order.
        rows = where(in_range, rows, 0.0)
        total = rint(rows * FIXED_POINT).cast("int64").sum().cast("float64")
        near = abs(total / FIXED_POINT - 1.0) <= SUM_TOLERANCE[item_size]
        return rows, in_range & near & (rows.sum() < 2.0)
    usual = rows < math.inf  # neither NaN nor +inf; -inf is a masked class
    top, _ = where(usual, rows, -math.inf).in_order(1)  # in every opset, unlike ReduceMax
    valid = usual.all() & (top > -math.inf)
    e = _exp_nonpositive(where(valid, rows - where(valid, top, 0.0), 0.0))
    scale = 2.0 ** (62 - n_classes.bit_length())
    total = rint(e * scale).cast("int64").sum().cast("float64")
    return e / (total / scale), valid


def _exp_nonpositive(x: Any) -> Any:
    """Write the kernels' own exp, operation by operation; powers of two come from a table."""
    x = np.maximum(x, -701.0)
    k = rint(x * 1.4426950408889634)
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    value: Any = 1.0 / math.factorial(13)
    for n in range(12, -1, -1):
        value = value * r + 1.0 / float(math.factorial(n))
    powers = np.ldexp(1.0, -np.arange(1013))
    return where(x < -700.0, 0.0, value * take(powers, (-k).cast("int64")))


OPSET, IR_VERSION, LEAST_OPSET = 17, 8, 13
TYPES = ("float32", "float64", "float16")


def to_onnx(
    predictor: BasePredictor,
    path: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    opset: int = OPSET,
    force: bool = False,
) -> Path:
    """Write the sets of a calibrated predictor as an ONNX graph.

    The input `rows` (N, K) takes probabilities, or logits if the predictor was calibrated on them.
    The outputs are `membership` (N, K), whether a class is in the row's set; `sizes` (N,);
    `classes` (N, K), the most probable first, then -1; `valid` (N,), false where `predict_set`
    rejects the row, or divides it by its sum because its numbers were rounded; `accepted` (N,), as
    in `PredictionSets`, and false where `valid` is; `answers` (N,), the index of the accepted class
    or, from K on, of a group in the order of ``acceptance_.groups``, and -1 for a review. A graph
    of logits cannot reject probabilities: `valid` is true for them.

    The graph computes in float64 and 64-bit fixed point, so its sets are identical to those of
    `predict_set`. Randomized scores have an input `uniform` and ``exact=True`` has `draw`, one
    number per row. Both default to 0, which gives the largest sets and at least the same coverage;
    `onnx_inputs` returns the numbers that `predict_set` uses.

    Parameters
    ----------
    predictor
        A calibrated predictor with one threshold per class.
    path
        Where to write the graph (.onnx).
    dtype
        The type of `rows`: "float32", "float64" or "float16".
    opset
        The version of the operators, 13 or later; that of a classifier to merge the graph with.
    force
        Overwrite an existing file.
    """
    onnx = import_extra("ONNX graphs", "onnx", "export")
    path = check_output(path, force=force, extensions=(".onnx",))
    if dtype not in TYPES:
        raise InputError(f"'dtype' must be one of {', '.join(TYPES)}. Got {dtype!r} instead.")
    if not LEAST_OPSET <= opset <= onnx.defs.onnx_opset_version():
        latest = onnx.defs.onnx_opset_version()
        raise InputError(f"'opset' must be from {LEAST_OPSET} to {latest}. Got {opset!r} instead.")
    if Fit.of(predictor).rows.may_lack_classes:
        raise InputError(
            "ONNX graphs take the probabilities of all classes. Got a predictor calibrated on "
            "top-k rows; serve it with 'evencover serve'."
        )
    model = _sets_model(predictor.rule(), np.dtype(dtype), opset)
    model.doc_string = (
        f"Prediction sets by evencover ({predictor.method}). {predictor.guarantee_text}"
    )
    onnx.helper.set_model_props(model, _properties(predictor))
    onnx.checker.check_model(model, full_check=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return path


def onnx_inputs(
    predictor: BasePredictor, probabilities: Any, *, ids: Any = None
) -> dict[str, FloatArray]:
    """Return the random numbers (N,) that `predict_set` draws, as inputs of the graph."""
    source = Fit.of(predictor).open(probabilities, ids=ids, read_labels=False)
    rule, numbers = predictor.rule(), []
    for block in source.blocks():
        draws = rule.scoring.draws(block.ids, block.start, exact=rule.is_randomized)
        numbers.append(_kernels.row_numbers(block.rows, draws))
    uniform, draw = (np.concatenate(part) for part in zip(*numbers, strict=True))
    inputs = {"uniform": uniform} if rule.scoring.score.base.is_random else {}
    return inputs | ({"draw": draw} if rule.is_randomized else {})


def _sets_model(rule: SetRule, dtype: Any, opset: int) -> Any:
    """Return the graph from rows of a type to sets as a model."""
    from onnx import helper, numpy_helper

    def tensor(name: str, kind: Any, *shape: Any) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return helper.make_tensor_value_info(name, kind, shape)

    n_classes, graph, outputs = len(rule.thresholds.upper), Graph(), []
    for name, symbol in set_nodes(graph, rule, "rows", dtype.itemsize).items():
        is_wide = name in ("membership", "classes")
        inputs = [symbol.name] if is_wide else [symbol.name, graph.constant([1])]
        graph.nodes.append(helper.make_node("Identity" if is_wide else "Squeeze", inputs, [name]))
        outputs.append(tensor(name, symbol.kind, "N", *[n_classes] * is_wide))
    # 0 makes the largest sets. 1 would make the smallest: APS then covered .858 instead of .9.
    random = ["uniform"] * rule.scoring.score.base.is_random + ["draw"] * rule.is_randomized
    defaults = [numpy_helper.from_array(np.zeros(1), name) for name in random]
    inputs = [tensor(name, "float64", f"{name}s") for name in random]
    made = helper.make_graph(
        graph.nodes,
        "prediction_sets",
        [tensor("rows", dtype, "N", n_classes), *inputs],
        outputs,
        [*graph.constants.values(), *defaults],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(
        made, opset_imports=opsets, producer_name="evencover", ir_version=IR_VERSION
    )


def _properties(predictor: BasePredictor) -> dict[str, str]:
    names = None if predictor.class_names_ is None else list(predictor.class_names_)
    acceptance = predictor.acceptance_
    return {
        "evencover.version": evencover.__version__,
        "evencover.method": predictor.method,
        "evencover.alpha": str(predictor.fit_.alpha),
        "evencover.score": json.dumps(predictor.score_.to_dict(), default=str),
        "evencover.guarantee": predictor.guarantee_text,
        "evencover.class_names": json.dumps(names),
        "evencover.groups": json.dumps(acceptance.groups if acceptance else ()),
    }
