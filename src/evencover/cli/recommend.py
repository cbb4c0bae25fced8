"""``evencover recommend``: recommend a method for calibration data."""

from __future__ import annotations

from evencover.cli import options
from evencover.cli.console import print_text


def run(
    data: str,
    /,
    *,
    alpha: options.Alpha = "0.1",
    floor: options.Floor = None,
    confidence: options.Confidence = None,
    as_json: options.Json = False,
    read: options.Input = options.READ,
) -> None:
    """Recommend a method for calibration data.

    Four methods are compared on one split of the data into halves; 'compare' tries several splits
    and scores.

    Parameters
    ----------
    data
        Probabilities and labels of the calibration set.
    """
    from evencover.comparison.recommend import recommend

    source = read.open(data, "reading")
    advice = recommend(
        source,
        alpha=options.number_if_float(alpha),
        **options.read_floor(floor),
        confidence=options.number_if_float(confidence),
    )
    if as_json:
        options.print_json(advice.to_dict())
    else:
        print_text(str(advice))
