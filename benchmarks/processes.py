"""Start a fresh process for a job, wait for it, and say what went wrong if it did."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.places import ROOT

TIME_LIMIT = 300


def run_job(
    python: Path | str, job: dict[str, Any], time_limit: float = TIME_LIMIT
) -> dict[str, Any]:
    """The job's result; or {"error": reason} if it failed, died or took too long."""
    with tempfile.TemporaryDirectory() as folder:
        job_file, result_file = Path(folder, "job.json"), Path(folder, "result.json")
        job_file.write_text(json.dumps(job))
        command = [str(python), "-m", "benchmarks.worker", str(job_file), str(result_file)]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
                capture_output=True,
                text=True,
                timeout=time_limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"took longer than {time_limit:.0f} s"}
        if done.returncode < 0:
            signal = -done.returncode  # 9 is what running out of memory looks like
            return {"error": f"ended by signal {signal}"}
        if done.returncode > 0 or not result_file.exists():
            return {"error": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
        result: dict[str, Any] = json.loads(result_file.read_text())
        return result
