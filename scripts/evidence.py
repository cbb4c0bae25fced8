"""Measure every number behind README and site again, and record version and date.

    make evidence                   run the steps that were not measured with the present code
    make evidence STEP=filetypes    run one step again; several are separated by commas
    make evidence DATA=FOLDER       also with files that the repository does not contain
    make evidence CHECK=1           list the steps that were measured with other code; run nothing
    make bench                      run the benchmarks among the steps again

Each step runs a script that writes tables to docs/evidence or pictures to docs/images. The record
has the modules that it executed and a digest of their code without docstrings. A step that
fails or is interrupted leaves the record as it was, so the same command continues with it. The
folder DATA has files of recorded predictions (.npz with `probs` and `labels`). Steps that need such
a file or a package are skipped without it. README gets its tables at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_extensions"))

import evidence_files as files  # noqa: E402
import executed_code  # noqa: E402

DOCS = files.DOCS

README = ROOT / "README.md"
RECORD_BENCHMARKS = "scripts/record_benchmarks.py"


class Step(NamedTuple):
    """A script or module with its arguments, and the files below docs/ that it writes."""

    command: str
    outputs: tuple[str, ...]
    data: tuple[str, ...] = ()  # files of DATA that it needs: appended to the command
    package: str | None = None  # that it needs besides those of `make evidence`


def pictures(name: str) -> tuple[str, str]:
    """Return the paths of a picture for light and dark pages."""
    return f"images/{name}_light.svg", f"images/{name}_dark.svg"


def benchmark(name: str, *tables: str, package: str | None = None) -> Step:
    """Return a step that runs a benchmark."""
    outputs = tuple(f"evidence/{table}" for table in tables)
    return Step(f"{RECORD_BENCHMARKS} {name}", outputs, package=package)


# Recorded predictions of models that the repository does not contain (scripts/pooled_study.py).
RECORDED = (
    "banking77_tfidf.npz",
    "birds_inat.npz",
    "cifar100_densenet.npz",
    "clinc150_minilm.npz",
    "maintainers.npz",
    "sections.npz",
    "timezones.npz",
)

EXPLAINED = ("cost", "evalues", "gaps", "pooling")

# In the order of their duration. The benchmarks come last: they need an idle machine.
STEPS = {
    "outputs": Step(
        "scripts/record_outputs.py",
        (
            "evidence/demo.txt",
            "evidence/guard.csv",
            "evidence/quickstart_compare.txt",
            "evidence/quickstart_evaluate.txt",
            "evidence/scores.csv",
        ),
    ),
    "filetypes": Step(
        "scripts/draw_filetypes.py",
        (
            "evidence/filetypes.csv",
            "evidence/filetypes.md",
            "evidence/filetypes_data.csv",
            "evidence/filetypes_notes.md",
            *pictures("filetypes"),
        ),
    ),
    "acceptance": Step(
        "scripts/draw_acceptance.py", ("evidence/acceptance.csv", *pictures("accept"))
    ),
    "cutoffs": Step(
        "scripts/cutoffs_study.py",
        ("evidence/cutoffs.csv", "evidence/cutoffs.md", *pictures("cutoffs")),
        data=("birds_inat.npz",),
    ),
    "birds": Step(
        "scripts/birds_study.py",
        (
            "evidence/birds.md",
            "evidence/birds_173.csv",
            "evidence/birds_965.csv",
            "evidence/birds_scores.csv",
            "evidence/birds_species.csv",
            *pictures("birds"),
        ),
        data=("birds_inat.npz",),
    ),
    "answers": Step(
        "scripts/birds_answers.py",
        (
            "evidence/answers.csv",
            "evidence/answers.md",
            "evidence/answers_evaluate.txt",
            "evidence/answers_rows.csv",
            *pictures("answers"),
        ),
        data=("birds_inat.npz",),
    ),
    "price": Step(
        "scripts/price_study.py",
        ("evidence/price.csv", "evidence/price.md"),
        data=("birds_inat.npz",),
    ),
    "explanations": Step(
        "scripts/draw_explanations.py",
        tuple(path for name in EXPLAINED for path in pictures(name)),
    ),
    "report": Step("scripts/draw_report.py", ("images/report_dark.png", "images/report_light.png")),
    "paper": Step(
        "scripts/paper_study.py",
        (
            "evidence/languages_grid.csv",
            "images/study/heatmap.png",
            "images/study/languages-classes.png",
            "images/study/languages.png",
        ),
    ),
    "case": Step(
        "scripts/case_study.py",
        (
            "evidence/case_answers.txt",
            "evidence/case_cap.md",
            "evidence/case_compare.txt",
            "evidence/case_cutoffs.md",
            "evidence/case_evaluate.txt",
            "evidence/case_monitor.txt",
        ),
        package="magika",
    ),
    "magika": Step(
        "scripts/record_magika.py",
        tuple(f"evidence/magika_{part}.txt" for part in ("sets", "types", "review")),
        package="magika",
    ),
    "advice": Step(
        "scripts/advice_study.py", ("evidence/advice.csv", "evidence/advice.md"), RECORDED
    ),
    "equal_shortfall": Step(
        "scripts/equal_shortfall.py",
        ("evidence/equal_shortfall.csv", "evidence/equal_shortfall.md"),
        RECORDED,
    ),
    "pooled": Step(
        "scripts/pooled_study.py",
        (
            "evidence/pooled.md",
            "evidence/pooled_cost.csv",
            "evidence/pooled_gap.csv",
            "evidence/pooled_methods.csv",
            "evidence/pooled_settings.csv",
            "evidence/pooled_stability.csv",
            "evidence/pooled_variants.csv",
            *pictures("pareto"),
        ),
        RECORDED,
    ),
    "monitoring": benchmark("monitoring", "monitoring_arrival.csv", "monitoring_delays.csv"),
    "topk": benchmark("topk", "topk.txt"),
    "compare": benchmark("compare", "compare.txt"),
    "reading": benchmark("reading", "reading.csv"),
    "serving": benchmark("serving", "serving.csv", "serving_monitor.csv", package="starlette"),
    "cluster": benchmark("cluster", "cluster.csv", "cluster.md"),
    "peers": benchmark(
        "peers",
        "performance.csv",
        "performance.md",
        "performance_memory.md",
        "performance_one_row.csv",
        "performance_readme.csv",
    ),
}


def command_of(step: Step, data: Path | None) -> list[str]:
    """Return the command line, with the paths of the step's data."""
    paths = [str(data / name) for name in step.data] if data else []
    return [sys.executable, *step.command.split(), *paths]


def missing(step: Step, data: Path | None) -> str | None:
    """Return what a step needs and does not find."""
    for file in step.data:
        if not data or not (data / file).exists():
            return f"{file} in DATA"
    return step.package if step.package and find_spec(step.package) is None else None


def run(name: str, data: Path | None, quick: bool) -> None:
    """Run a step, and record its outputs; those of a quick run have no version."""
    from evencover import __version__

    step = STEPS[name]
    started = time.monotonic()
    command = command_of(step, data)
    if quick and step.command.startswith(RECORD_BENCHMARKS):
        command.append("--quick")
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as loaded:
        path = os.pathsep.join(str(ROOT / folder) for folder in ("scripts/tracing", "scripts"))
        traced = {"COLUMNS": "80", "PYTHONPATH": path, "EVIDENCE_MODULES": loaded.name}
        subprocess.run(command, cwd=ROOT, env=os.environ | traced, check=True)
        modules = sorted({*loaded.read().split(), step.command.split()[0]})
    executed = files.Executed(name, executed_code.digest(modules), " ".join(modules))
    files.write_executed((files.read_executed() | {name: executed}).values())
    seconds = f"{time.monotonic() - started:.0f}"
    record = {path: row for path, row in files.read_record().items() if row.step != name}
    version, today = "quick" if quick else __version__, date.today().isoformat()
    for output in step.outputs:
        content = files.digest([DOCS / output])
        record[output] = files.Measured(output, name, version, today, seconds, content)
    files.write_record(record.values())
    print(f"{name}: {seconds} s", flush=True)


def is_current(name: str) -> bool:
    """Return whether a step's outputs exist and were measured with the present code."""
    record, executed = files.read_record(), files.read_executed().get(name)
    if executed is None or executed.code != executed_code.digest(executed.modules.split()):
        return False
    return all(
        output in record
        and record[output].version != "quick"
        and (DOCS / output).exists()
        and record[output].content == files.digest([DOCS / output])
        for output in STEPS[name].outputs
    )


def main() -> int:
    """Run the steps; the exit code is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("steps", nargs="*", help=f"of {', '.join(STEPS)}; default: those needed")
    parser.add_argument("--data", type=Path, help="folder of recorded predictions")
    parser.add_argument("--quick", action="store_true", help="benchmarks that mean nothing")
    parser.add_argument("--check", action="store_true", help="list steps measured with other code")
    options = parser.parse_args()
    chosen = [name for names in options.steps for name in names.split(",") if name]
    unknown = set(chosen) - set(STEPS)
    if unknown:
        parser.error(f"unknown step {sorted(unknown)[0]!r}; choose from {', '.join(STEPS)}")
    outdated = [name for name in chosen or STEPS if not is_current(name)]
    if options.check:
        for name in outdated:
            print(f"measured with other code: {name}")
        return int(bool(outdated))
    files.FOLDER.mkdir(exist_ok=True)
    failed, skipped = [], []
    for name in chosen or outdated:
        lacks = missing(STEPS[name], options.data)
        if lacks:
            skipped.append(f"{name} (needs {lacks})")
            continue
        try:
            run(name, options.data, options.quick)
        except subprocess.CalledProcessError as reason:
            print(f"{name} failed: {reason}", file=sys.stderr, flush=True)
            failed.append(name)
    README.write_text(files.with_blocks(README.read_text("utf-8")), encoding="utf-8")
    for title, names in (("skipped", skipped), ("failed", failed)):
        if names:
            print(f"{title}: {', '.join(names)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
