"""Import layers: which subpackage may import which, and which may name a concrete class.

The import graph is read from the source itself, so an import inside a function or for type
checkers only counts like any other.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import evencover

PACKAGE = Path(evencover.__file__).parent
# Lowest first. Rooms of one layer may import each other, as long as there is no cycle.
LAYERS = (
    ("errors", "threads", "arrays", "validation"),
    ("_kernels",),
    ("quantiles", "randomness", "sets", "taxonomy", "plotting"),
    ("scores", "evaluation"),
    ("data",),
    ("engine",),
    ("predictors",),
    ("persistence", "output", "comparison", "monitoring", "classifier"),
    ("inference", "serving", "experiments", "report"),
    ("cli", "__main__"),
)
LAYER_OF = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
BASES = {"BasePredictor", "Score"}  # which anybody may ask for


def module_name(path: Path) -> str:
    """The name of a module below the package, such as data.source; a package is its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
# The package itself is only the list of public names: it names every room and has no layer.
ROOMS = sorted({name.partition(".")[0] for name in FILES if name})


@cache  # not when tests are collected, which every worker does
def modules() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text("utf-8")) for name, path in FILES.items() if name}


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports(tree: ast.Module) -> Iterator[str]:
    """The modules of this package that are imported, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # A name may be a module itself: `from evencover import _kernels`.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name if name[len("evencover.") :] in FILES else node.module for name in names]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        for name in found:
            if name and name.startswith("evencover."):
                yield name.removeprefix("evencover.")


@cache
def import_graph() -> dict[str, set[str]]:
    return {module: set(imports(tree)) - {module} for module, tree in modules().items()}


def assert_no_cycle(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"cycle: {' <- '.join(error.args[1])}")


def test_the_graph_is_read() -> None:
    assert "data.source" in import_graph()["data.open"]
    assert "_kernels" in import_graph()["randomness"]  # from evencover import _kernels
    assert sum(map(len, import_graph().values())) > 200


def test_imports_are_found_wherever_they_stand() -> None:
    program = """
from typing import TYPE_CHECKING
import evencover.sets
if TYPE_CHECKING:
    from evencover.errors import InputError
def later():
    from evencover import _kernels, __version__
"""
    assert sorted(imports(ast.parse(program))) == ["_kernels", "errors", "sets"]


def test_every_room_has_a_layer() -> None:
    assert set(ROOMS) <= set(LAYER_OF)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_from_their_own_or_lower_layers(room: str) -> None:
    upwards = [
        f"{module} imports {other}"
        for module, others in import_graph().items()
        for other in sorted(others)
        if room_of(module) == room and LAYER_OF[room_of(other)] > LAYER_OF[room]
    ]
    assert not upwards


def test_no_rooms_import_each_other() -> None:
    rooms: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module, others in import_graph().items():
        rooms[room_of(module)] |= {room_of(other) for other in others} - {room_of(module)}
    assert_no_cycle(rooms)


def test_no_modules_import_each_other() -> None:
    assert_no_cycle(import_graph())


def classes_of(tree: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def classes_asked_for(tree: ast.Module) -> set[str]:
    """The names in the second argument of every isinstance and issubclass, but one's own."""
    found = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            for part in ast.walk(node.args[1]):
                if isinstance(part, ast.Name):
                    found.add(part.id)
                elif isinstance(part, ast.Attribute):
                    found.add(part.attr)
    return found - classes_of(tree)


def test_no_other_room_asks_for_one_method_or_score() -> None:
    rooms = ("predictors", "scores")
    defined = (classes_of(tree) for name, tree in modules().items() if room_of(name) in rooms)
    concrete = set().union(*defined) - BASES
    assert "ClusteredPredictor" in concrete
    asked = {
        module: classes_asked_for(tree) & concrete
        for module, tree in modules().items()
        if room_of(module) not in rooms
    }
    assert {module: names for module, names in asked.items() if names} == {}
