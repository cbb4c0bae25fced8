"""A folder with one sub-folder per class, or with files that have no label."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from evencover.errors import InputError
from evencover.inference.inputs import Example, Inputs, Kind

ENDINGS: dict[Kind, tuple[str, ...]] = {
    "images": (
        *(".bmp", ".gif", ".jpeg", ".jpg", ".jp2", ".pgm", ".png", ".ppm"),
        *(".tif", ".tiff", ".webp"),
    ),
    "texts": (".txt",),
}


class FolderInputs(Inputs):
    """Files by class, both in the order of their names; one class is listed at a time.

    Parameters
    ----------
    folder
        Its sub-folders are the classes; without any, its own files are inputs without labels.
    kind
        Whether to look for images or texts; None takes what is there.
    """

    def __init__(self, folder: Path, kind: Kind | None = None) -> None:
        self.folder, self.name = folder, f"'{folder}'"
        classes = sorted(each.name for each in os.scandir(folder) if _is_class(each))
        self._classes = classes or [""]
        for candidate in (kind,) if kind else ENDINGS:
            self.kind = candidate
            digest = hashlib.blake2b(digest_size=16)
            counts = [self._count(name, digest) for name in self._classes]
            self.n_inputs = sum(counts)
            if self.n_inputs:
                break
        else:
            known = [ending for each in (kind, *ENDINGS) if each for ending in ENDINGS[each]]
            raise InputError(
                f"{self.name} must hold one sub-folder of {kind or 'images or texts'} per class. "
                f"Got no file that ends in {', '.join(dict.fromkeys(known))}."
            )
        self._starts = list(accumulate(counts, initial=0))
        self.labels = set(classes) or None
        self.class_names = classes or None
        self.identity = digest.hexdigest()

    def examples(self, start: int) -> Iterator[Example]:
        """One class after the other; ids are paths from the folder on, with forward slashes."""
        for place, name in enumerate(self._classes):
            if self._starts[place + 1] <= start:
                continue
            files = self._files(name)[max(0, start - self._starts[place]) :]
            for file in files:
                path = self.folder / name / file
                yield Example(path.relative_to(self.folder).as_posix(), path, name or None)

    def _files(self, name: str) -> list[str]:
        """The files of a class by name, those of folders inside it included."""
        top, found = self.folder / name, []
        for place, folders, files in os.walk(top):
            folders[:] = [each for each in folders if not each.startswith(".")]
            inside = os.path.relpath(place, top)
            for file in files:
                if file.lower().endswith(ENDINGS[self.kind]) and not file.startswith("."):
                    found.append(file if inside == "." else os.path.join(inside, file))
        return sorted(found)

    def _count(self, name: str, digest: hashlib.blake2b) -> int:
        files = self._files(name)
        for file in files:
            about = _size_and_time(self.folder / name / file)
            digest.update(repr((name, file, *about)).encode())
        return len(files)


def _size_and_time(path: Path) -> tuple[int, int]:
    """What tells a file from another of its name; a link to nothing fails when it is read."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def _is_class(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and not entry.name.startswith((".", "_"))
