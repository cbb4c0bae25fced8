"""``evencover infer``: run a model over images or texts and write a score file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from evencover.cli.console import note, progress
from evencover.cli.shared import Output, Switch

if TYPE_CHECKING:
    from evencover.inference.run import Batches


def run(
    model: str,
    data: Path,
    /,
    *,
    output: Output,
    device: str | None = None,
    batch_size: int = 32,
    workers: int = 2,
    limit: int | None = None,
    strict: Switch = False,
    kind: Literal["images", "texts"] | None = None,
    input_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
    class_names: Path | None = None,
    probabilities: Switch = False,
    dtype: Literal["float32", "float16"] = "float32",
    force: Switch = False,
) -> None:
    """Run a trained classifier over images or texts and write a score file.

    Parameters
    ----------
    model
        An ONNX file, the folder or name of a Hugging Face model, or module:function (or
        file.py:function), which maps a list of pictures or texts to logits.
    data
        A folder with one sub-folder per class; a table (.csv, .tsv, .jsonl, .parquet) with a column
        of paths or texts and one of labels; or a Hugging Face dataset on disk.
    output
        Folder for the scores, in Parquet files that every other command reads. After an
        interruption the same command adds what is missing.
    device
        What to run on, such as cpu, cuda or cuda:1; by default a GPU if there is one.
    batch_size
        How many inputs the model takes at once.
    workers
        How many threads read and prepare the next batches.
    limit
        Take only this many inputs, the first ones.
    strict
        Fail at the first input that cannot be read; otherwise such inputs are left out, counted,
        and listed in _unreadable.csv.
    kind
        Whether inputs are images or texts, where model and data do not say.
    input_key
        The column of paths or texts.
    labels_key
        The column of labels: class names, or indices of the model's outputs.
    ids_key
        The column of ids; by default the path or the row's number is the id.
    class_names
        File with the names of the model's outputs in their order, one per line, if the model does
        not name them as the data do.
    probabilities
        The model returns probabilities, not logits.
    dtype
        How numbers are stored; float16 takes half the room.
    force
        Write anew a folder that was begun with another model or other data.
    """
    from evencover.inference import infer

    def watch(batches: Batches, n_inputs: int) -> Batches:
        return progress(batches, "inferring", n_inputs, lambda batch: batch.n_inputs, unit="inputs")

    done = infer(
        model,
        data,
        output,
        kind=kind,
        input_key=input_key,
        labels_key=labels_key,
        ids_key=ids_key,
        class_names=None if class_names is None else _names(class_names),
        probabilities=probabilities,
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        workers=workers,
        limit=limit,
        strict=strict,
        force=force,
        watch=watch,
    )
    if done.n_unreadable:
        note(
            f"{done.n_unreadable} of {done.n_rows + done.n_unreadable} inputs could not be read; "
            f"they are listed in {output / '_unreadable.csv'}"
        )
    already = f", {done.n_there} of them there already" if done.n_there else ""
    print(f"{output}: {done.n_rows} rows in {done.n_files} files{already}")


def _names(path: Path) -> list[str]:
    """Class names from a file; lines of text stay as they are, even if they look like numbers."""
    from evencover.data.files import column_from_file
    from evencover.data.location import existing_file

    if path.suffix.lower() not in ("", ".txt"):
        return [str(name) for name in column_from_file(path, "class_names").tolist()]
    existing_file(path)
    return path.read_text(encoding="utf-8-sig").splitlines()
