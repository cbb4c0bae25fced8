"""``evencover export``: prediction sets as an ONNX graph."""

from __future__ import annotations

from typing import Annotated

from evencover.cli.options import Force, ModelFile, Output, Writes, load_model


def run(
    model: ModelFile,
    /,
    *,
    output: Annotated[Output, Writes((".onnx",))],
    opset: int = 17,
    force: Force = False,
) -> None:
    """Write a model's prediction sets as an ONNX graph.

    The sets are bit-identical to those of predict.

    Parameters
    ----------
    output
        Graph to write (.onnx).
    opset
        Version of the operators, 13 or later.
    """
    from evencover.serving.onnx import to_onnx

    to_onnx(load_model(model), output, opset=opset, force=force)
    print(f"{output}: membership, sizes and classes of sets, from rows")
