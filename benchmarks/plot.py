"""Plot cost by rows, classes and threads: ``python -m benchmarks.plot latest.json scaling.png``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLORS = {"calibrate": "#0072B2", "predict": "#D55E00", "plain_read": "#777777"}
NAMES = {"calibrate": "calibrate", "predict": "predict sets", "plain_read": "one plain read"}


def draw(results: dict[str, Any], target: Path) -> None:
    """Draw two log-log panels with a line of slope 1, and a panel of speedups."""
    figure, (rows, classes, threads) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for axes, axis in ((rows, "rows"), (classes, "classes")):
        points = [point for point in results["scaling"][axis] if "error" not in point]
        x = [point[axis] for point in points]
        for step, color in COLORS.items():
            y = [1e3 * point[f"{step}_seconds"] for point in points]
            axes.loglog(x, y, "o-", color=color, label=NAMES[step])
            linear = [y[-1] * value / x[-1] for value in x]
            axes.loglog(x, linear, ":", color=color, linewidth=1)
        other = "classes" if axis == "rows" else "rows"
        axes.set(xlabel=axis, ylabel="milliseconds", title=f"{points[0][other]:,} {other}")
        axes.set_xticks(x, [f"{value:,}" for value in x])
        axes.minorticks_off()
    rows.plot([], [], ":", color="black", linewidth=1, label="linear")
    rows.legend(frameon=False)

    points = [point for point in results["threads"] if "error" not in point]
    count = [point["threads"] for point in points]
    for step, color in COLORS.items():
        seconds = [point[f"{step}_seconds"] for point in points]
        threads.plot(count, [seconds[0] / s for s in seconds], "o-", color=color)
    threads.plot(count, count, ":", color="black", linewidth=1)
    threads.set(xlabel="threads", ylabel="speedup over one thread", xticks=count)
    machine = results["machine"]
    threads.set_title(f"{results['data']['rows']:,} rows, {results['data']['classes']:,} classes")
    for axes in (rows, classes, threads):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"evencover {machine['evencover']}, STANDARD with APS, {machine['kernels']} kernels, "
        f"{machine['cores']} cores"
    )
    figure.savefig(target, dpi=150)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
