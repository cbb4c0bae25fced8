"""Raw inputs of a classifier: folders, tables and datasets of images or texts."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evencover.arrays import import_pyarrow
from evencover.data.columns import ID_KEYS, LABEL_KEYS
from evencover.data.location import reading
from evencover.errors import InputError, listed, needs, one_line

Kind = Literal["images", "texts"]
KINDS: tuple[Kind, ...] = ("images", "texts")
EXTENSIONS: dict[Kind, tuple[str, ...]] = {
    "images": (
        *(".bmp", ".gif", ".jpeg", ".jpg", ".jp2", ".pgm", ".png", ".ppm"),
        *(".tif", ".tiff", ".webp"),
    ),
    "texts": (".txt",),
}
# Pillow goes by content, not by name, and runs Ghostscript on PostScript unless told otherwise.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 1 << 26  # 8192 x 8192: 200 MB as RGB
MAX_RATIO = 100  # of the sides: resizing the shorter one of 1 x 67,000,000 pixels takes terabytes
# Column names that tables use for inputs, the likeliest first.
INPUT_KEYS: dict[Kind, tuple[str, ...]] = {
    "images": (
        *("image", "img", "image_path", "path", "file", "filename", "file_name", "filepath"),
        *("images", "file_path"),
    ),
    "texts": ("text", "texts", "sentence", "content", "utterance", "query", "document", "review"),
}
BATCH_ROWS = 256  # of Parquet and Arrow: rows may contain whole images


class Example(NamedTuple):
    """One input."""

    id: str | int  # its path or row number, or its cell in the column of ids
    value: Any  # a path, the bytes of a file, or a text
    label: str | int | None  # the name or index of its class


class Inputs(ABC):
    """Inputs in a fixed order, read as they are needed."""

    name: str  # in messages
    kind: Kind
    n_inputs: int
    labels: set[str] | set[int] | None  # every label that occurs, once
    class_names: Sequence[str] | None = None  # in the order of the data, if it states one
    identity: str  # a digest that changes with the inputs

    @abstractmethod
    def examples(self, start: int) -> Iterator[Example]:
        """Yield all inputs from number `start` on."""


@dataclass(frozen=True)
class Columns:
    """The columns of inputs, labels and ids; None stands for the usual names."""

    inputs: str | None = None
    labels: str | None = None
    ids: str | None = None


def open_inputs(path: str | os.PathLike[str], kind: Kind | None, columns: Columns) -> Inputs:
    """Open a folder of classes, a table, or a Hugging Face dataset on disk."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"Cannot read '{path}': there is no such file or folder.")
    if path.is_dir():
        if (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
            return TableInputs(DatasetRecords(path), kind, columns)
        if (path / "dataset_dict.json").is_file():
            splits = sorted(each.parent.name for each in path.glob("*/state.json"))
            raise InputError(
                f"'{path}' contains several splits; choose one of them: "
                f"{', '.join(str(path / each) for each in splits)}."
            )
        return FolderInputs(path, kind)
    records = TABLES.get(path.suffix.lower())
    if records is None:
        raise InputError(
            f"Cannot read '{path}': inputs must be a folder with one sub-folder per class, a "
            f"table ({', '.join(TABLES)}) or a Hugging Face dataset on disk. "
            f"Got the extension {path.suffix or 'none'!r}."
        )
    return TableInputs(records(path), kind, columns)


class FolderInputs(Inputs):
    """Files by class, both in the order of their names; without sub-folders there are no labels."""

    def __init__(self, folder: Path, kind: Kind | None = None) -> None:
        self.folder, self.name = folder, f"'{folder}'"
        classes = sorted(each.name for each in os.scandir(folder) if _is_class(each))
        self._classes = classes or [""]
        for candidate in (kind,) if kind else KINDS:
            self.kind = candidate
            digest = hashlib.blake2b(digest_size=16)
            counts = [self._count(name, digest) for name in self._classes]
            self.n_inputs = sum(counts)
            if self.n_inputs:
                break
        else:
            known = [ending for each in ((kind,) if kind else KINDS) for ending in EXTENSIONS[each]]
            raise InputError(
                f"{self.name} must contain one sub-folder of {kind or 'images or texts'} per "
                f"class. Got no file with the extension {', '.join(known)}."
            )
        self._starts = list(accumulate(counts, initial=0))
        self.class_names = [as_text(each) for each in classes] or None
        self.labels = set(self.class_names or ()) or None
        self.identity = digest.hexdigest()

    def examples(self, start: int) -> Iterator[Example]:
        """Yield one class after the other; ids are relative paths with forward slashes."""
        for place, name in enumerate(self._classes):
            if self._starts[place + 1] <= start:
                continue
            for file in self._files(name)[max(0, start - self._starts[place]) :]:
                path = self.folder / name / file
                own = as_text(path.relative_to(self.folder).as_posix())
                yield Example(own, path, as_text(name) or None)

    def _files(self, name: str) -> list[str]:
        """List the files of a class by name, including those of folders inside it."""
        top, found = self.folder / name, []
        for place, folders, files in os.walk(top):
            folders[:] = [each for each in folders if not each.startswith(".")]
            inside = os.path.relpath(place, top)
            for file in files:
                if file.lower().endswith(EXTENSIONS[self.kind]) and not file.startswith("."):
                    found.append(file if inside == "." else os.path.join(inside, file))
        return sorted(found)

    def _count(self, name: str, digest: hashlib.blake2b) -> int:
        files = self._files(name)
        for file in files:
            stamp = _size_and_time(self.folder / name / file)
            digest.update(repr((name, file, stamp)).encode())
        return len(files)


class TableInputs(Inputs):
    """The rows of a table; without `kind`, the name of a column tells images from texts."""

    def __init__(self, records: Records, kind: Kind | None, columns: Columns) -> None:
        self.records, self.name = records, records.name
        self.kind, self._input = self._find_input(kind, columns.inputs)
        self._label = self._find(columns.labels, LABEL_KEYS, "labels_key (--labels-key)")
        self._ids = self._find(columns.ids, ID_KEYS, "ids_key (--ids-key)")
        if self._label == self._input:
            self._label = None
        self.class_names = (records.features.get(self._label or "") or {}).get("names")
        labels: set[Any] = set()
        digest = hashlib.blake2b(digest_size=16)
        self.n_inputs = 0
        for example in self.examples(0):
            self.n_inputs += 1
            labels.add(example.label)
            if isinstance(example.value, Path):
                digest.update(repr(_size_and_time(example.value)).encode())
        if not self.n_inputs:
            raise InputError(f"{self.name} must have at least one input. Got none.")
        self.labels = None if self._label is None else labels
        about = (records.identity, self.kind, self._input, self._label, self._ids)
        self.identity = digest_of(about, digest.hexdigest())

    def _find(self, key: str | None, usual: Sequence[str], parameter: str) -> str | None:
        names = self.records.columns
        if key is None:
            return next((each for each in usual if each in names), None)
        if key not in names:
            raise InputError(
                f"{parameter} must be a column of {self.name}. Got {key!r}; "
                f"there are the columns {listed(names)}."
            )
        return key

    def _find_input(self, kind: Kind | None, key: str | None) -> tuple[Kind, str]:
        names = self.records.columns
        features = self.records.features.items()
        pictures = [name for name, about in features if (about or {}).get("_type") == "Image"]
        if key is not None:
            self._find(key, (), "input_key (--input-key)")
            is_picture = key in pictures or key in INPUT_KEYS["images"]
            return kind or ("images" if is_picture else "texts"), key
        for each in (kind,) if kind else KINDS:
            of_kind = (*pictures, *INPUT_KEYS[each]) if each == "images" else INPUT_KEYS[each]
            place = next((name for name in of_kind if name in names), None)
            if place is not None:
                return each, place
        what = {"images": "paths of images", "texts": "texts"}.get(kind or "", "paths or texts")
        usual = [name for each in ((kind,) if kind else KINDS) for name in INPUT_KEYS[each][:3]]
        raise InputError(
            f"{self.name} must have a column of {what}, such as {', '.join(map(repr, usual))}. "
            f"Got the columns {listed(names)}; name it with input_key (--input-key)."
        )

    def examples(self, start: int) -> Iterator[Example]:
        """Yield rows from `start` on; an image without an id goes by its path."""
        wanted = [name for name in (self._input, self._label, self._ids) if name is not None]
        for row, values in enumerate(self.records.read(wanted, start), start):
            cells = dict(zip(wanted, values, strict=True))
            value = cells[self._input]
            if isinstance(value, Mapping):  # Hugging Face keeps bytes, or the path of a file
                value = value.get("bytes") or value.get("path")
            is_path = self.kind == "images" and isinstance(value, str)
            own = (value if is_path else row) if self._ids is None else cells[self._ids]
            if own is None or (isinstance(own, str) and not _is_unicode(own)):
                raise InputError(
                    f"Every row of {self.name} must have an id of valid Unicode. "
                    f"Got {own!r} in row {row}."
                )
            label = None if self._label is None else self._name(cells[self._label], row)
            yield Example(own, self.records.folder / value if is_path else value, label)

    def _name(self, label: Any, row: int) -> Any:
        """Return a label as text, by name where the table names its indices, or as an integer."""
        if label is None or label == "":
            raise InputError(f"Every row of {self.name} must have a label. Got none in row {row}.")
        names = self.class_names
        if names is not None and isinstance(label, int):
            if not 0 <= label < len(names):
                raise InputError(
                    f"Every label of {self.name} must be one of its {len(names)} classes. "
                    f"Got {label}."
                )
            return names[label]
        return label if isinstance(label, int) else str(label)


Rows = Iterator[tuple[Any, ...]]


class Records:
    """A table that is read row by row."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, f"'{path}'"
        self.folder = path.parent  # where relative paths start
        self.columns: list[str] = []
        self.features: dict[str, Any] = {}  # Hugging Face's description of the columns
        with reading(path):
            self._open()

    def _open(self) -> None:
        """Find the columns and the digest of the content."""
        self.identity = content_digest(self.path)

    def _rows(self, columns: Sequence[str], start: int) -> Rows:
        """Yield the cells of these columns in every row from `start` on."""
        raise NotImplementedError

    def read(self, columns: Sequence[str], start: int) -> Rows:
        """Yield rows; raise InputError if the file is broken."""
        with reading(self.path):
            yield from self._rows(columns, start)


class CsvRecords(Records):
    """Lines of text, of which the first names the columns."""

    def _open(self) -> None:
        super()._open()
        self.columns = next(self._lines(), [])
        if not self.columns:
            raise InputError(f"{self.name} must begin with the names of its columns. Got nothing.")

    def _lines(self) -> Iterator[list[str]]:
        delimiter = "\t" if self.path.suffix.lower() == ".tsv" else ","
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            yield from (line for line in csv.reader(file, delimiter=delimiter) if line)

    def _rows(self, columns: Sequence[str], start: int) -> Rows:
        places = [self.columns.index(name) for name in columns]
        for row, line in enumerate(islice(self._lines(), start + 1, None), start):
            if len(line) != len(self.columns):
                raise InputError(
                    f"Every line of {self.name} must have {len(self.columns)} columns. "
                    f"Got {len(line)} in row {row}."
                )
            yield tuple(line[place] for place in places)


class JsonRecords(Records):
    """One JSON object per line."""

    def _open(self) -> None:
        super()._open()
        self.columns = list(next(self._objects(), {}))

    def _objects(self) -> Iterator[dict[str, Any]]:
        with self.path.open(encoding="utf-8") as file:
            for row, line in enumerate(each for each in file if each.strip()):
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise InputError(
                        f"Every line of {self.name} must be a JSON object. "
                        f"Got {type(record).__name__} in row {row}."
                    )
                yield record

    def _rows(self, columns: Sequence[str], start: int) -> Rows:
        for record in islice(self._objects(), start, None):
            yield tuple(record.get(name) for name in columns)


class ParquetRecords(Records):
    """A Parquet file, read by row groups."""

    def _open(self) -> None:
        super()._open()
        import_pyarrow()
        with self._file() as file:
            groups, schema = file.metadata, file.schema_arrow
            self._counts = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
            about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
            self.features = about.get("info", {}).get("features") or {}
            self.columns = schema.names

    def _file(self) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(self.path, memory_map=True)

    def _rows(self, columns: Sequence[str], start: int) -> Rows:
        first = 0
        while first < len(self._counts) and start >= self._counts[first]:
            start -= self._counts[first]
            first += 1
        groups = list(range(first, len(self._counts)))
        with self._file() as file:
            batches = file.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(columns))
            yield from _cells(batches, columns, start)


class DatasetRecords(Records):
    """A Hugging Face dataset that was saved to disk: Arrow streams and their description."""

    def _open(self) -> None:
        pa = import_pyarrow()
        self.folder = self.path
        state = json.loads((self.path / "state.json").read_text("utf-8"))
        info = json.loads((self.path / "dataset_info.json").read_text("utf-8"))
        self._files = [self.path / Path(each["filename"]).name for each in state["_data_files"]]
        self.features = info.get("features") or {}
        self.identity = digest_of(self.features, *map(content_digest, self._files))
        with pa.memory_map(str(self._files[0])) as stream:
            self.columns = pa.ipc.open_stream(stream).schema.names

    def _batches(self) -> Iterator[Any]:
        pa = import_pyarrow()
        for file in self._files:
            with pa.memory_map(str(file)) as stream:
                yield from pa.ipc.open_stream(stream)

    def _rows(self, columns: Sequence[str], start: int) -> Rows:
        return _cells(self._batches(), columns, start)


def _cells(batches: Iterable[Any], columns: Sequence[str], start: int) -> Rows:
    """Yield the cells of record batches from row `start` on."""
    for batch in batches:
        for at in range(min(start, batch.num_rows), batch.num_rows, BATCH_ROWS):
            few = batch.slice(at, BATCH_ROWS)
            yield from zip(*(few.column(name).to_pylist() for name in columns), strict=True)
        start = max(0, start - batch.num_rows)


TABLES: dict[str, type[Records]] = {
    ".csv": CsvRecords,
    ".tsv": CsvRecords,
    ".jsonl": JsonRecords,
    ".ndjson": JsonRecords,
    ".parquet": ParquetRecords,
}


class UnreadableError(Exception):
    """An input that cannot be read, and the reason."""


def read_value(kind: Kind, value: Any) -> Any:
    """Read an image as RGB, or a text; raise UnreadableError whatever goes wrong with it."""
    try:
        if value is None:
            raise ValueError("empty cell")
        if isinstance(value, Path) and not stat.S_ISREG(value.stat().st_mode):
            raise ValueError("not a regular file")
        return _image(value) if kind == "images" else _text(value)
    except (MemoryError, InputError):
        raise
    except Exception as error:  # decoders raise any type for a broken file
        reason = getattr(error, "strerror", None)
        raise UnreadableError(reason or one_line(error)) from error


def _image(value: Path | bytes) -> Any:
    try:
        import PIL.Image
    except ImportError:
        raise needs("Images", "pillow", "images") from None
    content = io.BytesIO(value) if isinstance(value, bytes) else value
    with PIL.Image.open(content, formats=FORMATS) as image:  # reads the header only
        short, long = sorted(image.size)
        if short * long > MAX_PIXELS or long > MAX_RATIO * short:
            raise ValueError(
                f"{image.width} x {image.height} pixels; the limits are {MAX_PIXELS} pixels and "
                f"sides of {MAX_RATIO} to 1"
            )
        if image.mode[0] in "IF":  # which pillow would cut off at 255
            raise ValueError("more than 8 bits per channel; convert it to 8 bits")
        return image.convert("RGB")


def _text(value: Any) -> str:
    return value.read_text(encoding="utf-8") if isinstance(value, Path) else str(value)


def as_text(name: str) -> str:
    r"""Return a file name as valid Unicode: a byte that is not UTF-8 becomes an escape.

    >>> as_text("caf\udce9")
    'caf\\xe9'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _is_unicode(text: str) -> bool:
    """Check for lone surrogates, which JSON can contain and no file can."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def content_digest(path: Path) -> str:
    """Return a digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def digest_of(*values: Any) -> str:
    """Return a digest of values that `repr` shows in full."""
    return hashlib.blake2b(repr(values).encode(), digest_size=16).hexdigest()


def _size_and_time(path: Path) -> tuple[int, int]:
    """Return what changes with a file; a link to nothing fails when it is read."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def _is_class(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not entry.name.startswith((".", "_"))
