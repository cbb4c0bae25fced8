"""Compare POOLED with other methods on many data sets: the study behind docs/research/pooled.md.

python scripts/pooled_study.py FILE.npz ...    writes docs/evidence/pooled_*.csv and pooled.md, and
                                               pareto_light.svg and pareto_dark.svg in docs/images

The bundled data sets are always included. Files contain `labels`, and `probs` or `quantized_logits`
with `zero` and `scale`; their names decide whether the method was developed on them (`FILES`). A
file with outputs that never occur is used twice, with all outputs and with the classes that occur.
Each data set is calibrated with 10, 20 and 50 examples per class, and with a long tail: its own if
its class sizes differ widely, else class sizes that decrease geometrically from 50 to 1. Where
outputs never occur, rows are drawn at random.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from evidence_output import write_pictures, write_table, write_text

from evencover import EvencoverWarning, PooledPredictor
from evencover.comparison import Comparison
from evencover.comparison.compare import compare_on
from evencover.comparison.splits import Split, calibration_split, rows_of_each_class
from evencover.comparison.trials import ScoredRows
from evencover.data import as_source, load_filetypes, load_languages
from evencover.plotting import BLUE
from evencover.predictors import BasePredictor, make_predictor
from evencover.quantiles import ClassAlpha
from evencover.randomness import row_indices
from evencover.scores import make_score

FILES = {  # name of a file -> its title, and whether POOLED was developed on it
    "banking77_tfidf": ("BANKING77", "development"),
    "cifar100_densenet": ("CIFAR-100", "development"),
    "clinc150_minilm": ("CLINC150", "development"),
    "birds_inat": ("birds", "development"),
    "sections": ("sections", "held-out"),
    "maintainers": ("maintainers", "held-out"),
    "timezones": ("time zones", "held-out"),
}
SIZES = (10, 20, 50)
OTHERS = ("standard", "classwise", "clustered", "interpolated", "fuzzy", "macro", "rc3p")
METHODS = (*OTHERS, "pooled")
SCORES = ("softmax", "aps", "raps")
AS_PUBLISHED: Any = {"keep_top": False}  # sets as their authors define them
METRICS = ("covgap", "true_gap", "cost", "avg_size", "marginal_coverage")
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


# ---- data ----------------------------------------------------------------------------------------


def from_file(path: Path, most_rows: int = 60_000) -> tuple[Any, Any]:
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


def bundled(load: Callable[[], Any]) -> tuple[Any, Any]:
    """Return rows and labels of a bundled data set."""
    rows, labels, *_ = load()
    return rows, labels


def data_sets(paths: list[Path], most_rows: int) -> dict[tuple[str, str], Loader]:
    """Return how to load each data set, by type and title."""
    sets: dict[tuple[str, str], Loader] = {
        ("development", "languages"): partial(bundled, load_languages),
        ("development", "file types"): partial(bundled, load_filetypes),
    }
    for path in paths:
        title, kind = FILES[path.stem]
        rows, labels = from_file(path, most_rows)
        n_classes, n_outputs = len(np.unique(labels)), rows.shape[1]
        if n_classes < n_outputs:
            sets[kind, f"{title}, {n_outputs} outputs"] = partial(from_file, path, most_rows)
            title = f"{title}, {n_classes} classes"
        sets[kind, title] = partial(from_occurring, path, most_rows)
    return sets


def long_tail(n_classes: int, most: int, seed: int = 0) -> Any:
    """Draw class sizes that decrease geometrically from `most` to 1; classes in random order."""
    share = np.random.default_rng(seed).permutation(np.linspace(0, 1, n_classes))
    return np.maximum(1, np.round(most ** (1 - share))).astype(int)


def plans(labels: Any, n_classes: int) -> Iterator[tuple[str, Any]]:
    """Yield each sampling of calibration rows: its name, and a fraction or numbers by class."""
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


def compare_methods(
    rows: Any, labels: Any, methods: list[BasePredictor], size: Any, n_splits: int
) -> Comparison:
    """Compare methods; `size` is a fraction of all rows, or the examples of each class (K,)."""
    scored = ScoredRows(
        as_source(rows, labels), list(map(make_score, SCORES)), random_state=0, with_ranks=True
    )
    labels, splits = scored.labels, []
    for number in range(n_splits):
        if isinstance(size, float):
            chosen = calibration_split(labels, 0, number, size)
        else:
            ids = row_indices(0, len(labels)) + np.uint64(number << 40)
            chosen = rows_of_each_class(labels, size, 0, ids)
        splits.append(Split.of(len(chosen) / len(labels), number, chosen, len(labels)))
    alpha = ClassAlpha.of(0.1, None, scored.n_classes)
    return compare_on(scored, methods, splits, 0, alpha=alpha)


# ---- eight methods -------------------------------------------------------------------------------


def run(sets: dict[tuple[str, str], Loader], n_splits: int) -> Results:
    """Compute the metrics of every method in every setting."""
    results: Results = defaultdict(dict)
    for (kind, data), load in sets.items():
        rows, labels = load()
        methods = [make_predictor(method, **AS_PUBLISHED) for method in METHODS]
        for size, sizes in plans(labels, rows.shape[1]):
            for row in compare_methods(rows, labels, methods, sizes, n_splits).rows():
                results[Setting(kind, data, size, row["score"])][row["method"]] = row
            print(data, size, flush=True)
    return results


def settings_table(results: Results) -> list[list[str]]:
    """List every setting and method."""
    rows = [
        [*setting, method, *(f"{row[metric]:.4f}" for metric in METRICS)]
        for setting, cell in results.items()
        for method, row in cell.items()
    ]
    return [[*Setting._fields, "method", *METRICS], *rows]


def ratio(cells: list[dict[str, Row]], other: str, metric: str, method: str = "pooled") -> float:
    """Return the geometric mean of a method's metric over another's; gaps are at least 0.5."""
    least = 0.5 if metric == "true_gap" else 0.0
    values, others = (
        np.maximum([cell[name][metric] for cell in cells], least) for name in (method, other)
    )
    return float(np.exp(np.mean(np.log(values / others))))


def lowest(cell: dict[str, Row], metric: str) -> str:
    """Return the method with the lowest metric among those that cost less than K labels."""
    useful = [method for method in METHODS if not cell[method]["costs_too_much"]]
    return min(useful, key=lambda method: cell[method][metric])


def wins(cells: list[dict[str, Row]], metric: str) -> int:
    """Count the settings in which POOLED is lowest."""
    return sum(lowest(cell, metric) == "pooled" for cell in cells)


def of_kind(results: Results, kind: str) -> list[dict[str, Row]]:
    """Return the settings of development or held-out data, or all."""
    return [cell for setting, cell in results.items() if kind in ("all", setting.kind)]


def ratios_table(results: Results, metric: str) -> list[list[str]]:
    """Return a metric of POOLED relative to each method, by type of data."""
    rows = []
    for kind in ["all", *dict.fromkeys(setting.kind for setting in results)]:
        cells = of_kind(results, kind)
        relative = [f"{100 * (ratio(cells, other, metric) - 1):+.0f}%" for other in OTHERS]
        rows.append([kind, str(len(cells)), str(wins(cells, metric)), *relative])
    return [["data", "settings", "lowest", *(f"`{other}`" for other in OTHERS)], *rows]


def at_twenty(results: Results) -> dict[str, dict[str, Row]]:
    """Return the settings with softmax and 20 examples per class, by data set."""
    return {
        setting.data: cell
        for setting, cell in results.items()
        if setting.score == "softmax" and setting.size.split()[0] == "20"
    }


def methods_table(results: Results) -> list[list[str]]:
    """Return TrueGap and AvgSize of every method with softmax and 20 examples per class."""
    rows = [
        [data, *(f"{cell[m]['true_gap']:.1f}, {cell[m]['avg_size']:.3g}" for m in METHODS)]
        for data, cell in at_twenty(results).items()
    ]
    return [["data", *(f"`{method}`" for method in METHODS)], *rows]


def summary(results: Results) -> str:
    """Count the settings in which POOLED is lowest, in gaps before costs; state its coverage."""
    cells, held_out = list(results.values()), of_kind(results, "held-out")
    coverage = [cell["pooled"]["marginal_coverage"] for cell in cells]
    sentences = [
        f"Of eight methods, `pooled` had the lowest CovGap in {wins(cells, 'covgap')} of "
        f"{len(cells)} settings, and without sampling noise (TrueGap) in "
        f"{wins(cells, 'true_gap')}."
    ]
    costs = f"the lowest in {wins(cells, 'cost')} of {len(cells)} settings"
    if held_out:
        pairs = [(cell[lowest(cell, "true_gap")], cell["pooled"]) for cell in held_out]
        others = [(best, pooled) for best, pooled in pairs if best is not pooled]
        larger = sum(best["avg_size"] > pooled["avg_size"] for best, pooled in others)
        sentences.append(
            "On data not used to design it, apart from two constants, these are "
            f"{wins(held_out, 'covgap')} and {wins(held_out, 'true_gap')} of {len(held_out)}. "
            f"Where another method had the lowest TrueGap, its sets were larger in {larger} of "
            f"{len(others)}."
        )
        costs += f", and in {wins(held_out, 'cost')} of those {len(held_out)}"
    sentences += [
        f"Our own *cost* weighs labels against misses: `pooled` had {costs}.",
        f"Its overall coverage was {min(coverage):.1%} to {max(coverage):.1%}, "
        f"{np.mean(coverage):.1%} on average.",
    ]
    return fill(" ".join(sentences), 100)


def draw(results: Results, ink: str) -> Any:
    """Draw TrueGap against AvgSize with 20 examples per class and softmax scores."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    chosen = at_twenty(results)
    n_rows = -(-len(chosen) // 3)
    figure, axes = plt.subplots(n_rows, 3, figsize=(9, 2.5 * n_rows), layout="constrained")
    for ax in axes.flat[len(chosen) :]:
        ax.set_axis_off()
    marks = "sv^<>PXo"
    # Okabe and Ito's colors.
    colors = ("#E69F00", "#56B4E9", "#009E73", "#8c8c8c", "#D55E00", "#CC79A7", "#b8a800", BLUE)
    for number, (data, cell) in enumerate(chosen.items()):
        ax = axes.flat[number]
        for mark, color, method in zip(marks, colors, METHODS, strict=True):
            row, size = cell[method], 8 if method == "pooled" else 5
            x, y = row["avg_size"], row["true_gap"]
            ax.plot(x, y, mark, linestyle="none", label=method, color=color, markersize=size)
        ax.set(xscale="log", ylim=0)
        if number % 3 == 0:
            ax.set_ylabel("TrueGap")
        if number + 3 >= len(chosen):  # the last one of its column
            ax.set_xlabel("labels per set")
        ax.set_title(data, fontsize=11, color=ink)
        widest = max(row["avg_size"] for row in cell.values())
        subs = (1,) if widest > 200 * cell["pooled"]["avg_size"] else (1, 2, 5)
        ax.xaxis.set_major_locator(LogLocator(subs=subs, numticks=6))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
    handles, names = axes.flat[0].get_legend_handles_labels()
    is_full = len(chosen) == axes.size
    if is_full:
        figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    else:
        axes.flat[-1].legend(handles, names, loc="center right", ncols=2, frameon=False)
    return figure


# ---- other parameters, other folds ---------------------------------------------------------------


def variants_table(sets: dict[tuple[str, str], Loader], n_splits: int) -> list[list[str]]:
    """Return cost, TrueGap and AvgSize of other parameters of POOLED over those of the default.

    They are geometric means over data sets and scores with 20 examples per class.
    """
    cells: dict[str, list[dict[str, Row]]] = defaultdict(list)
    for (kind, _), load in sets.items():
        rows, labels = load()
        sizes = next(sizes for size, sizes in plans(labels, rows.shape[1]) if size[:2] == "20")
        by_variant = {
            name: compare_methods(
                rows, labels, [PooledPredictor(**AS_PUBLISHED, **parameters)], sizes, n_splits
            ).rows()
            for name, parameters in {"default": {}, **VARIANTS}.items()
        }
        for number in range(len(SCORES)):
            cells[kind].append({name: found[number] for name, found in by_variant.items()})
    titles = [f"{kind}: {name}" for kind in cells for name in ("cost", "TrueGap", "AvgSize")]
    table = [["variant", *titles]]
    for name in VARIANTS:
        ratios = [
            f"{ratio(of_one_kind, 'default', metric, name):.3f}"
            for of_one_kind in cells.values()
            for metric in ("cost", "true_gap", "avg_size")
        ]
        table.append([name, *ratios])
    return table


def stability_table(sets: dict[tuple[str, str], Loader], n_splits: int) -> list[list[str]]:
    """Return the share of sets that another random_state changes, with 4000 examples."""
    table = [["data", "sets that differ"]]
    for (_, data), load in sets.items():
        rows, labels = load()
        changed = []
        for seed in range(n_splits):
            order = np.random.default_rng(seed).permutation(len(labels))
            known, new = order[:4000], order[4000:8000]
            one, other = (
                PooledPredictor(random_state=state, **AS_PUBLISHED)
                .fit(rows[known], labels[known])
                .predict_set(rows[new])
                .to_lists()
                for state in (2 * seed, 2 * seed + 1)
            )
            changed.append(np.mean([a != b for a, b in zip(one, other, strict=True)]))
        table.append([data, f"{np.mean(changed):.1%}"])
    return table


def main() -> None:
    """Run the study and write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--n-splits", type=int, default=3)
    parser.add_argument("--most-rows", type=int, default=20_000, help="of a data set")
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)  # few examples of some classes are the point
    n_splits = options.n_splits
    sets = data_sets(options.files, options.most_rows)
    results = run(sets, n_splits)
    write_table("pooled_settings.csv", settings_table(results))
    write_table("pooled_cost.csv", ratios_table(results, "cost"))
    write_table("pooled_gap.csv", ratios_table(results, "true_gap"))
    write_table("pooled_methods.csv", methods_table(results))
    write_text("pooled.md", summary(results))
    write_pictures("pareto", lambda ink: draw(results, ink))
    write_table("pooled_stability.csv", stability_table(sets, n_splits))
    write_table("pooled_variants.csv", variants_table(sets, n_splits))


if __name__ == "__main__":
    main()
