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
    "Device, e.g. cpu or cuda:1; by default a GPU if available."
    batch_size: int = 32
    "Number of inputs per batch."
    workers: int = 2
    "Number of threads that prepare batches."
    limit: int | None = None
    "Take only the first inputs, this many."
    strict: Switch = False
    "Fail at the first unreadable input."
    kind: Literal["images", "texts"] | None = None
    "Type of the inputs, where model and data leave it open."
    input_key: str | None = None
    "Column of paths or texts."
    labels_key: str | None = None
    "Column of labels: class names or class indices."
    ids_key: str | None = None
    "Column of ids; by default the path or row number."
    class_names: Path | None = None
    "File with the model's class names in order, one per line."
    mean: str | None = None
    "ONNX: mean to subtract from scaled pixels, e.g. 0.485,0.456,0.406."
    std: str | None = None
    "ONNX: standard deviation to divide by, overall or per channel."
    scale: str | None = None
    "ONNX: factor for pixels from 0 to 255, e.g. 1/255."
    size: str | None = None
    "ONNX: size of images, e.g. 28 or HEIGHT,WIDTH."
    channels: int | None = None
    "ONNX: channels of images, 1 or 3."
    probabilities: Switch = False
    "The model returns probabilities, not logits."
    dtype: Literal["float32", "float16"] = "float32"
    "Type of the stored numbers; float16 takes half the space."
    force: Switch = False
    "Replace results of another model, settings or data."

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
    """Run a classifier on images or text and save its outputs.

    The model is an ONNX file, the folder or name of a Hugging Face model, or module:function (or
    file.py:function), which maps a list of images or texts to logits.

    The data are a folder with one subfolder per class; a table (.csv, .tsv, .jsonl, .parquet) with
    a column of paths or texts and one of labels; or a Hugging Face dataset on disk.

    The output is a folder of Parquet files that every other command reads. After an interruption,
    run the same command again to complete it. Inputs that cannot be read are listed in
    _unreadable.csv.

    Parameters
    ----------
    model
        ONNX file, Hugging Face model, or module:function.
    data
        Folder of images, table, or Hugging Face dataset.
    output
        Folder to write.
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
