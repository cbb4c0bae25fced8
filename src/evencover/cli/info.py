"""``evencover info``: tell what a model, a data file or the installation is."""

from __future__ import annotations

from pathlib import Path

from evencover.cli.shared import READ, Input, Json, print_json


def run(
    file: Path | None = None,
    /,
    *,
    as_json: Json = False,
    read: Input = READ,
) -> None:
    """Tell what a model or a data file holds; without a file, what this installation runs on.

    Parameters
    ----------
    file
        A model written by calibrate, or a file with probabilities.
    as_json
        Print everything as JSON.
    """
    from evencover import description

    if file is None:
        about = description.of_installation()
    elif file.suffix == ".safetensors":
        from evencover.persistence import load

        about = description.of_model(load(file))
    else:
        about = description.of_data(read.open(file, "reading"))
    if as_json:
        print_json(about)
    else:
        description.show(about)
