"""Calibration rows as methods see them: split at random, and ranked within groups of classes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from math import floor
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.data.columns import missing_labels
from evencover.data.open import as_source
from evencover.data.source import Block, Source, reorder_columns
from evencover.engine.blocks import gathered, joined, known_ids, map_source
from evencover.errors import InputError, NotFittedError, listed, warn_caller
from evencover.predictors.method import MethodContract
from evencover.predictors.rule import BoundScore
from evencover.quantiles import GroupedScores, by_group, calibration_scores
from evencover.randomness import RandomStream, places, random_order, row_ids, uniforms
from evencover.scores import make_score
from evencover.validation import class_labels

N_FOLDS = 5
HOLDOUT_FRACTION = 0.2
NOTABLE_COPIES = 0.05


class CalibrationRows(NamedTuple):
    """What a method learns from, in memory: one entry per calibration row.

    Parameters
    ----------
    scores, labels, ids
        (N,) scores of the true labels, the labels, and the rows' keys.
    ranks
        (N,) ranks of the true labels, from 1, for methods that need "ranks".
    groups
        (N,) the group of each row, as the user names it, for methods that need "row groups".
    label_values
        (N,) the input's number for the true label, for methods that need "label values"; only
        where the score is random, because else equal scores identify copies of a row.
    """

    scores: FloatArray
    labels: IntArray
    ids: Array
    ranks: IntArray | None = None
    groups: Array | None = None
    label_values: FloatArray | None = None

    def split(self, n_first: int, random_state: int) -> tuple[CalibrationRows, CalibrationRows]:
        """Split off the first `n_first` rows in the random order of their ids."""
        order = random_order(random_state, RandomStream.SPLIT, self.ids)
        return self.take(order[:n_first]), self.take(order[n_first:])

    def by(self, group_of_class: IntArray) -> GroupedScores:
        """Sort the scores within groups of classes; classes of group -1 are left out."""
        if not group_of_class.any():  # all are in group 0
            return GroupedScores.one(np.sort(self.scores))
        n_groups = int(group_of_class.max()) + 1
        return GroupedScores.sort(self.scores, group_of_class[self.labels], n_groups)

    def followed_by(self, other: CalibrationRows) -> CalibrationRows:
        """Append rows; a column that either lacks is left out."""
        columns = (
            None if mine is None or theirs is None else np.concatenate([mine, theirs])
            for mine, theirs in zip(self, other, strict=True)
        )
        return CalibrationRows(*columns)  # type: ignore[arg-type]

    def take(self, rows: Array | slice) -> CalibrationRows:
        """Return some of the rows."""
        return CalibrationRows(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


# ---- order, copies and folds ---------------------------------------------------------------------


def ascending(rows: CalibrationRows, random_state: int) -> tuple[IntArray, FloatArray | None]:
    """Order of the scores, ties at random by each row's key, and the tie-breaking draws (N,).

    Without ties there are no draws.
    """
    order = np.argsort(rows.scores)
    ordered = rows.scores[order]
    if (ordered[1:] != ordered[:-1]).all():
        return order, None
    draws = uniforms(random_state, RandomStream.TIES, rows.ids)
    return np.lexsort((rows.labels, draws, rows.scores)), draws


def find_copies(rows: CalibrationRows, by_score: IntArray, *, has_ties: bool) -> IntArray | None:
    """Give copies among the rows (N,) the same number; warn where they are a notable share.

    Copies have the same label and value (score, or input where scores are random), with no other
    label sharing the value: ties of a coarse score occur across labels, and at its ends. None if
    there are no copies.
    """
    values, order = rows.scores, by_score
    if rows.label_values is not None:
        values, order = rows.label_values, np.argsort(rows.label_values)
    elif not has_ties:
        return None
    n_rows, labels = len(order), rows.labels[order]
    is_first = np.append(True, values[order][1:] != values[order][:-1])
    starts, run = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    one_label = np.minimum.reduceat(labels, starts) == np.maximum.reduceat(labels, starts)
    one_label[[0, -1]] = False
    repeats = int((one_label[run] & ~is_first).sum())
    if not repeats:
        return None
    if repeats > NOTABLE_COPIES * n_rows:
        warn_caller(
            f"{repeats / n_rows:.0%} of the calibration rows are copies of other rows: same label, "
            "same score. Copies add no information, so remove them."
        )
    copies = np.empty(n_rows, dtype=np.int64)
    copies[order] = np.cumsum(~(one_label[run] & ~is_first)) - 1
    return copies


def with_same_id(copies: IntArray | None, ids: Array, order: IntArray) -> IntArray | None:
    """Give copies, and rows with the same id, the same number (N,).

    `order` puts rows with the same id next to each other.
    """
    is_first = np.append(True, ids[order][1:] != ids[order][:-1])
    if is_first.all():
        return copies
    by_id = np.empty(len(ids), dtype=np.int64)
    by_id[order] = np.cumsum(is_first) - 1
    if copies is None:
        return by_id
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_copies = int(copies.max()) + 1
    shape = (n_copies + int(by_id.max()) + 1,) * 2
    links = coo_array((np.ones(len(ids)), (copies, n_copies + by_id)), shape=shape)
    return connected_components(links, directed=False)[1][copies]


def one_of_each(groups: IntArray | None, order: IntArray) -> IntArray:
    """One row of each group, in this order; None: every row is its own group."""
    if groups is None:
        return order
    return order[np.sort(np.unique(groups[order], return_index=True)[1])]


def hold_out(groups: IntArray | None, order: IntArray) -> Array:
    """Choose the first fifth of the rows (N,) in this order, whole groups."""
    groups = np.arange(len(order)) if groups is None else groups
    chosen = groups[one_of_each(groups, order)]
    n_rows = np.cumsum(np.bincount(groups)[chosen])
    return np.isin(groups, chosen[n_rows <= floor(HOLDOUT_FRACTION * len(order))])


def assign_folds(groups: IntArray | None, labels: IntArray, order: IntArray) -> IntArray:
    """Assign folds (N,) in this order of some rows, even within every class; a group shares one."""
    first = one_of_each(groups, order)
    first = first[by_group(labels[first], int(labels.max()) + 1)]
    number = np.arange(len(labels)) if groups is None else groups
    fold_of = np.zeros(int(number.max()) + 1, dtype=np.int64)
    fold_of[number[first]] = np.arange(len(first)) % N_FOLDS
    return fold_of[number]


def score_true_labels(
    scoring: BoundScore, with_ranks: bool, with_values: bool, block: Block, ids: Array | None
) -> tuple[Array, ...]:
    """Score the true labels of a block; return the labels, and what else is needed, too.

    Labels and ranks take as few bytes as their number allows.
    """
    assert block.labels is not None
    n_classes = block.rows.shape[1]
    found = [scoring.true_labels(block, ids, calibrating=True)]
    found.append(block.labels.astype(np.min_scalar_type(n_classes)))
    if with_ranks:
        found.append(scoring.true_ranks(block).astype(np.min_scalar_type(n_classes)))
    if with_values:
        found.append(block.rows[np.arange(len(block.rows)), block.known_labels].astype(np.float64))
    return tuple(found)


def base_rows(
    method: MethodContract,
    source: Source,
    ids: Any,
    groups: Any,
    executor: Any,
    apart: Array | None = None,
) -> CalibrationRows:
    """Read all rows, and bring the base scores of their labels here.

    Rows with labels that are not among the classes, and rows `apart` (N,), are left out.
    """
    ids = known_ids(source, ids)
    scoring, with_ranks = method.bound_score(source.logits), "ranks" in method.needs
    with_values = "label values" in method.needs and scoring.score.is_random
    score = partial(score_true_labels, scoring, with_ranks, with_values)
    parts = map_source(source, ids, score, joined, executor, fingerprint=True)
    scores, labels, *more = gathered(parts, source.n_rows)
    ranks, values = more.pop(0) if with_ranks else None, more.pop() if with_values else None
    known = labels < source.n_classes
    if not known.any():
        raise source.no_known_label()
    if not known.all():
        warn_caller(
            f"{int((~known).sum())} of {len(known)} rows ({(~known).mean():.1%}) have labels that "
            "are not among the classes; they are left out, so coverage concerns the known classes."
        )
        scores, labels = scores[known], labels[known]
        groups = None if groups is None else to_numpy(groups)
        some = (None if v is None else v[known] for v in (ids, ranks, groups, values, apart))
        ids, ranks, groups, values, apart = some
    rows = rows_of_scores(method, scores, labels, source.n_classes, ids, ranks, groups)
    rows = rows._replace(label_values=values)
    return rows if apart is None else rows.take(~apart)


def with_scores(
    method: MethodContract, rows: CalibrationRows, n_classes: int, class_names: Sequence[str] | None
) -> CalibrationRows:
    """Give the rows the method's own scores, which may depend on class counts and names."""
    counts = np.bincount(rows.labels, minlength=n_classes)
    score = make_score(method.score).with_counts(counts, class_names)
    return rows._replace(scores=score.from_base(rows.scores, rows.labels))


def rows_of_scores(
    method: MethodContract,
    scores: Any,
    labels: Any,
    n_classes: int,
    ids: Any,
    ranks: Any,
    groups: Any,
) -> CalibrationRows:
    """Check rows for a method; without ids a row is known by its place."""
    scores = calibration_scores(scores)
    labels = class_labels(labels, n_classes, len(scores))
    if len(scores) == 0:
        raise InputError("There must be at least one calibration row. Got none.")
    if ids is None:
        ids = places(0, len(scores))
    else:
        ids = row_ids(ids, len(scores))
        warn_of_repeated_ids(ids)
    if "ranks" not in method.needs:
        ranks = None
    else:
        ranks = to_numpy(() if ranks is None else ranks)
        is_whole = ranks.shape == (len(scores),) and ranks.dtype.kind in "iu"
        if not is_whole or not 1 <= ranks.min() <= ranks.max() <= n_classes:
            raise InputError(
                f"The method {method.method!r} needs 'ranks', the rank of each true label in its "
                f"row, from 1 to {n_classes}. Got other values, or none."
            )
    if groups is not None:
        groups = to_numpy(groups)
        if groups.shape != (len(scores),):
            raise InputError(
                f"'groups' must have one entry per row. Got shape {groups.shape} for "
                f"{len(scores)} of them."
            )
    return CalibrationRows(scores, labels, ids, ranks, groups)


def warn_of_repeated_ids(ids: Array) -> None:
    """Warn of rows with the id of an earlier one."""
    ordered = np.sort(ids)
    n_repeated = int((ordered[1:] == ordered[:-1]).sum())
    if n_repeated:
        warn_caller(
            f"{n_repeated} of {len(ids)} rows have the id of an earlier row. Rows with the "
            "same id share their random numbers; remove copies of a row."
        )


def require_fitted(predictor: MethodContract) -> None:
    """Raise for a predictor that is not fitted."""
    if not hasattr(predictor, "thresholds_"):
        raise NotFittedError(
            f"This {type(predictor).__name__} is not calibrated yet; call 'fit' with calibration "
            "probabilities and labels first."
        )


def align_to_calibration(
    predictor: MethodContract,
    probabilities: Any,
    labels: Any = None,
    ids: Any = None,
    *,
    allow_unknown: bool = False,
) -> Source:
    """Open rows as a source with the predictor's classes; the caller's own is left alone.

    Columns with names are put into the order of the calibration data. Labels that are numbers
    count the classes in that order, too.
    """
    require_fitted(predictor)
    source = as_source(probabilities, allow_unknown=allow_unknown)
    if source.class_names is not None:
        numbers = [str(number) for number in range(predictor.n_classes_)]
        names = predictor.class_names_
        if names is None and set(source.class_names) == set(numbers):
            names = numbers
        if names is not None:
            source = _put_in_order(source, names)
    if source.n_classes != predictor.n_classes_:
        raise InputError(
            f"The input must have the {predictor.n_classes_} classes of the calibration data. "
            f"Got {source.n_classes} classes in {source.name}."
        )
    if source is probabilities:
        source = copy(source)
    if ids is not None:
        source = as_source(source, ids=ids)
    if source.class_names is None or predictor.class_names_ is None:
        source.set_info(class_names=predictor.class_names_ or source.class_names)
    return source if labels is None else as_source(source, labels)


def _put_in_order(source: Source, names: Sequence[str]) -> Source:
    assert source.class_names is not None
    if list(source.class_names) == list(names):
        return source
    if sorted(names) != sorted(source.class_names):
        known, given = set(names), set(source.class_names)
        missing = [name for name in names if name not in given]
        unknown = [name for name in source.class_names if name not in known]
        found = [f"no {listed(map(repr, missing), 3)}"] * bool(missing)
        found += [f"the unknown {listed(map(repr, unknown), 3)}"] * bool(unknown)
        raise InputError(
            f"The classes of {source.name} must be the {len(names)} of the calibration data, by "
            f"name. Got {' and '.join(found) or 'a name twice'}; rename the columns, or pass the "
            "numbers without names if their order is the same."
        )
    counting = "; labels that are numbers count in that order" if source.labels_given else ""
    warn_caller(
        f"The columns of {source.name} were put into the order of the calibration data{counting}."
    )
    return reorder_columns(source, names)


def is_calibration_data(predictor: MethodContract, source: Source) -> bool:
    """Return whether rows that have been read calibrated the predictor."""
    return any(text == source.rows_read.hexdigest() for text, _ in predictor.fingerprints_)


def require_labels(source: Source, what: str) -> None:
    """Raise for rows without labels where they are needed."""
    if not source.has_labels:
        raise missing_labels(what, source.name, source.info.left_out)
