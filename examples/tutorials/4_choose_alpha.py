"""
4. Choose alpha
===============

``alpha`` is the target miscoverage: the fraction of examples whose set may miss the true label.
Smaller values give larger sets. The right value depends on the cost of a miss and of a longer set.
This tutorial shows the trade-off and three ways to choose.
"""

from evencover import PooledPredictor
from evencover.data import load_languages

probabilities, labels, names = load_languages()
third = len(labels) // 3
calibration, choosing, test = slice(third), slice(third, 2 * third), slice(2 * third, None)

# %%
# Split the data into three parts: for calibration, for choosing alpha, and for one final test. The
# guarantee holds for an alpha that was fixed before testing. Choosing alpha on the test set is the
# same mistake as tuning a model on it.
#
# Trade-off
# ---------

import numpy as np

levels = (0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)
found = []
for alpha in levels:
    predictor = PooledPredictor(alpha=alpha).fit(probabilities[calibration], labels[calibration])
    found.append(predictor.evaluate(probabilities[choosing], labels[choosing]))
for alpha, report in zip(levels, found, strict=True):
    print(
        f"alpha {alpha:<5} coverage {report.marginal_coverage:.3f}  set size {report.avg_size:6.1f}"
        f"  median {report.size_quantiles['50']}"
    )

# %%
# At an alpha of 0.3, coverage is above its target of 70%, because every set contains the most
# probable class.

import matplotlib.pyplot as plt

sizes = np.array([report.avg_size for report in found])
figure, ax = plt.subplots()
ax.plot(levels, sizes, "o-", color="#0072B2")
ax.set(xscale="log", yscale="log", xlabel="alpha", ylabel="average set size")
ax.set_xticks(levels, [str(level) for level in levels])
ax.set_title("Set size grows fast for small alpha")

# %%
# Choose by set size
# ------------------
# A reviewer has time for five labels per example. Choose the smallest alpha whose average set size
# is within this budget.

budget = 5
alpha = min(level for level, size in zip(levels, sizes, strict=True) if size <= budget)
print(f"alpha = {alpha}: average set size {sizes[levels.index(alpha)]:.1f}")

# %%
# Choose by the cost of a miss
# ----------------------------
# Suppose that it costs 1 to review a label and 100 to miss one. The cost per example is then the
# set size plus 100 times the miss rate.

cost_of_a_miss = 100
missed = np.array([1 - report.marginal_coverage for report in found])
costs = sizes + cost_of_a_miss * missed
for level, cost in zip(levels, costs, strict=True):
    print(f"alpha {level:<5} cost {cost:6.1f}{'   <- lowest' if cost == costs.min() else ''}")

# %%
# Choose later with p-values
# --------------------------
# ``predict_p`` returns a *p-value* per class: the smallest alpha at which the class leaves the set,
# unless it is the most probable one, which stays. Save the p-values to choose alpha later. A small
# p-value means that the example would be unusual for this class.

predictor = PooledPredictor().fit(probabilities[calibration], labels[calibration])
p = predictor.predict_p(probabilities[test][:1])[0]
for index in p.argsort()[::-1][:6]:
    print(f"{names[index]:<28} p = {p[index]:.3f}")

# %%
# Smallest possible alpha
# -----------------------
# A finite threshold for a single class needs at least 1/alpha - 1 calibration examples. With fewer,
# CLASSWISE always includes the class; POOLED borrows from other classes instead. See
# :doc:`/explanations/how_many_labels`.
#
# Final test
# ----------
# Test the chosen alpha once:

predictor = PooledPredictor(alpha=alpha).fit(probabilities[: 2 * third], labels[: 2 * third])
report = predictor.evaluate(probabilities[test], labels[test])
print(f"target coverage {1 - alpha:g}, coverage {report.marginal_coverage:.3f}")
print(f"average set size {report.avg_size:.1f}")
