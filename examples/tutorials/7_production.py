"""
7. In production
================

Thresholds are learnt once; the world goes on. This page plays a few weeks of production: a
monitor that may be looked at at any time, an accident, the alarm, and the repair.
"""

import numpy as np

from evencover import PooledPredictor
from evencover.data import load_languages

probabilities, labels, names = load_languages()
calibration = slice(8000)
predictor = PooledPredictor(alpha=0.1)
predictor.fit(probabilities[calibration], labels[calibration], class_names=list(names))

# %%
# The weeks
# ---------
# Each week brings 1500 rows, some of which get a true label later. In week 5 somebody deploys a
# "better calibrated" model whose probabilities are sharper, and nobody thinks of the thresholds.

weeks = {}
for number in range(1, 9):
    rows = slice(8000 + 1500 * (number - 1), 8000 + 1500 * number)
    seen = probabilities[rows].astype(float)
    if number >= 5:
        seen = seen**2.5 / (seen**2.5).sum(axis=1, keepdims=True)
    weeks[f"week {number}"] = seen, labels[rows]

# %%
# Watching
# --------
# Testing the coverage after each week in the usual way would raise an alarm sooner or later,
# whatever happens. A ``CoverageMonitor`` counts evidence in e-values, which hold however often one
# looks: while every class keeps its promise, the chance that there is *ever* an alarm is at most
# 5%.

from evencover import CoverageMonitor

monitor = CoverageMonitor(predictor, false_alarm=0.05, tolerance=0.02)
shares, evidence = [], []
for week, (seen, truth) in weeks.items():
    monitor.update(seen, truth, period=week)
    found = monitor.overall()
    shares.append(predictor.predict_set(seen).contains(truth).mean())
    evidence.append(found.e_value)
    alarm = "   ALARM" if found.alarm else ""
    print(f"{week}: coverage {shares[-1]:.3f}, evidence {found.e_value:8.3g}{alarm}")

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2))
axes[0].plot(range(1, 9), shares, "o-")
axes[0].axhline(0.9, color="grey", linestyle="--")
axes[0].set(title="coverage in the week", xlabel="week", ylim=(0.75, 1))
axes[1].semilogy(range(1, 9), evidence, "o-", color="#D55E00")
axes[1].axhline(20, color="grey", linestyle="--")
axes[1].set_title("evidence so far; 20 is an alarm")
label = axes[1].set_xlabel("week")

# %%
# Evidence of 20 is an alarm at 5%. ``CoverageMonitor(predictor, store="watch.db")`` keeps the state
# in a database, which several services may share. ``monitor.alarms()`` names single
# classes, once there is enough evidence against one of them; some 24 labelled rows of a class are
# not enough to accuse it here, though the whole is clear.

print("rows of a class:", np.median(monitor.rows), "  classes in alarm:", len(monitor.alarms()))

# %%
# Whoever evaluates the new rows is told at once that they are not like the calibration rows:

report = predictor.evaluate(*weeks["week 5"])

# %%
# Without labels
# --------------
# Labels come late. Set sizes and predicted classes are there at once. They say nothing about
# coverage, but here they move in the first week of the accident.

early = CoverageMonitor(predictor)
early.observe(probabilities[calibration], reference=True)
early.observe(weeks["week 5"][0])
for change in early.drift()[:4]:
    if change.drifted:
        print(f"{change.what}: {change.before:.1%} of the rows before, {change.now:.1%} now")

# %%
# Repair
# ------
# The model stays; the thresholds are learnt again, from rows as they come now. ``partial_fit``
# lets new rows join the calibration, ``window=`` forgets the oldest: the result is, bit for bit,
# that of ``fit`` on the rows that are kept.

recent = [weeks[f"week {number}"] for number in (5, 6, 7)]
for seen, truth in recent:
    predictor.partial_fit(seen, truth, window=sum(len(truth) for _, truth in recent))
fresh = predictor.evaluate(*weeks["week 8"])
print(
    f"{predictor.n_calibration_} rows calibrate; coverage in week 8: {fresh.marginal_coverage:.3f}"
)

# %%
# A new model, a new state: the old evidence was about the old thresholds.

monitor = CoverageMonitor(predictor).update(*weeks["week 8"], period="week 8")
print("alarm:", monitor.alarm)

# %%
# In a shell
# ----------
# .. code-block:: shell
#
#    evencover monitor model.safetensors week5.npz --state watch.db    # exit code 3 is an alarm
#    evencover update model.safetensors week5.npz -o model2.safetensors
#
# What drift is and what can be done: :doc:`/explanations/drift`.
