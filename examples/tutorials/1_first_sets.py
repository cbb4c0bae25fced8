"""
1. First sets
=============

A classifier gives probabilities. This page turns them into *sets* of labels that should hold the
truth nine times out of ten, checks whether they do, and saves what was learnt for later.

The problem: which of 505 languages is a text of about eleven characters written in? The data come
with the package: the probabilities of a model on 20,200 texts that it was not trained on, and the
true languages.
"""

from evencover.data import load_languages

probabilities, labels, names = load_languages()
print(f"{probabilities.shape[0]} rows, {probabilities.shape[1]} classes")
print(f"the model's first guess is right for {(probabilities.argmax(1) == labels).mean():.0%}")

# %%
# One guess is wrong for more than a quarter of the texts. Here is one where the model cannot know:

row = 36
best = probabilities[row].argsort()[::-1][:5]
for index in best:
    print(f"{names[index]:<32} {probabilities[row, index]:.3f}")
print("the truth:", names[labels[row]])

# %%
# Calibrate
# ---------
# Split the rows: one half *calibrates* (it tells how far down the list one has to go), the other
# half tests. Neither may have trained the model. ``alpha=0.1`` allows one miss in ten.

from evencover import PooledPredictor

half = len(labels) // 2  # the rows come in random order, so any half is a fair sample
calibration, test = slice(None, half), slice(half, None)

predictor = PooledPredictor(alpha=0.1)
predictor.fit(probabilities[calibration], labels[calibration], class_names=list(names))

# %%
# That is all there is to learn: one threshold for each class.

print(predictor.thresholds_[:5].round(4))

# %%
# Predict
# -------

sets = predictor.predict_set(probabilities[test])
sets

# %%
# The classes of a row, the most probable first:

shown = sets[:6].to_lists(names=True)
for members, truth in zip(shown, labels[test], strict=False):
    found = "held" if names[truth] in members else "missed"
    print(f"{names[truth]} is {found} by {' | '.join(members[:3])}{' ...' * (len(members) > 3)}")

# %%
# Sure rows get one label, hard ones more. That is the point: the size of a set tells how sure the
# model is, in a unit that everybody understands.

from evencover.plotting import SetSizeDisplay

report = predictor.evaluate(probabilities[test], labels[test])
display = SetSizeDisplay.from_report(report)
display.ax_.set_xlim(0, 26)
display.ax_.set_title("How large the sets are")

# %%
# Check
# -----
# Do the sets hold the truth as often as they should? And for every class, or only on average?

report

# %%
# *CovGap* is how far a class is from 90% on average, in points. It never shows zero: with 20 test
# rows a class, luck alone moves its coverage by several points (the *noise floor*). *TrueGap* has
# that luck removed. :ref:`sphx_glr_tutorials_2_let_down.py` looks at single classes.
#
# Keep
# ----
# A model file holds the thresholds and how they came about. It contains no code, so it is safe to
# pass on.

import tempfile
from pathlib import Path

from evencover import load, save

folder = tempfile.TemporaryDirectory()
model = Path(folder.name) / "languages.safetensors"
save(predictor, model)
again = load(model)
print(f"{model.stat().st_size // 1024} kB;", again.predict_set(probabilities[test]) == sets)

# %%
# The same from a shell, with a file of probabilities and labels:
#
# .. code-block:: shell
#
#    evencover calibrate CAL.npz -o model.safetensors
#    evencover predict model.safetensors NEW.npy -o sets.parquet
#
# Next: :ref:`sphx_glr_tutorials_2_let_down.py`
