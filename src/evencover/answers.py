"""Answers at the finest level that is accurate enough: a class, else its group, else a review."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, data_frame

REVIEW = -1  # the node of a row without an answer
NO_NODE = -1  # the node of a class that has none at a level


class Levels(NamedTuple):
    """The nodes that can answer, from classes to wider groups.

    ``level_names`` are those of the levels. Of the M nodes, the first K are the classes, and
    ``groups`` names the others. ``level_of_node`` (M,) is where a node belongs, and
    ``node_of_class`` (L, K) the node of each class at each level, -1 for none. A group with one
    class is that class. ``class_of_group`` (M - K,) is one class of each group.
    """

    level_names: tuple[str, ...]
    groups: tuple[str, ...]
    level_of_node: IntArray
    node_of_class: IntArray
    class_of_group: IntArray

    @classmethod
    def of_classes(cls, n_classes: int) -> Levels:
        """Return the only level there is without a taxonomy."""
        classes = np.arange(n_classes)
        return cls(("class",), (), np.zeros_like(classes), classes[None], classes[:0])

    @property
    def n_levels(self) -> int:
        """L."""
        return len(self.level_names)

    @property
    def n_nodes(self) -> int:
        """M."""
        return len(self.level_of_node)

    def are_right(self, nodes: IntArray, labels: IntArray) -> Array:
        """Return whether each node (n,) is the label of its row, or an ancestor of it.

        Label K is unknown, and those from K + 1 on are groups. A group is itself what its class is
        at its level.
        """
        unknown = np.full((self.n_levels, 1), NO_NODE)
        level = self.level_of_node[self.node_of_class.shape[1] :]
        is_wider = np.arange(self.n_levels)[:, None] >= level
        of_group = np.where(is_wider, self.node_of_class[:, self.class_of_group], NO_NODE)
        of_label = np.hstack([self.node_of_class, unknown, of_group])[:, labels]
        return (of_label == nodes).any(axis=0) & (nodes != REVIEW)

    def labels_of(self, node: int) -> IntArray:
        """Return the labels that a node is right for; none for a review."""
        is_right = (self.node_of_class == node).any(axis=0) & (node != REVIEW)
        labels: IntArray = np.flatnonzero(is_right)
        return labels

    def asked(self, level: int) -> Array:
        """Return which nodes (M,) may answer at a level: classes, then groups of several."""
        nodes = self.node_of_class[level]
        n_members = np.bincount(nodes[nodes != NO_NODE], minlength=self.n_nodes)
        return n_members > 0 if level == 0 else (n_members > 1) & (self.level_of_node == level)

    def by_node(self, level: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return the nodes at a level, and where each begins in the classes sorted by node."""
        order = np.argsort(self.node_of_class[level], kind="stable")
        nodes, starts = np.unique(self.node_of_class[level][order], return_index=True)
        return nodes, starts, order


@dataclass(frozen=True, eq=False)
class Answers:
    """The answer to each row: a class or a wider node, or a review.

    Parameters
    ----------
    nodes
        (N,) indices of nodes, first the classes; -1 for a review.
    probabilities
        (N,) probabilities of the nodes; NaN for a review.
    hierarchy
        The nodes and their levels.
    class_names
        One name per class, optional.
    index
        (N,) row labels in `to_pandas`, optional.
    """

    nodes: IntArray
    probabilities: FloatArray
    hierarchy: Levels
    class_names: Sequence[str] | None = None
    index: Any = None

    @classmethod
    def concatenate(cls, parts: Sequence[Answers]) -> Answers:
        """Join the rows of all parts."""
        nodes = np.concatenate([part.nodes for part in parts])
        probabilities = np.concatenate([part.probabilities for part in parts])
        return replace(parts[0], nodes=nodes, probabilities=probabilities)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, rows: Any) -> Answers:
        index = None if self.index is None else self.index[rows]
        return replace(
            self, nodes=self.nodes[rows], probabilities=self.probabilities[rows], index=index
        )

    def __repr__(self) -> str:
        counts = [f"{count} {name}" for name, count in self.counts().items()]
        return f"Answers({len(self)} rows: {', '.join(counts)})"

    @property
    def names(self) -> list[Any]:
        """The name of each row's node, the index if classes have no names; None for a review."""
        n_classes = self.hierarchy.node_of_class.shape[1]
        classes = range(n_classes) if self.class_names is None else self.class_names
        known = [*classes, *self.hierarchy.groups, None]
        return [known[node] for node in self.nodes.tolist()]

    @property
    def levels(self) -> list[str | None]:
        """The name of the level of each row's node; None for a review."""
        names = [*self.hierarchy.level_names, None]
        return [names[level] for level in self._levels().tolist()]

    def _levels(self) -> IntArray:
        return np.append(self.hierarchy.level_of_node, REVIEW)[self.nodes]

    def counts(self) -> dict[str, int]:
        """Count the rows by level, from fine to wide, and those for review."""
        names = (*self.hierarchy.level_names, "review")
        counts = np.bincount(self._levels() % len(names), minlength=len(names))
        return dict(zip(names, counts.tolist(), strict=True))

    def columns(self) -> dict[str, list[Any]]:
        """Return plain values by column; None for what a row without an answer lacks."""
        p = [None if np.isnan(value) else value for value in self.probabilities.tolist()]
        return {"answer": self.names, "answer_level": self.levels, "answer_probability": p}

    def to_pandas(self) -> Any:
        """Build a data frame: ``answer``, ``answer_level`` and ``answer_probability``."""
        return data_frame(self.columns(), self.index)
