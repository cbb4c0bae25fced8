"""Read raw inputs of a classifier: folders, tables and datasets of images or texts."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evencover.arrays import import_pyarrow
from evencover.data.columns import ID_KEYS, LABEL_KEYS
from evencover.data.formats.tables import csv_batches, csv_names, json_objects
from evencover.data.location import reading
from evencover.errors import InputError, import_extra, listed, one_line
from evencover.output.folders import content_digest

Kind = Literal["images", "texts"]
KINDS: tuple[Kind, ...] = ("images", "texts")
IMAGES = ".bmp .gif .jpeg .jpg .jp2 .pgm .png .ppm .tif .tiff .webp"
EXTENSIONS: dict[Kind, tuple[str, ...]] = {"images": tuple(IMAGES.split()), "texts": (".txt",)}
# Pillow detects formats by content, and would run Ghostscript on PostScript.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 1 << 26  # 8192 x 8192: 200 MB as RGB
MAX_RATIO = 100  # maximum aspect ratio: resizing 1 x 67,000,000 pixels takes terabytes
# Column names of inputs, most likely first.
INPUT_KEYS: dict[Kind, Sequence[str]] = {
    "images": [
        *("image", "img", "image_path", "path", "file", "filename", "file_name", "filepath"),
        *("images", "file_path"),
    ],
    "texts": ["text", "texts", "sentence", "content", "utterance", "query", "document", "review"],
}
BATCH_ROWS = 256  # for Parquet and Arrow: rows may contain whole images


class Example(NamedTuple):
    """One input."""

    id: str | int  # its path, row number, or cell in the column of ids
    value: Any  # a path, the bytes of a file, or a text
    label: str | int | None  # the name or index of its class


@dataclass(frozen=True)
class Inputs:
    """Inputs in a fixed order, read on demand."""

    name: str  # in messages
    kind: Kind
    n_inputs: int
    labels: set[str] | set[int] | None  # the set of all labels
    class_names: Sequence[str] | None  # in the order of the data, if it has one
    identity: str  # a digest that changes with the inputs
    examples: Callable[[], Iterator[Example]]


@dataclass(frozen=True)
class Columns:
    """The columns of inputs, labels and ids; None for the usual names."""

    inputs: str | None = None
    labels: str | None = None
    ids: str | None = None


def open_inputs(path: str | os.PathLike[str], kind: Kind | None, columns: Columns) -> Inputs:
    """Open a folder of classes, a table, or a Hugging Face dataset on disk."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"Cannot read '{path}': there is no such file or folder.")
    if (path / "dataset_dict.json").is_file():
        splits = sorted(str(each.parent) for each in path.glob("*/state.json"))
        raise InputError(f"'{path}' contains several splits; choose one: {', '.join(splits)}.")
    is_dataset = (path / "state.json").is_file() and (path / "dataset_info.json").is_file()
    if path.is_dir() and not is_dataset:
        return _open_folder(path, kind)
    open_table = _open_dataset if is_dataset else TABLES.get(path.suffix.lower())
    if open_table is None:
        raise InputError(
            f"'{path}' must be a folder with one sub-folder per class, a table "
            f"({', '.join(TABLES)}) or a Hugging Face dataset on disk."
        )
    with reading(path):
        table = open_table(path)
    return _table_inputs(table, path, kind, columns)


# Folders ------------------------------------------------------------------------------------------


def _open_folder(folder: Path, kind: Kind | None) -> Inputs:
    """Open files by class, both ordered by name; without sub-folders there are no labels."""
    entries = (each for each in os.scandir(folder) if each.is_dir())
    classes = sorted(each.name for each in entries if not each.name.startswith((".", "_")))
    names = [as_text(each) for each in classes] or None
    kinds = (kind,) if kind else KINDS
    for candidate in kinds:
        examples = partial(_folder_examples, folder, classes, candidate)
        n_inputs, _, identity = _survey(examples)
        if n_inputs:
            labels = None if names is None else set(names)
            return Inputs(f"'{folder}'", candidate, n_inputs, labels, names, identity, examples)
    known = [extension for each in kinds for extension in EXTENSIONS[each]]
    raise InputError(
        f"'{folder}' must contain one sub-folder of {kind or 'images or texts'} per class. "
        f"Got no file with the extension {', '.join(known)}."
    )


def _folder_examples(folder: Path, classes: list[str], kind: Kind) -> Iterator[Example]:
    """Yield the files of one class after the other, including those of nested folders."""
    for name in classes or [""]:
        found = []
        for place, folders, files in os.walk(folder / name):
            folders[:] = [each for each in folders if not each.startswith(".")]
            inside = os.path.relpath(place, folder / name)
            for file in files:
                if file.lower().endswith(EXTENSIONS[kind]) and not file.startswith("."):
                    found.append(file if inside == "." else os.path.join(inside, file))
        for file in sorted(found):
            path = folder / name / file
            yield Example(as_text(path.relative_to(folder).as_posix()), path, as_text(name) or None)


def _survey(examples: Callable[[], Iterator[Example]]) -> tuple[int, set[Any], str]:
    """Return the number of examples, their labels, and a digest of their files."""
    labels, digest, n_inputs = set(), hashlib.blake2b(digest_size=16), 0
    for example in examples():
        n_inputs += 1
        labels.add(example.label)
        if isinstance(example.value, Path):
            digest.update(repr((example.id, _size_and_time(example.value))).encode())
    return n_inputs, labels, digest.hexdigest()


# Tables -------------------------------------------------------------------------------------------

Rows = Iterator[Sequence[Any]]


@dataclass(frozen=True)
class Table:
    """A table that is read row by row."""

    columns: list[str]
    rows: Callable[[Sequence[str]], Rows]  # yields the cells of these columns
    identity: str
    features: Mapping[str, Any] = field(default_factory=dict)  # Hugging Face's, by column


def _table_inputs(table: Table, path: Path, kind: Kind | None, columns: Columns) -> Inputs:
    """Find the columns, and read the table once."""
    kind, column = _find_input(table, path, kind, columns.inputs)
    label = _find_column(table, path, columns.labels, LABEL_KEYS, "labels_key (--labels-key)")
    label = None if label == column else label
    ids = _find_column(table, path, columns.ids, ID_KEYS, "ids_key (--ids-key)")
    names = (table.features.get(label or "") or {}).get("names")
    wanted = [name for name in (column, label, ids) if name is not None]
    folder = path if path.is_dir() else path.parent

    def examples() -> Iterator[Example]:
        """Yield all rows; the default id of an image is its path."""
        with reading(path):
            for row, values in enumerate(table.rows(wanted)):
                cells = dict(zip(wanted, values, strict=True))
                value = cells[column]
                if isinstance(value, Mapping):  # Hugging Face stores bytes, or the path of a file
                    value = value.get("bytes") or value.get("path")
                is_path = kind == "images" and isinstance(value, str)
                own = (value if is_path else row) if ids is None else cells[ids]
                if own is None or (isinstance(own, str) and not _is_unicode(own)):
                    raise InputError(
                        f"Every row of '{path}' must have an id of valid Unicode. "
                        f"Got {own!r} in row {row}."
                    )
                of_class = None if label is None else _class(cells[label], row, names, path)
                yield Example(own, folder / value if is_path else value, of_class)

    n_inputs, labels, files = _survey(examples)
    if not n_inputs:
        raise InputError(f"'{path}' must have at least one input. Got none.")
    identity = digest_of((table.identity, kind, column, label, ids), files)
    found = None if label is None else labels
    return Inputs(f"'{path}'", kind, n_inputs, found, names, identity, examples)


def _find_column(
    table: Table, path: Path, key: str | None, usual: Sequence[str], parameter: str
) -> str | None:
    if key is None:
        return next((each for each in usual if each in table.columns), None)
    if key not in table.columns:
        raise InputError(
            f"{parameter} must be a column of '{path}'. Got {key!r}; "
            f"there are the columns {listed(table.columns)}."
        )
    return key


def _find_input(table: Table, path: Path, kind: Kind | None, key: str | None) -> tuple[Kind, str]:
    """Return the column of inputs; without `kind`, infer images or texts from its name."""
    features = table.features.items()
    pictures = [name for name, about in features if (about or {}).get("_type") == "Image"]
    usual = INPUT_KEYS | {"images": (*pictures, *INPUT_KEYS["images"])}
    if key is not None:
        _find_column(table, path, key, (), "input_key (--input-key)")
        return kind or ("images" if key in usual["images"] else "texts"), key
    kinds = (kind,) if kind else KINDS
    for each in kinds:
        for name in usual[each]:
            if name in table.columns:
                return each, name
    what = {"images": "paths of images", "texts": "texts"}.get(kind or "", "paths or texts")
    raise InputError(
        f"'{path}' must have a column of {what}, such as {INPUT_KEYS[kinds[0]][0]!r}. "
        f"Got the columns {listed(table.columns)}; name it with input_key (--input-key)."
    )


def _class(label: Any, row: int, names: Sequence[str] | None, path: Path) -> str | int:
    """Return a label as text, by name if the table names its indices, or as an integer."""
    if label is None or label == "":
        raise InputError(f"Every row of '{path}' must have a label. Got none in row {row}.")
    if names is None or not isinstance(label, int):
        return label if isinstance(label, int) else str(label)
    if not 0 <= label < len(names):
        raise InputError(f"Labels of '{path}' must be below {len(names)}. Got {label}.")
    return names[label]


def _open_csv(path: Path) -> Table:
    """Open lines of text with a header."""
    columns, _ = csv_names(path, always=True)
    if not columns:
        raise InputError(f"'{path}' must begin with the names of its columns. Got nothing.")

    def rows(wanted: Sequence[str]) -> Rows:
        places = [columns.index(name) for name in wanted]
        for batch in csv_batches(path, len(columns), True):
            yield from zip(*(batch[place].to_pylist() for place in places), strict=True)

    return Table(columns, rows, content_digest(path))


def _open_json_lines(path: Path) -> Table:
    """Open a file with one JSON object per line."""

    def rows(wanted: Sequence[str]) -> Rows:
        return ([record.get(name) for name in wanted] for record in json_objects(path))

    return Table(list(next(json_objects(path), {})), rows, content_digest(path))


def _open_parquet(path: Path) -> Table:
    import_pyarrow()
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))

    def rows(wanted: Sequence[str]) -> Rows:
        with pq.ParquetFile(path, memory_map=True) as file:
            yield from _cells(file.iter_batches(BATCH_ROWS, columns=list(wanted)), wanted)

    features = about.get("info", {}).get("features") or {}
    return Table(schema.names, rows, content_digest(path), features)


def _open_dataset(path: Path) -> Table:
    """Open a Hugging Face dataset saved to disk: Arrow streams and metadata."""
    pa = import_pyarrow()
    state = json.loads((path / "state.json").read_text("utf-8"))
    info = json.loads((path / "dataset_info.json").read_text("utf-8"))
    files = [path / Path(each["filename"]).name for each in state["_data_files"]]
    features = info.get("features") or {}

    def rows(wanted: Sequence[str]) -> Rows:
        for file in files:
            with pa.memory_map(str(file)) as stream:
                yield from _cells(pa.ipc.open_stream(stream), wanted)

    with pa.memory_map(str(files[0])) as stream:
        columns = pa.ipc.open_stream(stream).schema.names
    return Table(columns, rows, digest_of(features, *map(content_digest, files)), features)


def _cells(batches: Iterable[Any], columns: Sequence[str]) -> Rows:
    """Yield the cells of record batches, a few rows at a time."""
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            few = batch.slice(start, BATCH_ROWS)
            yield from zip(*(few.column(name).to_pylist() for name in columns), strict=True)


TABLES: dict[str, Callable[[Path], Table]] = {
    ".csv": _open_csv,
    ".tsv": _open_csv,
    ".jsonl": _open_json_lines,
    ".ndjson": _open_json_lines,
    ".parquet": _open_parquet,
}


# Values -------------------------------------------------------------------------------------------


class UnreadableError(Exception):
    """An input that cannot be read, and the reason."""


def read_value(kind: Kind, value: Any) -> Any:
    """Read an image as RGB, or a text; raise UnreadableError for any failure."""
    try:
        if value is None:
            raise ValueError("empty cell")
        if isinstance(value, Path) and not stat.S_ISREG(value.stat().st_mode):
            raise ValueError("not a regular file")
        if kind == "images":
            return _image(value)
        return value.read_text(encoding="utf-8") if isinstance(value, Path) else str(value)
    except (MemoryError, InputError):
        raise
    except Exception as error:  # decoders raise any type for a broken file
        reason = getattr(error, "strerror", None)
        raise UnreadableError(reason or one_line(error)) from error


def _image(value: Path | bytes) -> Any:
    pillow = import_extra("Images", "PIL.Image", "images", "pillow")
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
        return image.convert("RGB")


def as_text(name: str) -> str:
    r"""Convert a file name to valid Unicode: escape bytes that are not UTF-8.

    >>> as_text("caf\udce9")
    'caf\\xe9'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _is_unicode(text: str) -> bool:
    """Check for lone surrogates, which JSON can contain but files cannot."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def digest_of(*values: Any) -> str:
    """Return a digest of values by their full `repr`."""
    return hashlib.blake2b(repr(values).encode(), digest_size=16).hexdigest()


def _size_and_time(path: Path) -> tuple[int, int]:
    """Return metadata that change with a file; broken links fail when read."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
