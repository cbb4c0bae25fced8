"""Compare the results with bars that were set before measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log

from benchmarks.harness import Record
from benchmarks.plan import OURSELVES, PEERS

Measured = tuple[float, str]  # the number, and a note
STEPS = ("calibrate", "predict")


class NotMeasuredError(Exception):
    """There is no number to compare with the bar."""


def judge(results: Record) -> list[Record]:
    """Return one record per bar: job, bar, number measured, met or not (None: no number)."""
    records = []
    for job, sense, limit, measure, arguments in _bars(results):
        record: Record = {"job": job, "bar": f"{sense} {limit:g}"}
        try:
            number, note = measure(results, *arguments)
            met = number >= limit if sense == "at least" else number <= limit
            record |= {"measured": number, "met": met, "note": note}
        except NotMeasuredError as reason:
            record |= {"measured": None, "met": None, "note": str(reason)}
        records.append(record)
    return records


def _bars(results: Record) -> Iterator[tuple[str, str, float, Callable[..., Measured], tuple]]:
    """Yield what is measured, "at least" or "at most", the limit, and the function."""
    least, most = "at least", "at most"
    for method, peer, limit in (("clustered", "torchcp", 60), ("standard", "mapie", 40)):
        name = {"torchcp": "TorchCP", "mapie": "MAPIE"}[peer]
        job = f"{method.upper()}, APS, calibrate + predict, against {name}"
        yield job, least, limit, _times_faster, (method, "aps", "total", (peer,))
    for method in ("standard", "classwise"):
        job = f"{method.upper()}, softmax, predict, against the fastest peer"
        yield job, least, 8, _times_faster, (method, "softmax", "predict", PEERS)
    for what, step, limit in (
        ("true-label APS score", "true_label_score", 2),
        ("APS prediction sets", "predict", 10),
    ):
        for threads in (1, 2):
            job = f"{what}, over one plain read, threads: {threads}"
            yield job, most, limit, _per_plain_read, (step, threads)
    memory = results["memory"]
    shape = f"{memory['rows']:,} x {memory['classes']}" if "rows" in memory else "large file"
    job = f"peak memory over the input, {shape} from a memory map, MB"
    yield job, most, 300, _peak_megabytes, ()
    yield "two threads against one, APS, calibrate + predict", least, 1.7, _two_threads, ()
    for axis in ("rows", "classes"):
        job = f"cost ~ ({axis})^x, calibrate + predict: x over the largest tenfold"
        yield job, most, 1.1, _growth, (axis,)
    for rows, classes, limit in ((50_000, 1_000, 3.0), (1_000_000, 10_000, 5.0)):
        job = f"POOLED, fit_scores, {rows:,} x {classes:,}, over CLUSTERED's"
        yield job, most, limit, _fit_ratio, (rows, classes)
    for score in ("softmax", "aps"):
        for peer in ("torchcp", "mapie"):
            job = f"predict_set of one row, {score}, against {peer}"
            yield job, least, 1, _one_row, (score, peer)
    for step, limit in (("APS sets", 6.0), ("APS sets, CLASSWISE", 12.0)):
        job = f"{step}, one thread, AVX2, over one plain read"
        yield job, most, limit, _selection, (step, "per_plain_read")
    for step in ("SAPS sets", "PAS sets", "RC3P sets"):
        job = f"{step}, one thread, AVX2, over APS sets"
        yield job, most, 2, _selection, (step, "per_aps")


def _checked(record: Record) -> Record:
    if "error" in record:
        raise NotMeasuredError(record["error"])
    return record


def _times_faster(
    results: Record, method: str, score: str, step: str, peers: tuple[str, ...]
) -> Measured:
    """Find the smallest ratio over the peers, and its peer."""
    found = [
        (record["ratio"][step], record["contestant"])
        for record in results["comparisons"]
        if (record["method"], record["score"]) == (method, score)
        and record["contestant"] in peers
        and "ratio" in record
    ]
    if not found:
        raise NotMeasuredError("no peer ran")
    return min(found)


def _on_threads(results: Record, threads: int) -> Record:
    for record in results["threads"]:
        if record["threads"] == threads and "error" not in record:
            return record
    cores = results["machine"]["cores"]
    raise NotMeasuredError(f"no run on {threads} threads; the machine has {cores}")


def _per_plain_read(results: Record, step: str, threads: int) -> Measured:
    record = _on_threads(results, threads)
    milliseconds = 1e3 * record[f"{step}_seconds"], 1e3 * record["plain_read_seconds"]
    note = f"{milliseconds[0]:.1f} ms against {milliseconds[1]:.1f} ms"
    if step == "predict":
        note += f", average size {record['average_size']:.1f}"
    return record[f"{step}_per_plain_read"], note


def _peak_megabytes(results: Record) -> Measured:
    memory = _checked(results["memory"])
    if memory["peak_private_bytes"] is None:
        raise NotMeasuredError("the system does not report private memory")
    return memory["peak_private_bytes"] / 1e6, f"the file has {memory['input_bytes'] / 1e9:.2f} GB"


def _cost(record: Record) -> float:
    return float(sum(record[f"{step}_seconds"] for step in STEPS))


def _two_threads(results: Record) -> Measured:
    one, two = _on_threads(results, 1), _on_threads(results, 2)
    gain = {s: one[f"{s}_seconds"] / two[f"{s}_seconds"] for s in (*STEPS, "plain_read")}
    note = "{calibrate:.2f} and {predict:.2f}; a plain read gains {plain_read:.2f}"
    return _cost(one) / _cost(two), note.format(**gain)


def _growth(results: Record, axis: str) -> Measured:
    """Compute the exponent between the largest point and one about ten times smaller."""
    points = [point for point in results["scaling"][axis] if "error" not in point]
    if len(points) < 2:
        raise NotMeasuredError("too few points")
    last = points[-1]
    first = min(points[:-1], key=lambda point: abs(log(last[axis] / point[axis] / 10)))
    exponent = log(_cost(last) / _cost(first)) / log(last[axis] / first[axis])
    return exponent, f"from {first[axis]:,} to {last[axis]:,} {axis}"


def _fit_ratio(results: Record, rows: int, classes: int) -> Measured:
    for each in results["everyday"]["fits"]:
        if (each["rows"], each["classes"]) == (rows, classes):
            _checked(each)
            pooled, clustered = 1e3 * each["pooled_seconds"], 1e3 * each["clustered_seconds"]
            return each["ratio"], f"{pooled:.0f} ms against {clustered:.0f} ms"
    raise NotMeasuredError("not part of a small run")


def _one_row(results: Record, score: str, peer: str) -> Measured:
    found = results["everyday"]["one_row"][score]
    if peer not in found:
        raise NotMeasuredError(f"{peer} did not run")
    theirs = _checked(found[peer])
    microseconds = 1e6 * found[OURSELVES]["seconds"], 1e6 * theirs["seconds"]
    return theirs["ratio"], f"{microseconds[0]:.3g} microseconds against {microseconds[1]:.3g}"


def _selection(results: Record, step: str, ratio: str) -> Measured:
    found = _checked(results["everyday"]["selections"])
    if found["instructions"] != "avx2":
        raise NotMeasuredError(f"this machine has no AVX2 but {found['instructions']}")
    each = found["steps"][step]
    return each[ratio], f"{1e3 * each['seconds']:.1f} ms"
