"""``evencover predict``: write the prediction set of every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evencover.cli.options import READ, Dask, Input, ModelFile, Output, Switch, executor, load_model
from evencover.errors import InputError
from evencover.output.atomic import reject_existing

if TYPE_CHECKING:
    from evencover.output.writers import Listed


def run(
    model: ModelFile,
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
    """Write a prediction set for each row, the most probable class first.

    Parameters
    ----------
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
    force
        Overwrite an existing file, or a folder made from another model or input.
    """
    from evencover.output.folders import ids_of_rows, predict_to_folder
    from evencover.output.writers import Listing, check_sets_format, write_sets
    from evencover.taxonomy import Taxonomy

    is_folder = output.is_dir() or not output.suffix
    if not is_folder:
        check_sets_format(reject_existing(output, force=force))
    elif not output.absolute().parent.is_dir():
        raise InputError(f"Cannot write '{output}': the folder '{output.parent}' does not exist.")
    predictor = load_model(model, data)
    source = read.open(data, "predicting")
    listing: Any = {"order": order, "with_probabilities": with_probabilities, "top": top}
    with executor(dask) as workers:
        how: Any = {"groups": read.groups(source), "executor": workers}
        if is_folder:
            n_rows, n_files, n_there = predict_to_folder(
                predictor,
                source,
                output,
                taxonomy=taxonomy,
                parts=parts,
                extension=f".{part_format.lower().removeprefix('.')}",
                force=force,
                **listing,
                **how,
            )
            already = f", {n_there} of them there already" if n_there else ""
            print(f"{output}: {n_rows} sets in {n_files} files{already}")
            return
        names = predictor.class_names_ or source.class_names
        tree = None if taxonomy is None else Taxonomy.from_file(taxonomy, names)
        blocks = Listing(parts=parts, taxonomy=tree, **listing).blocks(
            predictor, source, ids=None, **how
        )
        sizes: Counter[str] = Counter()
        counted = _count(blocks, sizes)
        n_rows = write_sets(output, counted, names, ids=ids_of_rows(source, None))
    empty = f", {sizes['empty']} empty" if sizes["empty"] else ""
    print(f"{output}: {n_rows} sets, {sizes['members'] / n_rows:.2f} classes on average{empty}")


def _count(blocks: Iterable[Listed], sizes: Counter[str]) -> Iterator[Listed]:
    """Pass blocks on; count members and empty sets."""
    for listed in blocks:
        sizes["members"] += int(listed.sizes.sum())
        sizes["empty"] += int((listed.sizes == 0).sum())
        yield listed
