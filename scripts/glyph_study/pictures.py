"""Create the images of the study: an array for training, and a table of held-out images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from drawing import SIDE, as_png, draw
from fonts import Font


class Task(NamedTuple):
    """All images of one character."""

    label: int
    character: str
    fonts: list[Font]
    n_pictures: int
    seed: int


def _drawn(task: Task, folder: Path, png: bool) -> tuple[Task, list[str], list[bytes]]:
    """Draw images, as files or as bytes, with names: font and number."""
    names, content = [], []
    for number in range(task.n_pictures):
        key = [task.seed, ord(task.character), number]
        pixels, font = draw(task.character, task.fonts, folder, key)
        names.append(f"{font.package}/{Path(font.file).stem}/{task.character}/{number}")
        content.append(as_png(pixels) if png else pixels.tobytes())
    return task, names, content


def _all(
    tasks: Sequence[Task], folder: Path, *, png: bool
) -> Iterator[tuple[Task, list[str], list[bytes]]]:
    with ProcessPoolExecutor() as pool:
        yield from pool.map(partial(_drawn, folder=folder, png=png), tasks, chunksize=4)


def write_training(path: Path, tasks: Sequence[Task], folder: Path) -> None:
    """Write one array of bytes, n images of each character."""
    if path.is_file():
        return
    temporary = path.with_name(f".{path.name}")
    shape = (sum(task.n_pictures for task in tasks), SIDE, SIDE)
    pixels = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
    start = 0
    for task, _, content in _all(tasks, folder, png=False):
        stop = start + task.n_pictures
        pixels[start:stop] = np.frombuffer(b"".join(content), np.uint8).reshape(-1, SIDE, SIDE)
        start = stop
    pixels.flush()
    os.replace(temporary, path)


def write_held_out(path: Path, tasks: Sequence[Task], folder: Path) -> None:
    """Write a table of images with label and id, in mixed order."""
    if path.is_file():
        return
    temporary = path.with_name(f".{path.name}")
    names: list[str] = []
    labels: list[str] = []
    pictures: list[bytes] = []
    for task, own, content in _all(tasks, folder, png=True):
        names += own
        labels += [task.character] * len(own)
        pictures += content
    order = np.random.default_rng(11).permutation(len(names))
    table = pa.table(
        {
            "id": pa.array([names[place] for place in order]),
            "label": pa.array([labels[place] for place in order]),
            "image": pa.array([pictures[place] for place in order], pa.binary()),
        }
    )
    pq.write_table(table, temporary, row_group_size=4096)
    os.replace(temporary, path)
