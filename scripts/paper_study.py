"""Run the paper's study on the bundled languages, for docs/research/paper_study.md.

python scripts/paper_study.py    writes docs/evidence/languages_grid.csv, and languages.png,
                                 languages-classes.png and a heat map in docs/images/study

The grids are those of `evencover experiment run languages` and `... heatmap`, the second one with
two sizes and the softmax score only.
"""

from __future__ import annotations

import csv
import warnings

import matplotlib.pyplot as plt
from evidence_output import IMAGES, PLAIN, write_table

from evencover import EvencoverWarning
from evencover.experiments import Grid, make_table, run
from evencover.experiments.figures import draw_heatmap, write_figures
from evencover.scores import Softmax


def main() -> None:
    """Run the grids, write the table, draw the figures."""
    warnings.simplefilter("ignore", EvencoverWarning)
    results = run(Grid.from_toml("languages"))
    rows = csv.reader(make_table(results, "csv").splitlines())
    write_table("languages_grid.csv", [row[1:] for row in rows])  # without the data set
    plt.rcParams.update(PLAIN)
    write_figures(results, IMAGES / "study", force=True)
    tuned = Grid.from_toml("heatmap")
    tuned.scores, tuned.n_avg = [Softmax()], [10, 50]
    figure = draw_heatmap(run(tuned), "imagenet", "softmax")
    figure.savefig(IMAGES / "study" / "heatmap.png", dpi=110)


if __name__ == "__main__":
    main()
