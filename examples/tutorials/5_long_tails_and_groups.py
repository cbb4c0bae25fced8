"""
5. Long tails and groups
========================

In most real problems a few classes have many rows and most have few. Then the average over rows is
an average over the large classes, and rare ones are let down without anybody noticing. This page
makes such a problem from the languages, and shows the methods for it; and what to do when you care
for *groups* of classes, such as language families.
"""

import numpy as np

from evencover.data import load_languages

probabilities, labels, names = load_languages()
half = len(labels) // 2
test = slice(half, None)

# %%
# A tail
# ------
# A model that saw little of a class in training is bad at it, so in real problems rare classes
# tend to be the hard ones. To get such a tail we rank the languages by how hard they are, with
# some luck, and let the number of calibration rows fall with the rank, from 20 to two. The test
# rows stay balanced: we want to see the rare classes.

random = np.random.default_rng(0)
ease = [probabilities[labels == index, index].mean() for index in range(len(names))]
rank = np.argsort(np.argsort(-np.array(ease) + random.normal(0, 0.2, len(names))))
wanted = np.maximum(1, 20 / (1 + rank / 60)).astype(int)
seen = np.zeros(len(names), int)
kept = []
for row in range(half):
    if seen[labels[row]] < wanted[labels[row]]:
        seen[labels[row]] += 1
        kept.append(row)
print(
    f"{len(kept)} rows; a class has {seen.min()} to {seen.max()}, most have {np.median(seen):.0f}"
)

# %%
# What each method does
# ---------------------
# *MacroCov* is the mean coverage of a class, which is what a rare class would like you to look at.

import warnings

from evencover import EvencoverWarning
from evencover.predictors import make_predictor

warnings.simplefilter("ignore", EvencoverWarning)  # some classes have too few rows: we know
candidates = {
    "standard": make_predictor("standard"),
    "standard, pas": make_predictor("standard", score="pas"),
    "classwise": make_predictor("classwise"),
    "clustered": make_predictor("clustered"),
    "pooled": make_predictor("pooled"),
    "interpolated": make_predictor("interpolated", tau=0.9),
    "fuzzy": make_predictor("fuzzy"),
    "macro": make_predictor("macro"),
}
reports = {}
print(f"{'':<14} MacroCov  TrueGap  below 50%  labels")
for name, predictor in candidates.items():
    predictor.fit(probabilities[kept], labels[kept])
    report = reports[name] = predictor.evaluate(probabilities[test], labels[test])
    print(
        f"{name:<14} {report.macro_coverage:8.3f}  {report.true_gap:7.1f}"
        f"  {report.frac_below_half:9.1%}  {report.avg_size:6.1f}"
    )

# %%
# STANDARD keeps its promise for the rows it was calibrated on, most of which are of easy
# languages, and lets the others down. MACRO promises the mean over classes, CLASSWISE every
# class, at the price of sets that hold nearly all languages. The others promise less and sit
# between: read the table by what you need. :doc:`/methods` says what each one guarantees.
#
# Coverage by how much data a class had:

import matplotlib.pyplot as plt

from evencover.plotting import CoverageByCountDisplay

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
for ax, name in zip(axes, ("standard", "pooled"), strict=True):
    CoverageByCountDisplay.from_report(reports[name], ax=ax)
    ax.set_title(name)

# %%
# Groups of classes
# -----------------
# Perhaps no single dialect matters, but each *language* does: the kinds of Chinese, or of
# Quechua, count as one. The group of a class is the part of its name before a comma or bracket.

families = np.array([name.replace("(", ",").split(",")[0].strip() for name in names])
groups, group_of_class = np.unique(families, return_inverse=True)
sizes = np.bincount(group_of_class)
largest = sizes.argsort()[::-1][:5]
print(f"{len(groups)} groups, the largest: {', '.join(groups[largest])}")

# %%
# ``GroupedPredictor`` treats each group as if it were a class. With ``over_groups="classwise"``
# every group is promised 90%, small groups at the price of large sets; with ``"pooled"`` they
# borrow from the others.

from evencover import GroupedPredictor, StandardPredictor

calibration = slice(half)
for predictor in (
    StandardPredictor(),
    GroupedPredictor(groups=list(families), over_groups="classwise"),
    GroupedPredictor(groups=list(families), over_groups="pooled"),
):
    predictor.fit(probabilities[calibration], labels[calibration], class_names=list(names))
    report = predictor.evaluate(probabilities[test], labels[test])
    found = {group.group: group.coverage for group in report.by_group(group_of_class, list(groups))}
    shown = ", ".join(f"{group} {found[group]:.2f}" for group in groups[largest])
    over = getattr(predictor, "over_groups", "")
    print(f"{predictor.method} {over}: {report.avg_size:.1f} labels a set\n  {shown}")

# %%
# Groups of rows
# --------------
# A hospital, a camera, a customer: here the group belongs to the row, not to its class, and is
# known when predicting. ``RowGroupedPredictor`` takes it as ``groups=`` of ``fit`` and
# ``predict_set``. As an example: rows where the model is sure of itself, and rows where it is
# not.

from evencover import RowGroupedPredictor

unsure = np.where(probabilities.max(axis=1) < 0.5, "unsure", "sure")
by_row = RowGroupedPredictor()
by_row.fit(probabilities[calibration], labels[calibration], groups=unsure[calibration])
sets = by_row.predict_set(probabilities[test], groups=unsure[test])
plain = StandardPredictor().fit(probabilities[calibration], labels[calibration])
for who in ("sure", "unsure"):
    chosen = unsure[test] == who
    before = plain.predict_set(probabilities[test][chosen]).contains(labels[test][chosen]).mean()
    after = sets.contains(labels[test])[chosen].mean()
    print(
        f"{who:<7} {chosen.mean():.0%} of the rows: coverage {before:.3f} before, {after:.3f} now"
    )
