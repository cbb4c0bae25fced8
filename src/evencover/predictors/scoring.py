"""How rows are scored, wherever that is: for calibrating, for sets, in trials and reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover import _kernels
from evencover._kernels import BadRow, Draws
from evencover._validation import Array, FloatArray, IntArray, raise_bad_row
from evencover.data.source import Block
from evencover.scores import Score


@contextmanager
def naming_bad_rows(block: Block, *, logits: bool) -> Iterator[None]:
    """Turn a row that a kernel refuses into the sentence that says what is wrong with it."""
    try:
        yield
    except BadRow as bad:
        row, where = block.rows[bad.row], block.place(bad.row)
        raise_bad_row(row, block.start + bad.row, logits=logits, place=where)


@dataclass(frozen=True)
class Scoring:
    """A score, what the numbers are, and where its random numbers come from."""

    score: Score
    logits: bool
    temperature: float
    random_state: int

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
        """Base scores of the true labels (n,)."""
        assert block.labels is not None
        draws = self.draws(block, ids, calibrating=calibrating)
        with naming_bad_rows(block, logits=self.logits):
            return _kernels.true_label_scores(
                self.score.base.kernel, block.rows, draws, block.labels, **self.options
            )

    def true_ranks(self, block: Block) -> IntArray:
        """Ranks of the true labels (n,)."""
        assert block.labels is not None
        with naming_bad_rows(block, logits=self.logits):
            return _kernels.true_label_ranks(block.rows, block.labels, **self.options)

    def matrix(self, block: Block, draws: Draws) -> FloatArray:
        """Scores of every class (n, K)."""
        with naming_bad_rows(block, logits=self.logits):
            scores = _kernels.score_matrix(
                self.score.base.kernel, block.rows, draws, **self.options
            )
        return self.score.from_base(scores, np.arange(scores.shape[1]))

    def ranks(self, block: Block) -> IntArray:
        """Ranks of every class (n, K)."""
        with naming_bad_rows(block, logits=self.logits):
            return _kernels.rank_matrix(block.rows, **self.options)
