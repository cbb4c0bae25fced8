"""Run the paper's study on the bundled languages, for docs/research/paper_study.md.

python scripts/paper_study.py    writes docs/evidence/languages_grid.csv, and languages.png and
                                 languages-classes.png in docs/images/study
"""

from __future__ import annotations

import argparse
import csv
import warnings

import matplotlib.pyplot as plt
from evidence_output import IMAGES, PLAIN, write_table

from evencover import EvencoverWarning
from evencover.experiments import Grid, make_table, run
from evencover.experiments.figures import write_figures


def main() -> None:
    """Run the grid, write the table, draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)
    grid = Grid(
        title="The paper's study on 505 languages",
        datasets=["languages"],
        methods=["standard", "classwise", "clustered", "pooled"],
        n_avg=[5, 10, 20, 30],
        repetitions=options.repetitions,
    )
    results = run(grid)
    rows = csv.reader(make_table(results, "csv").splitlines())
    write_table("languages_grid.csv", [row[1:] for row in rows])  # without the data set
    plt.rcParams.update(PLAIN)
    write_figures(results, IMAGES / "study", force=True)


if __name__ == "__main__":
    main()
