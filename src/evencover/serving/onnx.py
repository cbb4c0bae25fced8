"""Prediction sets as an ONNX graph: NumPy's arithmetic on symbols adds its nodes.

A score's own formula runs on symbols in place of arrays, so the graph has the same operations in
the same order, in float64 and 64-bit integers: its results are bit-identical.
"""

from __future__ import annotations

import json
import math
import os
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
OPERATIONS: dict[Any, str] = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.true_divide: "Div",
    np.maximum: "Max",
    np.minimum: "Min",
    np.negative: "Neg",
    np.absolute: "Abs",
    np.sqrt: "Sqrt",
    np.rint: "Round",
    np.less: "Less",
    np.less_equal: "LessOrEqual",
    np.greater: "Greater",
    np.greater_equal: "GreaterOrEqual",
    np.equal: "Equal",
    np.logical_and: "And",
    np.bitwise_and: "And",
    np.logical_or: "Or",
    np.bitwise_or: "Or",
    np.logical_not: "Not",
    np.invert: "Not",
}
TRUTHS = {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Not"}
IN_FLOAT64 = {"Div", "Sqrt", "Round"}
PREFIX = "evencover/"


class Graph:
    """Nodes and constants, as they are added; all names begin with PREFIX."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[Any, str] = {}

    def add(self, operation: str, *inputs: Any, kind: str, n_outputs: int = 1, **how: Any) -> Any:
        """Add a node; return its output as a symbol of the `kind` "float64", "int64" or "bool"."""
        from onnx import helper

        names = [x.name if isinstance(x, Symbol) else self.constant(x) for x in inputs]
        number = len(self.nodes)
        outputs = [f"{PREFIX}{operation}_{number}_{index}" for index in range(n_outputs)]
        node = helper.make_node(operation, names, outputs, f"{PREFIX}{number}", **how)
        self.nodes.append(node)
        kinds = [kind] if n_outputs == 1 else kind.split()
        symbols = [Symbol(self, *output) for output in zip(outputs, kinds, strict=True)]
        return symbols[0] if n_outputs == 1 else symbols

    def constant(self, values: Any) -> str:
        """Add a constant array, once; return its name."""
        from onnx import numpy_helper

        values = np.asarray(values)
        key = (str(values.dtype), values.shape, values.tobytes())
        if key not in self._known:
            self._known[key] = f"{PREFIX}constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(values, self._known[key]))
        return self._known[key]

    def used_constants(self) -> list[Any]:
        """Return the constants that are inputs of a node."""
        asked = {name for node in self.nodes for name in node.input}
        return [constant for constant in self.constants if constant.name in asked]

    def symbol(self, values: Any) -> Any:
        """Return a constant array as a symbol."""
        values = np.asarray(values)
        values = values.astype(np.int64) if values.dtype.kind in "iu" else values
        return Symbol(self, self.constant(values), str(values.dtype))

    def row(self, start: int, stop: int) -> Any:
        """Return the integers of a range as a symbol (1, K)."""
        return self.symbol(np.arange(start, stop)[None, :])

    def sum(self, values: Any) -> Any:
        """Sum each row (n, 1).

        Of integers it is the last running sum: ONNX Runtime's ReduceSum of them is rounded to 53
        bits (seen in 1.31), its CumSum is exact.
        """
        if values.kind == "int64":
            running = self.add("CumSum", values, np.array(1), kind="int64")
            return self.add("Gather", running, np.array([-1]), kind="int64", axis=1)
        return self.add("ReduceSum", values, np.array([1]), kind=values.kind, keepdims=1)

    def all(self, truths: Any) -> Any:
        """Check whether all of a row is true (n, 1)."""
        return self.sum((~truths).cast("int64")) == 0

    def in_order(self, values: Any, k: int) -> tuple[Any, Any]:
        """Return the k largest of each row, and their indices; ties by index."""
        kinds = f"{values.kind} int64"
        largest, indices = self.add("TopK", values, np.array([k]), kind=kinds, n_outputs=2, axis=1)
        return largest, indices

    def take(self, values: Any, indices: Any) -> Any:
        """Return the entries of (K,) at indices (n, k)."""
        constant = self.symbol(values)
        return self.add("Gather", constant, indices, kind=constant.kind, axis=0)

    def take_along(self, values: Any, indices: Any) -> Any:
        """Return the entries of each row at its indices."""
        return self.add("GatherElements", values, indices, kind=values.kind, axis=1)


class Symbol(NDArrayOperatorsMixin):
    """A value of the graph; NumPy's functions of it become nodes."""

    __array_priority__: ClassVar[float] = 1000.0  # arrays hand the operation over, too

    def __init__(self, graph: Graph, name: str, kind: str) -> None:
        self.graph, self.name, self.kind = graph, name, kind

    def cast(self, kind: str) -> Any:
        """Convert to another type."""
        if kind == self.kind:
            return self
        from onnx import TensorProto

        to = {"float64": TensorProto.DOUBLE, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}
        return self.graph.add("Cast", self, kind=kind, to=to[kind])

    def as_column(self) -> Any:
        """Return one value per row (n,) as (n, 1)."""
        return self.graph.add("Unsqueeze", self, np.array([1]), kind=self.kind)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **how: Any) -> Any:
        operation = OPERATIONS.get(function)
        if function is np.not_equal:
            return ~np.equal(*inputs)
        if operation is None or method != "__call__" or how:
            raise _unknown(getattr(function, "__name__", str(function)))
        symbols = self._symbols(inputs)
        if operation not in ("And", "Or", "Not"):
            symbols = _alike(symbols, in_float64=operation in IN_FLOAT64)
        kind = "bool" if operation in TRUTHS else symbols[0].kind
        return self.graph.add(operation, *symbols, kind=kind)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is not np.where or len(args) != 3 or kwargs:
            raise _unknown(getattr(function, "__name__", str(function)))
        condition, *values = self._symbols(args)
        first, second = _alike(values)
        return self.graph.add("Where", condition, first, second, kind=first.kind)

    def _symbols(self, values: Any) -> list[Symbol]:
        return [v if isinstance(v, Symbol) else self.graph.symbol(v) for v in values]


def _unknown(name: str) -> InputError:
    return InputError(
        f"A score's formula can be exported if it is made of sums, products, quotients, minima, "
        f"maxima, comparisons and np.where. Got '{name}'."
    )


def _alike(symbols: list[Symbol], *, in_float64: bool = False) -> list[Symbol]:
    """Convert symbols to one type, as NumPy would."""
    kinds = {symbol.kind for symbol in symbols}
    if kinds == {"bool"} or (kinds == {"int64"} and not in_float64):
        return symbols
    return [symbol.cast("float64") for symbol in symbols]


# NumPy's functions on symbols.
where: Any = np.where
rint: Any = np.rint
largest: Any = np.maximum


def set_nodes(graph: Graph, rule: SetRule, rows: str, item_size: int) -> dict[str, Any]:
    """Return the outputs as symbols, from the name of the rows."""
    n_classes, limits = len(rule.thresholds.upper), rule.thresholds
    numbers = Symbol(graph, rows, "rows").cast("float64")
    p, valid = _probabilities(graph, rule, numbers, n_classes, item_size)
    u: Any = 1.0
    if rule.scoring.score.base.is_random:
        u = Symbol(graph, "uniform", "float64").as_column()
    sorted_p, classes = graph.in_order(p, n_classes)
    order = classes
    if rule.scoring.logits:  # unequal ones may have equal probabilities
        _, order = graph.in_order(where(valid, numbers, 0.0), n_classes)
    top_class = graph.add("Gather", order, np.array([0]), kind="int64", axis=1)
    first, _ = graph.in_order(p, 1)
    rank = graph.row(1, n_classes + 1)
    formula = rule.scoring.score.base.kernel
    if formula.needs_order or limits.rank_limit is not None:
        fixed = rint(sorted_p * FIXED_POINT).cast("int64")
        mass = graph.add("CumSum", fixed, np.array(1), kind="int64", exclusive=1)
        before = mass.cast("float64") / FIXED_POINT
        position = Position(sorted_p, before, rank, first, classes, u)
        inside = _is_member(graph, rule, formula.function(position), classes)
        if limits.rank_limit is not None:
            inside = inside & (rank <= graph.take(limits.rank_limit, classes))
        membership = graph.add("ScatterElements", inside, classes, inside, kind="bool", axis=1)
    else:
        every = graph.row(0, n_classes)
        position = Position(p, p, rank, first, every, u)
        membership = _is_member(graph, rule, formula.function(position), every)
    if rule.keep_top:
        membership = membership | (graph.row(0, n_classes) == top_class)
    sizes = graph.sum(membership.cast("int64"))
    accepted = (sizes == 1) & graph.take_along(membership, top_class)
    if rule.acceptance is not None:
        limits_of_top = graph.take(rule.acceptance.limits, top_class)
        accepted = 1.0 - graph.take_along(p, top_class) <= limits_of_top
    answers = where(accepted & valid, top_class, REVIEW)
    if rule.acceptance is not None:
        answers = _with_groups(graph, rule.acceptance, p, valid, answers)
    return {
        "membership": membership,
        "sizes": graph.add("Squeeze", sizes, np.array([1]), kind="int64"),
        "classes": _listed(graph, membership, sizes, order, n_classes),
        "valid": graph.add("Squeeze", valid, np.array([1]), kind="bool"),
        "accepted": graph.add("Squeeze", accepted & valid, np.array([1]), kind="bool"),
        "answers": graph.add("Squeeze", answers, np.array([1]), kind="int64"),
    }


def _with_groups(graph: Graph, acceptance: Acceptance, p: Any, valid: Any, answers: Any) -> Any:
    """Write the levels of `SetRule.accept` that are wider than classes."""
    grid: Any = rint(p * FIXED_POINT) / FIXED_POINT
    for level, limits in enumerate(acceptance.node_limits[1:], start=1):
        nodes, starts, order = acceptance.levels.by_node(level)
        in_order = graph.add("Gather", grid, order, kind="float64", axis=1)
        mass = graph.add("CumSum", in_order, np.array(1), kind="float64")
        ends = np.append(starts[1:], len(order)) - 1
        until = graph.add("Gather", mass, ends, kind="float64", axis=1)
        before = graph.add("Gather", mass, np.maximum(starts - 1, 0), kind="float64", axis=1)
        sums = until - where(starts[None, :] > 0, before, 0.0)
        sums = where(nodes[None, :] != NO_NODE, sums, -1.0)
        most, best = graph.in_order(sums, 1)
        of_nodes = np.where(nodes == NO_NODE, -math.inf, limits[nodes])
        is_answered = (answers == REVIEW) & valid & (1.0 - most <= graph.take(of_nodes, best))
        answers = where(is_answered, graph.take(nodes, best), answers)
    return answers


def _is_member(graph: Graph, rule: SetRule, scores: Any, classes: Any) -> Any:
    """Write `_kernels.is_member`, without the rank."""
    limits = rule.thresholds
    limit = graph.take(limits.upper, classes)
    if limits.lower is not None and limits.upper_probability is not None:
        draw = Symbol(graph, "draw", "float64").as_column()
        chance = graph.take(limits.upper_probability, classes)
        limit = where(draw < chance, limit, graph.take(limits.lower, classes))
    return scores <= limit


def _listed(graph: Graph, membership: Any, sizes: Any, order: Any, n_classes: int) -> Any:
    """List the members in this order of the classes, then -1."""
    column = graph.row(0, n_classes)
    inside = graph.take_along(membership, order)
    weight: Any = where(inside, 2 * n_classes - column, n_classes - column)
    _, members_first = graph.in_order(weight, n_classes)
    members = graph.take_along(order, members_first)
    return where(column < sizes, members, -1)


def _probabilities(
    graph: Graph, rule: SetRule, rows: Any, n_classes: int, item_size: int
) -> tuple[Any, Any]:
    """Write the kernels' `probabilities`, and whether each row is valid (n, 1)."""
    if not rule.scoring.logits:
        in_range = graph.all((rows >= 0.0) & (rows <= 2.0))
        # A row that is none gets zeros: NaN has no place in an order.
        rows = where(in_range, rows, 0.0)
        total = graph.sum(rint(rows * FIXED_POINT).cast("int64")).cast("float64")
        near = abs(total / FIXED_POINT - 1.0) <= SUM_TOLERANCE[item_size]
        return rows, in_range & near & (graph.sum(rows) < 2.0)
    usual = rows < math.inf  # neither NaN nor +inf; -inf is a masked class
    top, _ = graph.in_order(where(usual, rows, -math.inf), 1)  # in every opset, unlike ReduceMax
    valid = graph.all(usual) & (top > -math.inf)
    shifted = where(valid, rows - where(valid, top, 0.0), 0.0)
    e = _exp_nonpositive(graph, shifted)
    scale = 2.0 ** (62 - n_classes.bit_length())
    total = graph.sum(rint(e * scale).cast("int64")).cast("float64")
    return e / (total / scale), valid


def _exp_nonpositive(graph: Graph, x: Any) -> Any:
    """Write the kernels' own exp, operation by operation; powers of two come from a table."""
    x = largest(x, -701.0)
    k = rint(x * 1.4426950408889634)
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    value: Any = 1.0 / math.factorial(13)
    for n in range(12, -1, -1):
        value = value * r + 1.0 / float(math.factorial(n))
    powers = np.ldexp(1.0, -np.arange(1013))
    scaled = value * graph.take(powers, (-k).cast("int64"))
    return where(x < -700.0, 0.0, scaled)


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
    from onnx import helper

    n_classes, graph = len(rule.thresholds.upper), Graph()
    nodes, values = set_nodes(graph, rule, "rows", dtype.itemsize), []
    for name, symbol in nodes.items():
        graph.nodes.append(helper.make_node("Identity", [symbol.name], [name]))
        shape = ["N", n_classes] if name in ("membership", "classes") else ["N"]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(symbol.kind))
        values.append(helper.make_tensor_value_info(name, kind, shape))
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    rows = helper.make_tensor_value_info("rows", kind, ["N", n_classes])
    inputs, defaults = _random_inputs(rule)
    constants = [*graph.used_constants(), *defaults]
    made = helper.make_graph(graph.nodes, "prediction_sets", [rows, *inputs], values, constants)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(
        made, opset_imports=opsets, producer_name="evencover", ir_version=IR_VERSION
    )


def _random_inputs(rule: SetRule) -> tuple[list[Any], list[Any]]:
    """Return inputs with one random number per row, and their default values."""
    from onnx import TensorProto, helper, numpy_helper

    # 0 makes the largest sets. 1 would make the smallest: APS then covered .858 instead of .9.
    defaults = {"uniform": 0.0} if rule.scoring.score.base.is_random else {}
    defaults |= {"draw": 0.0} if rule.is_randomized else {}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, [f"{name}s"]) for name in defaults
    ]
    values = [numpy_helper.from_array(np.array([v]), name) for name, v in defaults.items()]
    return inputs, values


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
