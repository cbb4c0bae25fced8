"""``evencover infer``: run a classifier on images or texts and save its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from evencover.cli.console import note, progress
from evencover.cli.options import Output, Switch
from evencover.output.atomic import reject_inputs

if TYPE_CHECKING:
    from evencover.inference.run import Batches


def run(
    model: str,
    data: Path,
    /,
    *,
    output: Output,
    class_names: Path | None = None,
    input_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
    batch_size: int = 32,
    force: Switch = False,
) -> None:
    """Run a classifier on images or text and save its outputs.

    The model is the folder or name of a Hugging Face model, or module:function (or
    file.py:function), which maps a list of images or texts to one row of numbers each.

    The data are a folder with one subfolder per class, or a table (.csv, .tsv, .jsonl, .parquet)
    with a column of paths or texts and one of labels.

    The output is a folder of Parquet files that every other command reads. After an interruption,
    run the same command again to complete it. Inputs that cannot be read are listed in
    _unreadable.csv.

    Parameters
    ----------
    model
        Hugging Face model, or module:function.
    data
        Folder of images, or table.
    output
        Folder to write.
    class_names
        File with the model's class names in order, one per line.
    input_key
        Column of paths or texts.
    labels_key
        Column of labels: class names or class indices.
    ids_key
        Column of ids; by default the path or row number.
    batch_size
        Number of inputs per batch.
    force
        Replace results of another model or other data.
    """
    from evencover.data.location import existing_file
    from evencover.inference import infer

    reject_inputs(output, [model, data, class_names])

    def watch(batches: Batches, n_inputs: int) -> Batches:
        return progress(batches, "inferring", n_inputs, lambda batch: len(batch.span))

    names = None
    if class_names is not None:
        existing_file(class_names)
        names = class_names.read_text(encoding="utf-8-sig").splitlines()
    keys: Any = {"input_key": input_key, "labels_key": labels_key, "ids_key": ids_key}
    how: Any = {"class_names": names, "batch_size": batch_size, "force": force, "watch": watch}
    done = infer(model, data, output, **keys, **how)
    if done.n_unreadable:
        note(
            f"{done.n_unreadable} of {done.n_rows + done.n_unreadable} inputs could not be read; "
            f"they are listed in {output / '_unreadable.csv'}"
        )
    numbers = "logits" if done.column == "logits" else "probabilities"
    already = f", {done.n_there} of them there already" if done.n_there else ""
    accuracy = "" if done.accuracy is None else f"; accuracy {done.accuracy:.1%}"
    print(f"{output}: {done.n_rows} rows of {numbers} in {done.n_files} files{already}{accuracy}")
