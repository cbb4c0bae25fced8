"""
1. First prediction sets
========================

This tutorial turns the probabilities of a classifier into *prediction sets* with a target coverage
of 90%, measures their coverage, and saves the model.

The task is to identify the language of a text of about eleven characters, out of 505 languages. The
bundled data set contains a model's probabilities for 20,200 held-out texts and the true labels.
"""

from evencover.data import load_languages

probabilities, labels, names = load_languages()
print(f"{probabilities.shape[0]} rows, {probabilities.shape[1]} classes")
print(f"accuracy: {(probabilities.argmax(1) == labels).mean():.0%}")

# %%
# The top class is wrong for more than a quarter of the texts. Here is an ambiguous one:

row = 36
best = probabilities[row].argsort()[::-1][:5]
for index in best:
    print(f"{names[index]:<32} {probabilities[row, index]:.3f}")
print("true label:", names[labels[row]])

# %%
# Calibrate
# ---------
# Split the data into a calibration set, which fits the thresholds, and a test set. The model must
# not have been trained on either. ``alpha=0.1`` sets the target coverage to 90%.

from evencover import PooledPredictor

half = len(labels) // 2  # the rows are in random order
calibration, test = slice(None, half), slice(half, None)

predictor = PooledPredictor(alpha=0.1)
predictor.fit(probabilities[calibration], labels[calibration], class_names=list(names))

# %%
# ``fit`` estimates one threshold per class:

print(predictor.thresholds_[:5].round(4))

# %%
# Predict
# -------

sets = predictor.predict_set(probabilities[test])
sets

# %%
# ``to_lists`` returns the classes of each set, the most probable first:

shown = sets[:6].to_lists(names=True)
for members, truth in zip(shown, labels[test], strict=False):
    found = "covered" if names[truth] in members else "missed"
    print(f"{names[truth]}, {found}: {' | '.join(members[:3])}{' ...' * (len(members) > 3)}")

# %%
# Easy texts get one label, hard texts more. The size of a set measures the model's uncertainty.

from evencover.plotting import SetSizeDisplay

report = predictor.evaluate(probabilities[test], labels[test])
display = SetSizeDisplay.from_report(report)
display.ax_.set_xlim(0, 26)
display.ax_.set_title("Set sizes")

# %%
# Evaluate
# --------
# The report contains overall coverage, per-class coverage and set size:

report

# %%
# *CovGap* is the mean distance of per-class coverage from 90%, in points. With 20 test examples per
# class, sampling noise alone gives several points (the *noise floor*). *TrueGap* is corrected for
# this noise. :doc:`/metrics` defines all metrics.
#
# Save and load
# -------------
# A model file contains the thresholds and the calibration scores, but no code.

import tempfile
from pathlib import Path

from evencover import load, save

folder = tempfile.TemporaryDirectory()
model = Path(folder.name) / "languages.safetensors"
save(predictor, model)
again = load(model)
print(f"{model.stat().st_size // 1024} kB;", again.predict_set(probabilities[test]) == sets)

# %%
# On the command line, with a file of probabilities and labels:
#
# .. code-block:: shell
#
#    evencover calibrate CAL.npz -o model.safetensors
#    evencover predict model.safetensors NEW.npy -o sets.parquet
#
# Next: :ref:`sphx_glr_tutorials_2_undercovered_classes.py`
