"""``evencover export``: prediction sets as an ONNX graph."""

from __future__ import annotations

from evencover.cli.options import Force, ModelFile, Output, load_model
from evencover.output.atomic import check_output


def run(
    model: ModelFile,
    /,
    *,
    output: Output,
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

    check_output(output, [model], force=force, extensions=(".onnx",))
    to_onnx(load_model(model), output, opset=opset, force=force)
    print(f"{output}: membership, sizes and classes of sets, from rows")
