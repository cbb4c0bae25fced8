"""``evencover predict``: write the prediction set of every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evencover.cli import options
from evencover.cli.console import note
from evencover.output.atomic import check_output, reject_inputs
from evencover.validation import whole_number

if TYPE_CHECKING:
    from evencover.output.writers import ListedSets


def run(
    model: options.ModelFile,
    data: str,
    /,
    *,
    output: options.Output,
    alpha: options.OtherAlpha = None,
    with_probabilities: options.Switch = False,
    top: int | None = None,
    taxonomy: Path | None = None,
    escape_formulas: options.EscapeFormulas = False,
    dask: options.Dask = None,
    force: options.Switch = False,
    read: options.Rows = options.READ_ROWS,
) -> None:
    """Write a prediction set for each row.

    The output is a file (.parquet, .jsonl or .csv) or, without an extension, a folder with
    one Parquet file for each partition of the input. For predictions of SpeciesNet, it may also be
    the same .json with the sets added. After an interruption, run the same command
    again to complete a folder. With --top the size is still that of the whole set.

    Parameters
    ----------
    data
        Probabilities of new rows.
    output
        File or folder to write.
    with_probabilities
        Also write the probability of each class.
    top
        Write at most this many classes, the most probable ones.
    taxonomy
        Also summarize sets by this hierarchy of classes (.csv, .tsv).
    force
        Overwrite an existing file, or a folder from another model.
    """
    from evencover.data.tools import read_species_net
    from evencover.output.folders import predict_to_folder
    from evencover.output.writers import Listing, check_sets_format, write_predictions, write_sets
    from evencover.taxonomy import Taxonomy

    inputs = [model, data, taxonomy, *read.files]
    is_folder = output.is_dir() or not output.suffix
    if is_folder:
        reject_inputs(output, inputs)
    else:
        check_output(output, inputs, force=force)
    document = read_species_net(data) if output.suffix.lower() == ".json" else None
    if not is_folder and document is None:
        check_sets_format(output)
    predictor = options.with_alpha(options.load_model(model, data), alpha)
    if top is not None:
        whole_number(top, "top", "predict", 1)
        note(f"the coverage guarantee does not apply to sets cut to {top} classes")
    source = read.open(data, "predicting", predictor, read_labels=False)
    listing: Any = {"with_probabilities": with_probabilities, "top": top}
    with options.executor(dask) as workers:
        if is_folder:
            how: Any = {"taxonomy": taxonomy, "executor": workers, "force": force, **listing}
            n_rows, n_files, n_there = predict_to_folder(predictor, source, output, **how)
            already = f", {n_there} of them there already" if n_there else ""
            print(f"{output}: {n_rows} sets in {n_files} files{already}")
            return
        names = predictor.class_names_ or source.class_names
        tree = None if taxonomy is None else Taxonomy.read(taxonomy, names)
        blocks = Listing(taxonomy=tree, **listing).blocks(predictor, source, executor=workers)
        sizes: Counter[str] = Counter()
        counted = _count(blocks, sizes)
        if document is not None:
            n_rows = write_predictions(output, document, counted, names or ())
        else:
            how = {"ids": source.ids, "escape_formulas": escape_formulas}
            n_rows = write_sets(output, counted, names, **how)
    empty = f", {sizes['empty']} empty" if sizes["empty"] else ""
    average = sizes["members"] / max(1, n_rows)
    print(f"{output}: {n_rows} sets, {average:.2f} classes on average{empty}")


def _count(blocks: Iterable[ListedSets], sizes: Counter[str]) -> Iterator[ListedSets]:
    """Pass blocks on; count members and empty sets."""
    for listed in blocks:
        sizes["members"] += int(listed.sizes.sum())
        sizes["empty"] += int((listed.sizes == 0).sum())
        yield listed
