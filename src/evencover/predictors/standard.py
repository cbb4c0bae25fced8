"""STANDARD: one threshold, from all calibration rows."""

from __future__ import annotations

from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.groups import GroupPredictor
from evencover.predictors.guarantees import ONE_THRESHOLD
from evencover.quantiles import Groups


class StandardPredictor(GroupPredictor):
    """One threshold for all classes: the conformal quantile of all calibration scores.

    With an alpha per class, the classes that share an alpha share a threshold.

    Guarantee (Vovk et al. 2005): *marginal* coverage, P(Y in C(X)) >= 1 - alpha, for exchangeable
    calibration and test rows; equality with ``exact=True``. No class has a guarantee of its own.

    Parameters
    ----------
    confidence
        Guarantee coverage with this probability over calibration sets; None guarantees it on
        average over them.
    alpha, score, exact, keep_top, from_logits, random_state
        As for every predictor.

    >>> p = [[0.75, 0.125, 0.125], [0.25, 0.5, 0.25], [0.125, 0.25, 0.625]]
    >>> predictor = StandardPredictor(alpha=0.25).fit(p, [0, 1, 2])
    >>> predictor.thresholds_
    array([0.5, 0.5, 0.5])
    >>> predictor.predict_set([[0.5, 0.5, 0.0], [0.4, 0.3, 0.3]]).to_lists()
    [[0, 1], [0]]
    """

    method = "standard"
    summary = "one threshold for all classes"
    guarantee = "Coverage of {target} over all examples is guaranteed {sets}{single}."
    _usual_cause = ONE_THRESHOLD
    _guarantee_by_alpha = (
        "Coverage of 1 - alpha over the classes with the same alpha is guaranteed {sets}{single}."
    )

    def _derive(self, rows: CalibrationRows, state: None) -> Groups:
        return rows.by_alpha(self._class_alpha(rows))
