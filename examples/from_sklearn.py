"""Calibrate sets for scikit-learn: as one estimator, and batch by batch.

python examples/from_sklearn.py
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from evencover import ConformalClassifier, StandardPredictor


def batches(model, X, y=None, size=256) -> Iterator:
    """Yield the model's probabilities for a few rows at a time, to avoid N x K memory."""
    for start in range(0, len(X), size):
        rows = model.predict_proba(X[start : start + size])
        yield rows if y is None else (rows, y[start : start + size])


def main() -> float:
    """Calibrate, predict, evaluate; return the coverage."""
    X, y = load_digits(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=400, random_state=0)
    X_cal, X_test, y_cal, y_test = train_test_split(X_rest, y_rest, test_size=0.5, random_state=0)
    model = LogisticRegression(max_iter=2000).fit(X_train, y_train)

    # Streamed: any model with predict_proba, data of any size.
    predictor = StandardPredictor(alpha=0.05).fit(batches(model, X_cal, y_cal))
    report = predictor.evaluate(batches(model, X_test, y_test))
    print(f"coverage {report.marginal_coverage:.3f}, average size {report.avg_size:.2f}")

    # As one estimator, which trains and calibrates; suitable for grid search and pipelines.
    wrapped = ConformalClassifier(LogisticRegression(max_iter=2000), StandardPredictor(alpha=0.05))
    wrapped.fit(np.vstack([X_train, X_cal]), np.append(y_train, y_cal))
    print(f"first three sets: {wrapped.predict_set(X_test[:3]).to_lists()}")
    return report.marginal_coverage


if __name__ == "__main__":
    main()
