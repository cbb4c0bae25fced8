"""Answer bird photographs with a species, else a genus, for docs/answers.md.

python scripts/birds_answers.py FILE.npz     writes docs/evidence/answers*, and answers_light.svg
                                             and answers_dark.svg in docs/images

FILE.npz is that of `birds_study.py`. The genus is the first word of a species' name. Half of the
photographs fit cutoffs and the others test them, in random splits.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from birds_study import read
from evidence_output import write_pictures, write_table, write_text

from evencover import EvencoverWarning, PooledPredictor
from evencover.plotting import BLUE, ORANGE

TARGETS, MODES = (0.9, 0.95), {"class": True, "overall": False}
CUTOFFS = np.linspace(0.3, 1, 701)


class Found(NamedTuple):
    """Shares of photographs that are answered with a species and with a genus, and the accuracy."""

    species: float
    genus: float
    accuracy: float


def of_evencover(rows: Any, labels: Any, names: Any, chains: Any, halves: Any, **how: Any) -> Found:
    """Fit cutoffs to one half; measure the answers to the other."""
    fitted, tested = halves
    predictor = PooledPredictor().fit(rows[fitted], labels[fitted], class_names=names)
    predictor.fit_acceptance(
        rows[fitted], labels[fitted], taxonomy=chains, class_names=names, **how
    )
    report = predictor.evaluate(rows[tested], labels[tested], class_names=names)
    species, *genus, of_all = report.answers
    return Found(species["share"], sum(level["share"] for level in genus), of_all["accuracy"])


def of_one_cutoff(rows: Any, labels: Any, genus_of: Any, tested: Any, target: float) -> Found:
    """Choose the cutoff with most answers on the rows that measure it: the best of all."""
    p, y = rows[tested], labels[tested]
    by_genus = np.zeros((len(p), genus_of.max() + 1))
    np.add.at(by_genus.T, genus_of, p.T)
    tops = p.max(axis=1), by_genus.max(axis=1)
    right = p.argmax(axis=1) == y, by_genus.argmax(axis=1) == genus_of[y]
    best = Found(0, 0, np.nan)
    for cutoff in CUTOFFS:
        species = tops[0] >= cutoff
        genus = ~species & (tops[1] >= cutoff)
        n_answered = species.sum() + genus.sum()
        accuracy = ((species & right[0]) | (genus & right[1])).sum() / max(1, n_answered)
        if accuracy >= target and n_answered / len(y) > best.species + best.genus:
            best = Found(species.mean(), genus.mean(), accuracy)
    return best


def measure(rows: Any, labels: Any, names: Any, n_splits: int) -> dict[tuple[float, str], Found]:
    """Average the splits, for each target and way to choose cutoffs."""
    genera, genus_of = np.unique([genus(name) for name in names], return_inverse=True)
    chains = [(name, genera[k]) for name, k in zip(names, genus_of, strict=True)]
    found: dict[tuple[float, str], list[Found]] = {}
    for seed in range(n_splits):
        halves = np.array_split(np.random.default_rng(seed).permutation(len(labels)), 2)
        for target in TARGETS:
            for mode, per_class in MODES.items():
                how: Any = {"accuracy": target, "per_class": per_class}
                one = of_evencover(rows, labels, names, chains, halves, **how)
                found.setdefault((target, mode), []).append(one)
            one = of_one_cutoff(rows, labels, genus_of, halves[1], target)
            found.setdefault((target, "one cutoff"), []).append(one)
    return {key: Found(*np.mean(each, axis=0).tolist()) for key, each in found.items()}


def genus(name: str) -> str:
    """Return the first word of a species' name."""
    return name.split(" ")[0]


TITLES = {
    "class": "evencover, every species and genus at the target",
    "overall": "evencover, all answers at the target",
    "one cutoff": "one cutoff for both levels, chosen on the test photographs",
}


def draw(found: dict[tuple[float, str], Found], ink: str) -> Any:
    """Draw a bar for each target and way to choose cutoffs, with a part for each level."""
    figure, ax = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    places = [row + 0.6 * (row // len(TITLES)) for row in range(len(found))]
    for y, ((_, mode), (species, in_genus, accuracy)) in zip(places, found.items(), strict=True):
        color = ORANGE if mode == "one cutoff" else BLUE
        ax.barh(y, 100 * species, color=color, height=0.8)
        ax.barh(y, 100 * in_genus, left=100 * species, color=color, alpha=0.45, height=0.8)
        text = f"{100 * accuracy:.1f}% right"
        ax.annotate(text, (100 * (species + in_genus), y), (5, 0), textcoords="offset points",
                    va="center")  # fmt: skip
        title = {"class": "every class", "overall": "all answers"}.get(mode, mode)
        ax.annotate(title, (1, y), color="white", va="center", size=9)
    middles = [np.mean(places[n : n + len(TITLES)]) for n in range(0, len(places), len(TITLES))]
    ax.set(
        yticks=middles,
        yticklabels=[f"target {target:.0%}" for target in TARGETS],
        xlabel="photographs answered with a species (dark) or a genus (light), %",
        xlim=(0, 112),
    )
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    return figure


def run(*arguments: str) -> str:
    """Run a command of evencover; return what it prints."""
    command = [sys.executable, "-W", "ignore", "-m", "evencover", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def record_commands(rows: Any, labels: Any, names: Any) -> None:
    """Run the commands of the page on one split, and keep what they print and write."""
    fitted, tested = np.array_split(np.random.default_rng(0).permutation(len(labels)), 2)
    with tempfile.TemporaryDirectory() as folder:
        files = "labeled.npz", "test.npz", "genera.csv", "birds.safetensors", "answers.csv"
        path = {name: str(Path(folder) / name) for name in files}
        for name, part in (("labeled.npz", fitted), ("test.npz", tested)):
            arrays = {"probs": rows[part].astype(np.float32), "labels": labels[part]}
            np.savez(path[name], class_names=names, ids=part, **arrays)
        with open(path["genera.csv"], "w", newline="", encoding="utf-8") as file:
            lines = [("species", "genus"), *((name, genus(name)) for name in names)]
            csv.writer(file).writerows(lines)
        accept = ("--accept-accuracy", "0.95", "--taxonomy", path["genera.csv"])
        run("calibrate", path["labeled.npz"], "-o", path["birds.safetensors"], *accept)
        shown = run("evaluate", path["birds.safetensors"], path["test.npz"])
        table = json.loads(run("evaluate", path["birds.safetensors"], path["test.npz"], "--json"))
        run("predict", path["birds.safetensors"], path["test.npz"], "-o", path["answers.csv"])
        with open(path["answers.csv"], newline="", encoding="utf-8") as file:
            written = list(csv.DictReader(file))
    lines = shown.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("accepted"))
    last = max(n for n, line in enumerate(lines) if line.startswith("  "))
    write_text("answers_evaluate.txt", "\n".join(lines[first : last + 1]))
    columns = ("id", "size", "answer", "answer_level", "answer_probability")
    kinds = {level: [row for row in written if row["answer_level"] == level] for level in
             ("species", "genus", "")}  # fmt: skip
    some = [row for rows in kinds.values() for row in rows[:3]]
    write_table("answers_rows.csv", [columns, *([row[name] for name in columns] for row in some)])
    species, in_genus, of_all = table["answers"]
    write_text(
        "answers.md",
        f"At a target of 95%, {of_all['share']:.0%} of the {len(tested):,} test photographs get an "
        f"answer: {species['share']:.0%} a species and {in_genus['share']:.0%} a\ngenus. "
        f"{of_all['accuracy']:.1%} of the answers are right.",
    )


def main() -> None:
    """Measure, and write tables and pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--n-splits", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)  # 792 outputs have no photographs
    rows, labels, _ = read(options.file)
    with np.load(options.file, allow_pickle=False) as file:
        names = [str(name) for name in file["class_names"]]
    found = measure(rows, labels, names, options.n_splits)
    heads = ("target", "cutoffs", "species", "genus", "answered", "accuracy")
    cells = [
        (f"{target:.0%}", TITLES[mode], f"{species:.1%}", f"{in_genus:.1%}",
         f"{species + in_genus:.1%}", f"{accuracy:.1%}")
        for (target, mode), (species, in_genus, accuracy) in found.items()
    ]  # fmt: skip
    write_table("answers.csv", [heads, *cells])
    write_pictures("answers", lambda ink: draw(found, ink))
    record_commands(rows, labels, names)


if __name__ == "__main__":
    main()
