"""Time each kernel relative to one plain read: ``python -m benchmarks.kernels``.

Prints nanoseconds per element and the ratio to the read (NumPy's float32 maximum over the same row
blocks, measured in turn with the kernel), on one thread and on two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.harness import on_blocks, row_blocks
from evencover._kernels import Draws, Thresholds, ThresholdTable, native, reference
from evencover.quantiles import GroupedScores, conformal_quantile
from evencover.randomness import RandomStream
from evencover.scores import APS, RAPS, Score, Softmax


def simulate(n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate softmax outputs whose APS sets have some 30 of 1000 classes, and labels."""
    rng = np.random.default_rng(0)
    rows = np.empty((n_rows, n_classes), dtype=np.float32)
    labels = np.empty(n_rows, dtype=np.int64)
    for block in row_blocks(rows):
        logits = rng.normal(size=rows[block].shape, scale=3.5).astype(np.float32)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        rows[block] = p
        below = p.cumsum(axis=1) < rng.random((len(p), 1))
        labels[block] = np.minimum(below.sum(axis=1), n_classes - 1)
    return rows, labels


def run(function: Callable[[slice], Any], rows: np.ndarray, threads: int, cpu_time: bool) -> float:
    """Measure seconds for one pass over all blocks."""
    clock = time.process_time if cpu_time else time.perf_counter
    start = clock()
    with ThreadPoolExecutor(threads) as pool:
        on_blocks(function, rows, pool if threads > 1 else None)
    return clock() - start


def in_turn(
    function: Callable[[slice], Any],
    rows: np.ndarray,
    threads: int,
    options: argparse.Namespace,
) -> tuple[float, float]:
    """Return best nanoseconds per element of the kernel and of the plain read."""
    kernel, read = np.inf, np.inf
    for _ in range(options.repeats):
        read = min(read, run(lambda block: rows[block].max(), rows, threads, options.cpu_time))
        kernel = min(kernel, run(function, rows, threads, options.cpu_time))
    return kernel / rows.size * 1e9, read / rows.size * 1e9


def draws_of(score: Score, block: slice) -> Draws:
    """Draw for every row, and a uniform if the score uses one."""
    return Draws(
        0,
        RandomStream.SCORE if score.is_random else None,
        RandomStream.EXACT,
        first=block.start or 0,
    )


def jobs(rows: np.ndarray, labels: np.ndarray) -> dict[str, Callable[[slice], Any]]:
    """Return the kernels with thresholds of the methods, fitted on the same rows."""
    n, k = rows.shape
    cluster_of_class = np.random.default_rng(1).integers(0, 8, size=k)
    half = rows[: n // 5].astype(np.float16).repeat(5, axis=0)
    logits = np.log(np.maximum(rows, 1e-30))
    sources = {"rows": rows, "half": half, "logits": logits}

    def job(kernel: Any, score: Score, *more: Any, source: str = "rows", **options: Any) -> Any:
        """Run the kernel on a block with its labels."""

        def work(block: slice) -> Any:
            given = (score.kernel, sources[source][block], draws_of(score, block))
            own = [labels[block] if each is labels else each for each in more]
            return kernel(*given, *own, logits=source == "logits", **options)

        return work

    def sets(score: Score, thresholds: Thresholds, source: str = "rows") -> Any:
        return job(native.prediction_sets, score, thresholds, source=source, keep_top=False)

    result: dict[str, Callable[[slice], Any]] = {}
    for name, score in [("softmax", Softmax()), ("APS", APS()), ("RAPS", RAPS())]:
        true_label = job(native.true_label_scores, score, labels)
        s = np.concatenate([true_label(block) for block in row_blocks(rows)])
        few = slice(0, 20 * k)
        standard = Thresholds(np.full(k, conformal_quantile(s, 0.1)))
        classwise = Thresholds(GroupedScores.sort(s[few], labels[few], k).quantiles(0.1))
        groups = GroupedScores.sort(s, cluster_of_class[labels], 8)
        many = [Thresholds(groups.quantiles(alpha)[cluster_of_class])
                for alpha in np.linspace(0.02, 0.3, 100)]  # fmt: skip
        sizes = sets(score, standard)(slice(0, max(1, n // 10)))[0]
        print(f"{name}: average size of the standard sets {sizes.mean():.1f}")
        result[f"true label, {name}"] = true_label
        result[f"sets, {name}, standard"] = sets(score, standard)
        result[f"sets, {name}, clustered"] = sets(
            score, Thresholds(groups.quantiles(0.1)[cluster_of_class])
        )
        result[f"sets, {name}, classwise"] = sets(score, classwise)
        result[f"coverage, {name}, standard"] = job(
            native.set_coverage, score, labels, standard, keep_top=False
        )
        result[f"sizes, {name}, 100 vectors"] = job(native.set_sizes, score, ThresholdTable(many))
        result[f"p-values, {name}"] = job(native.p_values, score, *groups, cluster_of_class)
        result[f"score matrix, {name}"] = job(native.score_matrix, score)
        if name == "APS":
            for what, source in (("float16", "half"), ("logits", "logits")):
                kernel = native.true_label_scores
                result[f"true label, APS, {what}"] = job(kernel, score, labels, source=source)
            result["sets, APS, standard, logits"] = sets(score, standard, "logits")
            result["true label, APS, numpy"] = job(reference.true_label_scores, score, labels)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="for a machine that is busy")
    parser.add_argument("--only", default="", help="only the jobs whose name contains this")
    parser.add_argument("--instructions", help="one of the instruction sets of this machine")
    options = parser.parse_args()
    native.INSTRUCTION_SET = options.instructions or native.INSTRUCTION_SET
    rows, labels = simulate(options.rows, options.classes)
    print(f"{options.rows} x {options.classes} float32, {native.INSTRUCTION_SET}")
    chosen = {name: job for name, job in jobs(rows, labels).items() if options.only in name}
    print(f"{'':32}{'1 thread':>20}{'2 threads':>20}{'speed-up':>10}")
    print(f"{'':32}{'ns/el':>10}{'x read':>10}{'ns/el':>10}{'x read':>10}")
    for name, job in chosen.items():
        one, read_one = in_turn(job, rows, 1, options)
        two, read_two = in_turn(job, rows, 2, options)
        print(
            f"{name:32}{one:10.3f}{one / read_one:10.2f}{two:10.3f}{two / read_two:10.2f}"
            f"{one / two:10.2f}"
        )


if __name__ == "__main__":
    main()
