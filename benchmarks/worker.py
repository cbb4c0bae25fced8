"""Entry of the fresh processes: ``python -m benchmarks.worker job.json result.json``."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path


def main(job_file: str, result_file: str) -> None:
    """Run the job's kind and write what it returns."""
    warnings.simplefilter("ignore")  # small calibration classes are warned of; not what we measure
    job = json.loads(Path(job_file).read_text())
    kind = job["kind"]
    result = getattr(importlib.import_module(f"benchmarks.measure.{kind}"), kind)(job)
    Path(result_file).write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
