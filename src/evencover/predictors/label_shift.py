"""How frequent the classes are among rows without labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from evencover._kernels import BadRow
from evencover._kernels.reference_rows import probabilities as probabilities_of
from evencover._validation import FloatArray, InputError
from evencover.data.source import Source
from evencover.predictors.base import BasePredictor
from evencover.predictors.matching import like_calibration
from evencover.predictors.scoring import Scoring

# Of more numbers than this some rows are taken; the estimate ends when it moves no further.
MOST_NUMBERS, MOST_STEPS, STILL = 1 << 22, 1000, 1e-6


def estimate_prevalence(predictor: BasePredictor, probabilities: Any) -> FloatArray:
    """Estimate the class frequencies of new rows without labels, as a `target_prevalence` (K,).

    The frequencies under which the new rows' probabilities are most likely, found by expectation
    maximisation (Saerens, Latinne, Decaestecker 2002). It takes two things for granted: that only
    the frequencies differ from the calibration rows, and that the model's probabilities are right
    for the calibration rows; where they are not, the estimate is off.

    What that does to the promise: a predictor with the estimate as its `target_prevalence` covers
    1 - alpha of rows with *these* frequencies. If the true ones are others, coverage over all rows
    moves by at most half the sum of their absolute differences, and usually by far less: that sum
    times how much the coverage of classes differs. Single classes are promised nothing by it.

    Parameters
    ----------
    predictor
        A calibrated predictor; its class counts say what the frequencies were in calibration.
    probabilities
        New rows, as in `predict_set`; of very many some are used.

    >>> from evencover import StandardPredictor
    >>> rows = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> predictor = StandardPredictor(alpha=0.5).fit(rows[[0, 1, 0, 1]], [0, 1, 0, 1])
    >>> estimate_prevalence(predictor, rows[[0, 0, 0, 1]]).round(2).tolist()
    [0.97, 0.03]
    """
    source = like_calibration(predictor, probabilities)
    rows = _some_rows(source, predictor.scoring(source.logits))
    prior = predictor.class_counts_ / predictor.n_calibration_
    known = np.flatnonzero(prior)
    ratios = rows[:, known] / prior[known]
    if (ratios.sum(axis=1) <= 0).any():
        raise InputError(
            "Every row must have a probability above 0 for a class with calibration rows. "
            f"Got none in {int((ratios.sum(axis=1) <= 0).sum())} rows."
        )
    share = prior[known]
    for _ in range(MOST_STEPS):
        fit = ratios @ share  # how likely each row is under these frequencies
        improved = share * ((1 / fit) @ ratios) / len(ratios)
        moved, share = float(np.abs(improved - share).sum()), improved
        if moved < STILL:
            break
    target = np.zeros(predictor.n_classes_)
    target[known] = share / share.sum()
    return target


def _some_rows(source: Source, scoring: Scoring) -> FloatArray:
    """Compute the probabilities of evenly spaced rows."""
    every = 1
    if source.n_rows is not None:
        every = max(1, source.n_rows * source.n_classes // MOST_NUMBERS)
    blocks, n_numbers = [], 0
    for block in source.blocks():
        first = -block.start % every
        with scoring.checking(block):
            try:
                rows = probabilities_of(block.rows[first::every], **scoring.options)
            except BadRow as bad:
                raise BadRow(first + every * bad.row) from None
        blocks.append(rows / rows.sum(axis=1, keepdims=True))
        n_numbers += rows.size
        if n_numbers > 4 * MOST_NUMBERS:  # a stream of unknown length
            break
    return np.concatenate(blocks)
