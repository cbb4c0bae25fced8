"""The study behind docs/pooled.md: POOLED against the paper's methods, on many data sets and sizes.

    python scripts/pooled_study.py --seen FILE.npz ... --fresh FILE.npz ... -o FOLDER

The bundled languages and the simulated twins of the paper's data sets are always there. Files
with `probs` and `labels` may be added: *seen* ones had a part in making the method, *fresh* ones
had none. Each data set is calibrated on 10, 20 and 50 rows per class, and with a long tail: its own
if its classes are of very unequal size, else class sizes that fall geometrically from 50 to 1.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover import compare, recommend
from evencover.comparison.splitting import calibration_split
from evencover.data import TWINS, load_languages, twin

SIZES = (10, 20, 50)
RIVALS = ("standard", "classwise", "clustered")
METHODS = (*RIVALS, "pooled")
RIVALS_SINCE = ("interpolated", "fuzzy", "rc3p", "macro")
TWIN_ROWS = 200_000  # enough to test on; the twins themselves have up to 1.3 million


class Setting(NamedTuple):
    """Where the methods were compared: what kind of data, which, rows per class, and score."""

    kind: str
    data: str
    size: str
    score: str


Results = dict[Setting, dict[str, Any]]
Loader = Callable[[], tuple[Any, Any]]


def from_file(path: Path) -> tuple[Any, Any]:
    """Probabilities and labels."""
    with np.load(path, allow_pickle=False) as file:
        return file["probs"], file["labels"].astype(np.int64)


def from_twin(name: str) -> tuple[Any, Any]:
    """The first rows of a twin; they come in random order."""
    rows, labels, n_rows = [], [], 0
    for block in twin(name).blocks():
        rows.append(np.array(block.rows))
        labels.append(np.asarray(block.labels))
        n_rows += len(block.rows)
        if n_rows >= TWIN_ROWS:
            break
    return np.concatenate(rows), np.concatenate(labels)


def languages() -> tuple[Any, Any]:
    """The bundled data set."""
    bundled = load_languages()
    return bundled.probabilities, bundled.labels


def long_tail(n_classes: int, most: int, seed: int = 0) -> Any:
    """Rows per class that fall geometrically from `most` to 1; classes in random order."""
    share = np.random.default_rng(seed).permutation(np.linspace(0, 1, n_classes))
    return np.maximum(1, np.round(most ** (1 - share))).astype(int)


def plans(labels: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each way to draw calibration rows is called, and the arguments that do it."""
    counts = np.bincount(labels)
    if counts.max() > 10 * max(counts.min(), 1):  # a long tail of its own: draw at random
        for size in SIZES:
            share = size * len(counts) / len(labels)
            if share <= 0.5:
                yield f"{size} on average", {"calibration_fraction": share}
        return
    sizes = [size for size in SIZES if np.median(counts) >= 2 * size]
    for size in sizes:
        yield str(size), {"n_per_class": np.minimum(size, counts - 1)}
    tail = np.minimum(long_tail(len(counts), sizes[-1]), counts - 1)
    yield f"{tail.min()} to {sizes[-1]}", {"n_per_class": tail}


def run(sets: dict[tuple[str, str], Loader], n_splits: int) -> Results:
    """Metrics of every method in every setting, and what was recommended."""
    results: Results = defaultdict(dict)
    for (kind, data), load in sets.items():
        rows, labels = load()
        for size, plan in plans(labels):
            calibration = labels[calibration_split(labels, 0, 0, **plan)]
            comparison = compare(rows, labels, n_splits=n_splits, methods=METHODS, **plan)
            for row in comparison.rows():
                cell = results[Setting(kind, data, size, row["score"])]
                cell[row["method"]] = row
                cell["advice"] = recommend(calibration, n_classes=rows.shape[1]).method
            for score in ("softmax", "aps", "raps"):
                cell = results[Setting(kind, data, size, score)]
                gaps = "".join(f"{cell[m]['true_gap']:8.2f}" for m in METHODS)
                print(f"{data:20}{size:16}{score:8}{gaps}", flush=True)
    return results


def ratio(cells: list[dict[str, Any]], rival: str, metric: str) -> float:
    """Geometric mean over settings of POOLED's metric over a rival's; a gap counts 0.5 at least."""
    own, other = (
        np.maximum([cell[method][metric] for cell in cells], 0.5) for method in ("pooled", rival)
    )
    return float(np.exp(np.mean(np.log(own / other))))


def lowest(cell: dict[str, Any], metric: str, methods: tuple[str, ...] = METHODS) -> str:
    """The method with the lowest metric."""
    return min(methods, key=lambda method: cell[method][metric])


def says_something(cell: dict[str, Any]) -> tuple[str, ...]:
    """Return the methods that cost less than sets of all classes."""
    return tuple(method for method in METHODS if not cell[method]["costs_too_much"])


def summary(results: Results) -> str:
    """One line per kind of data: how POOLED compares."""
    lines = [
        "| data | settings | TrueGap below STANDARD | CLASSWISE | CLUSTERED | cost below STANDARD "
        "| CLASSWISE | CLUSTERED | lowest cost in | lowest TrueGap in | coverage |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    kinds = ["all", *dict.fromkeys(setting.kind for setting in results)]
    for kind in kinds:
        cells = [cell for setting, cell in results.items() if kind in ("all", setting.kind)]
        below = [
            f"{100 * (1 - ratio(cells, rival, metric)):.0f}%"
            for metric in ("true_gap", "cost")
            for rival in RIVALS
        ]
        cheapest = sum(lowest(cell, "cost") == "pooled" for cell in cells)
        evenest = sum(lowest(cell, "true_gap", says_something(cell)) == "pooled" for cell in cells)
        coverage = [cell["pooled"]["marginal_coverage"] for cell in cells]
        lines.append(
            f"| {kind} | {len(cells)} | {' | '.join(below)} | {cheapest} | {evenest} | "
            f"{min(coverage):.3f} to {max(coverage):.3f} |"
        )
    cells = list(results.values())
    covgap = sum(lowest(cell, "covgap") == "pooled" for cell in cells)
    silent = sum(len(says_something(cell)) < len(METHODS) for cell in cells)
    regrets = [
        cell[cell["advice"]]["cost"] / cell[lowest(cell, "cost")]["cost"] - 1 for cell in cells
    ]
    lines += [
        "",
        f"POOLED has the lowest CovGap, noise included, in {covgap} of {len(cells)} settings. In "
        f"{silent} settings the sets of some method say nothing, and its gap is left out. "
        f"Following `recommend` costs {100 * np.mean(regrets):.1f}% on average and "
        f"{100 * max(regrets):.0f}% at most above the lowest cost of the four.",
        "",
        "POOLED has not the lowest TrueGap of those whose sets say something in:",
        "",
    ]
    for setting, cell in results.items():
        best = lowest(cell, "true_gap", says_something(cell))
        if best != "pooled":
            lines.append(
                f"- {setting.data}, {setting.size}, {setting.score}: {best} "
                f"{cell[best]['true_gap']:.1f} ({cell[best]['avg_size']:.1f}), pooled "
                f"{cell['pooled']['true_gap']:.1f} ({cell['pooled']['avg_size']:.1f})"
            )
    return "\n".join(lines) + "\n"


def table(results: Results) -> str:
    """Every setting in Markdown."""
    lines = [
        "| data | rows per class | score | " + " | ".join(method.upper() for method in METHODS),
        "|---|---|---|" + "---|" * len(METHODS) + "---|",
    ]
    lines[0] += " | coverage |"
    for setting, cell in results.items():
        shown = []
        for method in METHODS:
            found = cell[method]
            gap = f"{found['true_gap']:.1f}, {found['cost']:.4g} ({found['avg_size']:.1f})"
            shown.append(f"**{gap}**" if method == lowest(cell, "cost") else gap)
        lines.append(
            f"| {setting.data} | {setting.size} | {setting.score} | "
            f"{' | '.join(shown)} | {cell['pooled']['marginal_coverage']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def pareto(sets: dict[tuple[str, str], Loader], n_splits: int, path: Path) -> None:
    """TrueGap against AvgSize of every method, with 20 rows per class and the softmax score."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    n_columns = 3
    n_rows = -(-len(sets) // n_columns)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(11, 2.9 * n_rows), layout="constrained", squeeze=False
    )
    for ax in axes.flat[len(sets) :]:
        ax.set_axis_off()
    for ax, ((_, data), load) in zip(axes.flat, sets.items(), strict=False):
        rows, labels = load()
        size, plan = next((n, p) for n, p in plans(labels) if n.startswith("20"))
        methods = (*METHODS, *RIVALS_SINCE)
        found = compare(
            rows, labels, methods=methods, scores=["softmax"], n_splits=n_splits, **plan
        )
        points = sorted((c.mean("avg_size"), c.mean("true_gap")) for c in found.candidates)
        front = [p for k, p in enumerate(points) if all(p[1] < q[1] for q in points[:k])]
        ax.step(*zip(*front, strict=True), where="post", color="0.8", zorder=0)
        for number, candidate in enumerate(found.candidates):
            at = candidate.mean("avg_size"), candidate.mean("true_gap")
            ax.plot(*at, "o", color=f"C{number}", label=candidate.method)
        ax.set(xscale="log", title=f"{data}, {size}", xlabel="AvgSize", ylabel="TrueGap")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
        print(data, {c.method: (c.mean("true_gap"), c.mean("avg_size")) for c in found.candidates})
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run the study and write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seen", nargs="*", type=Path, default=[], help="data known before")
    parser.add_argument("--fresh", nargs="*", type=Path, default=[], help="data not known before")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the tables")
    parser.add_argument("--n-splits", type=int, default=10)
    options = parser.parse_args()
    sets: dict[tuple[str, str], Loader] = {("seen", "languages"): languages}
    for path in options.seen:
        sets["seen", path.stem] = lambda path=path: from_file(path)
    for path in options.fresh:
        sets["fresh", path.stem] = lambda path=path: from_file(path)
    for name in TWINS:
        sets["twins", name] = lambda name=name: from_twin(name)
    options.output.mkdir(parents=True, exist_ok=True)
    pareto(sets, options.n_splits, options.output / "pareto.png")
    results = run(sets, options.n_splits)
    (options.output / "summary.md").write_text(summary(results), encoding="utf-8")
    (options.output / "settings.md").write_text(table(results), encoding="utf-8")
    cells = [{**setting._asdict(), **cell} for setting, cell in results.items()]
    (options.output / "results.json").write_text(json.dumps(cells, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
