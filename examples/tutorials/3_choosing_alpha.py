"""
3. Choosing alpha
=================

``alpha`` is the share of rows whose set may miss the truth. Smaller means safer and larger sets.
There is no right value in the data: it depends on what a miss costs and what a longer list costs.
This page shows the trade and three ways to decide.
"""

from evencover import PooledPredictor
from evencover.data import load_languages

probabilities, labels, names = load_languages()
third = len(labels) // 3
calibration, choosing, test = slice(third), slice(third, 2 * third), slice(2 * third, None)

# %%
# Three parts, not two: one calibrates, one is for choosing, and the last is touched once, at the
# end. The promise of conformal prediction holds for an alpha that was fixed before the rows that
# test it were seen. Choosing the alpha that looks best on the test rows and then quoting its
# coverage on them is the same mistake as tuning a model on its test set.
#
# The trade
# ---------

import numpy as np

levels = (0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)
found = []
for alpha in levels:
    predictor = PooledPredictor(alpha=alpha).fit(probabilities[calibration], labels[calibration])
    found.append(predictor.evaluate(probabilities[choosing], labels[choosing]))
for alpha, report in zip(levels, found, strict=True):
    print(
        f"alpha {alpha:<5} coverage {report.marginal_coverage:.3f}  labels {report.avg_size:6.1f}"
        f"  median {report.size_quantiles['50']}"
    )

# %%

import matplotlib.pyplot as plt

sizes = np.array([report.avg_size for report in found])
figure, ax = plt.subplots()
ax.plot(levels, sizes, "o-", color="#0072B2")
ax.set(xscale="log", yscale="log", xlabel="alpha", ylabel="labels in a set, on average")
ax.set_xticks(levels, [str(level) for level in levels])
ax.set_title("The last per cent are the dear ones")

# %%
# Way 1: by the work that you can do
# ----------------------------------
# Somebody will look through the sets, and has time for five labels a row: take the smallest alpha
# whose sets are that small.

budget = 5
alpha = min(level for level, size in zip(levels, sizes, strict=True) if size <= budget)
print(f"alpha = {alpha} keeps sets at {sizes[levels.index(alpha)]:.1f} labels")

# %%
# Way 2: by the cost of a miss
# ----------------------------
# A label on the list costs one unit of somebody's time; a miss costs, say, 100. Then the cost of
# a row is its labels plus 100 times the chance of a miss.

cost_of_a_miss = 100
missed = np.array([1 - report.marginal_coverage for report in found])
costs = sizes + cost_of_a_miss * missed
for level, cost in zip(levels, costs, strict=True):
    print(f"alpha {level:<5} costs {cost:6.1f}{'   <- least' if cost == costs.min() else ''}")

# %%
# Way 3: do not choose yet
# ------------------------
# ``predict_p`` gives each class a *p-value*: the smallest alpha at which the class would leave
# the set. Keep these, and every reader can cut where they like. A small p-value says: if this
# were the truth, the row would be stranger than nearly all calibration rows of the class.

predictor = PooledPredictor().fit(probabilities[calibration], labels[calibration])
p = predictor.predict_p(probabilities[test][:1])[0]
for index in p.argsort()[::-1][:6]:
    print(f"{names[index]:<28} p = {p[index]:.3f}")

# %%
# How small can alpha be?
# -----------------------
# A class needs at least 1/alpha - 1 calibration rows before its own threshold can be finite: 9 at
# 0.1, 19 at 0.05, 99 at 0.01. With fewer, CLASSWISE puts it into every set; POOLED leans on the
# other classes instead. See :doc:`/explanations/how_many_labels`.
#
# At the end, once, with the alpha of way 1:

predictor = PooledPredictor(alpha=alpha).fit(probabilities[: 2 * third], labels[: 2 * third])
report = predictor.evaluate(probabilities[test], labels[test])
print(f"aim {1 - alpha:g}, coverage {report.marginal_coverage:.3f}, labels {report.avg_size:.1f}")
