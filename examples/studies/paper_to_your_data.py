"""
From the paper to your data
===========================

The study of Ding et al. (2023) compares methods on four data sets and several calibration sizes.
This script runs a small part of it on simulated data, next to the published numbers. It then runs
the same study on other data.
"""

import tempfile
from pathlib import Path

from evencover.experiments import Grid, make_table, run

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)

# %%
# Repeat a part of the paper's study
# ----------------------------------
# A ``Grid`` defines a study. ``evencover experiment run paper`` runs the full one. Here we use one
# data set, one score, three calibration sizes and three splits.

paper = Grid(
    datasets=["cifar-100"],
    scores=["softmax"],
    n_avg=[10, 20, 50],
    repetitions=3,
    title="Simulated CIFAR-100",
)
results = run(paper, here / "paper")
print(make_table(results, n_avg=[10, 50]))

# %%
# ``=`` marks agreement with the published number within the joint error, ``≠`` disagreement. The
# data are simulated (:func:`evencover.experiments.load_simulated`). With the authors' score files,
# pass their paths instead.
#
# Use your data
# -------------
# A data set is a name, a path, or arrays. A method is a name, or a dictionary with parameters.
# Custom methods also work.

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
print(make_table(results, n_avg=[5, 20]))

# %%
# You can interrupt a run; the same call resumes it, with bit-identical results.
#
# Plot results
# ------------
# ``write_figures(results, folder)`` writes the paper's figures. ``results.summary()`` returns all
# numbers for other plots:

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
ax.set(xlabel="calibration examples per class", ylabel="CovGap in points")
legend = ax.legend()

# %%
# On the command line, define the grid in a file:
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
#    evencover experiment table results/ --format latex
#    evencover experiment figures results/ -o figures/
#
# :doc:`/research/paper_study` describes all settings.
