"""
6. Calibrating with few labels
==============================

Labels cost money. How many calibration rows does a class need, what do more of them buy, and where
should the next ones go? This page measures it on the languages.
"""

import warnings

import numpy as np

from evencover import EvencoverWarning
from evencover.data import load_languages
from evencover.predictors import make_predictor

warnings.simplefilter("ignore", EvencoverWarning)  # classes with too few rows are our subject
probabilities, labels, names = load_languages()
half = len(labels) // 2
test = slice(half, None)

# %%
# What more labels buy
# --------------------
# The first n rows of each class calibrate; the second half of the data tests.

place = np.empty(half, int)  # of each row among the rows of its class
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
axes[0].set(title="unevenness (TrueGap, points)", ylim=0)
axes[1].set(title="labels in a set", yscale="log")
for ax in axes:
    ax.set_xlabel("calibration rows for each class")
legend = axes[0].legend()

for method in methods:
    print(f"{method:<10} TrueGap", *(f"{gap:5.1f}" for gap in gaps[method]))

# %%
# STANDARD does not care: it pools all rows, so its threshold is good with one row a class, and its
# unevenness stays. CLASSWISE is useless below nine rows. POOLED needs two rows of each class to be
# more even than STANDARD here, and gets better with each one that comes.
#
# What one class can promise
# --------------------------
# For CLASSWISE the coverage of a class, *given* the calibration rows you happen to have, is a
# known random number: Beta(k, n + 1 - k) with k = ceil((n + 1)(1 - alpha)). On average it is at
# least 90%; with ten rows it scatters widely.

from scipy.stats import beta

from evencover.quantiles import conformal_rank

for n in (9, 20, 50, 100, 500, 1000):
    k = conformal_rank(n, 0.1)
    law = beta(k, n + 1 - k)
    low, high = law.ppf([0.05, 0.95])
    print(f"{n:4} rows: coverage between {low:.2f} and {high:.2f} nine times in ten")

# %%
# Advice for your labels
# ----------------------
# ``recommend`` reads labels (and probabilities, if you have them) and says which method, why, how
# large the sets will be, and what would change the advice.

from evencover import recommend

rows = np.flatnonzero(place < 5)
recommend(probabilities[rows], labels[rows])

# %%
# Where should the next labels go?
# --------------------------------
# To the classes whose coverage we know least about *and* that may be short: a wide interval that
# reaches far below 90%. They are not the rarest classes alone.

pooled = make_predictor("pooled").fit(probabilities[rows], labels[rows], class_names=list(names))
found = pooled.evaluate(probabilities[test], labels[test])
low, high = found.class_coverage_interval.T
for index in low.argsort()[:6]:
    measured = f"{found.class_coverage[index]:.0%} of {found.class_counts[index]} rows"
    print(f"{names[index]:<24} {measured}; could be {low[index]:.0%} to {high[index]:.0%}")

# %%
# How to divide labels between calibration and test: :doc:`/explanations/how_many_labels`. No rows
# to keep from training? Cross-validation lets training rows calibrate: :doc:`/promises`.
