"""``evencover infer``: run a classifier on images or texts and save its outputs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evencover.cli.console import note, progress
from evencover.cli.options import Output, Switch
from evencover.errors import InputError

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
    mean: str | None = None,
    std: str | None = None,
    scale: str | None = None,
    size: str | None = None,
    channels: int | None = None,
    probabilities: Switch = False,
    dtype: Literal["float32", "float16"] = "float32",
    force: Switch = False,
) -> None:
    """Run a classifier on images or texts and save its outputs.

    Parameters
    ----------
    model
        An ONNX file, the folder or name of a Hugging Face model, or module:function (or
        file.py:function), which maps a list of images or texts to logits.
    data
        A folder with one sub-folder per class; a table (.csv, .tsv, .jsonl, .parquet) with a column
        of paths or texts and one of labels; or a Hugging Face dataset on disk.
    output
        Folder for the scores, in Parquet files that every other command reads. After an
        interruption the same command adds what is missing.
    device
        Device to run on, such as cpu, cuda or cuda:1; by default a GPU if there is one.
    batch_size
        Number of inputs per batch.
    workers
        Number of threads that read and prepare the next batches.
    limit
        Take only the first inputs, this many.
    strict
        Fail at the first input that cannot be read, instead of listing it in _unreadable.csv.
    kind
        Whether inputs are images or texts, where model and data do not tell.
    input_key
        Column of paths or texts.
    labels_key
        Column of labels: class names, or indices of the model's outputs.
    ids_key
        Column of ids; by default the path or the row number is the id.
    class_names
        File with the names of the model's outputs in their order, one per line, if the model does
        not name them as the data do.
    mean
        Mean to subtract from scaled pixels, such as 0.5 or 0.485,0.456,0.406 (ONNX models).
    std
        Standard deviation to divide by, one number or one per channel (ONNX models).
    scale
        Factor for pixels from 0 to 255, such as 1/255 (ONNX models).
    size
        Size to resize images to, such as 28 or HEIGHT,WIDTH (ONNX models).
    channels
        Channels of images, 1 or 3 (ONNX models).
    probabilities
        The model returns probabilities, not logits.
    dtype
        Type of the stored numbers; float16 takes half the space.
    force
        Replace the results of another model, other settings or other data.
    """
    from evencover.inference import infer

    def watch(batches: Batches, n_inputs: int) -> Batches:
        return progress(batches, "inferring", n_inputs, lambda batch: batch.n_inputs, unit="inputs")

    pixels = {"mean": mean, "std": std, "scale": scale, "size": size}
    done = infer(
        model,
        data,
        output,
        kind=kind,
        input_key=input_key,
        labels_key=labels_key,
        ids_key=ids_key,
        class_names=None if class_names is None else _names(class_names),
        **{name: _numbers(text, name) for name, text in pixels.items() if text is not None},
        channels=channels,
        probabilities=probabilities,
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        workers=workers,
        limit=limit,
        strict=strict,
        force=force,
        watch=watch,
        note=note,
    )
    if done.n_unreadable:
        note(
            f"{done.n_unreadable} of {done.n_rows + done.n_unreadable} inputs could not be read; "
            f"they are listed in {output / '_unreadable.csv'}"
        )
    already = f", {done.n_there} of them there already" if done.n_there else ""
    accuracy = "" if done.accuracy is None else f"; accuracy {done.accuracy:.1%}"
    print(f"{output}: {done.n_rows} rows in {done.n_files} files{already}{accuracy}")


def _numbers(text: str, option: str) -> Any:
    try:
        return [float(Fraction(each)) for each in text.split(",")]
    except (ValueError, ZeroDivisionError, OverflowError):
        raise InputError(f"--{option} must be numbers separated by commas. Got {text!r}.") from None


def _names(path: Path) -> list[str]:
    """Read class names; lines of text stay as they are, even if they look like numbers."""
    from evencover.data.location import existing_file
    from evencover.data.open import column_from_file

    if path.suffix.lower() not in ("", ".txt"):
        return [str(name) for name in column_from_file(path, "class_names").tolist()]
    existing_file(path)
    return path.read_text(encoding="utf-8-sig").splitlines()
