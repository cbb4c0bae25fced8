"""
5. Reduce set size
==================

No guarantee limits the size of a set, but a set of 200 labels is of no use. This tutorial covers
five causes of large sets, how to diagnose them, and how to fix them.
"""

from evencover import ClasswisePredictor, PooledPredictor, StandardPredictor
from evencover.data import load_languages

probabilities, labels, names = load_languages()
half = len(labels) // 2
test = slice(half, None)

# %%
# Cause 1: too few calibration examples
# -------------------------------------
# CLASSWISE needs nine examples per class to guarantee 90%. With about five, it includes nearly
# every class in *every* set and warns.

few = slice(5 * len(names))
classwise = ClasswisePredictor().fit(probabilities[few], labels[few])
report = classwise.evaluate(probabilities[test], labels[test])
print(f"average set size: {report.avg_size:.0f} of {len(names)}")

# %%
# Methods that share data between classes avoid this problem. In return, they do not guarantee 90%
# for every class:

for predictor in (StandardPredictor(), PooledPredictor()):
    predictor.fit(probabilities[few], labels[few])
    found = predictor.evaluate(probabilities[test], labels[test])
    print(f"{predictor.method:<9} set size {found.avg_size:4.1f}, TrueGap {found.true_gap:.1f}")

# %%
# Cause 2: the score
# ------------------
# ``softmax`` gives the smallest sets on average. ``aps`` is more even but includes many improbable
# labels; ``raps`` and ``saps`` penalize these. Compare all of them:

from evencover import compare

scores = ["softmax", "aps", "raps", "saps"]
compare(probabilities, labels, methods=["standard", "pooled"], scores=scores, n_splits=3)

# %%
# STANDARD has the smallest sets. But it falls further short for hard classes: this is the price.
#
# Cause 3: a few hard classes
# ---------------------------
# A class with a high threshold is included in many sets of other classes. Count how often each
# class is included, and how often it is the true label:

import numpy as np

calibration = slice(half)
pooled = PooledPredictor().fit(probabilities[calibration], labels[calibration])
sets = pooled.predict_set(probabilities[test])
included = np.bincount(sets.indices, minlength=len(names))
true = np.bincount(labels[test], minlength=len(names))
for index in included.argsort()[::-1][:6]:
    print(f"{names[index]:<30} in {included[index]:5} sets, true label of {true[index]}")

# %%
# All classes, sorted by how often they are included:

import matplotlib.pyplot as plt

figure, ax = plt.subplots()
ax.fill_between(np.arange(len(names)), np.sort(included)[::-1], color="#0072B2", linewidth=0)
ax.axhline(true.mean(), color="#D55E00", linestyle="--", label="test examples per class")
ax.set(title="A few classes make sets large", xlabel="classes", ylabel="sets with the class")
legend = ax.legend()

share = np.sort(included)[::-1][: len(names) // 10].sum() / included.sum()
print(f"the top 10% of the classes make up {share:.0%} of all set members")

# %%
# The model finds these classes hard. Add training data, or merge a class with the one it is
# confused with.
#
# Cause 4: hard inputs
# --------------------
# A large set may just show that the input is hard. Send such inputs to a person or a better model,
# or ask for more information. This is the fraction of inputs with small sets, and their coverage:

sizes = sets.sizes
for limit in (1, 3, 10):
    small = sizes <= limit
    coverage = sets.contains(labels[test])[small].mean()
    print(f"up to {limit:2} labels: {small.mean():.0%} of the inputs, coverage {coverage:.0%}")

# %%
# The target of 90% refers to all inputs, not to those with small sets. If you act on small sets
# only, measure *their* coverage.
#
# Cause 5: the model
# ------------------
# A better model has the largest effect on set size. The model of the bundled file types is right
# for 94% of the files, so STANDARD needs one label per set. Smaller sets would be empty: by default
# every set contains the most probable class, but with ``keep_top=False``, the definition of the
# literature, a threshold can exclude even that one.

from evencover.data import load_filetypes

accurate, types, _, _ = load_filetypes()
for keep_top in (True, False):
    predictor = StandardPredictor(keep_top=keep_top).fit(accurate[:5000], types[:5000])
    report = predictor.evaluate(accurate[5000:], types[5000:])
    print(
        f"keep_top={keep_top!s:<5} set size {report.avg_size:.2f}, "
        f"coverage {report.marginal_coverage:.1%}, empty sets {report.empty_share:.1%}"
    )

# %%
# An empty set is of no use to a person, so keep the default unless you need coverage close to 90%.
