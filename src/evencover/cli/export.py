"""``evencover export``: prediction sets as an ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from evencover.cli.options import Force, ModelFile, Output, Writes, load_model


def run(
    model: ModelFile,
    /,
    *,
    output: Annotated[Output, Writes((".onnx",))],
    after: Path | None = None,
    after_output: str | None = None,
    force: Force = False,
) -> None:
    """Write a model's prediction sets as an ONNX graph.

    The sets are bit-identical to those of predict. With --after, one graph leads from the inputs
    of a classifier to sets.

    Parameters
    ----------
    output
        Graph to write (.onnx).
    after
        Classifier (.onnx) to append the graph to.
    after_output
        Output of the classifier with probabilities or logits.
    """
    from evencover.serving.onnx import to_onnx

    to_onnx(load_model(model), output, after, after_output=after_output, force=force)
    source = "rows" if after is None else f"the inputs of {after}"
    print(f"{output}: membership, sizes and classes of sets, from {source}")
