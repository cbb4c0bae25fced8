"""Read the raw inputs of a classifier: folders of images, and tables of paths or texts."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evencover.arrow import import_pyarrow
from evencover.data.columns import ID_KEYS, LABEL_KEYS, Keys, found_key
from evencover.data.csv import csv_batches, csv_header
from evencover.data.location import reading
from evencover.data.records import flat_records, json_lines
from evencover.errors import InputError, import_extra, listed, one_line

Modality = Literal["images", "texts"]
IMAGES = (".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Usual columns of inputs, most likely first.
PATH_KEYS = ("image", "img", "image_path", "path", "file", "filename", "file_name", "file_path")
TEXT_KEYS = ("text", "texts", "sentence", "content", "utterance", "query", "document", "review")
# Pillow detects formats by content, and would run Ghostscript on PostScript.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 1 << 26  # 8192 x 8192: 200 MB as RGB
MAX_RATIO = 100  # maximum aspect ratio: resizing 1 x 67,000,000 pixels takes terabytes


class Example(NamedTuple):
    """One input."""

    id: str | int  # its path, row number, or cell in the column of ids
    value: Any  # the path of an image, its bytes, or a text
    label: str | None  # the name or index of its class


class Unreadable(NamedTuple):
    """An input that cannot be read, and the reason."""

    id: str | int
    reason: str


class Inputs(NamedTuple):
    """Inputs in a fixed order, read on demand."""

    name: str  # in messages
    kind: Modality
    examples: Callable[[], Iterator[Example]]
    n_inputs: int
    labels: set[str]  # all that occur; empty without labels
    ids_are_text: bool
    identity: str  # changes with the inputs

    @classmethod
    def survey(
        cls, path: Path, kind: Modality, examples: Callable[[], Iterator[Example]], settings: object
    ) -> Inputs:
        """Read all examples once, without the content of their files."""
        n_inputs, labels, ids_are_text = 0, set(), False
        identity = hashlib.blake2b(repr((settings, kind)).encode(), digest_size=16)
        for example in examples():
            n_inputs += 1
            labels.add(example.label or "")
            ids_are_text |= isinstance(example.id, str)
            if isinstance(example.value, Path):
                identity.update(repr((example.id, size_and_time(example.value))).encode())
        if not n_inputs:
            raise InputError(f"'{path}' must contain at least one of the {kind}. Got none.")
        digest = identity.hexdigest()
        return cls(f"'{path}'", kind, examples, n_inputs, labels - {""}, ids_are_text, digest)


def open_inputs(
    path: str | os.PathLike[str],
    kind: Modality | None = None,
    *,
    input_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
) -> Inputs:
    """Open a folder of images, or a table of paths or texts; None for the usual columns."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"Cannot read '{path}': there is no such file or folder.")
    if path.is_dir() and kind != "texts":
        subfolders = [entry.name for entry in os.scandir(path) if entry.is_dir()]
        classes = sorted(name for name in subfolders if not name.startswith((".", "_")))
        return Inputs.survey(path, "images", partial(_images, path, classes), classes)
    if path.is_dir() or path.suffix.lower() not in READERS:
        folder = "" if kind == "texts" else "a folder or "
        raise InputError(f"'{path}' must be {folder}a table ({', '.join(READERS)}).")
    with reading(path):
        table = READERS[path.suffix.lower()](path)
    usual = {"images": PATH_KEYS, "texts": TEXT_KEYS}.get(kind or "", (*PATH_KEYS, *TEXT_KEYS))
    inputs = found_key(table.columns, input_key, usual, f"'{path}'", "input_key")
    labels = found_key(table.columns, labels_key, LABEL_KEYS, f"'{path}'", "labels_key")
    ids = found_key(table.columns, ids_key, ID_KEYS, f"'{path}'", "ids_key")
    if inputs is None:
        raise InputError(
            f"'{path}' must have a column of {kind or 'images or texts'}, such as {usual[0]!r}. "
            f"Got the columns {listed(table.columns)}; name it with input_key (--input-key)."
        )
    if kind is None and inputs not in (*PATH_KEYS, *TEXT_KEYS):
        with reading(path):
            first = next(iter(table.cells([inputs])), [""])[0]
        is_image = not isinstance(first, str) or first.lower().endswith(IMAGES)
        kind = "images" if is_image else "texts"
    kind = kind or ("images" if inputs in PATH_KEYS else "texts")
    examples = partial(_rows, table, path, kind, inputs, labels, ids)
    return Inputs.survey(path, kind, examples, (size_and_time(path), inputs, labels, ids))


def size_and_time(path: Path) -> tuple[int, int]:
    """Return what changes with the content of a file; zeros for a broken link."""
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return 0, 0


def as_text(name: object) -> str:
    """Convert to valid Unicode: escape bytes of a file name that are not UTF-8."""
    return str(name).encode("utf-8", "backslashreplace").decode()


def _images(folder: Path, classes: list[str]) -> Iterator[Example]:
    """Yield the images of each class, by name; without classes they have no labels."""
    for name in classes or [""]:
        paths = []
        for parent, subfolders, files in os.walk(folder / name):
            subfolders[:] = [subfolder for subfolder in subfolders if subfolder[0] != "."]
            visible = [file for file in files if file[0] != "."]
            paths += [Path(parent, file) for file in visible if file.lower().endswith(IMAGES)]
        for path in sorted(paths, key=str):
            yield Example(as_text(path.relative_to(folder).as_posix()), path, as_text(name) or None)


# Tables -------------------------------------------------------------------------------------------

Cells = Iterator[Sequence[Any]]


class InputTable(NamedTuple):
    """A table that is read row by row."""

    columns: list[str]
    cells: Callable[[Sequence[str]], Cells]  # yields the cells of these columns
    class_names: Mapping[str, Sequence[str]] = {}  # by column of labels, if the file has them


def _open_csv(path: Path) -> InputTable:
    columns, _ = csv_header(path, Keys(has_header=True))

    def cells(wanted: Sequence[str]) -> Cells:
        positions = [columns.index(name) for name in wanted]
        for batch in csv_batches(path, columns, True, include=positions):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return InputTable(columns, cells)


def _open_jsonl(path: Path) -> InputTable:
    def records() -> Iterator[dict[str, Any]]:
        return flat_records(json_lines(path), f"'{path}'")

    def cells(wanted: Sequence[str]) -> Cells:
        return ([record.get(name) for name in wanted] for record in records())

    return InputTable(list(next(records(), {})), cells)


def _open_parquet(path: Path) -> InputTable:
    """Open a Parquet file; Hugging Face's metadata may name the classes."""
    import_pyarrow()
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    metadata = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = (metadata.get("info", {}).get("features") or {}).items()
    names = {column: feature["names"] for column, feature in features if "names" in feature}

    def cells(wanted: Sequence[str]) -> Cells:
        with pq.ParquetFile(path, memory_map=True) as file:
            for batch in file.iter_batches(256, columns=list(wanted)):  # of whole images
                yield from zip(*(batch.column(name).to_pylist() for name in wanted), strict=True)

    return InputTable(schema.names, cells, names)


READERS = {".csv": _open_csv, ".tsv": _open_csv, ".jsonl": _open_jsonl, ".parquet": _open_parquet}


def _rows(
    table: InputTable, path: Path, kind: Modality, inputs: str, labels: str | None, ids: str | None
) -> Iterator[Example]:
    """Yield the rows of a table; the default id of an image is its path."""
    names = table.class_names.get(labels or "", ())
    wanted = [inputs, *(name for name in (labels, ids) if name is not None)]
    with reading(path):
        for row, values in enumerate(table.cells(wanted)):
            cells = dict(zip(wanted, values, strict=True))
            for name in wanted[1:]:
                if cells[name] in (None, ""):
                    raise InputError(f"Row {row} of '{path}' must have a value in {name!r}.")
            value, label = cells[inputs], None if labels is None else cells[labels]
            if isinstance(value, Mapping):  # Hugging Face stores bytes, or the path of a file
                value = value.get("bytes") or value.get("path")
            row_id = row if ids is None else cells[ids]
            if kind == "images" and isinstance(value, str):
                row_id, value = value if ids is None else row_id, path.parent / value
            row_id = row_id if isinstance(row_id, int) else as_text(row_id)
            if isinstance(label, int) and 0 <= label < len(names):
                label = names[label]
            yield Example(row_id, value, None if label is None else str(label))


# Values -------------------------------------------------------------------------------------------


def read_value(kind: Modality, example: Example) -> Any:
    """Read an image as RGB, or a text; return Unreadable for any failure."""
    value = example.value
    try:
        if value is None:
            raise ValueError("empty cell")
        if isinstance(value, Path) and not stat.S_ISREG(value.stat().st_mode):
            raise ValueError("not a regular file")
        return _image(value) if kind == "images" else str(value)
    except (MemoryError, InputError):
        raise
    except Exception as error:  # decoders raise any type for a broken file
        return Unreadable(example.id, getattr(error, "strerror", None) or one_line(error))


def _image(value: Path | bytes) -> Any:
    """Decode an image within the limits, turned upright as transformers does."""
    pillow = import_extra("Images", "PIL.Image", "images", "pillow")
    from PIL import ImageOps

    content = io.BytesIO(value) if isinstance(value, bytes) else value
    with pillow.open(content, formats=FORMATS) as image:  # reads only the header
        short, long = sorted(image.size)
        if short * long > MAX_PIXELS or long > MAX_RATIO * short:
            raise ValueError(
                f"{image.width} x {image.height} pixels; the limits are {MAX_PIXELS} pixels and "
                f"sides of {MAX_RATIO} to 1"
            )
        if image.mode[0] in "IF":  # pillow would clip it at 255
            raise ValueError("more than 8 bits per channel; convert it to 8 bits")
        return ImageOps.exif_transpose(image).convert("RGB")
