"""Compute the same sets with MAPIE and with evencover. Needs MAPIE: pip install mapie."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.utils import shuffle

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
X_cal, y_cal, X_test, y_test = X[600:1200], y[600:1200], X[1200:], y[1200:]
model = LogisticRegression(max_iter=5000).fit(X[:600], y[:600])

# MAPIE
from mapie.classification import SplitConformalClassifier

theirs = SplitConformalClassifier(model, confidence_level=0.95, conformity_score="lac", prefit=True)
theirs.conformalize(X_cal, y_cal)
guesses, masks = theirs.predict_set(X_test)
mask = masks[:, :, 0]
# evencover
from evencover import StandardPredictor

ours = StandardPredictor(alpha=0.05, score="softmax", keep_top=False)
ours.fit(model.predict_proba(X_cal), y_cal)
sets = ours.predict_set(model.predict_proba(X_test))
guesses = model.predict(X_test)
mask = sets.to_mask()
# end

print("rows with another set:", int((masks[:, :, 0] != mask).any(axis=1).sum()), "of", len(y_test))
assert np.array_equal(masks[:, :, 0], mask)
