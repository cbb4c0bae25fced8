"""
2. Find undercovered classes
============================

Overall coverage of 90% can mean 99% for easy classes and 25% for hard ones. This tutorial finds
undercovered classes, separates them from sampling noise, and improves their coverage. It also shows
the price: which labels make sets large.
"""

from evencover import StandardPredictor
from evencover.data import load_filetypes

probabilities, labels, names, ids = load_filetypes()
names = [str(name) for name in names]
calibration, test = slice(5000), slice(5000, None)

standard = StandardPredictor(alpha=0.1)
standard.fit(probabilities[calibration], labels[calibration], class_names=names)
report = standard.evaluate(probabilities[test], labels[test])
print(f"overall coverage: {report.marginal_coverage:.3f}")

# %%
# Standard conformal prediction has one threshold for all types. It meets the target over all files,
# so nothing seems wrong. The plot shows the coverage of every type with 95% confidence intervals,
# which are long for types with few test files:

from evencover.plotting import ClassCoverageDisplay

ClassCoverageDisplay.from_report(report).ax_.set_title("Per-class coverage of STANDARD")

# %%
# Account for sampling noise
# --------------------------
# A type with 80% coverage on 20 test files may have a true coverage of 90%. So ``likely_below``
# tests all classes together at a 5% false discovery rate: about one in twenty of the classes it
# names is expected to be a false discovery.

below = report.likely_below
print(f"{below.sum()} of {report.n_classes_evaluated} tested types are likely below 90%")

# %%
# ``worst_classes`` sorts classes by the upper limit of their confidence interval:

for view in report.worst_classes(8):
    mistaken = ", ".join(names[other] for other, _ in view.confused_with[:2])
    measured = f"{view.coverage:4.0%} of {view.test_rows:2} files"
    print(f"{view.name:<11} {measured}; confused with {mistaken}")

# %%
# For three of four text files, a user of these sets does not see ``txt``. One threshold is too
# strict for it, because the model gives such files a small probability of being text.
#
# Use class-specific thresholds
# -----------------------------
# A single threshold does not fit classes of different difficulty. A threshold per class does, but
# it is imprecise with few calibration examples, and half of the types with any have at most 26.
# ``PooledPredictor``, the default of the commands, gives each class its own threshold and borrows
# from other classes. Classes with fewer examples borrow more.

import matplotlib.pyplot as plt

from evencover import ClasswisePredictor, PooledPredictor

reports = {}
for predictor in (StandardPredictor(), ClasswisePredictor(), PooledPredictor()):
    predictor.fit(probabilities[calibration], labels[calibration], class_names=names)
    reports[predictor.method] = predictor.evaluate(probabilities[test], labels[test])

frequent = report.class_counts >= 20
figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True)
for ax, method in zip(axes, ("classwise", "pooled"), strict=True):
    ax.plot([0.2, 1], [0.2, 1], color="gray", linewidth=1)
    ax.axhline(0.9, color="gray", linestyle="--")
    ax.plot(report.class_coverage[frequent], reports[method].class_coverage[frequent], "o")
    ax.set(title=f"{method}: {reports[method].avg_size:.1f} labels per set")
    ax.set_xlabel("coverage with one threshold")
label = axes[0].set_ylabel("coverage with a threshold per class")

for method, found in reports.items():
    print(
        f"{method:<10} overall {found.marginal_coverage:.1%}"
        f"   likely below {found.likely_below.sum()}"
        f"   shortfall {found.shortfall:4.1f}   labels per set {found.avg_size:4.1f}"
    )

# %%
# Each point in the plot is a type with at least 20 test files. Above the solid line, its coverage
# is higher than with STANDARD; the dashed line is the target. Both methods raise most of the types
# that STANDARD undercovers, CLASSWISE somewhat more, but only the sets of POOLED are small.
#
# The same by name, in percent of a type's test files:

print(f"{'':<10}" + "".join(f"{method:>11}" for method in reports))
for name in ("txt", "cobol", "jinja", "sgml", "html", "cpp", "java"):
    index = names.index(name)
    covered = [found.class_coverage[index] for found in reports.values()]
    print(f"{name:<10}" + "".join(f"{share:>11.0%}" for share in covered))

# %%
# CLASSWISE guarantees coverage for every class, but its sets are useless here: it includes every
# type with fewer than nine calibration examples in every set. POOLED covers ``txt`` nearly as well
# as CLASSWISE does, for 0.2 labels per set more than STANDARD. :doc:`/explanations/guarantees`
# compares the guarantees.
#
# Which labels make sets large
# ----------------------------
# Better coverage has a price, and a few types account for most of it. ``largest_contributors``
# finds the types that are most often in a set without being the true label:

pooled, found = predictor, reports["pooled"]
wrong = found.appearances - found.class_covered
for index in found.largest_contributors(5):
    print(f"{names[index]:<9} in {found.appearances[index]:3} sets, wrong in {wrong[index]:3}")
print(f"all types: wrong in {wrong.sum()}")

# %%
# ``txt`` alone accounts for more than half of the wrong labels. If text files do not matter, give
# ``txt`` a larger alpha (:ref:`sphx_glr_tutorials_3_critical_classes.py`), and the sets shrink.
#
# A wrong label can do more. The data contain no file of type ``dmg``, a disk image. Suppose that
# one makefile of the calibration set gets this label, perhaps because it is called
# ``Makefile.dmg``:

row = list(ids).index("nibabel/doc/Makefile")
mislabeled = labels.copy()
mislabeled[row] = names.index("dmg")
again = PooledPredictor()
again.fit(probabilities[calibration], mislabeled[calibration], class_names=names)
unlucky = again.evaluate(probabilities[test], labels[test])
for index in unlucky.largest_contributors(2):
    print(f"{names[index]:<4} in {unlucky.appearances[index]} of {unlucky.n_rows} sets", end=", ")
    print(f"{again.class_counts_[index]} calibration examples")
print(f"{unlucky.avg_size:.1f} labels per set instead of {found.avg_size:.1f}")

# %%
# The model gives the makefile a tiny probability of being ``dmg``. POOLED guarantees a minimum even
# to a class with one example, so it raises the threshold to the score of this file, and ``dmg``
# enters most sets. ``largest_contributors`` and the report put such a class first. Look at its
# examples, correct their labels or add others, and the sets shrink.
#
# Explain a class
# ---------------
# ``explain`` describes the origin of a class's threshold and the likely cause of low coverage.

from textwrap import fill

worst = found.worst_classes(1)[0]
why = pooled.explain(found, worst.class_index)
print(fill(f"{why.name}: {why.origin}", 88))
for source, share in why.weights.items():
    print(f"  {share:4.0%} {source}")
print(fill(why.cause, 88))

# %%
# ``ids`` show which files these are:

sets = pooled.predict_set(probabilities[test])
missed = (labels[test] == worst.class_index) & ~sets.contains(labels[test])
for row in missed.nonzero()[0][:4]:
    (members,) = sets[row : row + 1].to_lists(names=True)
    print(f"{', '.join(members)}: {ids[test][row]}")

# %%
# By their paths these templates are icons, and the model names ``svg`` for some of them. So look at
# the files before you collect more: the extension may not describe the content.

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
# .. image:: ../images/report_light.png
#    :class: only-light
#    :alt: Report of file types with one threshold: headline, figures, shortfalls and remedies
#
# .. image:: ../images/report_dark.png
#    :class: only-dark
#    :alt: Report of file types with one threshold: headline, figures, shortfalls and remedies
