"""Import layers: which subpackage may import which.

The import graph is read from the source, so imports inside functions or for type checkers count.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import evencover

PACKAGE = Path(evencover.__file__).parent
# Lowest first. Subpackages of one layer may import each other, as long as there is no cycle.
LAYERS = (
    (
        "answers",
        "errors",
        "sizes",
        "threads",
        "arrays",
        "arrow",
        "classes",
        "ids",
        "rounding",
        "precision",
        "rows",
        "templates",
        "text_tables",
        "topk",
        "validation",
    ),
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
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}


def module_name(path: Path) -> str:
    """Name a module below the package, such as data.source; a package is its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def top(module: str) -> str:
    return module.partition(".")[0]


@cache
def modules() -> dict[str, ast.Module]:
    """Parse all modules but the package itself, which lists public names and has no layer."""
    paths = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: ast.parse(path.read_text("utf-8")) for name, path in paths.items() if name}


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of this package that are imported, wherever the statement stands."""
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # A name may be a module itself: `from evencover import _kernels`.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [
                name if name.removeprefix("evencover.") in modules() else str(node.module)
                for name in names
            ]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        yield from (n.removeprefix("evencover.") for n in found if n.startswith("evencover."))


@cache
def import_graph() -> dict[str, set[str]]:
    return {module: set(imports(tree)) - {module} for module, tree in modules().items()}


def test_subpackages_import_from_their_own_or_lower_layers() -> None:
    upwards = [
        f"{module} imports {other}"
        for module, others in import_graph().items()
        for other in others
        if LAYER_OF[top(other)] > LAYER_OF[top(module)]
    ]
    assert not upwards


def test_the_page_on_the_architecture_lists_the_layers() -> None:
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    found = [set(re.findall(r"`(\w+)/?`", row)) for row in rows]
    assert found == [set(names) - {"__main__"} for names in LAYERS]


def test_imports_have_no_cycle() -> None:
    assert sum(map(len, import_graph().values())) > 200
    subpackages: dict[str, set[str]] = {}
    for module, others in import_graph().items():
        subpackages.setdefault(top(module), set()).update(map(top, others))
        subpackages[top(module)].discard(top(module))
    TopologicalSorter(subpackages).prepare()  # raises CycleError
    TopologicalSorter(import_graph()).prepare()


def private_names(tree: ast.Module) -> set[str]:
    """Return the private names that the classes of a module define."""
    found = set()
    for node in ast.walk(tree):
        for part in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(part, ast.FunctionDef):
                found.add(part.name)
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                found.add(part.target.id)
    return {name for name in found if name.startswith("_") and not name.endswith("__")}


def test_no_module_outside_predictors_uses_a_private_name_of_them() -> None:
    """A method may change what it has for itself; others ask the predictor or its fit."""
    predictors = {name: tree for name, tree in modules().items() if top(name) == "predictors"}
    private = set[str]().union(*map(private_names, predictors.values()))
    assert {"_calibrate", "_derive", "_any_fit"} <= private
    uses = [
        f"{module} uses {node.attr} in line {node.lineno}"
        for module, tree in modules().items()
        if module not in predictors
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in private
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    imported = [
        f"{module} imports {alias.name}"
        for module, tree in modules().items()
        if module not in predictors
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "evencover.predictors" in str(node.module)
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert not uses + imported
