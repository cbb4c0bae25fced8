"""Hierarchies of classes, and descriptions of sets: "3 warblers, all owls"."""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover.answers import NO_NODE, Levels
from evencover.errors import InputError
from evencover.sets import PredictionSets

MOST_PARTS = 4


class Part(NamedTuple):
    """A node of the hierarchy; ``n_members`` of its ``n_classes`` classes are in a set."""

    name: str
    n_members: int
    n_classes: int

    @property
    def text(self) -> str:
        """The name of a class; of a node, "3 warblers" or "all owls"."""
        if self.n_classes == 1:
            return self.name
        return f"{'all' if self.n_members == self.n_classes else self.n_members} {self.name}"


class Taxonomy:
    """A hierarchy whose leaves are the classes.

    Parameters
    ----------
    chains
        Names from narrow to wide: a class, its group, the group's parent and so on. Chains may
        start at any node, so (child, parent) pairs work too. Each node has one parent.
    class_names
        The classes in the order of their indices. A class outside the hierarchy stands alone, and
        a class may be a group of others.
    level_names
        If chains are rows of a table, a name for each column; empty cells are skipped.

    >>> birds = Taxonomy(
    ...     [("barn owl", "owls"), ("tawny owl", "owls"), ("blackcap", "warblers"),
    ...      ("chiffchaff", "warblers"), ("garden warbler", "warblers")],
    ...     ["barn owl", "tawny owl", "blackcap", "chiffchaff", "garden warbler"],
    ... )
    >>> birds.describe([0, 1, 2, 3], most=2)
    'all owls, 2 warblers'
    >>> birds.describe([0, 1, 3])
    'all owls, chiffchaff'
    """

    def __init__(
        self,
        chains: Iterable[Sequence[str]],
        class_names: Sequence[str],
        level_names: Sequence[str] | None = None,
    ) -> None:
        self.class_names = [str(name) for name in class_names]
        if len(set(self.class_names)) != len(self.class_names):
            raise InputError("A taxonomy must have unique class names. Got a name twice.")
        table = [[str(cell) for cell in chain] for chain in chains]
        # A group with the name of a class in its own row is that class.
        self.parent = _parents(list(dict.fromkeys(filter(None, row))) for row in table)
        if not any(name in self.parent for name in self.class_names):
            raise InputError(
                "The taxonomy must name the classes as the data do. Got none of the "
                f"{len(self.class_names)} class names, such as {self.class_names[0]!r}."
            )
        # Each class's nodes from wide to narrow; the last is the class itself.
        self._paths = [[name] for name in self.class_names]
        for path in self._paths:
            while path[0] in self.parent:
                path.insert(0, self.parent[path[0]])
        self._sizes = Counter(node for path in self._paths for node in path)
        # The level of a node is its column, or else the most steps to it from a class.
        self._level_names, self._level_of = tuple(level_names or ()), Counter[str]()
        if level_names is not None:
            cells = [(row.index(cell), cell) for row in table for cell in row if cell]
            self._level_of.update({cell: column for column, cell in sorted(cells)})
        for path in () if level_names is not None else self._paths:
            for step, name in enumerate(reversed(path)):
                self._level_of[name] = max(step, self._level_of[name])

    @classmethod
    def read(cls, taxonomy: Any, class_names: Sequence[str] | None) -> Taxonomy:
        """Make a taxonomy from a file, chains, a mapping from child to parent, or itself.

        Each line of a .csv or .tsv file has a class and its groups from narrow to wide, or the
        other way round. Empty cells are skipped. A first line without known names is a header,
        which names the levels, unless lines are pairs of a node and its group. A file may also be
        a tree in Newick format. "labels" takes the taxonomy from the class names of SpeciesNet.
        """
        if isinstance(taxonomy, cls):
            if class_names is not None and list(map(str, class_names)) != taxonomy.class_names:
                raise InputError("The taxonomy must have the classes of the predictor, in order.")
            return taxonomy
        if class_names is None:
            raise InputError("A taxonomy needs class names. Got none; pass class_names.")
        names = [str(name) for name in class_names]
        if isinstance(taxonomy, str | os.PathLike):
            if str(taxonomy) == "labels":
                return cls(_table_of_labels(names), names, RANKS)
            return cls(*_read_file(Path(taxonomy), names))
        return cls(taxonomy.items() if hasattr(taxonomy, "items") else taxonomy, names)

    def levels(self, n_classes: int | None = None) -> Levels:
        """Return the nodes of each level: a column of the table, or of one height in a tree."""
        if n_classes not in (None, len(self.class_names)):
            found = len(self.class_names)
            raise InputError(f"The taxonomy must have the {n_classes} classes. Got {found}.")
        for child, group in self.parent.items():
            if group in self._level_of and self._level_of[child] >= self._level_of[group]:
                raise InputError(
                    f"A taxonomy must have {group!r} in a wider column than {child!r}, which "
                    "belongs to it. Got it in the same or a narrower one."
                )
        names = dict.fromkeys(
            [*self.class_names, *(name for path in self._paths for name in path[::-1])]
        )
        index, level_of = {name: k for k, name in enumerate(names)}, self._level_of
        of_class = np.full((1 + max(map(level_of.__getitem__, names)), len(self._paths)), NO_NODE)
        for k, path in enumerate(self._paths):
            for name in path:
                of_class[level_of[name], k] = index[name]
        of_class[0] = np.arange(len(self._paths))  # also of classes that are groups
        # A group with the classes of a finer node is that node.
        known = {np.array([k]).tobytes(): k for k in of_class[0]}
        for row in of_class[1:]:
            order = np.argsort(row, kind="stable")[(row == NO_NODE).sum() :]
            for members in np.split(order, np.flatnonzero(np.diff(row[order])) + 1):
                row[members] = known.setdefault(members.tobytes(), row[members[:1]])
        default = ["class", "group", *(f"group {level}" for level in range(2, len(of_class)))]
        stated = [*self._level_names, *default[len(self._level_names) :]]
        level_names = tuple(name or other for name, other in zip(stated, default, strict=False))
        if len(set(level_names)) < len(level_names):
            raise InputError(f"Columns of a taxonomy need different names. Got {level_names}.")
        level_of_node = np.array([level_of[name] for name in names])
        member = {name: k for k, path in enumerate(self._paths) for name in path}
        groups = tuple(names)[len(self._paths) :]
        class_of_group = np.array([member[name] for name in groups], dtype=np.int64)
        return Levels(level_names, groups, level_of_node, of_class, class_of_group)

    def parts(self, classes: Iterable[int], most: int = MOST_PARTS) -> list[Part]:
        """Find the smallest nodes that cover a set of classes, at most `most` of them.

        Start with the widest nodes. Split nodes whose classes are not all in the set, the widest
        first, up to `most` parts. Replace a node with one member by the class. If there are too
        many nodes at the top, keep those with the most members; the last part counts the "others".
        """
        members = sorted({int(index) for index in classes})
        open_parts = self._below(members, 0)
        while True:
            indices = range(len(open_parts))
            for index in sorted(indices, key=lambda index: -self._size(*open_parts[index])):
                depth, leaves = open_parts[index]
                if not 1 < len(leaves) < self._size(depth, leaves):
                    continue
                finer = self._below(leaves, depth + 1)
                if len(open_parts) - 1 + len(finer) <= most or len(finer) == 1:
                    open_parts[index : index + 1] = finer
                    break
            else:
                break
        parts = [self._part(*open_part) for open_part in open_parts]
        if len(parts) <= most:
            return parts
        largest = sorted(parts, key=lambda part: -part.n_members)[: most - 1]
        kept = [part for part in parts if part in largest]
        n_others = len(members) - sum(part.n_members for part in kept)
        return [*kept, Part("others" if kept else "classes", n_others, len(self.class_names))]

    def describe(self, classes: Iterable[int], most: int = MOST_PARTS) -> str:
        """Describe one set in words; "nothing" if it is empty."""
        return ", ".join(part.text for part in self.parts(classes, most)) or "nothing"

    def describe_sets(self, sets: PredictionSets, most: int = MOST_PARTS) -> list[str]:
        """Describe each row's set in words."""
        if sets.n_classes != len(self.class_names):
            n_classes = len(self.class_names)
            raise InputError(f"The sets must have {n_classes} classes. Got {sets.n_classes}.")
        return [self.describe(members, most) for members in sets]

    def __repr__(self) -> str:
        """Include a digest: a folder of sets records it."""
        content = hashlib.blake2b(repr(self._paths).encode("utf-8", "replace"), digest_size=8)
        return f"<Taxonomy of {len(self.class_names)} classes, {content.hexdigest()}>"

    def _below(self, members: list[int], depth: int) -> list[tuple[int, list[int]]]:
        """Group members by their node at this depth, in class order."""
        groups: dict[str, list[int]] = {}
        for index in members:
            groups.setdefault(self._node(depth, index), []).append(index)
        return [(depth, leaves) for leaves in groups.values()]

    def _node(self, depth: int, index: int) -> str:
        path = self._paths[index]
        return path[min(depth, len(path) - 1)]

    def _size(self, depth: int, leaves: list[int]) -> int:
        return self._sizes[self._node(depth, leaves[0])]

    def _part(self, depth: int, leaves: list[int]) -> Part:
        if len(leaves) == 1:
            return Part(self.class_names[leaves[0]], 1, 1)
        return Part(self._node(depth, leaves[0]), len(leaves), self._size(depth, leaves))


def _parents(chains: Iterable[Sequence[str]]) -> dict[str, str]:
    parent: dict[str, str] = {}
    for chain in chains:
        for child, group in pairwise(map(str, chain)):
            if parent.setdefault(child, group) != group:
                raise InputError(
                    f"Every node of a taxonomy has one group. Got {parent[child]!r} and {group!r} "
                    f"for {child!r}."
                )
    try:
        tuple(TopologicalSorter({child: [group] for child, group in parent.items()}).static_order())
    except CycleError as error:
        node = error.args[1][0]
        raise InputError(f"A taxonomy has no cycles. Got {node!r} among its own groups.") from None
    return parent


def _read_file(
    path: Path, class_names: Sequence[str]
) -> tuple[list[list[str]], Sequence[str], list[str] | None]:
    """Return the chains of a file, the class names, and the names of its columns if it has any."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot read '{path}': {reason}.") from None
    known = set(map(str, class_names))
    if re.match(r"\s*(\[[^]]*\]\s*)*\(", text):
        pairs = _chains_of_newick(text)
        spaced = {name.replace(" ", "_"): name for name in known}  # its blanks are underscores
        return [[spaced.get(name, name) for name in pair] for pair in pairs], class_names, None
    tabs = path.suffix.lower() == ".tsv" or "\t" in text.partition("\n")[0]
    lines = csv.reader(text.splitlines(), delimiter="\t" if tabs else ",")
    table = [[cell.strip() for cell in line] for line in lines if any(map(str.strip, line))]
    named = known | {cell for line in table[1:] for cell in line if cell}
    header = table[0] if table and named.isdisjoint(table[0]) else None
    rows = table if header is None else table[1:]
    narrow, wide = ({row[end] for row in rows} for end in (0, -1))
    if len(wide & known) > len(narrow & known):
        rows, header = [row[::-1] for row in rows], header and header[::-1]
    pairs = [row for row in rows if len(row) == 2 and all(row) and row[0] != row[1]]
    if not {row[0] for row in pairs}.isdisjoint(row[1] for row in pairs):
        header = None
    return rows, class_names, header


NEWICK = re.compile(
    r"""\s*(?:([(),;])|('(?:[^']|'')*'|[^\s(),:;'[][^(),:;[]*)|(:[^(),;]*)|\[[^]]*\])"""
)


def _chains_of_newick(text: str) -> list[list[str]]:
    """Return (child, group) pairs of a tree; nodes without a name are skipped.

    >>> _chains_of_newick("((ant:1,bee:1)insects:2,'red cat')animals;")
    [['ant', 'insects'], ['bee', 'insects'], ['insects', 'animals'], ['red cat', 'animals']]
    """
    pairs: list[list[str]] = []
    open_nodes: list[list[str]] = [[]]  # the named nodes so far below each open bracket
    below: list[str] = []  # those below the last closed bracket
    groups = set[str]()
    for mark, name, _ in NEWICK.findall(text):
        if mark == "(":
            open_nodes.append([])
        elif mark == ")" and len(open_nodes) > 1:
            below = open_nodes.pop()
            open_nodes[-1] += below
        elif name:
            name = name[1:-1].replace("''", "'") if name[0] == "'" else name.strip()
            if below and name in groups:
                raise InputError(f"Groups of a Newick tree need different names. Got two {name!r}.")
            groups |= {name} if below else set()
            pairs += [[child, name] for child in below]
            siblings = open_nodes[-1]
            siblings[len(siblings) - len(below) :] = [name]
        if name or mark in ("(", ",", ";"):
            below = []
    if len(open_nodes) > 1:
        raise InputError("The brackets of a Newick tree must be closed. Got an open one.")
    return pairs


RANKS = ("species", "genus", "family", "order", "class")


def _table_of_labels(class_names: Sequence[str]) -> list[list[str]]:
    """Return a row of nodes, one per rank, for each label id;class;order;family;genus;species;name.

    A group is the label that ends at its rank, or a new label without id.
    """
    parts = [name.split(";") for name in class_names]
    if not all(len(part) == 7 for part in parts):
        wrong = next(name for name, part in zip(class_names, parts, strict=True) if len(part) != 7)
        raise InputError(
            "A taxonomy from labels needs those of SpeciesNet, "
            f"id;class;order;family;genus;species;name. Got {wrong!r}; pass a file."
        )
    ranks = [tuple(part[1:6]) for part in parts]
    label_of = dict(zip(reversed(ranks), reversed(class_names), strict=True))
    table = []
    for name, ranked in zip(class_names, ranks, strict=True):
        depth = max((k + 1 for k, rank in enumerate(ranked) if rank), default=5)
        row = ["", "", "", "", ""]
        row[5 - depth] = name
        for k in range(depth - 1):
            wide = (*ranked[: k + 1], *[""] * (4 - k))
            if ranked[k]:
                row[4 - k] = label_of.get(wide, ";".join(("", *wide, ranked[k])))
        table.append(row)
    return table
