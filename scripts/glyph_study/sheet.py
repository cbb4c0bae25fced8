"""Draw the characters with the lowest and highest coverage, with a few images each."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

N_SHOWN, N_PICTURES = 12, 8


def draw_sheet(folder: Path, names: list[str], coverage: np.ndarray, to: Path) -> None:
    """Draw the lowest coverage left, the highest right, with the coverage of each row."""
    from matplotlib.figure import Figure
    from PIL import Image

    order = np.argsort(coverage, kind="stable")
    order = order[np.isfinite(coverage[order])]
    n_shown = min(N_SHOWN, len(order) // 2)
    sides = {"covered least": order[:n_shown], "covered most": order[::-1][:n_shown]}
    pictures = _pictures(folder, {names[place] for side in sides.values() for place in side})
    figure = Figure(figsize=(9, 0.36 * n_shown + 0.6), layout="constrained", dpi=130)
    axes = figure.subplots(1, 2)
    for ax, (title, side) in zip(axes, sides.items(), strict=True):
        rows = []
        for place in side:
            own = [np.asarray(Image.open(io.BytesIO(each))) for each in pictures[names[place]]]
            rows.append(np.hstack(own))
        ax.imshow(255 - np.vstack(rows), cmap="gray", vmin=0, vmax=255)
        height = rows[0].shape[0]
        labels = [f"U+{ord(names[place]):04X}  {coverage[place]:.2f}" for place in side]
        ax.set_yticks([height * (i + 0.5) for i in range(len(side))], labels, fontsize=8)
        ax.set_xticks([])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_title(title, fontsize=10)
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to)


def _pictures(folder: Path, wanted: set[str]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {name: [] for name in wanted}
    with pq.ParquetFile(folder / "held_out.parquet") as file:
        for batch in file.iter_batches(4096, columns=["label", "image"]):
            for label, image in zip(
                batch.column("label").to_pylist(), batch.column("image"), strict=True
            ):
                if label in found and len(found[label]) < N_PICTURES:
                    found[label].append(image.as_py())
            if all(len(each) == N_PICTURES for each in found.values()):
                break
    return found
