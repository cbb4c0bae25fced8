"""Which rows calibrate in a repetition; all others validate."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evencover
from evencover.arrays import Array, IntArray
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


def sample(labels: IntArray, n_classes: int, n_avg: int, repetition: int, seed: int) -> IntArray:
    """n_avg x K rows out of all, without replacement, as in the paper; in increasing order."""
    return random_rows(seed, _ids(len(labels), n_avg, repetition), n_avg * n_classes)


def sample_balanced(labels: IntArray, n_avg: int, repetition: int, seed: int) -> IntArray:
    """n_avg rows of each class; of a class that has no more, all but one."""
    return calibration_split(labels, seed, (n_avg << 8) + repetition, n_per_class=n_avg)


def _ids(n_rows: int, n_avg: int, repetition: int) -> Array:
    """Every calibration size and repetition has a range of ids, and so an order, of its own."""
    return places(0, n_rows) + np.uint64((n_avg << 48) + (repetition << 32))


KEYS = ("name", "path", "labels", "logits", "twin", "scale", "random_state")
# A file is known by its size and so many pieces of it: enough to tell files apart, quick to read.
N_PIECES, PIECE = 64, 1 << 16


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows with labels, opened when they are needed.

    Attributes
    ----------
    name
        What tables call it; the paper's names find the published numbers.
    identity
        Tells these rows from others: part of a study's configuration.
    open_source
        Gives the rows.
    simulated
        Whether it is a simulated twin.
    """

    name: str
    identity: str
    open_source: Callable[[], Source]
    simulated: bool = False


def make_dataset(entry: Any, *, scale: float = 1.0, folder: Path | None = None) -> DataSet:
    """A data set from what a grid says of it.

    Parameters
    ----------
    entry
        A `DataSet`; the name of a twin; "languages"; the path of a file or folder; a table with the
        keys path, name, labels and logits, or twin, name, scale and random_state; or a triple
        (name, probabilities, labels).
    scale
        Share of the classes of twins.
    folder
        Where relative paths begin.
    """
    if isinstance(entry, DataSet):
        return entry
    if isinstance(entry, tuple | list) and len(entry) == 3 and isinstance(entry[0], str):
        return _arrays(*entry)
    if isinstance(entry, dict):
        return _from_table(entry, scale, folder)
    if isinstance(entry, str | os.PathLike):
        return _named(str(entry), scale, folder)
    raise InputError(
        "A data set of a grid must be a name, a path, a table, or (name, probabilities, labels). "
        f"Got {type(entry).__name__} instead."
    )


def _named(name: str, scale: float, folder: Path | None) -> DataSet:
    from evencover.data.simulated import TWINS

    if name in TWINS:
        return _twin(name, name, scale, 0)
    if name == "languages":
        return DataSet("languages", "languages", _languages)
    if not Path(name).suffix and not (folder or Path()).joinpath(name).is_dir():
        raise_unknown("data set", name, [*TWINS, "languages", "the path of a file or folder"])
    return _file(Path(name).stem, name, folder)


def _from_table(table: dict[str, Any], scale: float, folder: Path | None) -> DataSet:
    for key in table:
        if key not in KEYS:
            raise_unknown("key of a data set", key, KEYS)
    if ("path" in table) == ("twin" in table):
        raise InputError(f"A data set must have the key 'path' or 'twin'. Got {table} instead.")
    if "twin" in table:
        from evencover.data.simulated import TWINS

        if table["twin"] not in TWINS:
            raise_unknown("twin", table["twin"], TWINS)
        name = table.get("name", table["twin"])
        return _twin(name, table["twin"], table.get("scale", scale), table.get("random_state", 0))
    path = str(table["path"])
    name = table.get("name", Path(path).stem)
    return _file(name, path, folder, labels=table.get("labels"), logits=table.get("logits"))


def _twin(name: str, twin_name: str, scale: float, random_state: int) -> DataSet:
    from evencover.data.simulated import twin

    identity = f"twin {twin_name}, scale {scale}, random_state {random_state}"
    return DataSet(
        name, identity, lambda: twin(twin_name, scale=scale, random_state=random_state), True
    )


def _languages() -> Source:
    from evencover.data.languages import load_languages

    data = load_languages()
    return as_source(data.probabilities, data.labels, class_names=data.class_names.tolist())


def _file(
    name: str, path: str, folder: Path | None, labels: str | None = None, logits: bool | None = None
) -> DataSet:
    from evencover.data.location import as_location, existing_file, expand

    def place(of: str) -> Location:
        location = as_location(of)
        if isinstance(location, Path) and folder is not None:
            location = folder / location
        return location if expand(location) else existing_file(location)

    files = [place(path)] + ([] if labels is None else [place(labels)])

    def open_source() -> Source:
        return as_source(files[0], None if labels is None else files[1], logits=logits)

    each = [part for file in files for part in expand(file) or [file]]
    identity = " ".join(_fingerprint(file) for file in each)
    if len(each) > len(files):  # a folder of many parts
        identity = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
    return DataSet(name, f"{identity}, logits {logits}", open_source)


def _arrays(name: str, probabilities: Any, labels: Any) -> DataSet:
    source = as_source(probabilities, labels)
    if not isinstance(source, ArraySource) or source.labels is None:
        raise InputError("A data set in memory must be arrays of probabilities and labels.")
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


PAPER_N_AVG = (10, 20, 30, 40, 50, 75, 100, 150)
SAMPLINGS = ("random", "balanced")
# What the study itself decides for every predictor.
DECIDED = ("alpha", "score", "exact", "random_state")


class Method(NamedTuple):
    """A way to calibrate, with parameters of its own."""

    name: str
    predictor: BasePredictor
    exact: tuple[bool, ...]

    @property
    def parameters(self) -> str:
        """Those that differ from the defaults, as text."""
        own = {k: v for k, v in self.predictor.get_params().items() if k not in DECIDED}
        text = repr(type(self.predictor)(**own))
        return text[text.index("(") + 1 : -1]


class Cell(NamedTuple):
    """One method at one calibration size, randomised or not; repeated on several splits."""

    n_avg: int
    method: Method
    exact: bool


@dataclass(frozen=True, eq=False)
class NamedScore:
    """A score and what tables call it."""

    name: str
    score: Score


class Grid:
    """A study, checked.

    Parameters
    ----------
    datasets
        Names of twins ("imagenet", "cifar-100", "places365", "inaturalist"), "languages", paths of
        files, (name, probabilities, labels), or tables (see `make_dataset`).
    methods, scores
        Names, or predictors and scores of your own; tables ``{name = "clustered", gamma = 0.3}``
        give parameters, and ``label`` another name.
    exact
        Which variants to try: False, True (randomised to cover exactly 1 - alpha), or both. A
        method's table may say otherwise for itself.
    n_avg
        Calibration rows per class, on average.
    sampling
        "random": n_avg x K rows out of all, as in the paper. "balanced": n_avg of each class (of
        a small class all but one).
    alpha, repetitions, seed
        The level; how many splits; what fixes every random choice.
    gamma, n_clusters
        Lists: every method that takes both (CLUSTERED) is tried with all their combinations, for
        heat maps.
    scale
        Share of the classes of the twins.
    title
        What tables are called.

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
        self.alpha, self.title = alpha, str(title)
        self.repetitions = whole_number(repetitions, "repetitions", "a grid", 1, 255)
        self.seed = check_random_state(seed, "a grid")
        if sampling not in SAMPLINGS:
            raise_unknown("sampling", sampling, SAMPLINGS)
        self.sampling = sampling
        self.n_avg = [
            whole_number(n, "n_avg", "a grid", 1, 2**16 - 1) for n in _listed(n_avg, "n_avg")
        ]
        real_number(scale, "scale", "a grid", 0, open_low=True)
        self.datasets: list[DataSet] = [
            make_dataset(entry, scale=scale, folder=folder)
            for entry in _listed(datasets, "datasets")
        ]
        self.scores = [_named_score(entry) for entry in _listed(scores, "scores")]
        variants = _flags([exact] if isinstance(exact, bool) else exact)
        plain = [_method(entry, variants) for entry in _listed(methods, "methods")]
        self.methods = [
            variant for method in plain for variant in _clusterings(method, gamma, n_clusters)
        ]
        self._check_names()

    @classmethod
    def from_toml(cls, grid: str | Path) -> Grid:
        """A grid that ships with the package, by name (see `shipped`), or a TOML file."""
        path = Path(grid)
        known = shipped()
        if str(grid) in known:
            return cls._from_text(known[str(grid)], f"the grid {str(grid)!r}", None)
        if path.suffix != ".toml":
            raise_unknown("grid", str(grid), [*known, "the path of a .toml file"])
        if not path.is_file():
            raise InputError(f"Cannot read '{path}': there is no such file.")
        return cls._from_text(path.read_text(encoding="utf-8"), f"'{path}'", path.parent)

    @classmethod
    def _from_text(cls, text: str, name: str, folder: Path | None) -> Grid:
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"Cannot read {name}: it is not TOML ({error}).") from None
        keys = ["datasets", "methods", "scores", "exact", "n_avg", "sampling", "alpha"]
        keys += ["repetitions", "seed", "gamma", "n_clusters", "scale", "title"]
        for key in table:
            if key not in keys:
                raise_unknown(f"key in {name}", key, keys)
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
        """All that decides the numbers, ready for JSON."""
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
        """The hash of the configuration, by which results know where they belong."""
        text = json.dumps(self.configuration | {"title": ""}, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _check_names(self) -> None:
        columns: dict[str, list[Any]] = {
            "data sets": [each.name for each in self.datasets],
            "scores": [each.name for each in self.scores],
            "methods": [(each.name, each.parameters) for each in self.methods],
        }
        for kind, names in columns.items():
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise InputError(
                    f"The {kind} of a grid must have different names. Got {twice!r} twice; "
                    "give one a 'name' (data) or 'label' (scores, methods)."
                )


def shipped() -> dict[str, str]:
    """The grids of the package: their names and texts."""
    folder = files("evencover.experiments").joinpath("grids")
    found = sorted(each.name for each in folder.iterdir() if each.name.endswith(".toml"))
    return {name.removesuffix(".toml"): folder.joinpath(name).read_text("utf-8") for name in found}


def _listed(values: Any, key: str) -> list[Any]:
    if isinstance(values, str | dict) or not isinstance(values, Sequence) or not len(values):
        raise InputError(f"'{key}' of a grid must be a list with entries. Got {values!r} instead.")
    return list(values)


def _flags(values: Any) -> tuple[bool, ...]:
    listed = [values] if isinstance(values, bool) else _listed(values, "exact")
    return tuple(dict.fromkeys(flag(value, "exact", "a grid") for value in listed))


def _named_score(entry: Any) -> NamedScore:
    if isinstance(entry, NamedScore):
        return entry
    table = dict(entry) if isinstance(entry, dict) else {}
    label = table.pop("label", None)
    score = make_score(table if isinstance(entry, dict) else entry)
    if label is None:
        label = score.name if repr(score) == repr(type(score)()) else repr(score)
    return NamedScore(str(label), score)


def _method(entry: Any, exact: tuple[bool, ...]) -> Method:
    if isinstance(entry, Method):
        return entry
    table = dict(entry) if isinstance(entry, dict) else {"name": entry}
    label, wanted = table.pop("label", None), table.pop("exact", None)
    name = table.pop("name", None)
    for key in table:
        if key in DECIDED:
            raise InputError(f"The grid decides {key!r} for all methods. Got it for {name!r}.")
    predictor = make_predictor(name)
    predictor.set_params(**table)
    if not predictor.supports_exact:
        exact = (False,)
    # A predictor of the user's own that says exact=True means that variant.
    if isinstance(entry, BasePredictor) and entry.exact:
        exact = (True,)
    return Method(
        str(label or predictor.method), predictor, exact if wanted is None else _flags(wanted)
    )


def _clusterings(
    method: Method, gamma: Sequence[float] | None, n_clusters: Sequence[int] | None
) -> list[Method]:
    own = method.predictor.get_params()
    if not {"gamma", "n_clusters"} <= own.keys() or (gamma is None and not n_clusters):
        return [method]
    gammas = [own["gamma"]] if gamma is None else _listed(gamma, "gamma")
    numbers = [own["n_clusters"]] if n_clusters is None else _listed(n_clusters, "n_clusters")
    return [
        method._replace(
            predictor=type(method.predictor)(**own | {"gamma": share, "n_clusters": number})
        )
        for share, number in product(gammas, numbers)
    ]
