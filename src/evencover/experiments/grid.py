"""Define a study: data sets, scores, methods, calibration sizes, and sampling."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evencover
from evencover.arrays import IntArray
from evencover.comparison.trials import ScoredRows, Split, calibration_split, random_rows
from evencover.data.location import Location, as_location, existing_file, expand
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import InputError
from evencover.predictors import BasePredictor, make_predictor
from evencover.quantiles import Alpha, exact_fraction
from evencover.randomness import check_random_state, places
from evencover.scores import Score, make_score
from evencover.validation import flag, raise_unknown, real_number, whole_number

# Number of pieces of a file that identify it, with its size.
N_PIECES, PIECE = 64, 1 << 16
PAPER_N_AVG = (10, 20, 30, 40, 50, 75, 100, 150)
SAMPLINGS = ("random", "balanced")
# Parameters that the study sets for every predictor.
DECIDED = ("alpha", "score", "exact", "random_state")


class DataSet(NamedTuple):
    """Labeled rows, opened on demand.

    ``name`` is shown in tables; the paper's names select the published numbers. ``identity``
    identifies the rows in a study's configuration.
    """

    name: str
    identity: str
    open_source: Callable[[], Source]
    simulated: bool = False


def make_dataset(entry: Any, scale: float, folder: Path) -> DataSet:
    """Make a data set from an entry of a grid; paths are relative to `folder`."""
    from evencover.data.simulated import SIMULATED, load_simulated

    if isinstance(entry, tuple | list) and len(entry) == 3 and isinstance(entry[0], str):
        name, probabilities, labels = entry
        source, digest = as_source(probabilities, labels), hashlib.blake2b(digest_size=16)
        for values in (np.shape(probabilities), np.asarray(probabilities)[::97], labels):
            digest.update(np.ascontiguousarray(values).tobytes())
        return DataSet(name, digest.hexdigest(), lambda: source)
    if isinstance(entry, str) and entry == "languages":
        return DataSet(entry, entry, _languages)
    if isinstance(entry, str) and entry in SIMULATED:
        open_source = partial(load_simulated, entry, scale=scale)
        return DataSet(entry, f"simulated, scale {scale}", open_source, True)
    if isinstance(entry, str | os.PathLike):
        if not Path(entry).suffix and not (folder / entry).is_dir():
            raise_unknown("data set", str(entry), [*SIMULATED, "languages", "a path"])
        entry = {"path": str(entry)}
    if not isinstance(entry, dict) or "path" not in entry:
        raise InputError(
            "'datasets' must be names, paths, tables with a 'path', or (name, probabilities, "
            f"labels). Got {entry!r}."
        )
    _check_keys(entry, "key of a data set", ("name", "path", "labels", "logits"))
    inputs = [_find(folder, entry[key]) for key in ("path", "labels") if key in entry]
    name, logits = entry.get("name", Path(entry["path"]).stem), entry.get("logits")
    return DataSet(name, _identity(inputs, logits), partial(as_source, *inputs, logits=logits))


def _languages() -> Source:
    from evencover.data.bundled import load_languages

    data = load_languages()
    return as_source(data.probabilities, data.labels, class_names=data.class_names.tolist())


def _find(folder: Path, path: str) -> Location:
    location = as_location(path)
    location = folder / location if isinstance(location, Path) else location
    return location if expand(location) else existing_file(location)


def _identity(inputs: list[Location], logits: bool | None) -> str:
    """Hash the sizes and pieces of files."""
    digest = hashlib.blake2b(f"logits {logits}".encode(), digest_size=16)
    for path in (part for location in inputs for part in expand(location) or [location]):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest.update(str(size).encode())
            for start in np.linspace(0, max(size - PIECE, 0), N_PIECES).astype(np.int64).tolist():
                file.seek(start)
                digest.update(file.read(PIECE))
    return digest.hexdigest()


class Setting(NamedTuple):
    """A method with its parameters: a predictor but for its score and its random state."""

    name: str
    predictor: BasePredictor

    @property
    def parameters(self) -> str:
        """Parameters other than the defaults, as text."""
        free = {k: v for k, v in self.predictor.get_params().items() if k not in DECIDED}
        text = repr(type(self.predictor)(**free))
        return text[text.index("(") + 1 : -1]


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
        "languages", paths of files or folders, tables with the keys path, name, labels and logits,
        or (name, probabilities, labels).
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
        class (all but one of a smaller class), as in `compare`.
    alpha
        Target miscoverage, one number or several.
    repetitions, seed
        Number of splits, and random seed.
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
    >>> len(grid.settings), [score.name for score in grid.scores]
    (2, ['softmax', 'aps', 'raps'])
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
        alpha: Alpha | Sequence[Alpha] = 0.1,
        repetitions: int = 10,
        seed: int = 0,
        gamma: Sequence[float] | None = None,
        n_clusters: Sequence[int] | None = None,
        scale: float = 1.0,
        title: str = "",
        folder: Path | None = None,
    ) -> None:
        real_number(scale, "scale", "a grid", 0, open_low=True)
        if sampling not in SAMPLINGS:
            raise_unknown("sampling", sampling, SAMPLINGS)
        self.title, self.sampling = str(title), sampling
        self.repetitions = whole_number(repetitions, "repetitions", "a grid", 1, 255)
        self.seed = check_random_state(seed, "a grid")
        sizes = _entries(n_avg, "n_avg")
        self.n_avg = [whole_number(n, "n_avg", "a grid", 1, 2**16 - 1) for n in sizes]
        self.datasets = [
            make_dataset(entry, scale, folder or Path()) for entry in _entries(datasets, "datasets")
        ]
        self.scores = [_named_score(entry) for entry in _entries(scores, "scores")]
        alphas = _entries(alpha, "alpha") if isinstance(alpha, list | tuple) else [alpha]
        for level in alphas:
            exact_fraction(level, owner="a grid")
        clusterings = {"gamma": gamma, "n_clusters": n_clusters}
        self.settings = [
            Setting(name, predictor._with_params(exact=variant, alpha=level))
            for entry in _entries(methods, "methods")
            for name, predictors, variants in [_method(entry, _flags(exact), clusterings)]
            for predictor, variant, level in product(predictors, variants, alphas)
        ]
        names: dict[str, list[Any]] = {
            "data sets": [dataset.name for dataset in self.datasets],
            "scores": [score.name for score in self.scores],
            "methods": [(setting.name, repr(setting.predictor)) for setting in self.settings],
        }
        for kind, listed in names.items():
            twice = next((name for name in listed if listed.count(name) > 1), None)
            if twice is not None:
                raise InputError(
                    f"The {kind} of a grid must have different names. Got {twice!r} twice; "
                    "give one a 'name' (data) or 'label' (scores, methods)."
                )

    @classmethod
    def from_toml(cls, grid: str | Path) -> Grid:
        """Read a bundled grid by name (see `shipped`), or a TOML file."""
        path, bundled, folder = Path(grid), shipped(), None
        if str(grid) in bundled:
            name, text = f"the grid {str(grid)!r}", bundled[str(grid)]
        elif path.suffix != ".toml" or not path.is_file():
            raise_unknown("grid", str(grid), [*bundled, "the path of a .toml file"])
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

    def splits(self, rows: ScoredRows, n_avg: int) -> list[Split]:
        """Draw the splits at one calibration size; none if it would leave no test rows."""
        n_rows, n_classes = len(rows.labels), rows.n_classes
        if self.sampling == "random" and n_avg * n_classes >= n_rows:
            return []
        splits = []
        for repetition in range(self.repetitions):
            if self.sampling == "balanced":
                chosen = calibration_split(rows.labels, self.seed, repetition, n_avg)
            else:
                chosen = sample(n_rows, n_classes, n_avg, repetition, self.seed)
            splits.append(Split.of(n_avg, repetition, chosen, n_rows))
        return splits

    @property
    def configuration(self) -> dict[str, Any]:
        """All settings that determine the numbers, their hash, and the title; ready for JSON."""
        settings = {
            "datasets": [[data.name, data.identity, data.simulated] for data in self.datasets],
            "scores": [[score.name, repr(score.score)] for score in self.scores],
            "methods": [[setting.name, repr(setting.predictor)] for setting in self.settings],
            "n_avg": self.n_avg,
            "sampling": self.sampling,
            "repetitions": self.repetitions,
            "seed": self.seed,
            "version": evencover.__version__,
        }
        digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()
        return {"title": self.title, **settings, "digest": digest}


def sample(n_rows: int, n_classes: int, n_avg: int, repetition: int, seed: int) -> IntArray:
    """Draw n_avg x K rows without replacement, as in the paper; return them in increasing order."""
    # Every calibration size and repetition has its own range of ids, and thus its own order.
    ids = places(0, n_rows) + np.uint64((n_avg << 48) + (repetition << 32))
    return random_rows(seed, ids, n_avg * n_classes)


def shipped() -> dict[str, str]:
    """Read the bundled grids: texts by name."""
    grids = files("evencover.experiments").joinpath("grids")
    names = sorted(file.name for file in grids.iterdir() if file.name.endswith(".toml"))
    return {name.removesuffix(".toml"): grids.joinpath(name).read_text("utf-8") for name in names}


def _check_keys(table: dict[str, Any], kind: str, known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise_unknown(kind, key, known)


def _entries(values: Any, key: str) -> list[Any]:
    if isinstance(values, str | dict) or not isinstance(values, Sequence) or not len(values):
        raise InputError(f"'{key}' of a grid must be a list with entries. Got {values!r} instead.")
    return list(values)


def _flags(values: Any) -> list[bool]:
    listed = [values] if isinstance(values, bool) else _entries(values, "exact")
    return list(dict.fromkeys(flag(value, "exact", "a grid") for value in listed))


def _named_score(entry: Any) -> NamedScore:
    label = entry.get("label") if isinstance(entry, dict) else None
    if label is not None:
        entry = {key: value for key, value in entry.items() if key != "label"}
    score = make_score(entry)
    if label is None:
        label = score.name if repr(score) == repr(type(score)()) else repr(score)
    return NamedScore(str(label), score)


def _method(
    entry: Any, exact: list[bool], clusterings: dict[str, Any]
) -> tuple[str, list[BasePredictor], list[bool]]:
    """Return the name of an entry, its predictors with all `clusterings`, and its variants."""
    table = dict(entry) if isinstance(entry, dict) else {"name": entry}
    label, variants = table.pop("label", None), table.pop("exact", None)
    name = table.pop("name", None)
    for key in table:
        if key in DECIDED:
            raise InputError(f"The grid sets {key!r} for all methods. Got it for {name!r}.")
    predictor = make_predictor(name)._with_params(**table)
    if variants is not None:
        exact = _flags(variants)
    elif predictor.exact or not predictor._supports_exact:
        exact = [predictor.exact]
    values = {
        key: _entries(listed, key) for key, listed in clusterings.items() if listed is not None
    }
    if not clusterings.keys() <= predictor.get_params().keys():
        values = {}
    predictors = [
        predictor._with_params(**dict(zip(values, combination, strict=True)))
        for combination in product(*values.values())
    ]
    return str(label or predictor.method), predictors, exact
