"""From calibration rows, wherever they are, to the rows that a method learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover._validation import (
    Array,
    InputError,
    class_labels,
    plain_array,
)
from evencover.data.opening import as_source
from evencover.data.source import Block, Source
from evencover.engine.blocks import known_ids, map_source
from evencover.engine.merging import gathered, joined
from evencover.errors import warn_caller
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.matching import require_labels
from evencover.predictors.method import Method
from evencover.predictors.scoring import Scoring
from evencover.quantiles import calibration_scores, exact_fraction
from evencover.randomness import places, row_ids
from evencover.scores import make_score


@dataclass(frozen=True)
class TrueLabels:
    """Of a block: base scores of the true labels, the labels, and what else is needed of them.

    Labels and ranks take as few bytes as their number allows.
    """

    scoring: Scoring
    with_ranks: bool
    with_values: bool

    def __call__(self, block: Block, ids: Array | None) -> tuple[Array, ...]:
        """One pass over the rows."""
        assert block.labels is not None
        n_classes = block.rows.shape[1]
        scores = self.scoring.true_labels(block, ids, calibrating=True)
        labels = block.labels.astype(np.min_scalar_type(n_classes - 1))
        found = [scores, labels]
        if self.with_ranks:
            found.append(self.scoring.true_ranks(block).astype(np.min_scalar_type(n_classes)))
        if self.with_values:
            found.append(block.rows[np.arange(len(labels)), block.labels].astype(np.float64))
        return tuple(found)


def base_rows(
    method: Method, source: Source, ids: Any, groups: Any, executor: Any
) -> CalibrationRows:
    """Read all rows, and bring the base scores of their labels here."""
    ids = known_ids(source, ids)
    scoring, with_ranks = method.scoring(source.logits), "ranks" in method.needs
    with_values = "label values" in method.needs and scoring.score.is_random
    score = TrueLabels(scoring, with_ranks, with_values)
    parts = map_source(source, ids, score, joined, executor)
    scores, labels, *more = gathered(parts, source.n_rows)
    ranks = more.pop(0) if with_ranks else None
    rows = rows_of_scores(method, scores, labels, source.n_classes, ids, ranks, groups)
    return rows._replace(label_values=more[0] if with_values else None)


def with_scores(
    method: Method, rows: CalibrationRows, n_classes: int, class_names: Sequence[str] | None
) -> CalibrationRows:
    """Give the rows the method's own scores, which may depend on class counts and names."""
    counts = np.bincount(rows.labels, minlength=n_classes)
    score = make_score(method.score).with_counts(counts, class_names)
    return rows._replace(scores=score.from_base(rows.scores, rows.labels))


def note_large_alpha(alpha: Any) -> None:
    """Say what alpha is to whoever seems to mean the coverage."""
    if exact_fraction(alpha, "fit") > 0.5:
        warn_caller(
            f"alpha is {alpha}, the share of rows whose class may be missing from its set; for "
            f"coverage {alpha} use alpha={float(1 - exact_fraction(alpha, 'fit')):g}."
        )


def calibration_source(probabilities: Any, labels: Any, ids: Any, class_names: Any) -> Source:
    """Open the calibration rows, which must have labels."""
    source = as_source(probabilities, labels, ids=ids, class_names=class_names)
    require_labels(source, "Calibration")
    return source


def rows_of_scores(
    method: Method,
    scores: Any,
    labels: Any,
    n_classes: int,
    ids: Any,
    ranks: Any,
    groups: Any,
) -> CalibrationRows:
    """Checked rows for a method; without ids a row is known by its place."""
    scores = calibration_scores(scores)
    labels = class_labels(labels, n_classes, len(scores))
    if len(scores) == 0:
        raise InputError("There must be at least one calibration row. Got none.")
    if ids is None:
        ids = places(0, len(scores))
    else:
        ids = row_ids(ids, len(scores))
        warn_of_repeated_ids(ids)
    checked = None
    if "ranks" in method.needs:
        checked = _checked_ranks(method.method, ranks, len(scores), n_classes)
    if groups is not None:
        groups = plain_array(groups)
        if groups.shape != (len(scores),):
            raise InputError(
                f"'groups' must have one entry per row. Got shape {groups.shape} for "
                f"{len(scores)} of them."
            )
    return CalibrationRows(scores, labels, ids, checked, groups)


def _checked_ranks(method: str, ranks: Any, n_rows: int, n_classes: int) -> Array:
    values = plain_array(() if ranks is None else ranks)
    if values.shape != (n_rows,) or values.dtype.kind not in "iu":
        raise InputError(
            f"The method {method!r} needs 'ranks', the rank of each true label in its row, as "
            f"whole numbers. Got {'none' if ranks is None else f'shape {values.shape}'}."
        )
    if values.size and not 1 <= values.min() <= values.max() <= n_classes:
        raise InputError(
            f"'ranks' must be between 1 and {n_classes}, the number of classes. "
            f"Got values from {values.min()} to {values.max()}."
        )
    return values


def warn_of_repeated_ids(ids: Array) -> None:
    """Say how many rows have the id of an earlier one."""
    ordered = np.sort(ids)
    n_repeated = int((ordered[1:] == ordered[:-1]).sum())
    if n_repeated:
        warn_caller(
            f"{n_repeated} of {len(ids)} rows have the id of an earlier row. Rows with the "
            "same id share their random numbers; remove copies of a row."
        )
