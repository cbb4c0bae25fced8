"""The numbers of the paper, to hold a study's own against.

Ding, Angelopoulos, Bates, Jordan, Tibshirani (2023), "Class-Conditional Conformal Prediction with
Many Classes", NeurIPS 36, Table 2: mean and standard error over ten splits, alpha = 0.1.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from math import sqrt
from typing import Any, NamedTuple

CITATION = (
    "Published: Ding, Angelopoulos, Bates, Jordan, Tibshirani (2023), Class-Conditional Conformal "
    "Prediction with Many Classes, NeurIPS 36, Table 2."
)
# The numbers are for these data as they are, not for a part of their classes.
N_CLASSES = {"imagenet": 1000, "cifar-100": 100, "places365": 365, "inaturalist": 633}
# Half a unit of the last printed digit.
ROUNDING = 0.05


class Published(NamedTuple):
    """A printed mean and its standard error, both rounded to one decimal."""

    mean: float
    standard_error: float

    def agrees_with(self, mean: float, standard_error: float | None) -> bool:
        """Whether another study's mean is within the joint error.

        abs(difference) <= 1.96 sqrt(se^2 + published se^2) + 0.05: the standard errors add up as
        those of independent studies do, and 0.05 is what rounding to one decimal may hide.

        >>> Published(5.2, 0.1).agrees_with(5.6, 0.15), Published(5.2, 0.1).agrees_with(5.7, 0.15)
        (True, False)
        """
        joint = 1.96 * sqrt((standard_error or 0.0) ** 2 + self.standard_error**2)
        return abs(mean - self.mean) <= joint + ROUNDING


@cache
def _table() -> dict[tuple[str, str, str, int], dict[str, Published]]:
    text = files("evencover.experiments").joinpath("published.csv").read_text("utf-8")
    return {
        (row["dataset"], row["score"], row["method"], int(row["n_avg"])): {
            metric: Published(float(row[metric]), float(row[f"{metric}_se"]))
            for metric in ("covgap", "avg_size")
        }
        for row in csv.DictReader(text.splitlines())
    }


def published(row: dict[str, Any], metric: str) -> Published | None:
    """The printed number for a row of `Results.summary`; None where the paper has none.

    It has none for randomised variants, other parameters, other levels than 0.1, own methods, or
    a data set with another number of classes.
    """
    if row["exact"] or row["parameters"] or row["alpha"] != 0.1:
        return None
    if row["n_classes"] != N_CLASSES.get(row["dataset"]):
        return None
    key = (row["dataset"], row["score"], row["method"], row["n_avg"])
    return _table().get(key, {}).get(metric)
