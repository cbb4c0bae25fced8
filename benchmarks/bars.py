"""The bars that were set before anything was measured, and whether they are met."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import log

from benchmarks.harness import Record
from benchmarks.plan import OURSELVES, PEERS

# What is measured; "at least" or "at most"; how much; and the number with a note.
Bar = tuple[str, str, float, Callable[[], tuple[float, str]]]


class NotMeasuredError(Exception):
    """There is no number to hold against the bar."""


def judge(results: Record) -> list[Record]:
    """One record per bar: job, what is asked, what was measured, met or not (None: no number)."""
    bars: list[Bar] = [
        (
            "CLUSTERED, APS, calibrate + predict, against TorchCP",
            "at least",
            60,
            lambda: _times_faster(results, "clustered", "aps", "total", ["torchcp"]),
        ),
        (
            "STANDARD, APS, calibrate + predict, against MAPIE",
            "at least",
            40,
            lambda: _times_faster(results, "standard", "aps", "total", ["mapie"]),
        ),
        *(
            (
                f"{method.upper()}, softmax, predict, against the fastest peer",
                "at least",
                8,
                lambda method=method: _times_faster(results, method, "softmax", "predict", PEERS),
            )
            for method in ("standard", "classwise")
        ),
        *(
            (
                f"{what}, over one plain read, threads: {threads}",
                "at most",
                limit,
                lambda step=step, threads=threads: _per_plain_read(results, step, threads),
            )
            for what, step, limit in (
                ("true-label APS score", "true_label_score", 2),
                ("APS prediction sets", "predict", 10),
            )
            for threads in (1, 2)
        ),
        (
            f"peak memory over the input, {_large_shape(results)} from a memory map, MB",
            "at most",
            300,
            lambda: _peak_megabytes(results),
        ),
        (
            "two threads against one, APS, calibrate + predict",
            "at least",
            1.7,
            lambda: _two_threads(results),
        ),
        *(
            (
                f"cost ~ ({axis})^x, calibrate + predict: x over the largest tenfold",
                "at most",
                1.1,
                lambda axis=axis: _growth(results, axis),
            )
            for axis in ("rows", "classes")
        ),
    ]
    return [_verdict(*bar) for bar in (*bars, *everyday_bars(results))]


def _verdict(
    job: str, sense: str, limit: float, measure: Callable[[], tuple[float, str]]
) -> Record:
    record: Record = {"job": job, "bar": f"{sense} {limit:g}"}
    try:
        measured, note = measure()
    except NotMeasuredError as reason:
        return {**record, "measured": None, "met": None, "note": str(reason)}
    met = measured >= limit if sense == "at least" else measured <= limit
    return {**record, "measured": measured, "met": met, "note": note}


def _times_faster(
    results: Record, method: str, score: str, step: str, peers: Iterable[str]
) -> tuple[float, str]:
    """The smallest ratio over the peers that ran in full, and whose it is."""
    found = [
        (record["ratio"][step], record["contestant"])
        for record in results["comparisons"]
        if (record["method"], record["score"]) == (method, score)
        and record["contestant"] in peers
        and record["contestant"] != OURSELVES
        and "ratio" in record
        and record["extrapolated_from_rows"] is None
    ]
    if not found:
        raise NotMeasuredError("no peer ran")
    ratio, peer = min(found)
    return ratio, peer


def _on_threads(results: Record, threads: int) -> Record:
    for record in results["threads"]:
        if record["threads"] == threads and "error" not in record:
            return dict(record)
    raise NotMeasuredError(
        f"no run on {threads} threads; the machine has {results['machine']['cores']}"
    )


def _per_plain_read(results: Record, step: str, threads: int) -> tuple[float, str]:
    record = _on_threads(results, threads)
    milliseconds = 1e3 * record[f"{step}_seconds"], 1e3 * record["plain_read_seconds"]
    note = f"{milliseconds[0]:.1f} ms against {milliseconds[1]:.1f} ms"
    if step == "predict":
        note += f", average size {record['average_size']:.1f}"
    return record[f"{step}_per_plain_read"], note


def _large_shape(results: Record) -> str:
    memory = results["memory"]
    return f"{memory['rows']:,} x {memory['classes']}" if "rows" in memory else "large file"


def _peak_megabytes(results: Record) -> tuple[float, str]:
    memory = results["memory"]
    if "error" in memory or memory["peak_private_bytes"] is None:
        raise NotMeasuredError(memory.get("error", "the system does not tell private memory"))
    size = memory["input_bytes"] / 1e9
    return memory["peak_private_bytes"] / 1e6, f"the file has {size:.2f} GB"


def _two_threads(results: Record) -> tuple[float, str]:
    one, two = _on_threads(results, 1), _on_threads(results, 2)
    gain = {step: one[f"{step}_seconds"] / two[f"{step}_seconds"] for step in STEPS}
    read = one["plain_read_seconds"] / two["plain_read_seconds"]
    note = f"{gain['calibrate']:.2f} and {gain['predict']:.2f}; a plain read gains {read:.2f}"
    return _cost(one) / _cost(two), note


STEPS = ("calibrate", "predict")


def _cost(record: Record) -> float:
    return float(sum(record[f"{step}_seconds"] for step in STEPS))


def _growth(results: Record, axis: str) -> tuple[float, str]:
    """Exponent between the largest point and one about ten times smaller."""
    points = [point for point in results["scaling"][axis] if "error" not in point]
    if len(points) < 2:
        raise NotMeasuredError("too few points")
    last = points[-1]
    first = min(points[:-1], key=lambda point: abs(log(last[axis] / point[axis] / 10)))
    exponent = log(_cost(last) / _cost(first)) / log(last[axis] / first[axis])
    return exponent, f"from {first[axis]:,} to {last[axis]:,} {axis}; see the plot"


def everyday_bars(results: Record) -> list[Bar]:
    """Those of POOLED, compare, one row, and sets under other rules."""
    found = results["everyday"]
    return [
        *(
            (
                f"POOLED, fit_scores, {rows:,} x {classes:,}, over CLUSTERED's",
                "at most",
                limit,
                lambda rows=rows, classes=classes: _fit_ratio(found["fits"], rows, classes),
            )
            for rows, classes, limit in ((50_000, 1_000, 3.0), (1_000_000, 10_000, 5.0))
        ),
        *(
            (
                f"predict_set of one row, {score}, against {peer}",
                "at least",
                1.0,
                lambda score=score, peer=peer: _one_row(found["one_row"][score], peer),
            )
            for score in ("softmax", "aps")
            for peer in ("torchcp", "mapie")
        ),
        *(
            (
                f"{step}, one thread, AVX2, over one plain read",
                "at most",
                limit,
                lambda step=step: _selection(found["selections"], step, "per_plain_read"),
            )
            for step, limit in (("APS sets", 6.0), ("APS sets, CLASSWISE", 12.0))
        ),
        *(
            (
                f"{step}, one thread, AVX2, over APS sets",
                "at most",
                2.0,
                lambda step=step: _selection(found["selections"], step, "per_aps"),
            )
            for step in ("SAPS sets", "PAS sets", "RC3P sets")
        ),
    ]


def _fit_ratio(fits: list[Record], rows: int, classes: int) -> tuple[float, str]:
    for each in fits:
        if (each["rows"], each["classes"]) == (rows, classes):
            if "error" in each:
                raise NotMeasuredError(each["error"])
            pooled, clustered = 1e3 * each["pooled_seconds"], 1e3 * each["clustered_seconds"]
            return each["ratio"], f"{pooled:.0f} ms against {clustered:.0f} ms"
    raise NotMeasuredError("not part of a small run")


def _one_row(found: Record, peer: str) -> tuple[float, str]:
    if peer not in found:
        raise NotMeasuredError(f"{peer} did not run")
    theirs, ours = found[peer], found[OURSELVES]
    if "error" in theirs:
        raise NotMeasuredError(theirs["error"])
    microseconds = 1e6 * ours["seconds"], 1e6 * theirs["seconds"]
    return theirs["ratio"], f"{microseconds[0]:.3g} microseconds against {microseconds[1]:.3g}"


def _selection(found: Record, step: str, ratio: str) -> tuple[float, str]:
    if "error" in found:
        raise NotMeasuredError(found["error"])
    if found["instructions"] != "avx2":
        raise NotMeasuredError(f"this machine has no AVX2 but {found['instructions']}")
    each = found["steps"][step]
    return each[ratio], f"{1e3 * each['seconds']:.1f} ms"
