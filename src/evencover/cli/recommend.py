"""``evencover recommend``: say which method suits the labels."""

from __future__ import annotations

from evencover.cli.console import print_text
from evencover.cli.options import READ, Input, Json, number_if_float, print_json


def run(
    data: str,
    /,
    *,
    alpha: str = "0.1",
    confidence: str | None = None,
    as_json: Json = False,
    read: Input = READ,
) -> None:
    """Say which method suits these labels, why, what to expect, and what would change it.

    Parameters
    ----------
    data
        Probabilities and labels of the calibration rows.
    alpha
        Miscoverage level.
    confidence
        Ask for coverage of at least 1 - alpha with this probability over calibrations, such as 0.9.
    as_json
        Print the advice as JSON.
    """
    from evencover.comparison.recommend import recommend

    advice = recommend(
        read.open(data, "reading"),
        alpha=number_if_float(alpha),
        confidence=None if confidence is None else number_if_float(confidence),
    )
    if as_json:
        print_json(advice.to_dict())
    else:
        print_text(str(advice))
