"""Define a study: data sets, scores, methods, calibration sizes, and sampling."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evencover
from evencover.arrays import IntArray
from evencover.comparison.trials import calibration_split, random_rows
from evencover.data.location import Location
from evencover.data.open import as_source
from evencover.data.source import ArraySource, Source
from evencover.errors import InputError
from evencover.predictors import BasePredictor, make_predictor
from evencover.quantiles import Alpha, exact_fraction
from evencover.randomness import check_random_state, places
from evencover.scores import Score, make_score
from evencover.validation import flag, raise_unknown, real_number, whole_number

KEYS = ("name", "path", "labels", "logits", "simulated", "scale", "random_state")
# Number of pieces of a file that identify it, with its size.
N_PIECES, PIECE = 64, 1 << 16
PAPER_N_AVG = (10, 20, 30, 40, 50, 75, 100, 150)
SAMPLINGS = ("random", "balanced")
# Parameters that the study sets for every predictor.
DECIDED = ("alpha", "score", "exact", "random_state")


def sample(labels: IntArray, n_classes: int, n_avg: int, repetition: int, seed: int) -> IntArray:
    """Draw n_avg x K rows without replacement, as in the paper; return them in increasing order."""
    # Every calibration size and repetition has its own range of ids, and thus its own order.
    ids = places(0, len(labels)) + np.uint64((n_avg << 48) + (repetition << 32))
    return random_rows(seed, ids, n_avg * n_classes)


def sample_balanced(labels: IntArray, n_avg: int, repetition: int, seed: int) -> IntArray:
    """Draw n_avg rows of each class; all but one of a smaller class."""
    return calibration_split(labels, seed, (n_avg << 8) + repetition, n_per_class=n_avg)


@dataclass(frozen=True, eq=False)
class DataSet:
    """Labeled rows, opened on demand.

    ``name`` is shown in tables; the paper's names select the published numbers. ``identity``
    identifies the rows in a study's configuration.
    """

    name: str
    identity: str
    open_source: Callable[[], Source]
    simulated: bool = False


def make_dataset(entry: Any, *, scale: float = 1.0, folder: Path | None = None) -> DataSet:
    """Make a data set from an entry of a grid.

    Parameters
    ----------
    entry
        A `DataSet`; the name of a simulated data set; "languages"; the path of a file or folder; a
        table with the keys path, name, labels and logits, or simulated, name, scale and
        random_state; or a triple (name, probabilities, labels).
    scale
        Fraction of the classes of simulated data sets.
    folder
        Base folder of relative paths.
    """
    from evencover.data.simulated import SIMULATED

    if isinstance(entry, DataSet):
        return entry
    if isinstance(entry, tuple | list) and len(entry) == 3 and isinstance(entry[0], str):
        return _arrays(*entry)
    if isinstance(entry, str) and entry == "languages":
        return DataSet(entry, entry, _languages)
    if isinstance(entry, str | os.PathLike):
        name = str(entry)
        is_path = Path(name).suffix or (folder or Path()).joinpath(name).is_dir()
        if name not in SIMULATED and not is_path:
            raise_unknown("data set", name, [*SIMULATED, "languages", "a path"])
        entry = {"simulated" if name in SIMULATED else "path": name}
    if not isinstance(entry, dict):
        raise InputError(
            "'datasets' must be names, paths, tables, or (name, probabilities, labels). "
            f"Got {type(entry).__name__}."
        )
    _check_keys(entry, "key of a data set", KEYS)
    if ("path" in entry) == ("simulated" in entry):
        raise InputError(f"A data set must have the key 'path' or 'simulated'. Got {entry}.")
    return _file(entry, folder) if "path" in entry else _simulated(entry, scale)


def _simulated(table: dict[str, Any], scale: float) -> DataSet:
    from evencover.data.simulated import SIMULATED, load_simulated

    name = table["simulated"]
    if name not in SIMULATED:
        raise_unknown("simulated data set", name, SIMULATED)
    options = {"scale": table.get("scale", scale), "random_state": table.get("random_state", 0)}
    identity = f"simulated {name}, scale {options['scale']}, random_state {options['random_state']}"
    return DataSet(table.get("name", name), identity, lambda: load_simulated(name, **options), True)


def _languages() -> Source:
    from evencover.data.languages import load_languages

    data = load_languages()
    return as_source(data.probabilities, data.labels, class_names=data.class_names.tolist())


def _file(table: dict[str, Any], folder: Path | None) -> DataSet:
    from evencover.data.location import as_location, existing_file, expand

    def find(path: Any) -> Location:
        location = as_location(str(path))
        if isinstance(location, Path):
            location = (folder or Path()) / location
        return location if expand(location) else existing_file(location)

    logits = table.get("logits")
    files = [find(table[key]) for key in ("path", "labels") if table.get(key) is not None]
    each = [part for file in files for part in expand(file) or [file]]
    identity = " ".join(_fingerprint(file) for file in each)
    if len(each) > len(files):  # a folder of several files
        identity = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
    return DataSet(
        table.get("name", Path(str(table["path"])).stem),
        f"{identity}, logits {logits}",
        lambda: as_source(*files, logits=logits),
    )


def _arrays(name: str, probabilities: Any, labels: Any) -> DataSet:
    source = as_source(probabilities, labels)
    if not isinstance(source, ArraySource) or source.labels is None:
        raise InputError("'datasets' in memory must be (name, probabilities, labels).")
    rows = source.rows
    digest = hashlib.blake2b(repr(rows.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(rows[:: max(1, len(rows) // N_PIECES)]).tobytes())
    digest.update(np.ascontiguousarray(source.labels).tobytes())
    return DataSet(name, digest.hexdigest(), lambda: source)


def _fingerprint(path: Location) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest = hashlib.blake2b(str(size).encode(), digest_size=16)
        for start in np.linspace(0, max(size - PIECE, 0), N_PIECES).astype(np.int64).tolist():
            file.seek(start)
            digest.update(file.read(PIECE))
    return digest.hexdigest()


class GridMethod(NamedTuple):
    """A predictor, and whether to randomize it (``exact``), or both."""

    name: str
    predictor: BasePredictor
    exact: tuple[bool, ...]

    @property
    def parameters(self) -> str:
        """Parameters other than the defaults, as text."""
        own = {k: v for k, v in self.predictor.get_params().items() if k not in DECIDED}
        text = repr(type(self.predictor)(**own))
        return text[text.index("(") + 1 : -1]


class Cell(NamedTuple):
    """One method at one calibration size, randomized or not; repeated over splits."""

    n_avg: int
    method: GridMethod
    exact: bool


class NamedScore(NamedTuple):
    """A score and its name in tables."""

    name: str
    score: Score


class Grid:
    """A validated study.

    Parameters
    ----------
    datasets
        Names of simulated data sets ("imagenet", "cifar-100", "places365", "inaturalist"),
        "languages", paths of files, (name, probabilities, labels), or tables (see `make_dataset`).
    methods, scores
        Names, predictors and scores, or tables with parameters, ``{name = "clustered", gamma =
        0.3}``; ``label`` renames one.
    exact
        Variants: False, True (randomized to cover exactly 1 - alpha), or both. A method's table may
        override it.
    n_avg
        Average calibration examples per class.
    sampling
        "random": n_avg x K rows without replacement, as in the paper. "balanced": n_avg of each
        class (all but one of a smaller class).
    alpha, repetitions, seed
        Target miscoverage, number of splits, and random seed.
    gamma, n_clusters
        Lists of values. Methods that take both (CLUSTERED) run with all combinations, for heat
        maps.
    scale
        Fraction of the classes of simulated data sets.
    title
        Title of the tables.
    folder
        Base folder of relative paths.

    Examples
    --------
    >>> grid = Grid(datasets=["languages"], methods=["standard", "classwise"], n_avg=[10, 20])
    >>> len(grid.cells), [each.name for each in grid.scores]
    (4, ['softmax', 'aps', 'raps'])
    """

    def __init__(
        self,
        *,
        datasets: Sequence[Any],
        methods: Sequence[Any] = ("standard", "classwise", "clustered"),
        scores: Sequence[Any] = ("softmax", "aps", "raps"),
        exact: bool | Sequence[bool] = False,
        n_avg: Sequence[int] = PAPER_N_AVG,
        sampling: str = "random",
        alpha: Alpha = 0.1,
        repetitions: int = 10,
        seed: int = 0,
        gamma: Sequence[float] | None = None,
        n_clusters: Sequence[int] | None = None,
        scale: float = 1.0,
        title: str = "",
        folder: Path | None = None,
    ) -> None:
        exact_fraction(alpha, "a grid")
        real_number(scale, "scale", "a grid", 0, open_low=True)
        if sampling not in SAMPLINGS:
            raise_unknown("sampling", sampling, SAMPLINGS)
        self.alpha, self.title, self.sampling = alpha, str(title), sampling
        self.repetitions = whole_number(repetitions, "repetitions", "a grid", 1, 255)
        self.seed = check_random_state(seed, "a grid")
        sizes = _listed(n_avg, "n_avg")
        self.n_avg = [whole_number(n, "n_avg", "a grid", 1, 2**16 - 1) for n in sizes]
        self.datasets = [
            make_dataset(entry, scale=scale, folder=folder)
            for entry in _listed(datasets, "datasets")
        ]
        self.scores = [_named_score(entry) for entry in _listed(scores, "scores")]
        variants = _flags(exact)
        plain = [_method(entry, variants) for entry in _listed(methods, "methods")]
        variants_of = (_clusterings(method, gamma, n_clusters) for method in plain)
        self.methods = list(chain.from_iterable(variants_of))
        names: dict[str, list[Any]] = {
            "data sets": [each.name for each in self.datasets],
            "scores": [each.name for each in self.scores],
            "methods": [(each.name, each.parameters) for each in self.methods],
        }
        for kind, own in names.items():
            twice = next((name for name in own if own.count(name) > 1), None)
            if twice is not None:
                raise InputError(
                    f"The {kind} of a grid must have different names. Got {twice!r} twice; "
                    "give one a 'name' (data) or 'label' (scores, methods)."
                )

    @classmethod
    def from_toml(cls, grid: str | Path) -> Grid:
        """Read a bundled grid by name (see `shipped`), or a TOML file."""
        path, known, folder = Path(grid), shipped(), None
        if str(grid) in known:
            name, text = f"the grid {str(grid)!r}", known[str(grid)]
        elif path.suffix != ".toml" or not path.is_file():
            raise_unknown("grid", str(grid), [*known, "the path of a .toml file"])
        else:
            name, text, folder = f"'{path}'", path.read_text(encoding="utf-8"), path.parent
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"Cannot read {name}: it is not TOML ({error}).") from None
        keys = [key for key in inspect.signature(cls).parameters if key != "folder"]
        _check_keys(table, f"key in {name}", keys)
        if "datasets" not in table:
            raise InputError(f"{name} must have the key 'datasets'. Got {', '.join(table)}.")
        return cls(**table, folder=folder)

    @property
    def cells(self) -> list[Cell]:
        """Every method at every calibration size, in the order of the results."""
        return [
            Cell(n, method, exact)
            for n in self.n_avg
            for method in self.methods
            for exact in method.exact
        ]

    @property
    def configuration(self) -> dict[str, Any]:
        """All settings that determine the numbers, ready for JSON."""
        return {
            "title": self.title,
            "datasets": [[each.name, each.identity, each.simulated] for each in self.datasets],
            "scores": [[each.name, repr(each.score)] for each in self.scores],
            "methods": [
                [each.name, type(each.predictor).__name__, each.parameters, list(each.exact)]
                for each in self.methods
            ],
            "n_avg": self.n_avg,
            "sampling": self.sampling,
            "alpha": str(exact_fraction(self.alpha)),
            "repetitions": self.repetitions,
            "seed": self.seed,
            "version": evencover.__version__,
        }

    @property
    def digest(self) -> str:
        """The hash of the configuration, which identifies its results."""
        text = json.dumps(self.configuration | {"title": ""}, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def shipped() -> dict[str, str]:
    """Read the bundled grids: texts by name."""
    folder = files("evencover.experiments").joinpath("grids")
    found = sorted(each.name for each in folder.iterdir() if each.name.endswith(".toml"))
    return {name.removesuffix(".toml"): folder.joinpath(name).read_text("utf-8") for name in found}


def _check_keys(table: dict[str, Any], kind: str, known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise_unknown(kind, key, known)


def _listed(values: Any, key: str) -> list[Any]:
    if isinstance(values, str | dict) or not isinstance(values, Sequence) or not len(values):
        raise InputError(f"'{key}' of a grid must be a list with entries. Got {values!r} instead.")
    return list(values)


def _flags(values: Any) -> tuple[bool, ...]:
    listed = [values] if isinstance(values, bool) else _listed(values, "exact")
    return tuple(dict.fromkeys(flag(value, "exact", "a grid") for value in listed))


def _named_score(entry: Any) -> NamedScore:
    label = entry.get("label") if isinstance(entry, dict) else None
    if label is not None:
        entry = {key: value for key, value in entry.items() if key != "label"}
    score = make_score(entry)
    if label is None:
        label = score.name if repr(score) == repr(type(score)()) else repr(score)
    return NamedScore(str(label), score)


def _method(entry: Any, exact: tuple[bool, ...]) -> GridMethod:
    table = dict(entry) if isinstance(entry, dict) else {"name": entry}
    label, own, name = table.pop("label", None), table.pop("exact", None), table.pop("name", None)
    for key in table:
        if key in DECIDED:
            raise InputError(f"The grid sets {key!r} for all methods. Got it for {name!r}.")
    predictor = make_predictor(name)
    predictor.set_params(**table)
    if own is not None:
        exact = _flags(own)
    elif isinstance(entry, BasePredictor) and entry.exact:
        exact = (True,)
    elif not predictor.supports_exact:
        exact = (False,)
    return GridMethod(str(label or predictor.method), predictor, exact)


def _clusterings(
    method: GridMethod, gamma: Sequence[float] | None, n_clusters: Sequence[int] | None
) -> list[GridMethod]:
    own = method.predictor.get_params()
    if not {"gamma", "n_clusters"} <= own.keys() or (gamma is None and not n_clusters):
        return [method]
    gammas = [own["gamma"]] if gamma is None else _listed(gamma, "gamma")
    numbers = [own["n_clusters"]] if n_clusters is None else _listed(n_clusters, "n_clusters")
    return [
        method._replace(predictor=method.predictor.with_params(gamma=share, n_clusters=number))
        for share, number in product(gammas, numbers)
    ]
