"""A folder of parts that can be finished after an interruption, and is complete or says it is not.

`_plan.json` is written first and says what the parts will be and what they are made from; each part
appears whole or not at all, and beside it its mark (length and checksum), until `_manifest.json`,
which is written last, holds the marks of all. A part that fits its mark is finished, so whoever
comes again with the same plan makes only what is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evencover.errors import InputError
from evencover.output.atomic import remove_leftovers
from evencover.output.locks import only_writer
from evencover.output.records import make_folder, read_record, refuse_other_things, write_record

FORMAT = 1
PLAN, MANIFEST = "_plan.json", "_manifest.json"

Record = dict[str, Any]


@dataclass(frozen=True)
class PlannedFolder:
    """A folder and what belongs in it.

    Parameters
    ----------
    folder
        Where the parts go; made if it does not exist.
    made_from
        What the parts are made from: name -> text that differs where the content would.
    parts
        One record for each part: ``file``, ``first_row``, ``rows``.
    """

    folder: Path
    made_from: dict[str, str]
    parts: list[Record]

    @contextmanager
    def writing(self, *, force: bool = False) -> Iterator[list[Record]]:
        """Hold the folder; write the plan, or check that it is the one there; the missing parts."""
        if not (self.folder / PLAN).is_file():
            refuse_other_things(self.folder, "one that this command began")
        make_folder(self.folder)
        with only_writer(self.folder):
            remove_leftovers(self.folder)
            self._begin(force=force)
            yield self.missing()

    def _begin(self, *, force: bool) -> None:
        known = read_record(self.folder / PLAN, _is_plan, "it is damaged; choose another folder")
        plan = {"format": FORMAT, "made_from": self.made_from, "parts": self.parts}
        if known == plan:
            return
        if known is not None:
            self._make_way(known, force=force)
        write_record(self.folder / PLAN, plan)

    def missing(self) -> list[Record]:
        """The parts that are not there yet, or not as they were written."""
        marks = self._marks()
        return [part for part in self.parts if not self._is_finished(part["file"], marks)]

    def _is_finished(self, file: str, marks: dict[str, Record]) -> bool:
        path = self.folder / file
        return file in marks and path.is_file() and marks[file] == mark_of(path)

    def _marks(self) -> dict[str, Record]:
        """What the parts were when they were written: beside them or, at last, in the manifest."""
        manifest = _read_quietly(self.folder / MANIFEST) or {}
        listed = manifest.get("parts")
        marks = {
            part["file"]: {key: part.get(key) for key in ("bytes", "checksum")}
            for part in (listed if isinstance(listed, list) else [])
            if isinstance(part, dict) and isinstance(part.get("file"), str)
        }
        for part in self.parts:
            own = _read_quietly(mark_path(self.folder / part["file"]))
            if own is not None:
                marks[part["file"]] = own
        return marks

    def finish(self, found: Mapping[str, Record] | None = None, **counts: int) -> None:
        """Write the manifest, now that every part is there.

        `found` says by file what turned out otherwise than planned; `counts` are of the whole.
        """
        marks = self._marks()
        parts = [
            part | (found or {}).get(part["file"], {}) | marks[part["file"]] for part in self.parts
        ]
        rows = sum(part["rows"] for part in parts)
        about: Record = {"format": FORMAT, "made_from": self.made_from, "rows": rows}
        about |= {**counts, "parts": parts}
        write_record(self.folder / MANIFEST, about)
        for part in self.parts:
            mark_path(self.folder / part["file"]).unlink(missing_ok=True)
        remove_leftovers(self.folder)

    def _make_way(self, known: Record, *, force: bool) -> None:
        """Refuse the plan that is there, or take away what it made: manifest first, plan last."""
        theirs = known["made_from"]
        differ = [name for name, text in self.made_from.items() if theirs.get(name) != text]
        if not force:
            raise InputError(
                f"'{self.folder}' holds the parts of another run: it had another "
                f"{' and another '.join(differ) or 'partition'}; choose another folder, or "
                "write it anew with force=True (--force)."
            )
        files = [self.folder / part["file"] for part in known["parts"]]
        marks = [mark_path(path) for path in files]
        for path in (self.folder / MANIFEST, *marks, *files, self.folder / PLAN):
            path.unlink(missing_ok=True)


def mark_of(path: Path) -> Record:
    """What tells a finished part from a damaged one."""
    content = hashlib.blake2b(digest_size=16)
    size = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            content.update(piece)
            size += len(piece)
    return {"bytes": size, "checksum": content.hexdigest()}


def mark_path(path: Path) -> Path:
    """Where the mark of a part is kept until the manifest is written."""
    return path.with_name(f"_{path.name}.json")


def leave_mark(path: Path) -> None:
    """Say that a part is finished, and what it is."""
    write_record(mark_path(path), mark_of(path))


def _read_quietly(path: Path) -> Record | None:
    """A record that can be made anew, if it can be read."""
    try:
        return read_record(path, bool, "")
    except InputError:
        return None


def _is_plan(content: Record) -> bool:
    """Whether its files are names only: nothing outside the folder may be removed."""
    files = [part["file"] for part in content["parts"]]
    return isinstance(content["made_from"], dict) and all(
        isinstance(file, str) and Path(file).name == file and file.isprintable() for file in files
    )
