"""Compare POOLED with other methods on many data sets: the study behind docs/research/pooled.md.

    python scripts/pooled_study.py --development FILE.npz ... --held-out FILE.npz ... -o FOLDER

The bundled languages and the simulated data sets are always included. Files contain `probs` and
`labels`. *Development* files were used to develop the method, *held-out* files were not. Each data
set is calibrated with 10, 20 and 50 examples per class, and with a long tail: its own if its class
sizes differ widely, else class sizes that decrease geometrically from 50 to 1. With ``--before
CSV``, compare with an earlier version setting by setting.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover import FuzzyPredictor, InterpolatedPredictor, compare
from evencover.data import SIMULATED, load_languages, load_simulated

SIZES = (10, 20, 50)
OTHERS = ("standard", "classwise", "clustered")
METHODS = (*OTHERS, "pooled")
# Methods proposed for long tails, each with the softmax score, and two with PAS.
LONG_TAIL = (
    *METHODS,
    InterpolatedPredictor(tau=0.9),
    InterpolatedPredictor(tau=0.99),
    FuzzyPredictor(),
    "rc3p",
    "macro",
)
WITH_PAS = ("standard", "pooled")
SIMULATED_ROWS = 200_000  # enough for testing; the data sets have up to 1.3 million
METRICS = ("true_gap", "cost", "avg_size", "marginal_coverage")


class Setting(NamedTuple):
    """The type of data, the data set, examples per class, and the score."""

    kind: str
    data: str
    size: str
    score: str


Row = dict[str, Any]
Results = dict[Setting, dict[str, Row]]
Loader = Callable[[], tuple[Any, Any]]


def from_file(path: Path) -> tuple[Any, Any]:
    """Read probabilities and labels."""
    with np.load(path, allow_pickle=False) as file:
        return file["probs"], file["labels"].astype(np.int64)


def simulated(name: str) -> tuple[Any, Any]:
    """Return the first rows of a simulated data set, which are in random order."""
    rows, labels, n_rows = [], [], 0
    for block in load_simulated(name).blocks():
        rows.append(np.array(block.rows))
        labels.append(np.asarray(block.labels))
        n_rows += len(block.rows)
        if n_rows >= SIMULATED_ROWS:
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


def has_long_tail(labels: Any) -> bool:
    """Return whether class sizes differ widely."""
    counts = np.bincount(labels)
    return bool(counts.max() > 10 * max(counts.min(), 1))


def plans(labels: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each sampling of calibration rows, with its arguments."""
    counts = np.bincount(labels)
    if has_long_tail(labels):
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
    """Compute the metrics of every method in every setting."""
    results: Results = defaultdict(dict)
    for (kind, data), load in sets.items():
        rows, labels = load()
        for size, plan in plans(labels):
            for row in compare(rows, labels, n_splits=n_splits, methods=METHODS, **plan).rows():
                results[Setting(kind, data, size, row["score"])][row["method"]] = row
            print(data, size, flush=True)
    return results


def ratio(cells: list[dict[str, Row]], other: str, metric: str) -> float:
    """Return the geometric mean of POOLED's metric over another's; gaps are at least 0.5."""
    least = 0.5 if metric == "true_gap" else 0.0
    pooled, others = (
        np.maximum([cell[method][metric] for cell in cells], least) for method in ("pooled", other)
    )
    return float(np.exp(np.mean(np.log(pooled / others))))


def wins(cells: list[dict[str, Row]], metric: str) -> int:
    """Count the settings in which POOLED is lowest among methods that cost less than K labels."""
    count = 0
    for cell in cells:
        useful = [method for method in METHODS if not cell[method]["costs_too_much"]]
        count += min(useful, key=lambda method: cell[method][metric]) == "pooled"
    return count


def summary(results: Results) -> str:
    """Write one line per type of data: how POOLED compares."""
    lines = [
        "| data | settings | TrueGap: STANDARD | CLASSWISE | CLUSTERED | cost: STANDARD "
        "| CLASSWISE | CLUSTERED | lowest cost | lowest TrueGap | coverage |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in ["all", *dict.fromkeys(setting.kind for setting in results)]:
        cells = [cell for setting, cell in results.items() if kind in ("all", setting.kind)]
        below = [
            f"{100 * (ratio(cells, other, metric) - 1):+.0f}%"
            for metric in ("true_gap", "cost")
            for other in OTHERS
        ]
        coverage = [cell["pooled"]["marginal_coverage"] for cell in cells]
        lines.append(
            f"| {kind} | {len(cells)} | {' | '.join(below)} | {wins(cells, 'cost')} | "
            f"{wins(cells, 'true_gap')} | {min(coverage):.3f} to {max(coverage):.3f} |"
        )
    return "\n".join(lines) + "\n"


def against(results: Results, before: Path) -> str:
    """Compare POOLED with its earlier results, setting by setting."""
    with before.open(newline="") as file:
        earlier = {Setting(*(r[k] for k in Setting._fields)): r for r in csv.DictReader(file)}
    lines = ["| data | settings | cost | TrueGap | AvgSize |", "|---|---|---|---|---|"]
    for kind in ["all", *dict.fromkeys(setting.kind for setting in results)]:
        pairs = [
            (cell["pooled"], earlier[setting])
            for setting, cell in results.items()
            if kind in ("all", setting.kind) and setting in earlier
        ]
        shown = []
        for metric, least in (("cost", 0.0), ("true_gap", 0.5), ("avg_size", 0.0)):
            new, old = (
                np.maximum([float(pair[side][metric]) for pair in pairs], least) for side in (0, 1)
            )
            logs = np.log(new / old)
            error = logs.std(ddof=1) / np.sqrt(len(logs))
            shown.append(f"{np.exp(logs.mean()):.4f} ({error:.4f})")
        lines.append(f"| {kind} | {len(pairs)} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def write_settings(results: Results, path: Path) -> None:
    """Write every setting and method as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*Setting._fields, "method", *METRICS])
        for setting, cell in results.items():
            for method in METHODS:
                values = [f"{cell[method][metric]:.4f}" for metric in METRICS]
                writer.writerow([*setting, method, *values])


def pareto(sets: dict[tuple[str, str], Loader], n_splits: int, folder: Path) -> None:
    """Draw TrueGap against AvgSize with 20 examples per class; tabulate the long tails."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    n_columns = 3
    n_rows = -(-len(sets) // n_columns)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(11, 2.9 * n_rows), layout="constrained", squeeze=False
    )
    for ax in axes.flat[len(sets) :]:
        ax.set_axis_off()
    tails: dict[str, dict[str, str]] = {}
    for ax, ((_, data), load) in zip(axes.flat, sets.items(), strict=False):
        rows, labels = load()
        size, plan = next((n, p) for n, p in plans(labels) if n.startswith("20"))
        options: Any = {"n_splits": n_splits, **plan}
        found = [
            *compare(rows, labels, methods=LONG_TAIL, scores=["softmax"], **options).candidates,
            *compare(rows, labels, methods=WITH_PAS, scores=["pas"], **options).candidates,
        ]
        names = [short_name(each.method, each.score) for each in found]
        values = [tuple(each.mean(metric) for metric in METRICS) for each in found]
        points = sorted((size, gap) for gap, _, size, _ in values)
        front = [p for k, p in enumerate(points) if all(p[1] < q[1] for q in points[:k])]
        ax.step(*zip(*front, strict=True), where="post", color="0.8", zorder=0)
        for name, (gap, _, avg_size, _) in zip(names, values, strict=True):
            color = f"C{names.index(name.removesuffix(' + PAS'))}"
            look = (
                {"marker": "s", "mfc": "none", "ms": 9} if name.endswith("PAS") else {"marker": "o"}
            )
            ax.plot(avg_size, gap, color=color, label=name, linestyle="none", **look)
        ax.set(xscale="log", title=f"{data}, {size}", xlabel="AvgSize", ylabel="TrueGap")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
        if has_long_tail(labels):
            for name, (gap, cost, avg_size, _) in zip(names, values, strict=True):
                shown = f"{gap:.1f}, {cost:.4g} ({avg_size:.1f})"
                tails.setdefault(name, {})[data] = shown
        print(data, flush=True)
    handles, legend = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, legend, loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(folder / "pareto.png", dpi=130)
    columns = list(next(iter(tails.values())))
    lines = [f"| method | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    lines += [
        f"| {name} | {' | '.join(cell[c] for c in columns)} |" for name, cell in tails.items()
    ]
    (folder / "long_tails.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def short_name(method: str, score: str) -> str:
    """Return the method with its distinguishing parameter, and PAS if it is the score."""
    name = method.removesuffix(")").replace("InterpolatedPredictor(", "interpolated ")
    name = name.replace("Predictor(", "").replace("Predictor", "").lower()
    if name == "interpolated ":
        name = "interpolated tau=0.9"
    return f"{name} + PAS" if score == "pas" else name


def main() -> None:
    """Run the study and write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--development", nargs="*", type=Path, default=[])
    parser.add_argument("--held-out", nargs="*", type=Path, default=[])
    parser.add_argument("--before", type=Path, help="settings.csv of an earlier version")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the tables")
    parser.add_argument("--n-splits", type=int, default=10)
    options = parser.parse_args()
    sets: dict[tuple[str, str], Loader] = {("development", "languages"): languages}
    for path in options.development:
        sets["development", path.stem] = lambda path=path: from_file(path)
    for path in options.held_out:
        sets["held-out", path.stem] = lambda path=path: from_file(path)
    for name in SIMULATED:
        sets["simulated", name] = lambda name=name: simulated(name)
    options.output.mkdir(parents=True, exist_ok=True)
    results = run(sets, options.n_splits)
    (options.output / "summary.md").write_text(summary(results), encoding="utf-8")
    write_settings(results, options.output / "settings.csv")
    if options.before is not None:
        (options.output / "before.md").write_text(against(results, options.before), "utf-8")
    pareto(sets, options.n_splits, options.output)


if __name__ == "__main__":
    main()
