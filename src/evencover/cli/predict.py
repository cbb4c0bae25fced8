"""``evencover predict``: write the prediction set of every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evencover.cli.shared import READ, Input, Output, Switch
from evencover.data.atomic import refuse_existing


def run(
    model: Path, data: Path, /, *, output: Output, force: Switch = False, read: Input = READ
) -> None:
    """Write the prediction set of every row.

    Parameters
    ----------
    model
        Written by calibrate.
    data
        Probabilities of new rows.
    output
        Where to write the sets: .parquet, .npz, .jsonl or .csv.
    force
        Overwrite an existing file.
    """
    from evencover.data.writers import check_sets_format, write_sets
    from evencover.persistence import load

    output = refuse_existing(output, force=force)
    check_sets_format(output)
    predictor = load(model)
    source = read.open(data, "predicting")
    sizes = []

    def counted(blocks: Any) -> Any:
        for sets in blocks:
            sizes.append((len(sets), len(sets.indices)))
            yield sets

    blocks = counted(predictor.predict_set_blocks(source, ids=read.row_ids()))
    n_rows = write_sets(output, blocks, source.class_names)
    average = sum(members for _, members in sizes) / n_rows
    print(f"{output}: {n_rows} sets, {average:.2f} classes on average")
