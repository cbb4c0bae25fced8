"""Scores of rows in memory, computed as predictors compute them."""

import numpy as np

from evencover.data.source import Block
from evencover.ids import id_keys
from evencover.predictors.rule import BoundScore
from evencover.rows import score_rows


def score_matrix(score, rows, *, random_state=0, ids=None, from_logits=False, calibrating=False):
    """Score every class in every row (N, K)."""
    scoring, block = given(score, rows, random_state, ids, from_logits)
    return scoring.matrix(block, calibrating=calibrating)


def true_label_scores(
    score, rows, labels, *, random_state=0, ids=None, from_logits=False, calibrating=True
):
    """Score each row's true label (N,); prevalences are those of these labels."""
    labels = np.asarray(labels)
    scoring, block = given(score, rows, random_state, ids, from_logits, labels)
    counted = score.with_counts(np.bincount(labels, minlength=block.rows.shape[1]))
    return counted.from_base(scoring.true_labels(block, calibrating=calibrating), labels)


def given(score, rows, random_state, ids, from_logits, labels=None):
    rows = score_rows(rows)
    keys = None if ids is None else id_keys(ids, len(rows))
    return BoundScore(score, from_logits, random_state, False), Block(0, rows, labels, keys)
