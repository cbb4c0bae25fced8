"""``evencover predict``: write the prediction set of every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evencover._validation import InputError
from evencover.cli.shared import READ, Dask, Input, Output, Switch, executor
from evencover.output.atomic import refuse_existing


def run(
    model: Path,
    data: str,
    /,
    *,
    output: Output,
    part_format: str = "parquet",
    dask: Dask = None,
    force: Switch = False,
    read: Input = READ,
) -> None:
    """Write the prediction set of every row.

    Parameters
    ----------
    model
        Written by calibrate.
    data
        Probabilities of new rows.
    output
        Where to write the sets: a file (.parquet, .npz, .jsonl or .csv), or a folder (a name
        without ending), which gets one file for each part of the input. After an interruption the
        same command adds to a folder what is missing.
    part_format
        The kind of files in a folder: parquet, npz, jsonl or csv.
    dask
        Run on a dask cluster: the address of its scheduler, or "local" for this machine's cores.
    force
        Overwrite an existing file, or a folder made from another model or input.
    """
    from evencover.persistence import load

    if output.is_dir() or not output.suffix:
        _write_folder(load(model), data, output, part_format, dask, force, read)
        return
    from evencover.output.writers import check_sets_format, write_sets

    output = refuse_existing(output, force=force)
    check_sets_format(output)
    predictor = load(model)
    source = read.open(data, "predicting")
    sizes = []

    def counted(blocks: Any) -> Any:
        for sets in blocks:
            sizes.append((len(sets), len(sets.indices)))
            yield sets

    with executor(dask) as workers:
        blocks = predictor.predict_set_blocks(source, **read.of_rows(), executor=workers)
        n_rows = write_sets(output, counted(blocks), predictor.class_names_ or source.class_names)
    average = sum(members for _, members in sizes) / n_rows
    print(f"{output}: {n_rows} sets, {average:.2f} classes on average")


def _write_folder(
    predictor: Any,
    data: str,
    folder: Path,
    part_format: str,
    dask: str | None,
    force: bool,
    read: Input,
) -> None:
    from evencover.output.folders import predict_to_folder

    if not folder.absolute().parent.is_dir():
        raise InputError(f"Cannot write '{folder}': the folder '{folder.parent}' does not exist.")
    with executor(dask) as workers:
        n_rows, n_files, n_there = predict_to_folder(
            predictor,
            read.open(data, "predicting"),
            folder,
            **read.of_rows(),
            executor=workers,
            ending=f".{part_format.lower().removeprefix('.')}",
            force=force,
        )
    already = f", {n_there} of them there already" if n_there else ""
    print(f"{folder}: {n_rows} sets in {n_files} files{already}")
