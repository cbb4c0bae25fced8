"""
6. Calibrate with few labels
============================

This tutorial measures how coverage and set size depend on the number of calibration examples per
class, and shows where additional labels help most.
"""

import warnings

import numpy as np

from evencover import EvencoverWarning
from evencover.data import load_languages
from evencover.predictors import make_predictor

warnings.simplefilter("ignore", EvencoverWarning)  # classes with too few examples are expected
probabilities, labels, names = load_languages()
half = len(labels) // 2
test = slice(half, None)

# %%
# Vary the number of labels
# -------------------------
# Calibrate on the first n examples of each class, and test on the second half of the data.

place = np.empty(half, int)  # index of each row among the rows of its class
for index in range(len(names)):
    mine = np.flatnonzero(labels[:half] == index)
    place[mine] = np.arange(len(mine))

counts = (1, 2, 5, 10, 15)
methods = ("standard", "classwise", "clustered", "pooled")
gaps, sizes = {m: [] for m in methods}, {m: [] for m in methods}
for n in counts:
    rows = np.flatnonzero(place < n)
    for method in methods:
        predictor = make_predictor(method).fit(probabilities[rows], labels[rows])
        report = predictor.evaluate(probabilities[test], labels[test])
        gaps[method].append(report.true_gap)
        sizes[method].append(report.avg_size)

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
for method in methods:
    axes[0].plot(counts, gaps[method], "o-", label=method)
    axes[1].plot(counts, sizes[method], "o-")
axes[0].set(title="TrueGap in points", ylim=0)
axes[1].set(title="average set size", yscale="log")
for ax in axes:
    ax.set_xlabel("calibration examples per class")
legend = axes[0].legend()

for method in methods:
    print(f"{method:<10} TrueGap", *(f"{gap:5.1f}" for gap in gaps[method]))

# %%
# STANDARD pools all examples, so more labels per class do not change its TrueGap. CLASSWISE
# includes every class below nine examples. POOLED fails with one example per class: use STANDARD
# there. From two examples per class, POOLED is more even than STANDARD, and it improves with each
# additional one.
#
# Precision of one class
# ----------------------
# Given the calibration set, coverage of a class under CLASSWISE follows Beta(k, n + 1 - k) with
# k = ceil((n + 1)(1 - alpha)). Its mean is at least 90%, but its spread is wide with few examples.

from scipy.stats import beta

from evencover.quantiles import conformal_rank

for n in (9, 20, 50, 100, 500, 1000):
    k = conformal_rank(n, 0.1)
    law = beta(k, n + 1 - k)
    low, high = law.ppf([0.05, 0.95])
    print(f"{n:4} examples: coverage between {low:.2f} and {high:.2f} in nine of ten cases")

# %%
# Get a recommendation
# --------------------
# ``recommend`` suggests a method from the labels and, if given, the probabilities. It states the
# reason, the expected set size, and what would change the advice.

from evencover import recommend

rows = np.flatnonzero(place < 5)
recommend(probabilities[rows], labels[rows])

# %%
# Collect the next labels
# -----------------------
# Label classes whose confidence interval extends far below 90%. They are not always the rarest
# ones.

pooled = make_predictor("pooled").fit(probabilities[rows], labels[rows], class_names=list(names))
found = pooled.evaluate(probabilities[test], labels[test])
low, high = found.class_coverage_interval.T
for index in low.argsort()[:6]:
    measured = f"{found.class_coverage[index]:.0%} of {found.class_counts[index]} examples"
    print(f"{names[index]:<24} {measured}; 95% interval {low[index]:.0%} to {high[index]:.0%}")

# %%
# :doc:`/explanations/how_many_labels` explains how to divide labels between calibration and test.
# To calibrate on training data by cross-validation, see :doc:`/howto/stronger_guarantees`.
