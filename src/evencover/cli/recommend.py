"""``evencover recommend``: recommend a method for the labels."""

from __future__ import annotations

from evencover.cli.console import print_text
from evencover.cli.options import (
    READ,
    Alpha,
    Confidence,
    Input,
    Json,
    number_if_float,
    print_json,
)


def run(
    data: str,
    /,
    *,
    alpha: Alpha = "0.1",
    confidence: Confidence = None,
    as_json: Json = False,
    read: Input = READ,
) -> None:
    """Recommend a method for these labels, with reasons, expected results and alternatives.

    Parameters
    ----------
    data
        Probabilities and labels of the calibration rows.
    """
    from evencover.comparison.recommend import recommend

    advice = recommend(
        read.open(data, "reading"),
        alpha=number_if_float(alpha),
        confidence=number_if_float(confidence),
    )
    if as_json:
        print_json(advice.to_dict())
    else:
        print_text(str(advice))
