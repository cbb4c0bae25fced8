"""How rows are scored, wherever that is: for calibrating, for sets, in trials and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover import _kernels
from evencover._kernels import BadRow, Draws
from evencover._validation import (
    Array,
    FloatArray,
    InputError,
    IntArray,
    are_probabilities,
    raise_bad_row,
)
from evencover.data.source import Block
from evencover.scores import Score


@dataclass(frozen=True)
class Scoring:
    """A score, what the numbers are, and where its random numbers come from.

    `assumed` logits are known from the model only, not from the input: rows that are probabilities
    are rejected.
    """

    score: Score
    logits: bool
    temperature: float
    random_state: int
    assumed: bool = False

    @contextmanager
    def checking(self, block: Block) -> Iterator[None]:
        """Raise InputError for rows that are probabilities instead of logits, or a bad row."""
        self.refuse_probabilities(block.rows, block.place)
        try:
            yield
        except BadRow as bad:
            row, where = block.rows[bad.row], block.place(bad.row)
            raise_bad_row(row, block.start + bad.row, logits=self.logits, place=where)

    def refuse_probabilities(
        self, rows: Array, place: Callable[[int], str] = "row {}".format
    ) -> None:
        """Raise InputError if the rows were assumed to be logits and are probabilities."""
        if self.logits and self.assumed and are_probabilities(rows):
            raise InputError(
                "'logits' must be a model's output before the softmax. Got probabilities from "
                f"{place(0)} on (between 0 and 1, with sum 1); pass logits, or use "
                "from_logits=False in calibration. If these are logits nevertheless, pass "
                "{'logits': rows} (--logits on the command line)."
            )

    @property
    def options(self) -> dict[str, Any]:
        """What all kernels ask for."""
        return {"logits": self.logits, "temperature": self.temperature}

    def draws(self, block: Block, ids: Array | None, **purpose: bool) -> Draws:
        """The random numbers of a block's rows."""
        return self.score.draws(self.random_state, ids, block.start, **purpose)

    def keys(self, block: Block, ids: Array | None, **purpose: bool) -> Array | None:
        """The keys of a block's rows, for rows that are taken out of their places."""
        draws = self.draws(block, ids, **purpose)
        return _kernels.row_keys(block.rows, draws) if draws.any else ids

    def coins(self, block: Block, ids: Array | None) -> FloatArray:
        """The rows' coins (n,)."""
        draws = self.draws(block, ids, exact=True)._replace(score_use=None)
        return _kernels.row_numbers(block.rows, draws)[1]

    def true_labels(
        self, block: Block, ids: Array | None, *, calibrating: bool = False
    ) -> FloatArray:
        """Compute base scores of the true labels (n,)."""
        assert block.labels is not None
        draws = self.draws(block, ids, calibrating=calibrating)
        with self.checking(block):
            return _kernels.true_label_scores(
                self.score.base.kernel, block.rows, draws, block.labels, **self.options
            )

    def true_ranks(self, block: Block) -> IntArray:
        """Ranks of the true labels (n,)."""
        assert block.labels is not None
        with self.checking(block):
            return _kernels.true_label_ranks(block.rows, block.labels, **self.options)

    def matrix(self, block: Block, draws: Draws) -> FloatArray:
        """Scores of every class (n, K)."""
        with self.checking(block):
            scores = _kernels.score_matrix(
                self.score.base.kernel, block.rows, draws, **self.options
            )
        return self.score.from_base(scores, np.arange(scores.shape[1]))

    def ranks(self, block: Block) -> IntArray:
        """Ranks of every class (n, K)."""
        with self.checking(block):
            return _kernels.rank_matrix(block.rows, **self.options)
