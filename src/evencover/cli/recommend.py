"""``evencover recommend``: recommend a method for the labels."""

from __future__ import annotations

from evencover.cli import options
from evencover.cli.console import print_text


def run(
    data: str,
    /,
    *,
    alpha: options.Alpha = "0.1",
    confidence: options.Confidence = None,
    as_json: options.Json = False,
    read: options.Input = options.READ,
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
        alpha=options.number_if_float(alpha),
        confidence=options.number_if_float(confidence),
    )
    if as_json:
        options.print_json(advice.to_dict())
    else:
        print_text(str(advice))
