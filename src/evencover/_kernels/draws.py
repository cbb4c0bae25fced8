"""Which random numbers the rows of a block are given."""

from __future__ import annotations

from typing import NamedTuple

from evencover._validation import Array


class Draws(NamedTuple):
    """A uniform for the score and a coin between two limits, each drawn for a use of its own.

    Without a use, u is 1 and the coin 0. The key of a row is its id; without ids it is a mix of
    the row's content and its place, which is ``first`` for the first row. By place alone, rows
    that arrive one at a time would all share one number; by content alone, equal rows would.
    """

    seed: int = 0
    score_use: int | None = None
    coin_use: int | None = None
    ids: Array | None = None
    first: int = 0

    @property
    def any(self) -> bool:
        """Whether there is anything to draw."""
        return self.score_use is not None or self.coin_use is not None

    def of_rows(self, start: int, stop: int) -> Draws:
        """Those of some of the rows."""
        ids = None if self.ids is None else self.ids[start:stop]
        return self._replace(ids=ids, first=self.first + start)


NO_DRAWS = Draws()
