"""
2. Find undercovered classes
============================

Overall coverage of 90% can mean 99% for easy classes and 50% for hard ones. This tutorial finds
undercovered classes, separates them from sampling noise, and improves their coverage.
"""

from evencover import StandardPredictor
from evencover.data import load_languages

probabilities, labels, names = load_languages()
half = len(labels) // 2
calibration, test = slice(None, half), slice(half, None)

standard = StandardPredictor(alpha=0.1)
standard.fit(probabilities[calibration], labels[calibration], class_names=list(names))
report = standard.evaluate(probabilities[test], labels[test])
print(f"overall coverage: {report.marginal_coverage:.3f}")

# %%
# Standard conformal prediction covers 90% of all examples. The plot shows the coverage of every
# class with 95% confidence intervals:

from evencover.plotting import ClassCoverageDisplay

ClassCoverageDisplay.from_report(report).ax_.set_title("Per-class coverage of STANDARD")

# %%
# Account for sampling noise
# --------------------------
# A class with 80% coverage on 20 test examples may have a true coverage of 90%. ``likely_below``
# tests all classes together at a 5% false discovery rate. About one in twenty of the classes it
# names is expected to be a false discovery.

print(f"{report.likely_below.sum()} of {report.n_classes} classes are likely below 90%")

# %%
# ``worst_classes`` sorts classes by the upper limit of their confidence interval:

for view in report.worst_classes(8):
    mistaken = ", ".join(str(names[other]) for other, _ in view.confused_with[:2])
    measured = f"{view.coverage:4.0%} of {view.test_rows:2} examples"
    print(f"{view.name:<26} {measured}; confused with {mistaken}")

# %%
# Use class-specific thresholds
# -----------------------------
# A single threshold does not fit classes of different difficulty. A threshold per class does, but
# it is imprecise with about 20 calibration examples. ``PooledPredictor``, the default of the
# commands, gives each class its own threshold and borrows from other classes. Classes with fewer
# examples borrow more.

import matplotlib.pyplot as plt

from evencover import ClasswisePredictor, PooledPredictor

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True)
rows = []
for predictor, ax in zip(
    [StandardPredictor(), ClasswisePredictor(), PooledPredictor()], axes, strict=True
):
    predictor.fit(probabilities[calibration], labels[calibration], class_names=list(names))
    found = predictor.evaluate(probabilities[test], labels[test])
    ClassCoverageDisplay.from_report(found, ax=ax)
    ax.set(title=f"{predictor.method}: set size {found.avg_size:.1f}", ylabel="")
    ax.get_legend().remove()
    rows.append((predictor.method, found))
axes[0].set_ylabel("coverage")

for method, found in rows:
    print(
        f"{method:<10} coverage {found.marginal_coverage:.3f}   TrueGap {found.true_gap:4.1f}   "
        f"set size {found.avg_size:5.2f}   likely below 90%: {found.likely_below.sum():3}"
    )

# %%
# CLASSWISE guarantees coverage for every class, with larger sets. POOLED targets per-class coverage
# without a guarantee and has the lowest TrueGap here. :doc:`/explanations/guarantees` compares the
# guarantees.
#
# Explain a class
# ---------------
# ``explain`` describes the origin of a class's threshold and the likely cause of low coverage.

from textwrap import fill

pooled, found = predictor, rows[-1][1]
worst = found.worst_classes(1)[0]
why = pooled.explain(found, worst.class_index)
print(fill(f"{why.name}: {why.origin}", 88))
for source, share in why.weights.items():
    print(f"  {share:4.0%} {source}")
print(fill(why.cause, 88))

# %%
# Write a report
# --------------
# ``write_report`` writes one HTML file that works offline. It contains a summary, a searchable
# table of all classes, and this explanation for each class. :doc:`/howto/read_report` describes it.

import tempfile
from pathlib import Path

from evencover import write_report

folder = tempfile.TemporaryDirectory()
page = Path(folder.name) / "report.html"
write_report(pooled, page, probabilities[test], labels[test])
print(f"{page.stat().st_size / 1e6:.1f} MB, one file")

# %%
# On the command line: ``evencover report model.safetensors TEST.npz -o report.html``.
#
# .. image:: ../images/report.png
#    :alt: Report of the languages data set: headline, main figures and a chart of all classes
