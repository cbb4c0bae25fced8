"""Download open fonts from Debian's packages, for training and testing.

Packages are downloaded with apt and unpacked into the study's folder; nothing is installed.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PACKAGES = tomllib.loads((Path(__file__).parent / "packages.toml").read_text("utf-8"))
TRAINING, HELD_OUT = PACKAGES["training"], PACKAGES["held_out"]
MOST_FILES = 4  # of one package: its weights and slants
POINTS = 48  # glyphs are drawn large and downscaled
ENDINGS = (".ttf", ".otf", ".ttc")


class Font(NamedTuple):
    """A font file, and the index of the font in it."""

    package: str
    file: str
    index: int


def fetch(packages: list[str], folder: Path) -> None:
    """Download and unpack missing packages."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        to = folder / package
        if to.is_dir():
            continue
        apt = ["apt-get", "download", "-qq", f"fonts-{package}"]
        subprocess.run(apt, cwd=folder, check=True, stderr=subprocess.DEVNULL)
        (archive,) = folder.glob(f"fonts-{package}_*.deb")
        unpacked = folder / f".{package}.part"
        subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True)
        unpacked.rename(to)
        archive.unlink()


def fonts_of(package: str, folder: Path) -> list[Font]:
    """Select a few fonts of a package, evenly spaced by file name."""
    files = sorted(
        path
        for path in (folder / package).rglob("*")
        if path.suffix.lower() in ENDINGS and path.is_file() and not path.is_symlink()
    )
    places = np.linspace(0, len(files) - 1, min(len(files), MOST_FILES)).astype(int)
    return [Font(package, str(files[place].relative_to(folder)), 0) for place in sorted({*places})]


@cache
def opened(path: str, index: int) -> Any:
    """Load a font for drawing."""
    from PIL import ImageFont

    return ImageFont.truetype(path, POINTS, index=index)


def has_glyphs(font: Font, characters: str, folder: Path) -> str:
    """Return the characters that a font draws as nonempty glyphs."""
    from fontTools.ttLib import TTFont, TTLibError

    path = str(folder / font.file)
    try:
        with TTFont(path, fontNumber=font.index, lazy=True) as file:
            known = file.getBestCmap() or {}
        ready = opened(path, font.index)
    except (TTLibError, OSError, AssertionError):
        return ""
    return "".join(each for each in characters if ord(each) in known and _draws(ready, each))


def _draws(font: Any, character: str) -> bool:
    try:
        return bool(font.getmask(character).getbbox())
    except OSError:  # an invalid program in the font
        return False


def glyph_table(packages: list[str], characters: str, folder: Path) -> dict[str, list[Font]]:
    """Return the fonts of each character, cached in a file."""
    memory = folder / f"glyphs-{len(packages)}-{len(characters)}.json"
    if not memory.is_file():
        found = []
        for package in packages:
            for font in fonts_of(package, folder):
                found.append([*font, has_glyphs(font, characters, folder)])
        memory.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    table: dict[str, list[Font]] = {character: [] for character in characters}
    for package, file, index, drawn in json.loads(memory.read_text("utf-8")):
        for character in drawn:
            table[character].append(Font(package, file, index))
    return table
