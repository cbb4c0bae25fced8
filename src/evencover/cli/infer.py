"""``evencover infer``: run a classifier on images or texts and save its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from evencover.cli.console import note, progress
from evencover.cli.options import Output, Switch, numbers

if TYPE_CHECKING:
    from evencover.inference.run import Batches


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """The options of `evencover.inference.infer`."""

    device: str | None = None
    "Device to run on, such as cpu, cuda or cuda:1; by default a GPU if there is one."
    batch_size: int = 32
    "Number of inputs per batch."
    workers: int = 2
    "Number of threads that read and prepare the next batches."
    limit: int | None = None
    "Take only the first inputs, this many."
    strict: Switch = False
    "Fail at the first input that cannot be read, instead of listing it in _unreadable.csv."
    kind: Literal["images", "texts"] | None = None
    "Whether inputs are images or texts, where model and data do not tell."
    input_key: str | None = None
    "Column of paths or texts."
    labels_key: str | None = None
    "Column of labels: class names, or indices of the model's outputs."
    ids_key: str | None = None
    "Column of ids; by default the path or the row number is the id."
    class_names: Path | None = None
    "File with the class names of the model's outputs in their order, one per line."
    mean: str | None = None
    "Mean to subtract from scaled pixels, such as 0.5 or 0.485,0.456,0.406 (ONNX models)."
    std: str | None = None
    "Standard deviation to divide by, one number or one per channel (ONNX models)."
    scale: str | None = None
    "Factor for pixels from 0 to 255, such as 1/255 (ONNX models)."
    size: str | None = None
    "Size to resize images to, such as 28 or HEIGHT,WIDTH (ONNX models)."
    channels: int | None = None
    "Channels of images, 1 or 3 (ONNX models)."
    probabilities: Switch = False
    "The model returns probabilities, not logits."
    dtype: Literal["float32", "float16"] = "float32"
    "Type of the stored numbers; float16 takes half the space."
    force: Switch = False
    "Replace the results of another model, other settings or other data."

    def parsed(self) -> dict[str, Any]:
        """Return the arguments of `infer`."""
        found = dict(vars(self))
        if self.class_names is not None:
            found["class_names"] = _names(self.class_names)
        for name in ("mean", "std", "scale", "size"):
            if found[name] is not None:
                found[name] = numbers(found[name], name)
        return found


OPTIONS = Options()


def run(model: str, data: Path, /, *, output: Output, options: Options = OPTIONS) -> None:
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
    """
    from evencover.inference import infer

    def watch(batches: Batches, n_inputs: int) -> Batches:
        return progress(batches, "inferring", n_inputs, lambda batch: batch.n_inputs, unit="inputs")

    done = infer(model, data, output, **options.parsed(), watch=watch, note=note)
    if done.n_unreadable:
        note(
            f"{done.n_unreadable} of {done.n_rows + done.n_unreadable} inputs could not be read; "
            f"they are listed in {output / '_unreadable.csv'}"
        )
    already = f", {done.n_there} of them there already" if done.n_there else ""
    accuracy = "" if done.accuracy is None else f"; accuracy {done.accuracy:.1%}"
    print(f"{output}: {done.n_rows} rows in {done.n_files} files{already}{accuracy}")


def _names(path: Path) -> list[str]:
    """Read class names; lines of text stay as they are, even if they look like numbers."""
    from evencover.data.location import existing_file
    from evencover.data.open import column_from_file

    if path.suffix.lower() not in ("", ".txt"):
        return [str(name) for name in column_from_file(path, "class_names").tolist()]
    existing_file(path)
    return path.read_text(encoding="utf-8-sig").splitlines()
