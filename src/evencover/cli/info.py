"""``evencover info``: tell what a model, a data file or the installation is."""

from __future__ import annotations

from evencover.cli.shared import READ, Input, Json, print_json


def run(
    file: str | None = None,
    /,
    *,
    as_json: Json = False,
    read: Input = READ,
) -> None:
    """Tell what a model or a data file holds; without a file, what this installation runs on.

    Parameters
    ----------
    file
        A model written by calibrate, or a file, folder, pattern or address with probabilities.
    as_json
        Print everything as JSON.
    """
    from evencover.cli import description
    from evencover.persistence import is_model, load

    details = None
    if file is None:
        about = description.of_installation()
    elif is_model(file):
        predictor = load(file)
        about, details = description.of_model(predictor), predictor.details()
    else:
        about = description.of_data(read.open(file, "reading"))
    if as_json:
        print_json(about)
    else:
        description.show(about, details)
