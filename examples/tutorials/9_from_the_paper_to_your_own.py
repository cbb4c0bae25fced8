"""
9. From the paper's tables to your own
======================================

The study of Ding et al. (2023) compares methods on four data sets for calibration sets of many
sizes. This page runs a small part of it on a simulated twin of one of their data sets, with the
published numbers beside, and then the same study on other data: the languages, or yours.
"""

import tempfile
from pathlib import Path

from evencover.experiments import Grid, run
from evencover.experiments.results import make_table

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)

# %%
# The paper's, small
# ------------------
# A *grid* says what is tried. The full one is ``evencover experiment run paper``; this is
# CIFAR-100 with one score, three calibration sizes and three splits instead of ten.

paper = Grid(
    datasets=["cifar-100"],
    scores=["softmax"],
    n_avg=[10, 20, 50],
    repetitions=3,
    title="A twin of CIFAR-100",
)
results = run(paper, here / "paper")
print(make_table(results, n_avg=[10, 50]).render("text"))

# %%
# ``=`` marks what agrees with the published number within the joint error of both, ``≠`` what
# does not. The data are a *twin*: simulated rows with the same number of classes and much the
# same difficulty (:doc:`/twins`); with the authors' own score files the same command uses those.
#
# Yours
# -----
# A data set is a name, a path, or arrays. A method is a name, or a table with parameters; any
# method of the package, or one of your own, can take part.

from evencover.data import load_languages

probabilities, labels, names = load_languages()
mine = Grid(
    datasets=[("languages", probabilities, labels)],
    methods=["standard", "clustered", "pooled", {"name": "interpolated", "tau": 0.9}],
    scores=["softmax"],
    n_avg=[5, 10, 20],
    repetitions=3,
    title="My study",
)
results = run(mine, here / "mine")
print(make_table(results, n_avg=[5, 20]).render("text"))

# %%
# A run may be stopped or killed at any moment; the same call goes on from there, to the same bytes.
#
# Figures
# -------
# ``write_figures(results, folder)`` writes the paper's figures. ``results.summary()`` has every
# number for your own:

import matplotlib.pyplot as plt

figure, ax = plt.subplots()
for method in dict.fromkeys(row["method"] for row in results.summary()):
    rows = [row for row in results.summary() if row["method"] == method]
    ax.errorbar(
        [row["n_avg"] for row in rows],
        [row["covgap"] for row in rows],
        [1.96 * row["covgap_se"] for row in rows],
        marker="o",
        label=method,
    )
ax.set(xlabel="calibration rows for each class", ylabel="CovGap in points")
legend = ax.legend()

# %%
# In a shell, with the grid as a file:
#
# .. code-block:: toml
#
#    # mine.toml
#    datasets = ["my_scores.npz"]
#    methods = ["standard", "clustered", "pooled", {name = "interpolated", tau = 0.9}]
#    scores = ["softmax"]
#    n_avg = [5, 10, 20]
#
# .. code-block:: shell
#
#    evencover experiment run mine.toml -o results/
#    evencover experiment table results/ --format markdown
#    evencover experiment figures results/ -o figures/
#
# More: :doc:`/study`.
