"""Compute the same sets with crepes and with evencover. Needs crepes: pip install crepes."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.utils import shuffle

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
X_cal, y_cal, X_test, y_test = X[600:1200], y[600:1200], X[1200:], y[1200:]
model = LogisticRegression(max_iter=5000).fit(X[:600], y[:600])

# crepes
from crepes import WrapClassifier

theirs = WrapClassifier(model)
theirs.calibrate(X_cal, y_cal, class_cond=True)
p_values = theirs.predict_p(X_test, smoothing=False)
members = theirs.predict_set(X_test, confidence=0.95, smoothing=False)
found = theirs.evaluate(X_test, y_test, confidence=0.95, smoothing=False)
# evencover
from evencover import ClasswisePredictor

ours = ClasswisePredictor(alpha=0.05, keep_top=False)
ours.fit(model.predict_proba(X_cal), y_cal)
p = ours.predict_p(model.predict_proba(X_test))
sets = ours.predict_set(model.predict_proba(X_test))
report = ours.evaluate(model.predict_proba(X_test), y_test)
# end

print("largest difference of a p-value:", float(np.abs(p_values - p).max()))
different = [set(map(int, a)) != set(b.tolist()) for a, b in zip(members, sets, strict=True)]
print("rows with another set:", sum(different), "of", len(sets))
assert np.allclose(p_values, p)
assert abs(found["error"] - (1 - report.marginal_coverage)) < 0.005
