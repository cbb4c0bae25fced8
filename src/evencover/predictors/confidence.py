"""Coverage for this calibration: methods whose thresholds can be made to hold with a confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evencover._validation import InputError, IntArray
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import Needs
from evencover.quantiles import Alpha, conformal_ranks, exact_fraction


@dataclass(kw_only=True, eq=False, repr=False)
class ConfidentPredictor(BasePredictor):
    """A method that promises coverage on average over calibrations or, if asked, for this one.

    Parameters
    ----------
    confidence
        None: coverage of at least 1 - alpha on average over calibrations. A number in (0, 1):
        with that probability over calibrations, coverage is at least 1 - alpha for good.
    """

    confidence: Alpha | None = None

    # What the guarantee becomes, with {confidence} in the place of the probability.
    confident_guarantee: ClassVar[str]

    def _promise(self) -> str:
        if self.confidence is None:
            return super()._promise()
        share = f"{float(100 * exact_fraction(self.confidence)):g}%"
        return self.confident_guarantee.replace("{confidence}", share)

    def _terms(self) -> str:
        if self.confidence is None:
            return super()._terms()
        least = self.row_needs().least
        return f"at alpha = {self.alpha} and confidence = {self.confidence}, which takes {least}"

    def group_ranks(self, counts: IntArray) -> IntArray:
        """With the confidence."""
        return conformal_ranks(counts, self.alpha, self.confidence)

    def row_needs(self) -> Needs:
        """How many rows a threshold takes."""
        return Needs.at(self.alpha, self.confidence)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.confidence is None:
            return
        owner = type(self).__name__
        exact_fraction(self.confidence, owner, "confidence")
        if self.exact:
            raise InputError(
                f"The 'exact' parameter of {owner} must be False with a confidence, because a "
                "threshold that is randomised to 1 - alpha on average is below it half of the "
                "time. Got True instead."
            )
