"""Write the page of the documentation, with every number taken from the results."""

from __future__ import annotations

import csv
import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from characters import SCRIPTS, script_of
from fonts import HELD_OUT, TRAINING
from sheet import draw_sheet

from evencover import StandardPredictor
from evencover.data import as_source
from evencover.experiments import Results, make_table
from evencover.experiments.figures import draw_curves

METHODS = ("standard", "classwise", "clustered", "pooled")
SCORES = ("softmax", "aps", "raps")


def write_page(folder: Path, docs: Path | None) -> None:
    """Write the page with tables and images into the folder, and into `docs` if asked."""
    found, tail = Results.load(folder / "results"), Results.load(folder / "results_tail")
    pictures = folder / "images" / "glyphs"
    research = folder / "research"
    for each in (pictures, research):
        each.mkdir(parents=True, exist_ok=True)
    draw_curves(found, "glyphs").savefig(pictures / "glyphs.png", dpi=110)
    draw_curves(tail, "glyphs, long tail").savefig(pictures / "long-tail.png", dpi=110)
    sizes = sorted({row["n_avg"] for row in found.records})
    middle = sizes[len(sizes) // 2]
    names = json.loads((folder / "characters.json").read_text("utf-8"))
    coverage = found.class_coverage("glyphs", "softmax", "standard", middle)
    draw_sheet(folder, names, coverage, pictures / "best-and-worst.png")
    text = "\n\n".join(
        [
            _beginning(folder, names),
            _table("The paper's grid", found, sizes, research / "glyphs.csv"),
            "![CovGap, AvgSize and FracUnderCov](../images/glyphs/glyphs.png)",
            "### Comparison with the paper's findings\n\n" + _orderings(found, sizes),
            "### Coverage of single characters\n\n"
            f"Coverage of each character with STANDARD, softmax, n_avg = {middle}, over all "
            "splits:\n\n"
            "![Best and worst characters](../images/glyphs/best-and-worst.png)\n\n"
            + _by_script(names, coverage),
            _long_tail(tail, research / "glyphs_long_tail.csv"),
            "## New fonts\n\n" + _other_fonts(folder),
            _times(folder),
        ]
    )
    (research / "glyphs.md").write_text(text + "\n", encoding="utf-8")
    if docs is not None:
        shutil.copytree(research, docs / "research", dirs_exist_ok=True)
        shutil.copytree(pictures, docs / "images" / "glyphs", dirs_exist_ok=True)


def _beginning(folder: Path, names: list[str]) -> str:
    size = json.loads((folder / "size.json").read_text("utf-8"))
    counts = {script: sum(script_of(name) == script for name in names) for script in SCRIPTS}
    listed = ", ".join(f"{n} {script}" for script, n in counts.items())
    rows = as_source(folder / "scores")
    n_right = n_rows = 0
    for block in rows.blocks():
        n_right += int((block.rows.argmax(axis=1) == block.labels).sum())
        n_rows += len(block.rows)
    return f"""# A study on images: glyphs

The task is to identify which of {len(names)} characters an image shows: {listed}.
The images have 32 x 32 pixels and show the characters in the open fonts that Debian packages,
slightly rotated, sheared, blurred and noisy. Some characters look alike in every font (A, Α and А),
so classes differ in difficulty.

A small residual network is trained on {len(TRAINING)} font packages ({size["n_training"]} images
per character, {size["n_epochs"]} epochs). Calibration and test data come from {len(HELD_OUT)} other
packages ({size["n_held_out"]} images per character). Its accuracy on the {n_rows} held-out images
is {n_right / n_rows:.1%}.

    python scripts/glyph_study -o FOLDER --docs docs

This command creates everything on this page."""


def _table(title: str, results: Results, sizes: list[int], path: Path) -> str:
    shown = [n for n in sizes if n in (10, 20, 50, 75, 150)] or sizes
    return f"## {title}\n\n{_as_csv(make_table(results, n_avg=shown), path)}"


def _as_csv(markdown: str, path: Path) -> str:
    """Write the table without the data set's name as CSV; return a directive that shows it."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in lines]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([cells[0], *cells[2:]])
    note = markdown.rpartition("|")[2].strip()
    return f"```{{csv-table}}\n:file: {path.name}\n:header-rows: 1\n```\n\n{note}"


def _long_tail(results: Results, path: Path) -> str:
    sizes = sorted({row["n_avg"] for row in results.records})
    noise = [row["covgap_noise_floor"] for row in results.summary()]
    text = (
        "The number of rows of a character is proportional to the square root of its frequency in "
        "the Universal Declaration of Human Rights in some 530 languages. Most characters have few "
        f"test examples. The noise floor of CovGap is {min(noise):.1f} to {max(noise):.1f}, so "
        "compare methods by TrueGap."
    )
    table = make_table(results, n_avg=sizes, metrics=["true_gap", "covgap", "avg_size"])
    image = "![The same against n_avg](../images/glyphs/long-tail.png)"
    return f"## Long tail\n\n{text}\n\n{_as_csv(table, path)}\n\n{image}"


def _orderings(results: Results, sizes: list[int]) -> str:
    """List which of the paper's findings hold here, from the means over the splits."""
    mean = {
        (row["score"], row["method"], row["n_avg"]): row
        for row in results.summary()
        if not row["exact"]
    }

    def value(metric: str, score: str, method: str, n: int) -> float:
        return float(mean[score, method, n][metric])

    def count(holds: Any, scores: tuple[str, ...] = SCORES) -> str:
        cases = [(score, n) for score in scores for n in sizes]
        good = [case for case in cases if holds(*case)]
        if len(good) == len(cases):
            return "true in every case"
        if not good:
            return "true in no case"
        bad = [f"{score} at {n}" for score, n in cases if (score, n) not in good]
        return f"true in {len(good)} of {len(cases)} cases (not: {', '.join(bad)})"

    lines = {
        "CLUSTERED has a smaller CovGap than STANDARD": count(
            lambda s, n: value("covgap", s, "clustered", n) < value("covgap", s, "standard", n)
        ),
        "CLUSTERED has a smaller CovGap than CLASSWISE": count(
            lambda s, n: value("covgap", s, "clustered", n) < value("covgap", s, "classwise", n)
        ),
        "CLASSWISE has larger sets than the other two": count(
            lambda s, n: (
                value("avg_size", s, "classwise", n)
                > max(value("avg_size", s, other, n) for other in ("standard", "clustered"))
            )
        ),
        "STANDARD has a smaller CovGap with APS than with softmax": count(
            lambda s, n: (
                value("covgap", s, "standard", n) < value("covgap", "softmax", "standard", n)
            ),
            ("aps",),
        ),
        "POOLED, which is newer than the paper, has the smallest TrueGap of the four": count(
            lambda s, n: (
                value("true_gap", s, "pooled", n)
                <= min(value("true_gap", s, other, n) for other in METHODS)
            )
        ),
    }
    return "\n".join(f"- {finding}: {where}." for finding, where in lines.items())


def _by_script(names: list[str], coverage: np.ndarray) -> str:
    lines = [
        "| script | characters | mean coverage | minimum | below 80% |",
        "|---|---:|---:|---:|---:|",
    ]
    for script in SCRIPTS:
        own = coverage[[script_of(name) == script for name in names]]
        own = own[np.isfinite(own)]
        if len(own):
            low = (own < 0.8).sum()
            lines.append(f"| {script} | {len(own)} | {own.mean():.3f} | {own.min():.2f} | {low} |")
    return "\n".join(lines)


def _other_fonts(folder: Path) -> str:
    """Compare coverage with disjoint fonts and with a random split."""
    source = as_source(folder / "scores")
    assert source.ids is not None
    packages = np.array([str(each).partition("/")[0] for each in source.ids])
    ordered = sorted(set(packages.tolist()))
    blocks = list(source.blocks())
    rows = np.concatenate([block.rows for block in blocks])
    labels = np.concatenate([block.labels for block in blocks if block.labels is not None])
    found = {}
    is_odd = np.isin(packages, ordered[1::2])
    by_chance = np.random.default_rng(0).random(len(rows)) < is_odd.mean()
    for name, chosen in (("fonts", is_odd), ("rows", by_chance)):
        predictor = StandardPredictor(from_logits=True).fit(rows[chosen], labels[chosen])
        report = predictor.evaluate(rows[~chosen], labels[~chosen])
        found[name] = (report.marginal_coverage, report.avg_size)
    (fonts, size), (chance, other) = found["fonts"], found["rows"]
    return (
        f"With a random split, STANDARD (softmax, alpha = 0.1) covers {chance:.3f} of the test "
        f"data with {other:.2f} classes on average. Calibrated on every second font package\nand "
        f"tested on the others, it covers {fonts:.3f} with {size:.2f}."
    )


def _times(folder: Path) -> str:
    seconds = json.loads((folder / "seconds.json").read_text("utf-8"))
    lines = ["## Runtime", "", "| step | minutes |", "|---|---:|"]
    lines += [f"| {name} | {value / 60:.1f} |" for name, value in seconds.items()]
    lines += [f"| **all** | **{sum(seconds.values()) / 60:.1f}** |", ""]
    cores = len(os.sched_getaffinity(0))
    lines.append(f"On {cores} cores ({platform.machine()}), without a GPU.")
    return "\n".join(lines)
