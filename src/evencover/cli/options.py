"""The options that several commands have, and what commands do with them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from inspect import cleandoc
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from evencover.cli.console import note, watch
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import InputError
from evencover.evaluation.report import as_plain
from evencover.predictors.fit import Fit
from evencover.quantiles import DEFAULT, ClassAlpha
from evencover.validation import raise_unknown, unique_keys

if TYPE_CHECKING:
    from evencover.monitoring import MonitorState
    from evencover.predictors.base import BasePredictor


MODEL, PAGE = (".safetensors",), (".html", ".htm")  # extensions of outputs
INPUT = Group("Input", sort_key=1)  # after the options of the command itself
Output = Annotated[Path, Parameter(name=["--output", "-o"])]
Switch = Annotated[bool, Parameter(negative="", show_default=False)]
EscapeFormulas = Annotated[
    Switch, Parameter(help="Put an apostrophe before text that a spreadsheet would run.")
]
ModelFile = Annotated[Path, Parameter(help="Model written by calibrate.")]
TestData = Annotated[str, Parameter(help="Probabilities and labels of held-out test data.")]
Force = Annotated[Switch, Parameter(help="Overwrite an existing file.")]
Json = Annotated[Switch, Parameter(name="--json", help="Print everything as JSON.")]
All = Annotated[Switch, Parameter(name="--all", help="Print all numbers.")]
Dask = Annotated[
    str | None, Parameter(help="Run on a Dask cluster: its scheduler's URL, or 'local'.")
]
Alpha = Annotated[str, Parameter(help="Target miscoverage, e.g. 0.1 or 1/3.")]
OtherAlpha = Annotated[str | None, Parameter(help="Replace the model's alpha, e.g. 0.05.")]
AlphaOf = Annotated[
    list[str] | None,
    Parameter(negative="", help="Alpha of one class, CLASS=ALPHA (repeatable), or a file."),
]
Floor = Annotated[
    str | None, Parameter(help="Guaranteed coverage of every class: 0.8, auto or none.")
]
MaxShare = Annotated[
    float | None, Parameter(help="Largest share of other classes' sets that a class may enter.")
]
Settings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="Any other parameter, e.g. exact=true or groups=FILE (repeatable).",
    ),
]
Seed = Annotated[int, Parameter(help="Seed of all random choices.")]
FalseAlarm = Annotated[float | None, Parameter(help="Level of each test; 0.05 in a new state.")]
Tolerance = Annotated[
    float | None, Parameter(help="Tolerated shortfall from 1 - alpha; 0.02 in a new state.")
]

Retention = Annotated[
    float | None, Parameter(help="Days to keep rows and waiting labels; 90 by default.")
]


@Parameter(name="*", group=INPUT)
@dataclass(frozen=True)
class Rows:
    """How to read rows without labels."""

    logits: Switch = False
    "Apply a softmax: the numbers are logits."
    probabilities_key: str | None = None
    "Name of the numbers, or a glob of columns, e.g. 'p_*'."
    ids_key: str | None = None
    "Name of the ids."
    no_ids: Switch = False
    "Ignore the ids."
    class_names: str | None = None
    "File of class names, one per line, or a model."
    labels_are: Literal["indices", "names"] | None = None
    "What integers that stand for classes are: indices or names."
    header: bool | None = None
    "Whether the first line of a CSV file names the columns."

    @property
    def files(self) -> list[str | None]:
        """The files that the options name, apart from the data."""
        return [self.class_names, getattr(self, "labels", None)]

    def open(
        self,
        data: str | Path,
        what: str,
        predictor: BasePredictor | None = None,
        *,
        allow_unknown: bool = True,
        read_labels: bool = True,
    ) -> Source:
        """Open the data as a source that shows its progress, and note how labels were matched.

        With a predictor, columns are in the order of its classes.
        """
        model = None if predictor is None else Fit.of(predictor).expected
        how: Any = {"allow_unknown": allow_unknown, "read_labels": read_labels, "expected": model}
        source = as_source(data, **self._arguments(), **how)
        if source.matching is not None and not source.matching.is_doubtful:  # else it was warned
            note(source.matching.sentence)
        return watch(source, what)

    def _arguments(self) -> dict[str, Any]:
        stated = dict(vars(self)) | {"logits": True if self.logits else None}
        stated["ids"] = False if stated.pop("no_ids") else None
        return stated | {"has_header": stated.pop("header")}


@Parameter(name="*", group=INPUT)
@dataclass(frozen=True)
class Input(Rows):
    """How to read rows and their labels."""

    labels: str | None = None
    "File, folder, glob or URL of labels; joined by id."
    labels_key: str | None = None
    "Name of the labels."
    allow_sorted: Switch = False
    "Accept rows whose numbers all decrease."


READ, READ_ROWS = Input(), Rows()


def open_state(state: str | None, retention: float | None) -> MonitorState:
    """Open a monitor's state."""
    from evencover.monitoring.state import RETENTION, MonitorState

    return MonitorState(state, retention=RETENTION if retention is None else retention)


def load_model(model: Path, data: str | None = None) -> BasePredictor:
    """Load a model; raise InputError if the data come where the model belongs."""
    from evencover.persistence import is_model, load

    if data is not None and model.is_file() and not is_model(model):
        raise InputError(
            f"The model, a file that calibrate wrote, comes before the data. Got '{model}' first."
        )
    return load(model)


def executor(dask: str | None) -> AbstractContextManager[Any]:
    """Open the cluster at a URL, or one on this machine ("local"); None stands for threads."""
    if dask is None:
        return nullcontext()
    from evencover.engine.executors import dask_client

    return dask_client(dask)


def number_if_float(text: str | None) -> Any:
    """Return a decimal as a float; leave fractions and words as they were written."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def read_alpha(
    alpha: str, alpha_of: Sequence[str] | None, class_names: Sequence[str] | None, n_classes: int
) -> Any:
    """Return one alpha for all classes or, with --alpha-of, one per class.

    Each text of --alpha-of is CLASS=ALPHA, split at the last "=", or a file of classes and alphas.
    """
    from evencover.data.labels import class_values_from_file

    if not alpha_of:
        return number_if_float(alpha)
    entries: list[Any] = []
    for text in alpha_of:
        name, equals, value = text.rpartition("=")
        is_pair = equals and not Path(text).is_file()
        entries += [(name, value)] if is_pair else class_values_from_file(text, "alpha")
    if not all(isinstance(entry, tuple) for entry in entries):
        raise InputError("The file of --alpha-of must have the columns 'class' and 'alpha'.")
    rest = class_names if DEFAULT in (class_names or ()) else [DEFAULT]
    alphas = dict.fromkeys(rest or (), number_if_float(alpha))
    pairs = [(str(name), number_if_float(str(value))) for name, value in entries]
    alphas |= unique_keys("--alpha-of", pairs)
    ClassAlpha.of(alphas, class_names, n_classes)  # raises before any data are read
    return alphas


def with_alpha(predictor: BasePredictor, alpha: str | None) -> BasePredictor:
    """Return a loaded model at another alpha, or as it is if none is given."""
    return predictor if alpha is None else predictor.with_alpha(number_if_float(alpha))


def read_floor(floor: str | None) -> dict[str, Any]:
    """Return the parameter of --floor; without the option, methods have their own."""
    if floor is None:
        return {}
    return {"floor": None if floor == "none" else number_if_float(floor)}


def numbers(text: str, option: str) -> list[float]:
    """Return numbers that are separated by commas."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise InputError(f"--{option} must be numbers separated by commas. Got {text!r}.") from None


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(as_plain(value), ensure_ascii=False, indent=2, allow_nan=False))


def files_among(*texts: Sequence[str] | None) -> list[str]:
    """Return what may be a file in texts such as FILE, CLASS=ALPHA and NAME=FILE."""
    found = [text for some in texts for text in some or ()]
    return [*found, *(text.partition("=")[2] for text in found)]


# Parameters that have their own option.
NOT_SETTABLE = ("alpha", "floor", "from_logits", "max_share", "random_state", "score")
# Settings with one value per class, read from a file.
FILES_OF_CLASSES = ("groups", "prevalence")


def read_settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Return the parameters of methods and scores that --set gives.

    Those of `FILES_OF_CLASSES` name a file.
    """
    from evencover.data.labels import class_values_from_file

    settings: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = (part.strip() for part in pair.partition("="))
        name = name.replace("-", "_")
        if not equals or name in NOT_SETTABLE:
            raise InputError(
                "--set takes name=value, such as --set tau=0.9, for a parameter of a method or a "
                f"score that has no option of its own. Got {pair!r}."
            )
        is_file = name in FILES_OF_CLASSES
        settings[name] = class_values_from_file(text, name) if is_file else _value(text)
    return settings


def make_methods_and_scores(
    methods: Sequence[str],
    scores: Sequence[str],
    settings: Mapping[str, Any],
    *,
    class_alpha: bool = False,
) -> tuple[list[Any], list[Any]]:
    """Make a predictor of each method and a score of each name, with the settings they take.

    "all" stands for all names; with `class_alpha`, of the methods that take one alpha per class.
    Raise InputError if neither a method nor a score takes a setting.
    """
    from evencover.predictors import make_predictor, method_names, methods_for_all
    from evencover.scores import make_score, score_names

    if list(methods) == ["all"]:
        all_of_them = "groups" in settings and not class_alpha
        methods = method_names() if all_of_them else methods_for_all(class_alpha=class_alpha)
    scores = score_names() if list(scores) == ["all"] else scores
    known = set().union(*(parameters_of(m, s) for m, s in product(methods, scores)))
    for name in settings:
        if name not in known:
            names = ", ".join([*methods, *scores])
            raise_unknown(f"parameter of {names}:", name, sorted(known - {*NOT_SETTABLE}))

    def taken(names: set[str]) -> dict[str, Any]:
        return {name: settings[name] for name in names & settings.keys()}

    return (
        [make_predictor(name, **taken(parameters_of(name))) for name in methods],
        [make_score({"name": name, **taken(parameters_of(score=name))}) for name in scores],
    )


def parameters_of(method: str | None = None, score: str | None = None) -> set[str]:
    """Return the names of the parameters of a method, a score, or both."""
    from evencover.predictors import predictor_class
    from evencover.scores import make_score

    names = set() if method is None else set(predictor_class(method)().get_params())
    return names | (set() if score is None else {field.name for field in fields(make_score(score))})


def fill_in_choices(app: App) -> None:
    """Put the names of all methods and scores into the help, which imports much."""
    for name in app:
        if not name.startswith("-"):
            fill_in_choices(app[name])
    command = app.default_command
    if command is not None:
        command.__doc__ = _with_choices(command.__doc__ or "")


def _with_choices(help_text: str) -> str:
    from evencover.comparison.compare import DEFAULT_METHODS, DEFAULT_SCORES
    from evencover.data.formats import ARRAYS, TABLES
    from evencover.predictors import DEFAULT_METHOD, PREDICTORS, method_names
    from evencover.scores import SCORES, score_names

    method_names(), score_names()  # also those of installed packages
    choices = {
        "methods": _summaries("Methods", PREDICTORS),
        "scores": _summaries("Scores", SCORES),
        "default_method": DEFAULT_METHOD,
        "default_methods": ", ".join(DEFAULT_METHODS),
        "default_scores": ", ".join(DEFAULT_SCORES),
        "endings": ", ".join([*ARRAYS, *TABLES]),
    }
    help_text = _unfolded(help_text)
    for name, text in choices.items():
        help_text = help_text.replace("{" + name + "}", text)
    return help_text


def _unfolded(help_text: str) -> str:
    """Join the lines of each paragraph: the terminal folds them, not our editors."""
    before, heading, after = cleandoc(help_text).partition("\n\nParameters\n")
    before = re.sub(r"(?<!\n)\n(?![\n ])", " ", before)  # lists are indented
    after = re.sub(r"(?m)^    .*(\n    .*)*", lambda m: "    " + " ".join(m[0].split()), after)
    return before + heading + after


def _summaries(title: str, choices: Mapping[str, Any]) -> str:
    """List names and summaries one per line, indented: a block of code in Markdown."""
    lines = [f"    {name:<14}{choice.summary}".rstrip() for name, choice in choices.items()]
    return "\n".join([f"{title}:\n", *lines])


def _value(text: str) -> Any:
    """Return an integer, a number, True or False, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)
