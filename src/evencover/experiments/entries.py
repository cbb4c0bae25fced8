"""What a table of a study holds, before it has a format."""

from __future__ import annotations

from dataclasses import dataclass

from evencover.evaluation.metrics import Metric
from evencover.experiments.published import Published


@dataclass(frozen=True)
class Entry:
    """One number of the table.

    ``agrees`` is None where nothing was published.
    """

    mean: float
    standard_error: float | None
    is_best: bool
    published: Published | None
    digits: int = 1

    @property
    def text(self) -> str:
        """Mean (standard error)."""
        error = "–" if self.standard_error is None else f"{self.standard_error:.{self.digits}f}"
        return f"{self.mean:.{self.digits}f} ({error})"

    @property
    def agrees(self) -> bool | None:
        """Whether it is within the joint error of the published number."""
        if self.published is None:
            return None
        return self.published.agrees_with(self.mean, self.standard_error)

    @property
    def verdict(self) -> str:
        """The published number and a sign for `agrees`; empty where there is none."""
        if self.published is None:
            return ""
        sign = "=" if self.agrees else "≠"
        return f"{self.published.mean:.1f} ({self.published.standard_error:.1f}) {sign}"


@dataclass(frozen=True)
class Line:
    """One method on one data set with one score."""

    dataset: str
    score: str
    method: str
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True)
class TableContent:
    """All lines, with what stands above and below them."""

    n_avg: tuple[int, ...]
    metrics: tuple[Metric, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    title: str
