"""Hierarchies of classes, and descriptions of sets: "3 warblers, all owls"."""

from __future__ import annotations

import csv
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

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
        The classes in the order of their indices. A class outside the hierarchy stands alone.

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

    def __init__(self, chains: Iterable[Sequence[str]], class_names: Sequence[str]) -> None:
        self.class_names = [str(name) for name in class_names]
        if len(set(self.class_names)) != len(self.class_names):
            raise InputError("A taxonomy must have unique class names. Got a name twice.")
        self.parent = _parents(chains)
        is_group = set(self.parent.values())
        inner = next((name for name in self.class_names if name in is_group), None)
        if inner is not None:
            raise InputError(f"A class must not be a group of other nodes. Got {inner!r}.")
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

    @classmethod
    def read(cls, taxonomy: Any, class_names: Sequence[str] | None) -> Taxonomy:
        """Make a taxonomy from a file, chains, a mapping from child to parent, or itself.

        Each line of a .csv or .tsv file has a class, then its groups from narrow to wide. Empty
        cells are skipped, and so is a header: a first line without known names.
        """
        if isinstance(taxonomy, cls):
            if class_names is not None and list(map(str, class_names)) != taxonomy.class_names:
                raise InputError("The taxonomy must have the classes of the predictor, in order.")
            return taxonomy
        if class_names is None:
            raise InputError("A taxonomy needs class names. Got none; pass class_names.")
        if isinstance(taxonomy, str | os.PathLike):
            taxonomy = _chains_of_file(Path(taxonomy), class_names)
        return cls(taxonomy.items() if hasattr(taxonomy, "items") else taxonomy, class_names)

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


def _chains_of_file(path: Path, class_names: Sequence[str]) -> list[list[str]]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot read '{path}': {reason}.") from None
    tabs = path.suffix.lower() == ".tsv" or "\t" in text.partition("\n")[0]
    lines = csv.reader(text.splitlines(), delimiter="\t" if tabs else ",")
    chains = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    named = {*map(str, class_names), *(name for chain in chains[1:] for name in chain)}
    is_header = bool(chains) and named.isdisjoint(chains[0])
    return chains[1:] if is_header else chains
