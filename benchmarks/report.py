"""Format the results as Markdown."""

from __future__ import annotations

from benchmarks.harness import Record, table


def markdown(results: Record) -> str:
    """Format machine, comparisons, agreement, memory and single rows."""
    parts = [
        "# Benchmark",
        _machine(results),
        "## Against peers",
        _data(results["data"])
        + " Seconds and memory are medians; ratios are medians over pairs of neighboring runs. "
        "Peak memory is over the loaded input.",
        _comparisons(results["comparisons"]),
        "## Agreement of sets",
        "Without randomization, on the same calibration rows. A membership is one class in one "
        "row's set.",
        _agreement(results["agreement"]),
        "## A large file",
        _memory(results["memory"]),
        "## One row at a time",
        _one_row(results["everyday"]["one_row"]),
    ]
    if results["small"]:
        parts.insert(1, "**A small run: it checks the harness. Its times mean nothing.**")
    return "\n\n".join(parts) + "\n"


def _machine(results: Record) -> str:
    m = results["machine"]
    return (
        f"{m['date']}: {m['cpu']}, {m['cores']} cores, {m['memory_gigabytes']} GB, {m['system']}; "
        f"Python {m['python']}, NumPy {m['numpy']}, evencover {m['evencover']} with "
        f"**{m['kernels']}** kernels. Load before the run: {m['load_before']}."
    )


def _data(data: Record) -> str:
    return (
        f"{data['rows']:,} calibration and {data['rows']:,} test rows of float32, "
        f"{data['classes']:,} classes, alpha {data['alpha']}."
    )


def _comparisons(records: list[Record]) -> str:
    head = ["method", "score", "who", "version", "calibrate s", "predict s", "x calibrate"]
    head += ["x predict", "x total", "peak MB", "coverage", "size", "note"]
    return table(head, [_comparison(record) for record in records])


def _comparison(record: Record) -> list[str]:
    start = [record["method"].upper(), record["score"], record["contestant"]]
    if "error" in record:
        return [*start, *["–"] * 9, record["error"]]
    ratio = record.get("ratio")
    ratios = [f"{ratio[step]:.3g}" for step in ("calibrate", "predict", "total")] if ratio else []
    return [
        *start,
        record["version"],
        f"{record['calibrate_seconds']:.3f}",
        f"{record['predict_seconds']:.3f}",
        *(ratios or ["1"] * 3),
        f"{record['peak_bytes_over_input'] / 1e6:.0f}",
        f"{record['coverage']:.4f}",
        f"{record['average_size']:.2f}",
        record["note"],
    ]


def _agreement(records: list[Record]) -> str:
    head = ["method", "score", "who", "rows", "memberships", "differing", "largest threshold gap"]
    return table([*head, "agrees"], [_agreement_row(record) for record in records])


def _agreement_row(record: Record) -> list[str]:
    start = [record["method"].upper(), record["score"], record["contestant"]]
    if "error" in record:
        return [*start, *["–"] * 4, record["error"]]
    if "not_offered" in record:
        return [*start, *["–"] * 4, f"not offered: {record['not_offered']}"]
    gap = record.get("largest_threshold_difference")
    numbers = [f"{record[key]:,}" for key in ("rows", "memberships", "differing")]
    shown = "not shown by the peer" if gap is None else f"{gap:.1e}"
    return [*start, *numbers, shown, "yes" if record["agrees"] else "**no**"]


def _memory(memory: Record) -> str:
    if "error" in memory:
        return f"Large file: {memory['error']}."
    private = memory["peak_private_bytes"]
    return (
        f"CLUSTERED, APS, {memory['rows']:,} x {memory['classes']:,} from a memory map "
        f"({memory['input_bytes'] / 1e9:.2f} GB): calibrate {memory['calibrate_seconds']:.2f} s, "
        f"predict {memory['predict_seconds']:.2f} s, peak private memory over the start "
        f"{'unknown' if private is None else f'{private / 1e6:.0f} MB'}, coverage "
        f"{memory['coverage']:.4f}, average size {memory['average_size']:.2f}."
    )


def _one_row(found: Record) -> str:
    return table(
        ["score", "who", "seconds"],
        [
            [score, name, record.get("error") or f"{record['seconds']:.3g}"]
            for score, contestants in found.items()
            for name, record in contestants.items()
        ],
    )
