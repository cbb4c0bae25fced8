"""Calibration rows: how they are read, and which inputs they come from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover.answers import Levels
from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.classes import Classes, as_class_names
from evencover.data.columns import missing_labels
from evencover.data.fingerprint import Fingerprint, Sampler, sum_of
from evencover.data.source import Block, Source
from evencover.engine.blocks import gathered, joined, map_source
from evencover.errors import InputError, MismatchWarning, warn_caller
from evencover.evaluation.label_fit import label_fit
from evencover.ids import id_keys
from evencover.predictors.right_model import Predictions
from evencover.predictors.rule import BoundScore
from evencover.quantiles import ClassAlpha, GroupedScores, Groups, calibration_scores
from evencover.randomness import RandomStream, random_order, row_indices
from evencover.scores import Score
from evencover.topk import fewer, label_values
from evencover.validation import whole_number


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """What a method learns from, in memory: one entry per calibration row.

    The arrays are read-only, and no user holds them.

    Parameters
    ----------
    scores, labels
        (N,) scores of the true labels, and the labels.
    ids
        (N,) 64-bit keys: the rows' ids, or their indices if the rows go ``by_index``.
    n_classes, class_names
        K, and the names of the classes if they have any.
    ranks
        (N,) ranks of the true labels, from 1, for methods that need "ranks".
    label_values
        (N,) the input's number for the true label, for methods that need "label values"; only
        where the score is random, because otherwise equal scores identify copies of a row.
    by_index
        Whether the rows have no ids of their own.
    of_base
        Whether the scores are those of the score's base, which do not depend on other rows.
    may_lack_classes
        Whether rows may lack classes; a label that a row does not list has the score +inf.
    """

    scores: FloatArray
    labels: IntArray
    ids: Array
    n_classes: int
    class_names: tuple[str, ...] | None = None
    ranks: IntArray | None = None
    label_values: FloatArray | None = None
    by_index: bool = True
    of_base: bool = False
    may_lack_classes: bool = False

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __len__(self) -> int:
        return len(self.scores)

    def _columns(self) -> dict[str, Array]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    @cached_property
    def class_counts(self) -> IntArray:
        """(K,) calibration rows of each class."""
        counts = np.bincount(self.labels, minlength=self.n_classes)
        counts.setflags(write=False)
        return counts

    def scored_by(self, score: Score) -> CalibrationRows:
        """Return the rows with the scores that a method compares, from those of the base."""
        if not self.of_base:
            return self
        scores = score.from_base(self.scores, self.labels)
        scored = replace(self, scores=scores, of_base=False)
        vars(scored)["class_counts"] = self.class_counts
        return scored

    def split(self, n_first: int, random_state: int) -> tuple[CalibrationRows, CalibrationRows]:
        """Split off the first `n_first` rows in the random order of their ids.

        Both parts are in increasing order of score, so they need no sort of their own.
        """
        is_first = np.zeros(len(self), dtype=bool)
        is_first[random_order(random_state, RandomStream.SPLIT, self.ids)[:n_first]] = True
        is_first = is_first[self.by_score]
        return self.take(self.by_score[is_first]), self.take(self.by_score[~is_first])

    @cached_property
    def by_score(self) -> IntArray:
        """The rows in increasing order of score (N,)."""
        order = _kernels.ascending(self.scores)
        order.setflags(write=False)
        return order

    def by_alpha(self, alpha: ClassAlpha) -> Groups:
        """Group the scores of the classes that share an alpha, as STANDARD does."""
        return Groups(self.by(alpha.of_class), alpha.of_class)

    def by(self, group_of_class: IntArray) -> GroupedScores:
        """Sort the scores within groups of classes; classes of group -1 are left out."""
        if not group_of_class.any():  # all are in group 0
            return GroupedScores.one(self.scores, lambda: self.scores[self.by_score])
        n_groups = int(group_of_class.max()) + 1
        groups = group_of_class[self.labels]
        return GroupedScores.sort(self.scores, groups, n_groups, self.by_score)

    @cached_property
    def by_class(self) -> GroupedScores:
        """The scores of each class, sorted."""
        return GroupedScores.sort(self.scores, self.labels, self.n_classes, self.by_score)

    def followed_by(self, other: CalibrationRows) -> CalibrationRows:
        """Append rows; a column that either lacks is left out."""
        first, second = self._columns(), other._columns()
        columns: dict[str, Any] = {
            name: np.concatenate([first[name], second[name]]) if name in second else None
            for name in first
        }
        may_lack_classes = self.may_lack_classes or other.may_lack_classes
        return replace(self, **columns, may_lack_classes=may_lack_classes)

    def take(self, rows: Array | slice) -> CalibrationRows:
        """Return some of the rows."""
        columns: dict[str, Any] = {name: column[rows] for name, column in self._columns().items()}
        return replace(self, **columns)


class CalibrationInputs(NamedTuple):
    """Identify the inputs of a calibration, to recognize them in test data.

    ``fingerprints`` have the text of each input, and the index after its last row. ``precision`` is
    that of the first input (see `rounding`), and ``k`` the fewest classes that a row lists, None if
    all rows list all.
    """

    fingerprints: tuple[tuple[str, int], ...] = ()
    precision: float | None = None
    k: int | None = None

    def followed_by(
        self, read: Fingerprint, n_old: int, labels: IntArray, n_classes: int
    ) -> CalibrationInputs:
        """Append an input that was read after `n_old` of all `labels`.

        All rows together are known as one input, too.
        """
        known, n_rows = list(self.fingerprints), len(labels)
        if known:
            of_all = known[0][0][:16] + f"{sum_of(labels, n_classes):016x}"
            known.insert(0, (of_all, n_rows))
        alone = read._replace(total=sum_of(labels[n_old:], n_classes))
        known.append((alone.hexdigest(), n_rows))
        return self._replace(fingerprints=tuple(known), k=fewer(self.k, read.k))

    def since(self, first: int) -> CalibrationInputs:
        """Forget rows before `first`; an input is known while any of its rows is left."""
        left = ((text, end - first) for text, end in self.fingerprints if end > first)
        return self._replace(fingerprints=tuple(left))

    def include(self, read: Fingerprint) -> bool:
        """Return whether rows that have been read are one of the inputs."""
        return any(text == read.hexdigest() for text, _ in self.fingerprints)


# ---- reading -------------------------------------------------------------------------------------


def score_true_labels(
    scoring: BoundScore, with_ranks: bool, with_values: bool, block: Block
) -> tuple[Array, ...]:
    """Score the true labels of a block; return the labels, and what else is needed, too.

    Labels and ranks take as few bytes as their number allows.
    """
    assert block.labels is not None
    n_classes = block.rows.shape[1]
    columns: list[Array] = [scoring.true_labels(block, calibrating=True)]
    columns.append(block.labels.astype(np.min_scalar_type(n_classes)))
    if block.ids is not None:
        columns.append(block.ids)
    if with_ranks:
        columns.append(scoring.true_ranks(block).astype(np.min_scalar_type(n_classes)))
    if with_values:
        columns.append(label_values(block.rows, block.known_labels).astype(np.float64))
    return tuple(columns)


def read_calibration(
    source: Source, scoring: BoundScore, needs: tuple[str, ...], executor: Any
) -> tuple[CalibrationRows, Fingerprint, Array]:
    """Read all rows; return the base scores of their labels, and a fingerprint of the rows.

    Rows with labels that are not among the classes are left out. Return also which are not (N,).
    """
    with_ranks, with_values = "ranks" in needs, "label values" in needs and scoring.score.is_random
    score = partial(score_true_labels, scoring, with_ranks, with_values)
    sampler = Sampler(source.n_rows, source.offset)
    parts = map_source(source, score, joined, executor, samplers=[sampler])
    columns, read = gathered(parts, source.n_rows), sampler.result()
    warn_of_mismatch(source, read, scoring)
    is_known = columns[1] < source.n_classes
    if not is_known.any():
        raise source.no_known_label()
    if not is_known.all():
        n_unknown, n_rows = int((~is_known).sum()), len(is_known)
        warn_caller(
            f"{n_unknown} of {n_rows} rows ({n_unknown / n_rows:.1%}) have labels that are not "
            "among the classes; they are left out, so coverage concerns the known classes."
        )
        columns = tuple(column[is_known] for column in columns)
    scores, labels, *more = columns
    ids = more.pop(0) if source.has_ids else row_indices(source.offset, source.offset + len(scores))
    if source.has_ids:
        warn_of_repeated_ids(ids)
    rows = CalibrationRows(
        scores,
        labels.astype(np.int64),
        ids,
        source.n_classes,
        source.class_names,
        more.pop(0).astype(np.int64) if with_ranks else None,
        more.pop() if with_values else None,
        by_index=not source.has_ids,
        of_base=True,
        may_lack_classes=source.reader.may_lack_classes,
    )
    return rows, read, is_known


def read_predictions(
    source: Source, scoring: BoundScore, levels: Levels, executor: Any
) -> tuple[list[Predictions], Array]:
    """Read all rows; return the most probable node of each level, and the rows' keys."""
    sampler = Sampler(source.n_rows, source.offset)
    parts = map_source(
        source, partial(scoring.predictions, levels=levels), joined, executor, samplers=[sampler]
    )
    scores, nodes, is_right, keys = gathered(parts, source.n_rows)
    warn_of_mismatch(source, sampler.result(), scoring)
    return [
        Predictions(*of_level) for of_level in zip(scores.T, nodes.T, is_right.T, strict=True)
    ], keys


def appended(
    old: CalibrationRows,
    inputs: CalibrationInputs,
    source: Source,
    scoring: BoundScore,
    needs: tuple[str, ...],
    executor: Any,
    *,
    window: int | None = None,
) -> tuple[CalibrationRows, CalibrationInputs]:
    """Read new rows after the old ones; keep the newest of a window.

    New rows go by their ids or by their index, as the old ones do.
    """
    if not old.by_index and not source.has_ids:
        raise InputError(
            "The new rows must have ids, because the calibration rows have ids. Got none with "
            f"{source.name}; pass 'ids' (--ids on the command line)."
        )
    if old.by_index and source.has_ids:
        source = source.without_ids()
        warn_caller(
            f"The ids of {source.name} are ignored, because the calibration rows have none; "
            "to keep ids, calibrate again on all rows with ids."
        )
    source = replace(source, offset=int(old.ids[-1]) + 1 if old.by_index else 0)
    new, read, _ = read_calibration(source, scoring, needs, executor)
    rows = old.followed_by(new)
    inputs = inputs.followed_by(read, len(old), rows.labels, rows.n_classes)
    n_old = 0
    if window is not None:
        n_old = max(0, len(rows) - whole_number(window, "window", "partial_fit", 1))
    if n_old:
        rows, inputs = rows.take(slice(n_old, None)), inputs.since(n_old)
    if not rows.by_index:
        warn_of_repeated_ids(rows.ids)
    if rows.class_names is None and source.class_names is not None:
        rows = replace(rows, class_names=source.class_names)
    return rows, inputs


def rows_of_scores(
    scores: Any,
    labels: Any,
    n_classes: int,
    needs: tuple[str, ...],
    *,
    ids: Any = None,
    ranks: Any = None,
    class_names: Any = None,
    of_base: bool = True,
) -> CalibrationRows:
    """Check scores and labels that a user passes, and copy them."""
    scores = calibration_scores(scores).copy()
    labels = Classes(n_classes).label_indices(labels, len(scores)).copy()
    if len(scores) == 0:
        raise InputError("There must be at least one calibration row. Got none.")
    by_index = ids is None
    ids = row_indices(0, len(scores)) if ids is None else id_keys(ids, len(scores))
    if not by_index:
        warn_of_repeated_ids(ids)
    names = as_class_names(class_names, n_classes)
    if "ranks" not in needs:
        ranks = None
    else:
        ranks = to_numpy(() if ranks is None else ranks)
        is_whole = ranks.shape == (len(scores),) and ranks.dtype.kind in "iu"
        if not is_whole or not 1 <= ranks.min() <= ranks.max() <= n_classes:
            raise InputError(
                "This method needs 'ranks', the rank of each true label in its row, from 1 to "
                f"{n_classes}. Got other values, or none."
            )
        ranks = ranks.astype(np.int64)
    return CalibrationRows(
        scores,
        labels,
        ids,
        n_classes,
        None if names is None else tuple(names),
        ranks,
        by_index=by_index,
        of_base=of_base,
    )


def warn_of_repeated_ids(ids: Array) -> None:
    """Warn of rows with the id of an earlier one."""
    ordered = np.sort(ids)
    n_repeated = int((ordered[1:] == ordered[:-1]).sum())
    if n_repeated:
        warn_caller(
            f"{n_repeated} of {len(ids)} rows have the id of an earlier row. Rows with the "
            "same id share their random numbers; remove copies of a row."
        )


LEAST_RANKED = 20  # rows that decrease; a model's own do not by chance


def reject_ranked_lists(source: Source, read: Fingerprint) -> None:
    """Raise if rows of all classes are the sorted numbers of the top classes.

    Warn if they have equal numbers of nonzeros, which may be the top classes, too.
    """
    if read.rows is None or source.reader.is_top_k or source.allow_sorted:
        return
    numbers, labels = read.rows.numbers, read.rows.labels
    if len(numbers) < LEAST_RANKED or numbers.shape[1] < 5 or not labels.any():
        return
    is_sorted = (np.diff(numbers, axis=1) <= 0).all() and (numbers[:, 0] > numbers[:, -1]).all()
    if is_sorted:
        raise InputError(
            f"The columns of {source.name} must be classes. Got rows whose numbers all decrease, "
            "as in lists of the top classes; pass these with their classes (TopK), or confirm that "
            "columns are classes with allow_sorted=True (--allow-sorted)."
        )
    counts = np.unique((numbers != 0).sum(axis=1))
    if read.rows.size.stride == 1 and len(counts) == 1 and 1 < counts[0] <= numbers.shape[1] // 2:
        warn_caller(
            f"All rows of {source.name} have {counts[0]} numbers and otherwise zeros. If these are "
            "the top classes only, pass the rows as top-k rows (TopK, or a sparse matrix), because "
            "zero is not the probability of the others."
        )


def warn_of_mismatch(source: Source, read: Fingerprint, scoring: BoundScore) -> str | None:
    """Warn if the labels of rows that have been read do not belong to the rows; return why.

    Raise InputError for ranked lists.
    """
    reject_ranked_lists(source, read)
    sample = read.rows
    if sample is None:
        return None
    fit = label_fit(
        sample.numbers,
        sample.labels,
        top=sample.top,
        stride=sample.size.stride,
        logits=scoring.logits,
    )
    if fit is None or not fit.is_mismatch:
        return None
    sentence = fit.sentence(source.how_matched)
    warn_caller(sentence, MismatchWarning)
    return sentence


def require_rereadable(source: Source, why: str) -> None:
    """Raise for rows that can be read only once."""
    if source.n_rows is None:
        raise InputError(
            f"{why} reads the rows several times. Got an iterator, which can be read once; "
            "pass an array or the path of a file."
        )


def require_labels(source: Source, what: str) -> None:
    """Raise for rows without labels where they are needed, or without rows."""
    if source.n_rows == 0:
        raise InputError(f"{what} needs at least one row. Got none in {source.name}.")
    if not source.has_labels:
        raise missing_labels(what, source.name, source.columns.left_out)
