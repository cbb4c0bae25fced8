"""What tells a model from others: the content of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from evencover.inference.records import content_digest

WEIGHTS_AND_SETTINGS = (".safetensors", ".bin", ".json", ".txt", ".model")


def folder_digest(folder: Path) -> str:
    """Of all weights, settings and vocabularies of a folder, whatever its path is."""
    files = sorted(each for each in folder.iterdir() if each.suffix in WEIGHTS_AND_SETTINGS)
    return _joined(files)


def file_digest(file: Path) -> str:
    """Of a file, and of weights that are kept in another beside it."""
    beside = [file.with_name(f"{file.name}{ending}") for ending in ("_data", ".data")]
    return _joined([file, *(each for each in beside if each.is_file())])


def _joined(files: list[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(f"{file.suffix} {content_digest(file)}\n".encode())
    return digest.hexdigest()
