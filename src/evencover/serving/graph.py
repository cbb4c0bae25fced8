"""An ONNX graph that is written by computing: NumPy's arithmetic on symbols adds its nodes.

A score's own formula runs on symbols in place of arrays, so the graph has the same operations in
the same order, in float64 and 64-bit integers, and gives the same bits.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from evencover._types import Array
from evencover.errors import InputError

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


class Graph:
    """Nodes and constants, as they are added; all names begin with `prefix`."""

    def __init__(self, opset: int, prefix: str = "evencover/") -> None:
        self.opset, self.prefix = opset, prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[Any, str] = {}

    def add(self, operation: str, *inputs: Any, kind: str, n_outputs: int = 1, **how: Any) -> Any:
        """A node; its output as a symbol of the `kind` "float64", "int64" or "bool"."""
        from onnx import helper

        names = [each.name if isinstance(each, Symbol) else self.constant(each) for each in inputs]
        number = len(self.nodes)
        outputs = [f"{self.prefix}{operation}_{number}_{place}" for place in range(n_outputs)]
        node = helper.make_node(operation, names, outputs, f"{self.prefix}{number}", **how)
        self.nodes.append(node)
        kinds = [kind] if n_outputs == 1 else kind.split()
        found = [Symbol(self, name, each) for name, each in zip(outputs, kinds, strict=True)]
        return found[0] if n_outputs == 1 else found

    def constant(self, values: Any) -> str:
        """The name of a constant array."""
        from onnx import numpy_helper

        values = np.asarray(values)
        key = (str(values.dtype), values.shape, values.tobytes())
        if key not in self._known:
            self._known[key] = f"{self.prefix}constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(values, self._known[key]))
        return self._known[key]

    def used_constants(self) -> list[Any]:
        """The constants that a node asks for."""
        asked = {name for node in self.nodes for name in node.input}
        return [each for each in self.constants if each.name in asked]

    def symbol(self, values: Any) -> Any:
        """A constant array as a symbol."""
        values = np.asarray(values)
        values = values.astype(np.int64) if values.dtype.kind in "iu" else values
        return Symbol(self, self.constant(values), str(values.dtype))

    def sum(self, values: Any) -> Any:
        """The sum of each row (n, 1).

        Of integers it is the last running sum: ONNX Runtime's ReduceSum of them is rounded to 53
        bits (seen in 1.31), its CumSum is exact.
        """
        if values.kind == "int64":
            running = self.add("CumSum", values, np.array(1), kind="int64")
            return self.add("Gather", running, np.array([-1]), kind="int64", axis=1)
        return self.add("ReduceSum", values, np.array([1]), kind=values.kind, keepdims=1)

    def largest(self, values: Any) -> Any:
        """The largest number of each row (n, 1)."""
        if self.opset >= 18:  # where the axes became an input
            return self.add("ReduceMax", values, np.array([1]), kind=values.kind, keepdims=1)
        return self.add("ReduceMax", values, kind=values.kind, axes=[1], keepdims=1)

    def all(self, truths: Any) -> Any:
        """Whether all of a row is true (n, 1)."""
        return self.sum((~truths).cast("int64")) == 0

    def in_order(self, values: Any, k: int) -> tuple[Any, Any]:
        """The k largest of each row, and their places; of equal ones the first comes first."""
        how: Any = {"axis": 1, "largest": 1, "sorted": 1}
        kinds = f"{values.kind} int64"
        found = self.add("TopK", values, np.array([k]), kind=kinds, n_outputs=2, **how)
        return found[0], found[1]

    def take(self, values: Any, places: Any) -> Any:
        """Entries (K,) at places (n, k)."""
        constant = self.symbol(values)
        return self.add("Gather", constant, places, kind=constant.kind, axis=0)

    def take_along(self, values: Any, places: Any) -> Any:
        """Of each row, the entries at its places."""
        return self.add("GatherElements", values, places, kind=values.kind, axis=1)


class Symbol(NDArrayOperatorsMixin):
    """A value of the graph that is not known yet; NumPy's functions on it become nodes."""

    # So that an array, too, hands the operation over.
    __array_priority__: ClassVar[float] = 1000.0

    def __init__(self, graph: Graph, name: str, kind: str) -> None:
        self.graph, self.name, self.kind = graph, name, kind

    def cast(self, kind: str) -> Any:
        """The same value as another type."""
        if kind == self.kind:
            return self
        from onnx import TensorProto

        to = {"float64": TensorProto.DOUBLE, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}
        return self.graph.add("Cast", self, kind=kind, to=to[kind])

    def as_column(self) -> Any:
        """One value per row (n,) as (n, 1)."""
        return self.graph.add("Unsqueeze", self, np.array([1]), kind=self.kind)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **how: Any) -> Any:
        operation = OPERATIONS.get(function)
        if function is np.not_equal:
            return ~np.equal(*inputs)
        if operation is None or method != "__call__" or how:
            raise _unknown(getattr(function, "__name__", str(function)))
        symbols = [_as_symbol(self.graph, each) for each in inputs]
        if operation not in ("And", "Or", "Not"):
            symbols = _alike(symbols, in_float64=operation in IN_FLOAT64)
        kind = "bool" if operation in TRUTHS else symbols[0].kind
        return self.graph.add(operation, *symbols, kind=kind)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is not np.where or len(args) != 3 or kwargs:
            raise _unknown(getattr(function, "__name__", str(function)))
        condition, *values = (_as_symbol(self.graph, each) for each in args)
        first, second = _alike(values)
        return self.graph.add("Where", condition, first, second, kind=first.kind)


def _unknown(name: str) -> InputError:
    return InputError(
        f"A score's formula can be exported if it is made of sums, products, quotients, minima, "
        f"maxima, comparisons and np.where. Got '{name}'."
    )


def _as_symbol(graph: Graph, value: Any) -> Symbol:
    return value if isinstance(value, Symbol) else graph.symbol(value)


def _alike(symbols: list[Symbol], *, in_float64: bool = False) -> list[Symbol]:
    """All of one type, as NumPy would have them."""
    kinds = {each.kind for each in symbols}
    if kinds == {"int64"} and not in_float64:
        return symbols
    if kinds == {"bool"}:
        return symbols
    return [each.cast("float64") for each in symbols]


def row_of(values: Array) -> Array:
    """One value per class (K,) as (1, K)."""
    return np.asarray(values)[None, :]
