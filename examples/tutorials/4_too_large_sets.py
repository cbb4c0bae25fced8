"""
4. Sets that are too large
==========================

A set of 200 labels is honest and useless. There are only a few reasons for it. This page shows how
to tell which one it is, and what helps.
"""

from evencover import ClasswisePredictor, PooledPredictor, StandardPredictor
from evencover.data import load_languages

probabilities, labels, names = load_languages()
half = len(labels) // 2
test = slice(half, None)

# %%
# Reason 1: classes without a threshold
# -------------------------------------
# With five calibration rows a class, CLASSWISE cannot promise 90%: it needs nine. It then puts
# the class into *every* set, and says so.

few = slice(5 * len(names))
classwise = ClasswisePredictor().fit(probabilities[few], labels[few])
report = classwise.evaluate(probabilities[test], labels[test])
print(f"labels a set: {report.avg_size:.0f} of {len(names)}")

# %%
# Nothing is wrong with the model: no guarantee for a class can be had from so few rows. Methods
# that share rows between classes do not have this problem (nor that guarantee):

for predictor in (StandardPredictor(), PooledPredictor()):
    predictor.fit(probabilities[few], labels[few])
    found = predictor.evaluate(probabilities[test], labels[test])
    print(f"{predictor.method:<9} labels a set {found.avg_size:4.1f}, TrueGap {found.true_gap:.1f}")

# %%
# Reason 2: the score
# -------------------
# ``softmax`` makes the smallest sets on average. ``aps`` is more even but pays for it with long
# tails of improbable labels; ``raps`` and ``saps`` charge for those. One look at all of them:

from evencover import compare

scores = ["softmax", "aps", "raps", "saps"]
compare(probabilities, labels, methods=["standard", "pooled"], scores=scores, n_splits=3)

# %%
# ``max_size=`` lets the advice take only candidates that you can use:

limited = compare(probabilities, labels, n_splits=3, max_size=3)
print(limited.reason)

# %%
# Reason 3: a few hard classes
# ----------------------------
# Average size hides who makes sets long. A class with a lenient threshold enters many sets of
# others. Count how often each class is listed, and how often rightly:

import numpy as np

calibration = slice(half)
pooled = PooledPredictor().fit(probabilities[calibration], labels[calibration])
sets = pooled.predict_set(probabilities[test])
listed = np.bincount(sets.indices, minlength=len(names))
true = np.bincount(labels[test], minlength=len(names))
for index in listed.argsort()[::-1][:6]:
    print(f"{names[index]:<30} in {listed[index]:5} sets, the truth in {true[index]}")

# %%
# All classes, the most listed first:

import matplotlib.pyplot as plt

figure, ax = plt.subplots()
ax.fill_between(np.arange(len(names)), np.sort(listed)[::-1], color="#0072B2", linewidth=0)
ax.axhline(true.mean(), color="#D55E00", linestyle="--", label="test rows of a class")
ax.set(title="A few classes make sets long", xlabel="classes", ylabel="sets that list the class")
legend = ax.legend()

share = np.sort(listed)[::-1][: len(names) // 10].sum() / listed.sum()
print(f"the tenth of the classes that is listed most makes {share:.0%} of all entries")

# %%
# Such a class is hard for the model: it takes a lenient threshold to cover its own rows, and so
# it turns up elsewhere. What helps is training data of this class, or merging it with the class
# it is taken for.
#
# Reason 4: the row is hard
# -------------------------
# Then the large set is the message. Rows with many labels can go to a person, to a better model,
# or ask for more input. How much of the work is left if rows with up to three labels are done at
# once?

sizes = sets.sizes
for limit in (1, 3, 10):
    small = sizes <= limit
    held = sets.contains(labels[test])[small].mean()
    print(
        f"up to {limit:2} labels: {small.mean():.0%} of the rows, the truth among them {held:.0%}"
    )

# %%
# Mind the last column: 90% is promised for all rows together, not for those with small sets. If
# you act on small sets only, measure *their* coverage, as here.
#
# Reason 5: the model
# -------------------
# A better model makes smaller sets; nothing on this page can do as much. Empty sets are the
# opposite problem: where a model is mostly right, some rows need no label to reach 90%.
# ``allow_empty=False`` gives them their best one.

report = pooled.evaluate(probabilities[test], labels[test])
print(f"empty sets: {report.empty_share:.1%}")
