"""``evencover predict``: write the prediction set of every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evencover.cli.console import note
from evencover.cli.options import (
    READ,
    AlphaOf,
    Dask,
    Input,
    ModelFile,
    OtherAlpha,
    Output,
    Switch,
    executor,
    load_model,
    with_alpha,
)
from evencover.errors import InputError
from evencover.output.atomic import reject_existing
from evencover.validation import whole_number

if TYPE_CHECKING:
    from evencover.output.writers import Listed


def run(
    model: ModelFile,
    data: str,
    /,
    *,
    output: Output,
    alpha: OtherAlpha = None,
    alpha_of: AlphaOf = None,
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
    """Write a prediction set for each row.

    The output is a file (.parquet, .npz, .jsonl or .csv) or, without an extension, a folder with
    one file for each partition of the input. After an interruption, run the same command again to
    complete a folder. With --top the size is still that of the whole set.

    Parameters
    ----------
    data
        Probabilities of new rows.
    output
        File or folder to write.
    order
        Order of the classes in a set.
    with_probabilities
        Also write the probability of each class.
    top
        Write at most this many classes, the most probable ones.
    taxonomy
        Also summarize sets by this hierarchy of classes (.csv, .tsv).
    parts
        Most groups in a summary.
    part_format
        Format of files in a folder: parquet, npz, jsonl or csv.
    force
        Overwrite an existing file, or a folder from another model.
    """
    from evencover.output.folders import ids_of_rows, predict_to_folder
    from evencover.output.writers import Listing, check_sets_format, write_sets
    from evencover.taxonomy import Taxonomy

    is_folder = output.is_dir() or not output.suffix
    if not is_folder:
        check_sets_format(reject_existing(output, force=force))
    elif not output.absolute().parent.is_dir():
        raise InputError(f"Cannot write '{output}': the folder '{output.parent}' does not exist.")
    predictor = with_alpha(load_model(model, data), alpha, alpha_of)
    if top is not None:
        whole_number(top, "top", "predict", 1)
        note(
            f"the coverage guarantee does not apply to sets cut to {top} classes; "
            f"'evencover evaluate --top {top}' measures their coverage"
        )
    source = read.open(data, "predicting", allow_unknown=True)
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
