"""Classify glyphs of about 1000 characters: a real image study, from fonts to a table.

    python scripts/glyph_study -o FOLDER                all of it; under 90 minutes on two cores
    python scripts/glyph_study -o FOLDER --small        the same in a few minutes, to see it work
    python scripts/glyph_study -o FOLDER --docs docs    and write the documentation's page from it

Requires torch, the extras `images` and `plot`, apt and dpkg-deb (Debian or Ubuntu) for the fonts,
and npm for the text in which characters are counted. Every step is saved in the folder: after an
interruption, the same command continues.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import steps
from page import write_page


class Size(NamedTuple):
    """Size of a study: characters, images per character, and epochs."""

    n_characters: int | None
    n_training: int
    n_held_out: int
    n_epochs: int
    n_avg: tuple[int, ...]


FULL = Size(None, 200, 260, 10, (10, 20, 30, 40, 50, 75, 100, 150))
SMALL = Size(60, 40, 60, 3, (10, 20))


def main() -> None:
    """Run all steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the study")
    parser.add_argument("--small", action="store_true", help="60 characters, a few minutes")
    parser.add_argument("--docs", type=Path, help="folder of the documentation, to write the page")
    options = parser.parse_args()
    size = SMALL if options.small else FULL
    folder = options.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    study = steps.Study(folder)
    study.begin(size._asdict())
    tables = study.step("fonts", lambda: steps.gather_fonts(folder))
    characters = steps.choose_characters(folder, tables, size.n_characters)
    study.step("pictures", lambda: steps.draw_all(folder, tables, characters, size))
    study.step("training", lambda: steps.train_network(folder, characters, size, study.log))
    study.step("inference", lambda: steps.run_inference(folder))
    study.step("long tail", lambda: steps.cut_long_tail(folder, characters))
    study.step("grid", lambda: steps.run_grids(folder, size.n_avg))
    write_page(folder, options.docs)
    study.log(f"{folder / 'research' / 'glyphs.md'} has the tables and pictures")


if __name__ == "__main__":
    main()
