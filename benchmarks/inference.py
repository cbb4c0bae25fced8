"""Compare ``evencover infer`` with a plain loop: ``python -m benchmarks.inference``.

Speed: the same images through the same model three ways, taking turns in one process. *Ready* is
the model alone on batches in memory; *plain* is a simple loop, which reads, prepares and runs one
batch after the other; *infer* reads, prepares, runs, checks and writes. Its rate must be at least
90% of that of the plain loop. The ratio to *ready* shows the overhead of reading and writing.

Memory: the peak of separate processes that infer few and many texts, over that of imports.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.harness import (
    CACHE,
    RESULTS,
    ROOT,
    describe_machine,
    median_ratio,
    table,
    take_turns,
    write_results,
)
from evencover.inference import infer
from evencover.inference.run import Model, open_model

LEAST_SHARE = 0.9  # of the plain loop's rate
MOST_GROWTH = 1.25  # of peak memory over that of the imports, from few inputs to many
BATCH = 16
PROGRAM = """
import sys
import pyarrow.parquet
from benchmarks.harness import PeakMemory
from evencover.inference import infer
with PeakMemory() as peak:
    infer("benchmarks.classifiers:letters", sys.argv[1], sys.argv[2], batch_size=256)
print(peak.over_start)
"""


def write_pictures(folder: Path, n_pictures: int) -> list[Path]:
    """Write JPEG files of ImageNet's size, with smooth patterns and noise."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(n_pictures):
        coarse = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375)), dtype=np.int16)
        noisy = (smooth + rng.integers(-12, 12, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{number:05d}.jpg", quality=85)
    return sorted(folder.iterdir())


def _prepared(model: Model, paths: list[Path]) -> list[Any]:
    prepared = []
    for path in paths:
        with Image.open(path) as image:
            prepared.append(model.prepare(image.convert("RGB")))
    return prepared


def measure_speed(target: str, n_pictures: int, repeats: int, folder: Path) -> dict[str, Any]:
    """Return median seconds of each way, and the ratios."""
    paths = write_pictures(folder / "pictures", n_pictures)
    model = open_model(target)
    batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
    ready = [_prepared(model, batch) for batch in batches]

    def run_ready() -> None:
        for batch in ready:
            model.outputs(batch)

    def run_plain() -> None:
        for batch in batches:
            model.outputs(_prepared(model, batch))

    ways = {"ready": run_ready, "plain": run_plain, "infer": lambda: _run_infer(model, folder)}
    seconds = take_turns(ways, repeats)
    share = median_ratio(seconds["plain"], seconds["infer"])
    return {
        "model": target.rpartition(":")[2],
        "pictures": n_pictures,
        "seconds": {name: statistics.median(each) for name, each in seconds.items()},
        "share_of_plain": share,
        "share_of_ready": median_ratio(seconds["ready"], seconds["infer"]),
        "met": share >= LEAST_SHARE,
    }


def _run_infer(model: Model, folder: Path) -> None:
    infer(model.outputs, folder / "pictures", folder / "scores", batch_size=BATCH)
    shutil.rmtree(folder / "scores")


def measure_memory(sizes: tuple[int, ...], folder: Path) -> dict[str, Any]:
    """Measure peak memory of a process for each number of texts."""
    peaks = {}
    for n_texts in sizes:
        path = folder / f"{n_texts}.csv"
        rng = np.random.default_rng(0)
        words = rng.choice(list("abcdefghijklmnopqrstuvwxyz"), (1000, 60))
        lines = ["".join(each) for each in words]
        with path.open("w") as file:
            file.write("text\n")
            file.writelines(f"{lines[row % 1000]}\n" for row in range(n_texts))
        command = [sys.executable, "-c", PROGRAM, str(path), str(folder / f"of {n_texts}")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peaks[n_texts] = int(done.stdout)
    first, *_, last = peaks.values()
    return {"peak_bytes": peaks, "growth": last / first, "met": last / first <= MOST_GROWTH}


def markdown(results: dict[str, Any]) -> str:
    """Format the tables, and the machine."""
    m, speed, memory = results["machine"], results["speed"], results["memory"]
    verdict = {True: "yes", False: "**no**"}
    rates = [f"{speed['pictures'] / each:.1f}" for each in speed["seconds"].values()]
    lines = [
        [
            speed["model"],
            *rates,
            f"{speed['share_of_plain']:.2f}",
            f"{speed['share_of_ready']:.2f}",
            verdict[speed["met"]],
        ]
    ]
    head = ["model", "ready, per s", "plain loop, per s", "infer, per s", "infer / plain"]
    head += ["infer / ready", f"at least {LEAST_SHARE} of plain"]
    peaks = [[f"{int(n):,}", f"{peak / 2**20:.0f}"] for n, peak in memory["peak_bytes"].items()]
    return (
        "# Inference\n\n"
        f"{m['date']}: {m['cpu']}, {m['cores']} cores; load before the run: {m['load_before']}. "
        f"{speed['pictures']} JPEG pictures of 500 x 375, batches of {BATCH}, medians of "
        f"{results['repeats']} turns.\n\n{table(head, lines)}\n\n"
        f"Peak memory, growth {memory['growth']:.2f} (at most {MOST_GROWTH}: "
        f"{verdict[memory['met']]}):\n\n{table(['texts', 'peak MB'], peaks)}\n"
    )


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference", description=__doc__)
    parser.add_argument("--small", action="store_true", help="checks the harness, without torch")
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()
    target, n_pictures, repeats, sizes = (
        ("Linear", 20, 2, (200, 1000)) if options.small else ("ResNet50", 96, 5, (20_000, 640_000))
    )
    out = options.out or (CACHE / "small" if options.small else RESULTS)
    CACHE.mkdir(parents=True, exist_ok=True)
    about = describe_machine()
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        folder = Path(place)
        results = {
            "machine": about,
            "repeats": repeats,
            "speed": measure_speed(f"benchmarks.classifiers:{target}", n_pictures, repeats, folder),
            "memory": measure_memory(sizes, folder),
        }
    write_results(out, "inference", results, markdown(results))


if __name__ == "__main__":
    main()
