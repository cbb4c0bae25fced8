"""
8. Use a pipeline's top labels
==============================

Hosted models and Hugging Face pipelines return a few labels with scores instead of all
probabilities. This tutorial calibrates on such output: the five most probable of 505 languages. It
shows what a short list costs, and how to choose its length.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

from evencover.data import load_languages

probabilities, labels, names = load_languages()
names = [str(name) for name in names]
folder = Path(tempfile.mkdtemp())


def write_output(name, rows, k):
    """Write what ``pipeline("text-classification", top_k=k)`` returns, one text per line."""
    with open(folder / name, "w", encoding="utf-8") as file:
        for row in rows:
            top = np.argsort(-probabilities[row])[:k]
            output = [{"label": names[y], "score": float(probabilities[row, y])} for y in top]
            print(json.dumps({"label": names[labels[row]], "output": output}), file=file)
    return folder / name


calibration, test = range(10_100), range(10_100, 20_200)
path = write_output("calibration.jsonl", calibration, k=5)
print(path.open(encoding="utf-8").readline()[:100], "...")

# %%
# Each line has the true label next to the output. Without it, pass the labels to ``fit``. The names
# of the classes come from the file, or from ``class_names`` if some classes are never listed.
#
# Calibrate
# ---------
# ``fit`` takes the file as it is, and so does the command ``evencover calibrate``:

from evencover import PooledPredictor

predictor = PooledPredictor(alpha=0.1).fit(path, class_names=names)
sets = predictor.predict_set(write_output("test.jsonl", test, k=5))
for members in sets[:3].to_lists(names=True):
    print(members)

# %%
# A listed language has the score that it has among all 505, because every language ahead of it is
# listed, too. But a set contains listed languages only. If the true one is not among the five, no
# threshold can include it.
#
# Check recall at k
# -----------------
# The share of texts whose list contains the true language is *recall at k*. It is the highest
# coverage that any method can reach, so evencover reports it next to coverage:

report = predictor.evaluate(folder / "test.jsonl")
print(f"coverage {report.marginal_coverage:.1%}, labels per set {report.avg_size:.2f}")
recall, low, high = report.recall_at_k[0]
print(f"recall at 5: {recall:.1%}, between {low:.1%} and {high:.1%}")

# %%
# Recall at 5 is barely above the target, so five labels leave no room for error: nearly every
# listed language must be in the set, and coverage ends up close to recall. For single languages the
# list is too short. One with recall below 90% stays below 90%, whatever its threshold, which may be
# infinite: then every row that lists the language includes it. ``fit`` warns about these.


def n_limited(report):
    """Count the languages whose recall is below 90%."""
    return int((report.listed_counts < 0.9 * report.class_counts).sum())


print(f"recall is below 90% for {n_limited(report)} of {len(names)} languages")

# %%
# Choose k
# --------
# A longer list costs little, because the work and the files grow with k and not with the number of
# classes. So compare a few:

import matplotlib.pyplot as plt

lengths, limited = (3, 5, 10, 20), []
for k in lengths:
    own = PooledPredictor(alpha=0.1)
    own.fit(write_output(f"calibration_{k}.jsonl", calibration, k), class_names=names)
    measured = own.evaluate(write_output(f"test_{k}.jsonl", test, k))
    limited.append(n_limited(measured))
    print(
        f"k = {k:2}: recall {measured.recall_at_k[0][0]:.1%}, coverage "
        f"{measured.marginal_coverage:.1%}, {limited[-1]} languages with recall below 90%"
    )

figure, ax = plt.subplots(figsize=(6, 3.4))
ax.plot(lengths, limited, marker="o")
ax.set(xlabel="listed labels per text (k)", ylabel="languages with recall < 90%", ylim=0)
ax.set_title("A longer list lets more languages reach 90%")

# %%
# With three labels, coverage is recall: no method reaches 90%. From ten on, overall coverage meets
# the target, and each doubling of the list frees more languages. ``TopK`` holds such rows in
# memory, and a SciPy sparse matrix works as well; the guide :doc:`/howto/top_k` has other formats.
