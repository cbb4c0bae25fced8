"""Prediction sets as an ONNX graph: the rule, node by node, with the same bits as `predict_set`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import evencover
from evencover import _kernels
from evencover._types import FloatArray
from evencover.engine.blocks import known_ids
from evencover.errors import InputError, needs
from evencover.output.atomic import atomic_path, refuse_existing
from evencover.predictors.base import BasePredictor
from evencover.predictors.matching import like_calibration
from evencover.predictors.rule import Rule
from evencover.serving.graph import Graph
from evencover.serving.set_nodes import set_nodes

OPSET, IR_VERSION, LEAST_OPSET = 17, 8, 13
TYPES = ("float32", "float64", "float16")
OUTPUTS = {"membership": "bool", "sizes": "int64", "classes": "int64", "valid": "bool"}
ABOUT = {  # shown by viewers of graphs
    "rows": "{numbers} of the classes, a row for each example",
    "uniform": "a random number from 0 to 1 for each row; 0 if not given: the largest sets",
    "coin": "a random number from 0 to 1 for each row; 0 if not given: the largest sets",
    "membership": "whether a class is in the set of the row",
    "sizes": "how many classes are in the set",
    "classes": "the classes of the set, the most probable first, then -1",
    "valid": "whether the row holds {numbers}; the set of a row that does not means nothing",
}


def to_onnx(
    predictor: BasePredictor,
    path: str | os.PathLike[str],
    after: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "float32",
    after_output: str | None = None,
    force: bool = False,
) -> Path:
    """Write the sets of a calibrated predictor as an ONNX graph.

    Its input `rows` (N, K) holds probabilities (logits, if the predictor was calibrated with them).
    Its outputs: `membership` (N, K), whether a class is in the row's set; `sizes` (N,); `classes`
    (N, K), the classes of the set, the most probable first, then -1; `valid` (N,), whether the row
    held probabilities (`predict_set` refuses a row that does not). A graph of logits cannot reject
    probabilities as `predict_set` does: `valid` is true for them.

    Scores are computed in float64 and 64-bit fixed point, as the package does, so the sets are
    those of `predict_set`, bit for bit, from logits, too. Where they are random, there are inputs
    with one number per row: `uniform`, for scores with a random part, and `coin`, for
    ``exact=True``. Both are 0 if not given, and sets as large as chance can make them, so coverage
    is at least that of random ones; `onnx_inputs` gives the numbers that `predict_set` uses.

    Parameters
    ----------
    predictor
        A calibrated predictor with one threshold per class.
    path
        Where to write the graph (.onnx).
    after
        A classifier (.onnx) to which the graph is appended: one graph from its inputs to sets.
    dtype
        The type of `rows`: "float32", "float64" or "float16"; that of the classifier with `after`.
    after_output
        Which output of the classifier holds the probabilities or logits, if it has several.
    force
        Overwrite an existing file.
    """
    onnx = _import_onnx()
    path = refuse_existing(path, force=force, endings=(".onnx",))
    if dtype not in TYPES:
        raise InputError(f"'dtype' must be one of {', '.join(TYPES)}. Got {dtype!r} instead.")
    rule = _rule_of(predictor)
    if after is None:
        model = _alone(rule, len(rule.limits.upper), dtype)
    else:
        model = _appended(rule, len(rule.limits.upper), after, after_output)
    onnx.helper.set_model_props(model, {**_props(model), **_about(predictor)})
    if after is None:
        model.doc_string = f"Prediction sets by evencover ({predictor.method}). {predictor.promise}"
    onnx.checker.check_model(model, full_check=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return path


def onnx_inputs(
    predictor: BasePredictor, probabilities: Any, *, ids: Any = None
) -> dict[str, FloatArray]:
    """The random numbers (N,) that `predict_set` draws for rows, as inputs of the graph."""
    rule, source = _rule_of(predictor), like_calibration(predictor, probabilities)
    keys, found = known_ids(source, ids), []
    for block in source.blocks():
        own = None if keys is None else keys[block.start : block.start + len(block.rows)]
        draws = rule.scoring.draws(block, own, exact=rule.is_randomized)
        found.append(_kernels.row_numbers(block.rows, draws))
    uniform, coin = (np.concatenate(part) for part in zip(*found, strict=True))
    inputs = {"uniform": uniform} if rule.scoring.score.base.is_random else {}
    return inputs | ({"coin": coin} if rule.is_randomized else {})


def _import_onnx() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
    except ImportError:
        raise needs("ONNX graphs", "onnx", "export") from None
    return onnx


def _rule_of(predictor: BasePredictor) -> Rule:
    if "row groups" in predictor.needs:
        raise InputError(
            f"Only methods with one threshold per class can be exported. Got {predictor.method!r}, "
            "whose thresholds depend on the group of each row."
        )
    return predictor.rule()


# ---- graphs ---------------------------------------------------------------------------------


def _alone(rule: Rule, n_classes: int, dtype: str) -> Any:
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = Graph(OPSET)
    rows = helper.make_tensor_value_info("rows", kind, ["N", n_classes], _says("rows", rule))
    outputs = set_nodes(graph, rule, "rows", np.dtype(dtype).itemsize)
    inputs, constants = _random_inputs(rule)
    named = [helper.make_node("Identity", [s.name], [name]) for name, s in outputs.items()]
    made = helper.make_graph(
        [*graph.nodes, *named],
        "prediction_sets",
        [rows, *inputs],
        _output_infos(rule, n_classes, {name: name for name in outputs}),
        [*graph.used_constants(), *constants],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opsets, producer_name="evencover")
    model.ir_version = IR_VERSION
    return model


def _appended(rule: Rule, n_classes: int, after: Any, after_output: str | None) -> Any:
    """The classifier, with the nodes of the sets after one of its outputs."""
    onnx = _import_onnx()
    from google.protobuf.message import DecodeError
    from onnx import helper

    try:
        model = onnx.load(os.fspath(after))
        onnx.checker.check_model(model)
    except FileNotFoundError:
        raise InputError(f"Cannot read '{after}': there is no such file.") from None
    except (OSError, DecodeError, onnx.checker.ValidationError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"Cannot read '{after}' as an ONNX model: {reason}.") from None
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    if opset < LEAST_OPSET:
        raise InputError(
            f"The classifier must have opset {LEAST_OPSET} or later. Got {opset}; convert it with "
            "onnx.version_converter."
        )
    output = _output_of(model, n_classes, after_output, str(after))
    kind = helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
    graph = Graph(opset)
    outputs = set_nodes(graph, rule, output.name, kind.itemsize)
    inputs, constants = _random_inputs(rule)
    taken = {each.name for each in (*model.graph.input, *model.graph.output)}
    taken |= {name for node in model.graph.node for name in node.output}
    names = {name: f"set_{name}" if name in taken else name for name in outputs}
    clash = taken & {*names.values(), *(each.name for each in inputs)}
    if clash:
        raise InputError(f"The classifier must not use the name {sorted(clash)[0]!r}; rename it.")
    model.graph.node.extend(graph.nodes)
    model.graph.node.extend(
        helper.make_node("Identity", [s.name], [names[name]]) for name, s in outputs.items()
    )
    model.graph.initializer.extend([*graph.used_constants(), *constants])
    model.graph.input.extend(inputs)
    model.graph.output.extend(_output_infos(rule, n_classes, names))
    model.ir_version = max(model.ir_version, IR_VERSION)
    return model


def _output_of(model: Any, n_classes: int, wanted: str | None, name: str) -> Any:
    from onnx import TensorProto

    floats = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
    fitting = []
    for output in model.graph.output:
        tensor = output.type.tensor_type
        shape = [each.dim_value for each in tensor.shape.dim]
        if tensor.elem_type in floats and len(shape) == 2 and shape[1] in (n_classes, 0):
            fitting.append(output)
    if wanted is not None:
        fitting = [output for output in fitting if output.name == wanted]
    if len(fitting) != 1:
        found = ", ".join(output.name for output in fitting) or "none"
        raise InputError(
            f"One output of '{name}' must hold a number for each of the {n_classes} classes. "
            f"Got {found}; name it with after_output (--after-output)."
        )
    return fitting[0]


def _random_inputs(rule: Rule) -> tuple[list[Any], list[Any]]:
    """Inputs with one random number per row, and what they are if nobody gives them."""
    from onnx import TensorProto, helper, numpy_helper

    # 0 makes the largest sets. 1 would make the smallest: APS then covered .858 instead of .9.
    defaults = {"uniform": 0.0} if rule.scoring.score.base.is_random else {}
    defaults |= {"coin": 0.0} if rule.is_randomized else {}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, [f"{name}s"], _says(name, rule))
        for name in defaults
    ]
    values = [numpy_helper.from_array(np.array([v]), name) for name, v in defaults.items()]
    return inputs, values


def _says(name: str, rule: Rule) -> str:
    return ABOUT[name].format(numbers="logits" if rule.scoring.logits else "probabilities")


def _output_infos(rule: Rule, n_classes: int, names: dict[str, str]) -> list[Any]:
    from onnx import helper

    shapes: dict[str, list[Any]] = {name: ["N"] for name in OUTPUTS}
    shapes |= {name: ["N", n_classes] for name in ("membership", "classes")}
    return [
        helper.make_tensor_value_info(
            names[name],
            helper.np_dtype_to_tensor_dtype(np.dtype(kind)),
            shapes[name],
            _says(name, rule),
        )
        for name, kind in OUTPUTS.items()
    ]


# ---- what is written beside it -------------------------------------------------------------------


def _props(model: Any) -> dict[str, str]:
    return {each.key: each.value for each in model.metadata_props}


def _about(predictor: BasePredictor) -> dict[str, str]:
    names = None if predictor.class_names_ is None else list(predictor.class_names_)
    return {
        "evencover.version": evencover.__version__,
        "evencover.method": predictor.method,
        "evencover.alpha": str(predictor.alpha),
        "evencover.score": json.dumps(predictor.score_.to_dict(), default=str),
        "evencover.guarantee": predictor.promise,
        "evencover.class_names": json.dumps(names),
    }
