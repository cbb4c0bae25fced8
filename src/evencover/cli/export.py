"""``evencover export``: prediction sets as an ONNX graph."""

from __future__ import annotations

from pathlib import Path

from evencover.cli.options import Force, ModelFile, Output, load_model


def run(
    model: ModelFile,
    /,
    *,
    output: Output,
    after: Path | None = None,
    after_output: str | None = None,
    dtype: str = "float32",
    force: Force = False,
) -> None:
    """Write the sets of a model as an ONNX graph: the same sets as predict, wherever ONNX runs.

    Parameters
    ----------
    output
        Where to write the graph (.onnx).
    after
        A classifier (.onnx) that the graph is appended to: one graph from its inputs to sets.
    after_output
        Which output of the classifier holds the probabilities or logits, if it has several.
    dtype
        The type of the rows: float32, float64 or float16; that of the classifier with --after.
    """
    from evencover.serving.onnx import to_onnx

    to_onnx(load_model(model), output, after, dtype=dtype, after_output=after_output, force=force)
    source = "rows" if after is None else f"the inputs of {after}"
    print(f"{output}: membership, sizes and classes of sets, from {source}")
