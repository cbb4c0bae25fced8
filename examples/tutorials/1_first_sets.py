"""
1. First prediction sets
========================

This tutorial turns the probabilities of a classifier into *prediction sets* with a target coverage
of 90%, measures their coverage, and saves the model.

The task is to name the type of a file from its content, for example to choose a scanner for an
attachment. The bundled data set contains the outputs of Magika, a model by Google, for 10,563 files
of public packages. A file's label is the type of its extension, and ``ids`` has its package and
path, so that you can look at a file.
"""

from evencover.data import load_filetypes

probabilities, labels, names, ids = load_filetypes()
print(f"{probabilities.shape[0]} files, {probabilities.shape[1]} types")
print(f"accuracy: {(probabilities.argmax(1) == labels).mean():.0%}")

# %%
# The model is accurate, but it is wrong for one file in seventeen. Here is one of them, a TOML file
# that resembles other languages for configuration:

row = list(ids).index("tomlkit/tests/examples/string_slash_whitespace_newline.toml")
best = probabilities[row].argsort()[::-1][:4]
print(ids[row])
for index in best:
    print(f"{names[index]:<8} {probabilities[row, index]:.3f}")
print("true label:", names[labels[row]])

# %%
# One label is not enough here, but a set of two or three types contains the right one.
#
# Calibrate
# ---------
# Split the data into a calibration set, which fits the thresholds, and a test set. The model must
# not have been trained on either. ``alpha=0.1`` sets the target coverage to 90%.

from evencover import PooledPredictor

calibration, test = slice(5000), slice(5000, None)  # the rows are in random order

predictor = PooledPredictor(alpha=0.1)
predictor.fit(probabilities[calibration], labels[calibration], class_names=list(names))

# %%
# ``fit`` warns that some types have no calibration examples, because a deployed model often has
# more outputs than a site has classes. It estimates one threshold per type. A type whose files the
# model often mistakes for something else needs a higher one, so that sets contain it more often:

for name in ("txt", "jinja", "html", "toml", "java", "pdf"):
    index = list(names).index(name)
    print(f"{name:<8} {predictor.thresholds_[index]:.4f}")

# %%
# A type is in the set if its probability is at least one minus its threshold. For ``txt`` a tiny
# probability is enough, because the model names another type for most text files.
#
# Predict
# -------

sets = predictor.predict_set(probabilities[test])
sets

# %%
# ``to_lists`` returns the types of each set, the most probable first. Most sets have one type;
# these are some of the others:

for row in (37, 39, 46, 112, 249):
    (members,) = sets[row : row + 1].to_lists(names=True)
    truth = names[labels[test][row]]
    covered = "covered" if truth in members else "missed"
    print(f"{ids[test][row].split('/')[-1]}, {covered}: {', '.join(members)}")

# %%
# Easy files get one label, hard files more, so the size of a set measures the model's uncertainty.
# Every set contains the most probable type, so none is empty. (``keep_top=False`` gives the
# definition of the literature, where sets can be empty.)

from evencover.plotting import SetSizeDisplay

report = predictor.evaluate(probabilities[test], labels[test])
display = SetSizeDisplay.from_report(report)
display.ax_.set_title("Set sizes")

# %%
# Accept or review
# ----------------
# If a set contains only the most probable type, it needs no review. ``accepted`` marks
# these rows; a person reviews the others:

right = probabilities[test].argmax(1) == labels[test]
for title, rows in {"accepted": sets.accepted, "to review": ~sets.accepted}.items():
    print(f"{title:<9} {rows.mean():.0%} of the files, top type right for {right[rows].mean():.1%}")

# %%
# Evaluate
# --------
# The report contains overall coverage, per-class coverage and set size:

report

# %%
# Overall coverage is above 90%, because the most probable type alone covers 94% of the files. The
# *typical shortfall* is the distance of a class's coverage below 90%, in points, corrected for
# sampling noise. :doc:`/metrics` defines all metrics.
#
# Save and load
# -------------
# A model file contains the thresholds and the calibration scores, but no code.

import tempfile
from pathlib import Path

from evencover import load, save

folder = tempfile.TemporaryDirectory()
model = Path(folder.name) / "filetypes.safetensors"
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
