"""
9. Monitor in production
========================

Thresholds are fixed at calibration, but data change. This tutorial simulates eight weeks of
production: coverage is on target at first, then a faulty deployment lowers it, the monitor raises
an alarm, and recalibration restores coverage.
"""

import numpy as np

from evencover import PooledPredictor
from evencover.data import load_languages

probabilities, labels, names = load_languages()
calibration = slice(8000)
predictor = PooledPredictor(alpha=0.1)
predictor.fit(probabilities[calibration], labels[calibration], class_names=list(names))

# %%
# Simulate production
# -------------------
# Each week has 1500 examples, and their labels arrive later. In week 5 a new model with sharper
# probabilities is deployed without recalibration.

weeks = {}
for number in range(1, 9):
    rows = slice(8000 + 1500 * (number - 1), 8000 + 1500 * number)
    seen = probabilities[rows].astype(float)
    if number >= 5:
        seen = seen**2.5 / (seen**2.5).sum(axis=1, keepdims=True)
    weeks[f"week {number}"] = seen, labels[rows]

# %%
# Monitor coverage
# ----------------
# Repeating an ordinary test every week would eventually raise a false alarm. ``CoverageMonitor``
# uses e-values, which stay valid however often you check. While coverage is on target, the
# probability that its test of overall coverage *ever* raises an alarm is at most 5%.

from evencover import CoverageMonitor

monitor = CoverageMonitor(predictor, false_alarm=0.05, tolerance=0.02)
shares, evidence = [], []
for week, (seen, truth) in weeks.items():
    monitor.update(seen, truth, period=week)
    found = monitor.snapshot().overall
    shares.append(predictor.predict_set(seen).contains(truth).mean())
    evidence.append(found.e_value)
    alarm = "   ALARM" if found.alarm else ""
    print(f"{week}: coverage {shares[-1]:.3f}, evidence {found.e_value:8.3g}{alarm}")

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2))
axes[0].plot(range(1, 9), shares, "o-")
axes[0].axhline(0.9, color="gray", linestyle="--")
axes[0].set(title="weekly coverage", xlabel="week", ylim=(0.75, 1))
axes[1].semilogy(range(1, 9), evidence, "o-", color="#D55E00")
axes[1].axhline(20, color="gray", linestyle="--")
axes[1].set_title("cumulative e-value; alarm at 20")
label = axes[1].set_xlabel("week")

# %%
# An e-value of 20 is an alarm at 5%. ``CoverageMonitor(predictor, state="watch.db")`` keeps the
# state in a database, which several services may share. ``snapshot().alarms`` are the classes with
# enough evidence. Here the overall alarm is significant, but 24 labels per class are too few for an
# alarm in a single class.

found = monitor.snapshot()
print("labels per class:", np.median(found.rows), "  classes in alarm:", len(found.alarms))

# %%
# ``evaluate`` also warns that the new data differ from the calibration data:

report = predictor.evaluate(*weeks["week 5"])

# %%
# Watch set sizes
# ---------------
# Set sizes are available before the labels. They do not measure coverage, but here they change in
# the first week after the deployment.

for week in ("week 4", "week 5"):
    sizes = predictor.predict_set(weeks[week][0]).sizes
    print(f"{week}: {sizes.mean():.2f} labels per set, {np.mean(sizes == 1):.0%} of sets have one")

# %%
# Recalibrate
# -----------
# Keep the model and fit new thresholds on recent data. ``partial_fit`` adds labeled data to the
# calibration set, and ``window=`` drops the oldest. The result is bit-identical to ``fit`` on the
# remaining data.

recent = [weeks[f"week {number}"] for number in (5, 6, 7)]
for seen, truth in recent:
    predictor.partial_fit(seen, truth, window=sum(len(truth) for _, truth in recent))
fresh = predictor.evaluate(*weeks["week 8"])
print(f"{predictor.n_calibration_} calibration rows; week 8 coverage {fresh.marginal_coverage:.3f}")

# %%
# Start a new monitor, because the old evidence refers to the old thresholds.

monitor = CoverageMonitor(predictor)
monitor.update(*weeks["week 8"], period="week 8")
print("alarm:", monitor.snapshot().alarm)

# %%
# Command line
# ------------
# .. code-block:: shell
#
#    evencover monitor model.safetensors week5.npz --state watch.db    # exit code 3 is an alarm
#    evencover update model.safetensors week5.npz -o model2.safetensors
#
# :doc:`/howto/monitor` describes alarms, types of drift and remedies.
