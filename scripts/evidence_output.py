"""Write the tables and pictures of README and site: what the steps of `make evidence` share."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "evidence"
IMAGES = DOCS / "images"
INKS = {"light": "#333333", "dark": "#cfd0d0"}
# A single picture for light and dark pages: gray ink on a transparent background.
GRAY_INK = "#7a7f85"
PLAIN: dict[str, Any] = {
    "savefig.transparent": True,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), GRAY_INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), GRAY_INK),
}


def write_table(name: str, rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file whose first row has the headings."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def write_text(name: str, text: str) -> None:
    """Write what a command printed, or a sentence with numbers."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / name).write_text(text.strip("\n") + "\n", encoding="utf-8")


def write_pictures(name: str, draw: Callable[[str], Any]) -> None:
    """Draw a figure twice, with ink for light and for dark pages; the background is transparent."""
    import matplotlib.pyplot as plt

    for theme, ink in INKS.items():
        plt.rcdefaults()
        plt.rcParams.update({"svg.hashsalt": "evencover", "font.size": 11, "text.color": ink})
        plt.rcParams.update({f"{part}.color": ink for part in ("xtick", "ytick")})
        plt.rcParams.update({"axes.labelcolor": ink, "axes.edgecolor": ink})
        plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
        path = IMAGES / f"{name}_{theme}.svg"
        draw(ink).savefig(path, transparent=True, metadata={"Date": None})
        plt.close("all")
