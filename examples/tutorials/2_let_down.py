"""
2. Which classes are let down
=============================

Coverage of 90% on average can mean 99% for easy classes and 50% for hard ones. This page finds the
classes that are let down, tells bad luck from a real shortfall, and mends it.
"""

from evencover import StandardPredictor
from evencover.data import load_languages

probabilities, labels, names = load_languages()
half = len(labels) // 2
calibration, test = slice(None, half), slice(half, None)

standard = StandardPredictor(alpha=0.1)
standard.fit(probabilities[calibration], labels[calibration], class_names=list(names))
report = standard.evaluate(probabilities[test], labels[test])
print(f"coverage over all rows: {report.marginal_coverage:.3f}")

# %%
# The usual conformal predictor keeps its promise: 90% of all rows. Now every class on its own,
# with 95% confidence intervals:

from evencover.plotting import ClassCoverageDisplay

ClassCoverageDisplay.from_report(report).ax_.set_title("STANDARD: right on average")

# %%
# Luck or shortfall?
# ------------------
# A class with 20 test rows that is covered 80% of the time may well be fine. So classes are not
# accused one by one: ``likely_below`` tests all of them at once and holds the false discovery
# rate at 5%. Of the classes that it names, about one in twenty is expected to be innocent.

print(f"{report.likely_below.sum()} of {report.n_classes} classes are likely below 90%")

# %%
# The worst of them: those whose coverage is low even on the kindest reading of their test rows.

for view in report.worst_classes(8):
    mistaken = ", ".join(str(names[other]) for other, _ in view.confused_with[:2])
    print(f"{view.name:<26} {view.coverage:4.0%} of {view.test_rows:2} rows; taken for {mistaken}")

# %%
# What to do about it
# -------------------
# One threshold for all cannot serve classes that differ. A threshold *for each class* can, but
# few calibration rows make it wild: here a class has about 20. ``PooledPredictor``, the default
# of the commands, gives each class its own threshold and borrows from the others in proportion to
# how little data the class has.

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
    ax.set(title=f"{predictor.method}: {found.avg_size:.1f} labels a set", ylabel="")
    ax.get_legend().remove()
    rows.append((predictor.method, found))
axes[0].set_ylabel("coverage")

for method, found in rows:
    print(
        f"{method:<10} coverage {found.marginal_coverage:.3f}   TrueGap {found.true_gap:4.1f}   "
        f"labels a set {found.avg_size:5.2f}   likely below 90%: {found.likely_below.sum():3}"
    )

# %%
# Classwise coverage is guaranteed for every class, and its sets are the price. Pooled has no
# guarantee for a single class; it aims at evenness, and here it comes closest. What each method
# promises: :doc:`/explanations/guarantees`.
#
# Why is this class short?
# ------------------------
# The calibrated predictor explains what made a class's threshold, in sentences.

from textwrap import fill

pooled, found = predictor, rows[-1][1]
worst = found.worst_classes(1)[0]
why = pooled.explain(found, worst.class_index)
print(fill(f"{why.name}: {why.origin}", 88))
for source, share in why.weights.items():
    print(f"  {share:4.0%} {source}")
print(fill(why.cause, 88))

# %%
# The page for everybody else
# ---------------------------
# ``write_report`` makes one HTML file that works offline: the verdict in a sentence, a table of all
# classes that can be sorted and searched, and this explanation for each of them.

import tempfile
from pathlib import Path

from evencover import write_report

folder = tempfile.TemporaryDirectory()
page = Path(folder.name) / "report.html"
write_report(pooled, page, probabilities[test], labels[test])
print(f"{page.stat().st_size / 1e6:.1f} MB, one file")

# %%
# From a shell: ``evencover report model.safetensors TEST.npz -o report.html``.
#
# .. image:: ../images/report.png
#    :alt: The report of the languages: a sentence, the main numbers, a chart of all classes
