"""``evencover export``: prediction sets as an ONNX graph."""

from __future__ import annotations

from pathlib import Path

from evencover.cli.options import Output, Switch


def run(
    model: Path,
    /,
    *,
    output: Output,
    after: Path | None = None,
    after_output: str | None = None,
    dtype: str = "float32",
    force: Switch = False,
) -> None:
    """Write the sets of a model as an ONNX graph: the same sets as predict, wherever ONNX runs.

    Parameters
    ----------
    model
        Written by calibrate.
    output
        Where to write the graph (.onnx).
    after
        A classifier (.onnx) that the graph is appended to: one graph from its inputs to sets.
    after_output
        Which output of the classifier holds the probabilities or logits, if it has several.
    dtype
        The type of the rows: float32, float64 or float16; that of the classifier with --after.
    force
        Overwrite an existing file.
    """
    from evencover.persistence import load
    from evencover.serving.onnx import to_onnx

    to_onnx(load(model), output, after, dtype=dtype, after_output=after_output, force=force)
    source = "rows" if after is None else f"the inputs of {after}"
    print(f"{output}: membership, sizes and classes of sets, from {source}")
