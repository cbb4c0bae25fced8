"""Scores of rows, and the rule that turns them into sets: for fits, sets, trials and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evencover import _kernels
from evencover._kernels import NO_DRAWS, BadRow, Draws, KernelInput, Position
from evencover._kernels.reference import FIXED_POINT, SLICE_ELEMENTS, probabilities
from evencover._kernels.topk import divided
from evencover.answers import NO_NODE, REVIEW, Answers, Levels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Block
from evencover.errors import InputError
from evencover.evaluation.metrics import Confusions, EvaluationCounts, Tally
from evencover.ids import id_keys
from evencover.predictors.acceptance import Acceptance
from evencover.quantiles import Thresholds
from evencover.randomness import RandomStream, row_indices
from evencover.rows import are_probabilities, raise_bad_row, score_rows
from evencover.scores import Score, Softmax
from evencover.sets import PredictionSets
from evencover.topk import TopK

SOFTMAX = Softmax().kernel
BothSets = tuple[PredictionSets, PredictionSets | None]
HIDDEN = 1e-6  # probability that the rounding of listed ones may hide


@dataclass(frozen=True)
class BoundScore:
    """A score, what the numbers are, and where its random numbers come from.

    `assumed` logits are known from the model only, not from the input: rows that are probabilities
    are rejected.
    """

    score: Score
    logits: bool
    random_state: int
    assumed: bool = False

    def for_input(self, logits: bool | None) -> BoundScore:
        """Bind the score to an input that states whether it holds `logits`, or does not (None)."""
        if logits is None:
            return self
        return replace(self, logits=logits, assumed=False)

    @contextmanager
    def checking(self, block: Block) -> Iterator[None]:
        """Raise InputError for rows that are probabilities instead of logits, or a bad row."""
        self.refuse_probabilities(block.rows, block.row_name)
        try:
            yield
        except BadRow as bad:
            row, where = block.rows[bad.row], block.row_name(bad.row)
            raise_bad_row(row, block.start + bad.row, logits=self.logits, where=where)

    def refuse_probabilities(
        self, rows: Any, name_row: Callable[[int], str] = "row {}".format
    ) -> None:
        """Raise InputError if the rows were assumed to be logits and are probabilities."""
        if self.logits and isinstance(rows, TopK):
            raise InputError(
                "Top-k rows must be probabilities. Got logits, which cannot be normalized without "
                "those of the other classes; use a softmax over all classes, or exp of log "
                "probabilities, and from_logits=False."
            )
        if self.logits and self.assumed and are_probabilities(rows):
            raise InputError(
                "'logits' must be a model's output before the softmax. Got probabilities from "
                f"{name_row(0)} on (between 0 and 1, with sum 1); pass logits, or use "
                "from_logits=False in calibration. If these are logits nevertheless, pass "
                "{'logits': rows} (--logits on the command line)."
            )

    def kernel_input(self, rows: Any, draws: Draws = NO_DRAWS) -> KernelInput:
        """Return rows as kernels take them, for base scores."""
        return KernelInput(rows, self.score.base.kernel, draws, self.logits)

    def of_block(self, block: Block, **purpose: bool) -> KernelInput:
        """Return the rows of a block as kernels take them, for base scores."""
        return self.kernel_input(block.rows, self.draws(block.ids, block.start, **purpose))

    def draws(
        self, ids: Array | None, first: int = 0, *, calibrating: bool = False, exact: bool = False
    ) -> Draws:
        """Describe the random numbers of rows that start at row `first` of the input.

        Without randomization u = 1, the class's full probability. Calibration and prediction never
        share random numbers, even for equal ids.
        """
        use = RandomStream.CALIBRATION_SCORE if calibrating else RandomStream.SCORE
        score_use = int(use) if self.score.is_random else None
        exact_use = int(RandomStream.EXACT) if exact else None
        return Draws(int(self.random_state), score_use, exact_use, ids, first)

    def rank_draws(self, block: Block) -> FloatArray:
        """Draw the number of each row that decides between two ranks (n,)."""
        draws = self.draws(block.ids, block.start, exact=True)._replace(score_use=None)
        return _kernels.row_numbers(block.rows, draws)[1]

    def true_labels(self, block: Block, *, calibrating: bool = False) -> FloatArray:
        """Compute base scores of the true labels (n,)."""
        assert block.labels is not None
        given = self.of_block(block, calibrating=calibrating)
        with self.checking(block):
            return _kernels.true_label_scores(given, block.known_labels)

    def top_scores(self, rows: Array, top_classes: IntArray) -> FloatArray:
        """Compute softmax scores of the most probable classes (n,), whatever the score."""
        given = KernelInput(rows, SOFTMAX, logits=self.logits)
        return _kernels.true_label_scores(given, top_classes)

    def probabilities(self, rows: Array, indices: IntArray, classes: Array) -> FloatArray:
        """Return the probability of each of these classes in the row at its ascending index."""
        if not self.logits:
            return rows[indices, classes].astype(np.float64)
        values = np.empty(len(indices))
        step = max(1, SLICE_ELEMENTS // max(1, rows.shape[1]))
        for start in range(0, len(rows), step):
            in_slice = slice(*np.searchsorted(indices, [start, start + step]))
            p = probabilities(rows[start : start + step], logits=self.logits)
            values[in_slice] = p[indices[in_slice] - start, classes[in_slice]]
        return values

    def predictions(self, block: Block, levels: Levels) -> tuple[Array, ...]:
        """Return scores and nodes of each level's prediction (n, L), if right, and keys (n,)."""
        assert block.nodes is not None
        top = _kernels.top_classes(block.rows)
        keys = block.ids
        if keys is None:
            keys = row_indices(block.start, block.start + len(top))
        with self.checking(block):
            found = [(self.top_scores(block.rows, top), top)]
            found += [self.top_nodes(block.rows, levels, k) for k in range(1, levels.n_levels)]
        scores, nodes = (np.stack(columns, axis=1) for columns in zip(*found, strict=True))
        is_right = [levels.are_right(column, block.nodes) for column in nodes.T]
        return scores, nodes, np.stack(is_right, axis=1), keys

    def top_nodes(self, rows: Any, levels: Levels, level: int) -> tuple[FloatArray, IntArray]:
        """Compute the scores, 1 - p, of the most probable nodes of a level (n,), and the nodes.

        Of top-k rows, p is the sum of what they list.
        """
        if isinstance(rows, TopK):
            return _top_listed_nodes(divided(rows), levels.node_of_class[level], levels.n_nodes)
        nodes, starts, order = levels.by_node(level)
        scores, found = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
        step = max(1, SLICE_ELEMENTS // rows.shape[1])
        for start in range(0, len(rows), step):
            p = _on_grid(probabilities(rows[start : start + step], logits=self.logits))
            sums = np.add.reduceat(p[:, order], starts, axis=1)
            sums[:, nodes == NO_NODE] = -1.0
            best = sums.argmax(axis=1)
            found[start : start + step] = nodes[best]
            scores[start : start + step] = 1 - sums[np.arange(len(p)), best]
        return scores, found

    def excludes_unlisted(self, rows: TopK, limits: FloatArray) -> Array:
        """Return whether no class that a row (n,) does not list can have a score within a limit.

        The probability of such a class is at most the smallest one listed, and at most what all
        listed ones leave. Listed classes with a larger probability are ahead of it.
        """
        n_unlisted = rows.n_classes - np.diff(rows.starts)
        if limits.max() == np.inf or not len(rows):
            return n_unlisted == 0
        entry = rows.row_of_entry
        left = np.maximum(0, 1 - np.bincount(entry, rows.values, len(rows))) + HIDDEN
        smallest = np.minimum.reduceat(rows.values, rows.starts[:-1]).astype(np.float64)
        # If all others together cannot have what is left, these are not the largest probabilities.
        p = np.where(smallest * n_unlisted < left - HIDDEN, left, np.minimum(smallest, left))
        is_ahead, score = rows.values > p[entry], self.score.base
        before = np.bincount(entry, rows.values * is_ahead, len(rows)).clip(max=1)
        rank = 1 + np.bincount(entry, is_ahead, len(rows))
        u = np.zeros(1) if score.is_random else np.ones(1)
        at = Position(p, before, rank, rows.values[rows.top_entries()], rows.argmax(axis=1), u)
        return (n_unlisted == 0) | (score.least_unlisted(at) > limits.max())

    def true_ranks(self, block: Block) -> IntArray:
        """Compute ranks of the true labels (n,)."""
        assert block.labels is not None
        with self.checking(block):
            return _kernels.true_label_ranks(self.kernel_input(block.rows), block.known_labels)

    def matrix(self, block: Block, *, calibrating: bool = False) -> FloatArray:
        """Compute scores of every class (n, K)."""
        with self.checking(block):
            scores = _kernels.score_matrix(self.of_block(block, calibrating=calibrating))
        return self.score.from_base(scores, np.arange(scores.shape[1]))

    def entries(self, block: Block) -> FloatArray:
        """Compute scores of all listed classes of top-k rows."""
        with self.checking(block):
            scores, _ = _kernels.score_entries(self.of_block(block))
        return self.score.from_base(scores, block.rows.classes)


def _on_grid(p: FloatArray) -> FloatArray:
    """Round to multiples of 2**-52, whose sums do not depend on their order."""
    return np.rint(p * FIXED_POINT) / FIXED_POINT


def _top_listed_nodes(
    rows: TopK, node_of_class: IntArray, n_nodes: int
) -> tuple[FloatArray, IntArray]:
    """Do what `BoundScore.top_nodes` does for top-k rows; -1 if a row lists no class of a node."""
    nodes = node_of_class[rows.classes]
    has_node = nodes != NO_NODE
    cells, cell = np.unique((rows.row_of_entry * n_nodes + nodes)[has_node], return_inverse=True)
    sums = np.bincount(cell, _on_grid(rows.values.astype(np.float64))[has_node], len(cells))
    order = np.lexsort((cells, -sums, cells // n_nodes))
    found, first = np.unique(cells[order] // n_nodes, return_index=True)
    scores, best = np.ones(len(rows)), np.full(len(rows), REVIEW)
    scores[found], best[found] = 1 - sums[order[first]], cells[order[first]] % n_nodes
    return scores, best


def listed_labels(block: Block) -> IntArray | None:
    """Count the top-k rows of each class that list their label (K,); None for other rows."""
    if not isinstance(block.rows, TopK):
        return None
    assert block.labels is not None
    is_listed = block.rows.lists(block.labels)
    return np.bincount(block.labels[is_listed], minlength=block.rows.shape[1])


@dataclass(frozen=True)
class SetRule:
    """All that decides whether a class is in the set of a row; made once, used for every block.

    ``scoring`` is the score, with what the calibration labels decide filled in; ``thresholds``
    are those of its base score. With ``keep_top``, a set always contains the most probable class.
    ``acceptance`` decides which rows to accept; without it, those whose set is just that class.
    ``second`` thresholds give second sets in `both_sets`, at little more than the cost of one.
    """

    scoring: BoundScore
    thresholds: Thresholds
    keep_top: bool
    class_names: Sequence[str] | None
    acceptance: Acceptance | None = None
    second: Thresholds | None = None

    def for_input(self, logits: bool | None) -> SetRule:
        """Return the rule for an input that states whether it holds `logits`, or does not."""
        return self if logits is None else replace(self, scoring=self.scoring.for_input(logits))

    @property
    def is_randomized(self) -> bool:
        """Whether the row's draw chooses between two thresholds."""
        return self.thresholds.lower is not None

    def predict_set(self, rows: Any, ids: Any = None, keys: Array | None = None) -> PredictionSets:
        """Compute the sets of a few rows in memory (n, K), as a service needs them.

        The same sets as the predictor's, on this thread and without a copy of an array. `ids`
        (n,) are the rows' stable ids, if they have any, or `keys` are what was made of them.

        >>> from evencover import StandardPredictor
        >>> p = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]
        >>> rule = StandardPredictor(alpha=0.2).fit(p, [0, 0, 1, 0]).rule()
        >>> rule.predict_set([[0.6, 0.4]]).to_lists()
        [[0]]
        """
        return self.few_sets(self.checked(rows), ids, keys)

    def checked(self, rows: Any) -> Any:
        """Return rows as floating-point numbers of all classes."""
        matrix = score_rows(rows)
        n_classes = len(self.thresholds.upper)
        if matrix.shape[1] != n_classes:
            raise InputError(
                f"'rows' must have the {n_classes} classes of the calibration data. Got an array "
                f"of shape {matrix.shape} instead."
            )
        return matrix

    def few_sets(self, rows: Any, ids: Any, keys: Array | None = None) -> PredictionSets:
        """Compute the sets of a few rows that are floating-point numbers of all classes."""
        self.scoring.refuse_probabilities(rows)
        return self._few_sets(rows, keys if ids is None else id_keys(ids, len(rows)))[0]

    def both_sets(self, rows: Any, keys: Array | None) -> BothSets:
        """Compute the same sets, and those of the classes within the `second` thresholds."""
        self.scoring.refuse_probabilities(rows)
        return self._few_sets(rows, keys)

    def _few_sets(self, rows: Any, keys: Array | None) -> BothSets:
        if isinstance(rows, TopK):
            return self.sets_of_block(Block(0, rows, ids=keys))
        try:
            starts, classes, *second = self._ready(rows, keys)
        except BadRow as bad:
            raise_bad_row(rows[bad.row], bad.row, logits=self.scoring.logits)
        return self._with_accepted(starts, classes, rows), self._second_sets(second)

    def _second_sets(self, arrays: Sequence[Array]) -> PredictionSets | None:
        if not arrays:
            return None
        return PredictionSets.from_csr(arrays[0], arrays[1], len(self.thresholds.upper))

    def _with_accepted(self, starts: IntArray, classes: Array, rows: Array) -> PredictionSets:
        """Return the sets that a kernel has computed, with which of these rows are accepted."""
        accepted, answers = None, None  # the sets with one class
        if self.acceptance is not None or not self.keep_top or isinstance(rows, TopK):
            is_alone = starts[1:] - starts[:-1] == 1
            if self.keep_top:  # each set begins with it
                top = classes[starts[:-1]].astype(np.int64)
            else:
                top = _kernels.top_classes(rows)
                is_alone[is_alone] = classes[starts[:-1][is_alone]] == top[is_alone]
            accepted, answers = self.accept(rows, top, is_alone)
        sets = PredictionSets.from_csr(starts, classes, rows.shape[1], self.class_names, accepted)
        return sets if answers is None else sets.with_answers(answers)

    def accept(
        self, rows: Any, top_classes: IntArray, is_alone: Array
    ) -> tuple[Array, Answers | None]:
        """Return which rows (n,) to accept without a review, and the answers if there are cutoffs.

        `is_alone` is whether the set is just the most probable class. Without cutoffs that decides,
        but of top-k rows only where no class that is not listed could be in the set as well.
        """
        acceptance = self.acceptance
        if acceptance is None:
            if isinstance(rows, TopK):
                alone, is_alone = np.flatnonzero(is_alone), np.zeros(len(rows), dtype=bool)
                upper = self.thresholds.upper
                is_alone[alone] = self.scoring.excludes_unlisted(rows[alone], upper)
            return is_alone, None
        levels, scores = acceptance.levels, self.scoring.top_scores(rows, top_classes)
        is_accepted = acceptance.within(0, top_classes, scores)
        nodes = np.where(is_accepted, top_classes, REVIEW)
        p = np.where(is_accepted, 1 - scores, np.nan)
        for level in range(1, levels.n_levels):
            left = np.flatnonzero(nodes == REVIEW)
            scores, found = self.scoring.top_nodes(rows[left], levels, level)
            is_answered = acceptance.within(level, found, scores)
            nodes[left[is_answered]] = found[is_answered]
            p[left[is_answered]] = 1 - scores[is_answered]
        return is_accepted, Answers(nodes, p, levels, self.class_names)

    @cached_property
    def _ready(self) -> Callable[[Array, Array | None], tuple[Array, ...]]:
        """The kernel with everything but the rows."""
        scoring = self.scoring
        given = scoring.kernel_input(None, scoring.draws(None, exact=self.is_randomized))
        return _kernels.ready_sets(given, self.thresholds, self.second, keep_top=self.keep_top)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made ready, which stays in this process."""
        return {key: value for key, value in vars(self).items() if key != "_ready"}

    def sets(self, block: Block) -> PredictionSets:
        """Compute the prediction set of each row, the most probable class first."""
        return self.sets_of_block(block)[0]

    def sets_of_block(self, block: Block) -> BothSets:
        """Compute what `both_sets` returns of a block."""
        given, second = self.scoring.of_block(block, exact=self.is_randomized), tuple[Array, ...]()
        with self.scoring.checking(block):
            starts, classes = _kernels.prediction_sets(
                given, self.thresholds, keep_top=self.keep_top
            )
            if self.second is not None:
                second = _kernels.prediction_sets(given, self.second, keep_top=False)
            return self._with_accepted(starts, classes, block.rows), self._second_sets(second)

    def counts(self, block: Block) -> EvaluationCounts:
        """Count what every metric follows from."""
        assert block.labels is not None
        assert block.nodes is not None
        given = self.scoring.of_block(block, exact=self.is_randomized)
        with self.scoring.checking(block):
            coverage = _kernels.set_coverage(
                given, block.known_labels, self.thresholds, keep_top=self.keep_top
            )
        is_covered = coverage.is_covered & (block.labels < block.rows.shape[1])
        coverage = coverage._replace(is_covered=is_covered)
        answers = self.accept(block.rows, coverage.top_classes, coverage.is_alone)
        tally = Tally.of_coverage(block.nodes, coverage, *answers)
        confusions = Confusions.of(block.labels, coverage.top_classes, block.rows.shape[1])
        return EvaluationCounts(tally._replace(listed=listed_labels(block)), confusions)
