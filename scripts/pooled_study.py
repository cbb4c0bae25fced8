"""Compare POOLED with other methods on many data sets: the study behind docs/research/pooled.md.

    python scripts/pooled_study.py --development FILE.npz ... --held-out FILE.npz ... -o FOLDER

The bundled languages and the simulated data sets are always included. Files contain `labels`, and
`probs` or `quantized_logits` with `zero` and `scale`. A file with outputs that never occur is used
twice, with all outputs and with the classes that occur. *Development* files were used to develop
the method, *held-out* files were not. Each data set is calibrated with 10, 20 and 50 examples per
class, and with a long tail: its own if its class sizes differ widely, else class sizes that
decrease geometrically from 50 to 1. Where outputs never occur, rows are drawn at random.

It writes `settings.csv`, `summary.md`, `frontier.png` and `variants.csv` (other parameters of
POOLED, on real data). With ``--before CSV``, the settings of an earlier version, it writes the
ratios to these (`before.md`).
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover import EvencoverWarning, PooledPredictor, compare
from evencover.data import SIMULATED, load_languages, load_simulated
from evencover.predictors import make_predictor

SIZES = (10, 20, 50)
OTHERS = ("standard", "classwise", "clustered", "interpolated", "fuzzy", "macro", "rc3p")
METHODS = (*OTHERS, "pooled")
SCORES = ("softmax", "aps", "raps")
AS_PUBLISHED: Any = {"keep_top": False}  # sets as their authors define them
MOST_ROWS = 60_000  # of a data set, by default; simulated ones have up to 1.3 million
METRICS = ("true_gap", "cost", "avg_size", "marginal_coverage")
FRONTIER_COLUMNS = 4
VARIANTS: dict[str, dict[str, Any]] = {
    "`floor=None`": {"floor": None},
    "`floor=0.8`": {"floor": 0.8},
    "`shared=0`": {"shared": 0},
    "`shared=0.2`": {"shared": 0.2},
    "c = 30": {"strength": 30},
    "c = 100": {"strength": 100},
    "c = infinity": {"strength": np.inf},
    "`split='holdout'`": {"split": "holdout"},
}


class Setting(NamedTuple):
    """The type of data, the data set, examples per class, and the score."""

    kind: str
    data: str
    size: str
    score: str


Row = dict[str, Any]
Results = dict[Setting, dict[str, Row]]
Loader = Callable[[], tuple[Any, Any]]


def from_file(path: Path, most_rows: int = MOST_ROWS) -> tuple[Any, Any]:
    """Read probabilities and labels; of many rows, choose some at random."""
    with np.load(path, allow_pickle=False) as file:
        labels = file["labels"].astype(np.int64)
        chosen = np.random.default_rng(0).permutation(len(labels))[:most_rows]
        if "probs" in file:
            return file["probs"][chosen], labels[chosen]
        logits = (file["quantized_logits"][chosen] - float(file["zero"])) * float(file["scale"])
        rows = np.exp(logits - logits.max(axis=1, keepdims=True))
        return rows / rows.sum(axis=1, keepdims=True), labels[chosen]


def from_occurring(path: Path, most_rows: int) -> tuple[Any, Any]:
    """Read a file without the outputs that never occur."""
    rows, labels = from_file(path, most_rows)
    occurring, labels = np.unique(labels, return_inverse=True)
    rows = rows[:, occurring]
    return rows / rows.sum(axis=1, keepdims=True), labels


def loaders(path: Path, most_rows: int) -> dict[str, Loader]:
    """Return how to load the data sets of a file, by name."""
    found: dict[str, Loader] = {path.stem: lambda: from_file(path, most_rows)}
    rows, labels = from_file(path, most_rows)
    if len(np.unique(labels)) < rows.shape[1]:
        found[f"{path.stem}, occurring"] = lambda: from_occurring(path, most_rows)
    return found


def simulated(name: str, most_rows: int) -> tuple[Any, Any]:
    """Return the first rows of a simulated data set, which are in random order."""
    rows, labels, n_rows = [], [], 0
    for block in load_simulated(name).blocks():
        rows.append(np.array(block.rows))
        labels.append(np.asarray(block.labels))
        n_rows += len(block.rows)
        if n_rows >= most_rows:
            break
    return np.concatenate(rows), np.concatenate(labels)


def languages() -> tuple[Any, Any]:
    """Return the bundled data set."""
    bundled = load_languages()
    return bundled.probabilities, bundled.labels


def long_tail(n_classes: int, most: int, seed: int = 0) -> Any:
    """Draw class sizes that decrease geometrically from `most` to 1; classes in random order."""
    share = np.random.default_rng(seed).permutation(np.linspace(0, 1, n_classes))
    return np.maximum(1, np.round(most ** (1 - share))).astype(int)


def plans(labels: Any, n_classes: int) -> Iterator[tuple[str, Any]]:
    """Yield each sampling of calibration rows: its name, and sizes for `compare`."""
    counts = np.bincount(labels, minlength=n_classes)
    seen = counts[counts > 0]
    if seen.max() > 10 * seen.min() or len(seen) < n_classes:
        for size in SIZES:
            share = size * len(seen) / len(labels)
            if share <= 0.5:
                yield f"{size} on average", share
        return
    sizes = [size for size in SIZES if np.median(seen) >= 2 * size]
    for size in sizes:
        yield str(size), np.clip(counts - 1, 0, size)
    tail = np.minimum(long_tail(n_classes, sizes[-1]), np.maximum(counts - 1, 0))
    yield f"1 to {sizes[-1]}", tail


def run(sets: dict[tuple[str, str], Loader], n_splits: int, folder: Path) -> Results:
    """Compute the metrics of every method in every setting, and write them as they come."""
    results: Results = defaultdict(dict)
    with (folder / "settings.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*Setting._fields, "method", *METRICS])
        for (kind, data), load in sets.items():
            rows, labels = load()
            methods = [make_predictor(method, **AS_PUBLISHED) for method in METHODS]
            for size, sizes in plans(labels, rows.shape[1]):
                options: Any = {"n_splits": n_splits, "calibration_sizes": sizes}
                found = compare(rows, labels, methods=methods, scores=SCORES, **options)
                for row in found.rows():
                    setting = Setting(kind, data, size, row["score"])
                    results[setting][row["method"]] = row
                    values = [f"{row[metric]:.4f}" for metric in METRICS]
                    writer.writerow([*setting, row["method"], *values])
                file.flush()
                print(data, size, flush=True)
    return results


def ratio(cells: list[dict[str, Row]], other: str, metric: str, method: str = "pooled") -> float:
    """Return the geometric mean of a method's metric over another's; gaps are at least 0.5."""
    least = 0.5 if metric == "true_gap" else 0.0
    values, others = (
        np.maximum([cell[name][metric] for cell in cells], least) for name in (method, other)
    )
    return float(np.exp(np.mean(np.log(values / others))))


def wins(cells: list[dict[str, Row]], metric: str) -> int:
    """Count the settings in which POOLED is lowest among methods that cost less than K labels."""
    count = 0
    for cell in cells:
        useful = [method for method in METHODS if not cell[method]["costs_too_much"]]
        count += min(useful, key=lambda method: cell[method][metric]) == "pooled"
    return count


def summary(results: Results) -> str:
    """Write how POOLED compares with each method, by type of data."""
    lines = []
    for metric in ("cost", "true_gap", "avg_size"):
        lines += [f"{metric}:", "", f"| data | settings | lowest | {' | '.join(OTHERS)} |"]
        lines.append("|---|---|---|" + "---|" * len(OTHERS))
        for kind in ["all", *dict.fromkeys(setting.kind for setting in results)]:
            cells = [cell for setting, cell in results.items() if kind in ("all", setting.kind)]
            below = [f"{100 * (ratio(cells, other, metric) - 1):+.0f}%" for other in OTHERS]
            lines.append(f"| {kind} | {len(cells)} | {wins(cells, metric)} | {' | '.join(below)} |")
        lines.append("")
    coverage = [cell["pooled"]["marginal_coverage"] for cell in results.values()]
    lines.append(f"overall coverage of POOLED: {min(coverage):.3f} to {max(coverage):.3f}")
    return "\n".join(lines) + "\n"


def against(before: Path, results: Results) -> str:
    """Write POOLED's cost and TrueGap relative to an earlier version, by data set."""
    with before.open(newline="") as file:
        earlier = {
            Setting(*(row[field] for field in Setting._fields)): row
            for row in csv.DictReader(file)
            if row["method"] == "pooled"
        }
    lines = ["| data | settings | cost | TrueGap | AvgSize |", "|---|---|---|---|---|"]
    for data in dict.fromkeys(setting.data for setting in results):
        cells = [
            {"pooled": cell["pooled"], "before": {m: float(earlier[setting][m]) for m in METRICS}}
            for setting, cell in results.items()
            if setting.data == data and setting in earlier
        ]
        if cells:
            metrics = ("cost", "true_gap", "avg_size")
            ratios = " | ".join(f"{ratio(cells, 'before', metric):.3f}" for metric in metrics)
            lines.append(f"| {data} | {len(cells)} | {ratios} |")
    return "\n".join(lines) + "\n"


def draw_frontier(results: Results, path: Path) -> None:
    """Draw TrueGap against AvgSize with 20 examples per class and softmax scores."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    chosen = {
        setting: cell
        for setting, cell in results.items()
        if setting.score == "softmax" and setting.size.split()[0] == "20"
    }
    n_rows = -(-len(chosen) // FRONTIER_COLUMNS)
    size = (3 * FRONTIER_COLUMNS, 2.7 * n_rows)
    figure, axes = plt.subplots(n_rows, FRONTIER_COLUMNS, figsize=size, layout="constrained")
    for ax in axes.flat[len(chosen) :]:
        ax.set_axis_off()
    for ax, (setting, cell) in zip(axes.flat, chosen.items(), strict=False):
        for number, method in enumerate(METHODS):
            row, is_ours = cell[method], method == "pooled"
            style = {"marker": "D" if is_ours else "o", "color": "k" if is_ours else f"C{number}"}
            ax.plot(row["avg_size"], row["true_gap"], linestyle="none", label=method, **style)
        ax.set(xscale="log", title=setting.data, xlabel="AvgSize", ylabel="TrueGap", ylim=0)
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(METHODS), frameon=False)
    figure.savefig(path, dpi=110)


def variants(sets: dict[tuple[str, str], Loader], n_splits: int, path: Path) -> None:
    """Write cost and TrueGap of other parameters of POOLED over those of the default.

    They are geometric means over data sets and scores with 20 examples per class.
    """
    cells: dict[str, list[dict[str, Row]]] = defaultdict(list)
    for (kind, _), load in sets.items():
        rows, labels = load()
        sizes = next(sizes for size, sizes in plans(labels, rows.shape[1]) if size[:2] == "20")
        by_variant = {
            name: compare(
                rows,
                labels,
                methods=[PooledPredictor(**AS_PUBLISHED, **parameters)],
                scores=SCORES,
                n_splits=n_splits,
                calibration_sizes=sizes,
            ).rows()
            for name, parameters in {"default": {}, **VARIANTS}.items()
        }
        for number in range(len(SCORES)):
            cells[kind].append({name: found[number] for name, found in by_variant.items()})
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        titles = [f"{kind}: {name}" for kind in cells for name in ("cost", "TrueGap", "AvgSize")]
        writer.writerow(["variant", *titles])
        for name in VARIANTS:
            ratios = [
                f"{ratio(of_kind, 'default', metric, name):.4f}"
                for of_kind in cells.values()
                for metric in ("cost", "true_gap", "avg_size")
            ]
            writer.writerow([name, *ratios])


def main() -> None:
    """Run the study and write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--development", nargs="*", type=Path, default=[])
    parser.add_argument("--held-out", nargs="*", type=Path, default=[])
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the tables")
    parser.add_argument("--n-splits", type=int, default=10)
    parser.add_argument("--before", type=Path, help="settings.csv of an earlier version")
    parser.add_argument("--most-rows", type=int, default=MOST_ROWS, help="of a data set")
    options = parser.parse_args()
    most_rows = options.most_rows
    sets: dict[tuple[str, str], Loader] = {("development", "languages"): languages}
    for kind, paths in (("development", options.development), ("held-out", options.held_out)):
        for path in paths:
            sets.update({(kind, data): load for data, load in loaders(path, most_rows).items()})
    for name in SIMULATED:
        sets["simulated", name] = lambda name=name: simulated(name, most_rows)
    options.output.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", EvencoverWarning)  # few examples of some classes are the point
    results = run(sets, options.n_splits, options.output)
    (options.output / "summary.md").write_text(summary(results), encoding="utf-8")
    if options.before:
        (options.output / "before.md").write_text(against(options.before, results))
    draw_frontier(results, options.output / "frontier.png")
    real = {key: load for key, load in sets.items() if key[0] != "simulated"}
    variants(real, options.n_splits, options.output / "variants.csv")


if __name__ == "__main__":
    main()
