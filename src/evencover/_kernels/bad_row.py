"""How every kernel says that it cannot read a row."""

from __future__ import annotations


class BadRow(Exception):  # noqa: N818 - whoever knows the file's name makes the error of it
    """A row that holds no probabilities (or logits): the first one among the rows handed in.

    Attributes
    ----------
    row
        Its place among them. What is wrong with it is for those to say who know where it is from.

    >>> BadRow(3).row
    3
    """

    def __init__(self, row: int) -> None:
        super().__init__(row)  # so that it can be pickled
        self.row = row
