"""``evencover recommend``: recommend a method from the labels."""

from __future__ import annotations

from evencover.cli import options
from evencover.cli.console import print_text


def run(
    data: str,
    /,
    *,
    alpha: options.Alpha = "0.1",
    alpha_of: options.AlphaOf = None,
    floor: options.Floor = None,
    max_size: float | None = None,
    confidence: options.Confidence = None,
    as_json: options.Json = False,
    read: options.Input = options.READ,
) -> None:
    """Recommend a method from the number of labels per class.

    Set sizes and the cost of a floor are measured by calibrating on half of the data.

    Parameters
    ----------
    data
        Probabilities and labels of the calibration set.
    max_size
        Find the highest coverage with at most this average set size.
    """
    from evencover.comparison.recommend import recommend

    source = read.open(data, "reading", allow_unknown=True)
    advice = recommend(
        source,
        alpha=options.read_alpha(alpha, alpha_of, source.class_names, source.n_classes),
        floor=options.number_if_float(floor),
        max_size=max_size,
        confidence=options.number_if_float(confidence),
    )
    if as_json:
        options.print_json(advice.to_dict())
    else:
        print_text(str(advice))
