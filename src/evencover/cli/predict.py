"""``evencover predict``: write the prediction set of every row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evencover.cli.options import READ, Dask, Input, Output, Switch, executor, refuse_swapped
from evencover.errors import InputError
from evencover.output.atomic import refuse_existing

if TYPE_CHECKING:
    from evencover.output.writers import Listed, Listing


def run(
    model: Path,
    data: str,
    /,
    *,
    output: Output,
    order: Literal["probability", "index"] = "probability",
    with_probabilities: Switch = False,
    top: int | None = None,
    taxonomy: Path | None = None,
    parts: int = 4,
    part_format: str = "parquet",
    dask: Dask = None,
    force: Switch = False,
    read: Input = READ,
) -> None:
    """Write the prediction set of every row, the most probable class first.

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
    order
        How the classes of a set are listed: the most probable first, or by their index.
    with_probabilities
        Write the probability of each listed class too.
    top
        List at most this many classes of each set, the most probable ones; the size is still
        that of the whole set.
    taxonomy
        Also write each set in the words of a tree of classes, such as "3 warblers, all owls": a
        table (.csv, .tsv) whose lines name a class and its groups, narrow to wide.
    parts
        Describe a set in at most this many of these groups.
    part_format
        The kind of files in a folder: parquet, npz, jsonl or csv.
    dask
        Run on a dask cluster: the address of its scheduler, or "local" for this machine's cores.
    force
        Overwrite an existing file, or a folder made from another model or input.
    """
    from evencover.output.writers import Listing
    from evencover.persistence import load
    from evencover.taxonomy import Taxonomy

    listing = Listing(order, with_probabilities, top, parts=parts)
    if output.is_dir() or not output.suffix:
        refuse_swapped(model, data)
        predictor = load(model)
        _write_folder(predictor, data, output, listing, taxonomy, part_format, dask, force, read)
        return
    from evencover.output.folders import ids_of_rows
    from evencover.output.writers import check_sets_format, write_sets

    output = refuse_existing(output, force=force)
    check_sets_format(output)
    refuse_swapped(model, data)
    predictor = load(model)
    source = read.open(data, "predicting")
    if taxonomy is not None:
        tree = Taxonomy.from_file(taxonomy, predictor.class_names_ or source.class_names)
        listing = replace(listing, taxonomy=tree)
    counts = SetCounts()
    with executor(dask) as workers:
        groups = read.groups(source)
        blocks = listing.blocks(predictor, source, ids=None, groups=groups, executor=workers)
        n_rows = write_sets(
            output,
            counts.watch(blocks),
            predictor.class_names_ or source.class_names,
            ids=ids_of_rows(source, None),
        )
    print(f"{output}: {n_rows} sets, {counts.n_members / n_rows:.2f} classes on average{counts}")


class SetCounts:
    """Counts members and empty sets while blocks pass by."""

    def __init__(self) -> None:
        self.n_members = self.n_empty = 0

    def watch(self, blocks: Iterable[Listed]) -> Iterator[Listed]:
        """The same blocks, counted."""
        for listed in blocks:
            self.n_members += int(listed.sizes.sum())
            self.n_empty += int((listed.sizes == 0).sum())
            yield listed

    def __str__(self) -> str:
        return f", {self.n_empty} empty" if self.n_empty else ""


def _write_folder(
    predictor: Any,
    data: str,
    folder: Path,
    listing: Listing,
    taxonomy: Path | None,
    part_format: str,
    dask: str | None,
    force: bool,
    read: Input,
) -> None:
    from evencover.output.folders import predict_to_folder

    if not folder.absolute().parent.is_dir():
        raise InputError(f"Cannot write '{folder}': the folder '{folder.parent}' does not exist.")
    source = read.open(data, "predicting")
    with executor(dask) as workers:
        n_rows, n_files, n_there = predict_to_folder(
            predictor,
            source,
            folder,
            groups=read.groups(source),
            order=listing.order,
            with_probabilities=listing.with_probabilities,
            top=listing.top,
            taxonomy=taxonomy,
            parts=listing.parts,
            executor=workers,
            ending=f".{part_format.lower().removeprefix('.')}",
            force=force,
        )
    already = f", {n_there} of them there already" if n_there else ""
    print(f"{folder}: {n_rows} sets in {n_files} files{already}")
