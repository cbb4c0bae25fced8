"""
7. Calibrate with few labels
============================

This tutorial measures how coverage and set size depend on the number of calibration examples per
class, and shows where additional labels help most.
"""

import numpy as np

from evencover import compare
from evencover.data import load_languages

probabilities, labels, names = load_languages()

# %%
# Vary the number of labels
# -------------------------
# ``calibration_sizes=`` calibrates on this many examples of each class and tests on the others, so
# it draws a learning curve. The last table shows labels per set and shortfall.

counts = [1, 2, 5, 10, 15]
result = compare(probabilities, labels, scores=["softmax"], calibration_sizes=counts, n_splits=3)
print(result)

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
for candidates in zip(*(each.candidates for each in result.by_size), strict=True):
    for ax, metric in zip(axes, ("true_gap", "avg_size"), strict=True):
        values = [candidate.mean(metric) for candidate in candidates]
        ax.plot(counts, values, "o-", label=candidates[0].method)
axes[0].set(title="TrueGap in points", ylim=0)
axes[1].set(title="average set size", yscale="log")
for ax in axes:
    ax.set_xlabel("calibration examples per class")
legend = axes[0].legend()

# %%
# STANDARD pools all examples, so more labels per class hardly change its TrueGap. CLASSWISE
# includes every class below nine examples, so its sets are useless there. POOLED is slightly more
# even than STANDARD with one example per class, and it improves as examples are added.
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
# So with nine examples, the coverage of a class can be as low as 72%, although at least 90% is
# guaranteed on average.
#
# Get a recommendation
# --------------------
# ``recommend`` compares four methods on one split of the data. It states the reason, the expected
# set size with all examples, and what would change the advice.

from evencover import recommend

rows = np.concatenate([np.flatnonzero(labels == index)[:5] for index in range(len(names))])
recommend(probabilities[rows], labels[rows])

# %%
# With five examples per class, half of them calibrate and the other half tests. So few labels do
# not show that another method costs less, and ``recommend`` keeps the baseline. If even coverage
# matters more to you than small sets, use POOLED all the same: in the table above it falls less
# short than STANDARD at every size.
#
# Collect the next labels
# -----------------------
# Label classes whose confidence interval extends far below 90%. They are not always the rarest
# ones.

from evencover import PooledPredictor

pooled = PooledPredictor().fit(probabilities[rows], labels[rows], class_names=list(names))
test = np.delete(np.arange(len(labels)), rows)
found = pooled.evaluate(probabilities[test], labels[test])
low, high = found.class_coverage_interval.T
for index in low.argsort()[:6]:
    measured = f"{found.class_coverage[index]:.0%} of {found.class_counts[index]} examples"
    print(f"{names[index]:<24} {measured}; 95% interval {low[index]:.0%} to {high[index]:.0%}")

# %%
# :doc:`/explanations/how_many_labels` explains how to divide labels between calibration and test.
