"""Calibrate sets for XGBoost or LightGBM; ``pip install xgboost lightgbm``.

python examples/from_boosting.py xgboost
python examples/from_boosting.py lightgbm
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from evencover import ClasswisePredictor, StandardPredictor


def toy_data(n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate points around one center per class; the first classes are rarer."""
    rng = np.random.default_rng(0)
    share = np.linspace(1, 3, n_classes)
    y = rng.choice(n_classes, n_rows, p=share / share.sum())
    return rng.normal(size=(n_classes, 8))[y] + 0.7 * rng.normal(size=(n_rows, 8)), y


def train_xgboost(X: np.ndarray, y: np.ndarray, n_classes: int):
    """Train XGBoost; return a function from rows to probabilities."""
    import xgboost as xgb

    parameters = {"objective": "multi:softprob", "num_class": n_classes, "max_depth": 4}
    booster = xgb.train(parameters, xgb.DMatrix(X, y), num_boost_round=20)
    return lambda rows: booster.predict(xgb.DMatrix(rows))


def train_lightgbm(X: np.ndarray, y: np.ndarray, n_classes: int):
    """Train LightGBM; return a function from rows to probabilities."""
    import lightgbm as lgb

    parameters = {"objective": "multiclass", "num_class": n_classes, "verbosity": -1}
    booster = lgb.train(parameters, lgb.Dataset(X, y), num_boost_round=20)
    return booster.predict


def batches(predict, X: np.ndarray, y: np.ndarray, size: int = 1000) -> Iterator:
    """Yield (probabilities, labels) of a few rows at a time; X may be a memory map."""
    for start in range(0, len(X), size):
        yield predict(X[start : start + size]), y[start : start + size]


def main(library: str = "xgboost") -> float:
    """Train, calibrate, evaluate; return the coverage."""
    X, y = toy_data(9000, n_classes=10)
    train = {"xgboost": train_xgboost, "lightgbm": train_lightgbm}[library]
    predict = train(X[:3000], y[:3000], n_classes=10)
    calibration, test = (X[3000:6000], y[3000:6000]), (X[6000:], y[6000:])
    for predictor in (StandardPredictor(alpha=0.1), ClasswisePredictor(alpha=0.1)):
        predictor.fit(batches(predict, *calibration))
        report = predictor.evaluate(batches(predict, *test))
        print(
            f"{predictor.method:<10} coverage {report.marginal_coverage:.3f}, worst class "
            f"{report.class_coverage.min():.3f}, average size {report.avg_size:.2f}"
        )
    return report.marginal_coverage


if __name__ == "__main__":
    main(*sys.argv[1:])
