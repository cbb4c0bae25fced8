"""Memory that CLUSTERED with APS needs for a file that is far larger."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.measure.loading import warm_up
from benchmarks.peak_memory import PeakMemory, PeakPrivateMemory


def memory(job: dict[str, Any]) -> dict[str, Any]:
    """Jobs have: arrays, alpha. Sets are counted block by block and not kept."""
    import evencover
    from benchmarks.contestants.evencover import Contestant

    rows = np.load(job["arrays"]["probabilities"], mmap_mode="r")
    labels = np.load(job["arrays"]["labels"])
    warm_up(Contestant("clustered", "aps", job["alpha"], randomize=True))
    predictor = evencover.ClusteredPredictor(alpha=job["alpha"], score="aps")

    with PeakMemory() as resident, PeakPrivateMemory() as private:
        start = time.perf_counter()
        predictor.fit(rows, labels)
        calibrated = time.perf_counter()
        place, covered, total_size = 0, 0, 0
        for sets in predictor.predict_set_blocks(rows):
            covered += int(sets.contains(labels[place : place + len(sets)]).sum())
            total_size += len(sets.indices)
            place += len(sets)
        end = time.perf_counter()
    return {
        "rows": len(rows),
        "classes": rows.shape[1],
        "input_bytes": rows.nbytes,
        "calibrate_seconds": calibrated - start,
        "predict_seconds": end - calibrated,
        "peak_private_bytes": private.over_start,
        "peak_resident_bytes": resident.over_start,
        "coverage": covered / place,
        "average_size": total_size / place,
    }
