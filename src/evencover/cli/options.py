"""The application, and the options that several commands have."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

import evencover
from evencover.cli.console import note, watch
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import InputError

if TYPE_CHECKING:
    from evencover.monitoring import Store
    from evencover.predictors.base import BasePredictor

app = App(
    name="evencover",
    help="Prediction sets that aim to cover every class, not just the average one.",
    version=f"evencover {evencover.__version__}",
    help_format="plaintext",
)

Output = Annotated[Path, Parameter(name=["--output", "-o"])]
Switch = Annotated[bool, Parameter(negative="")]
# Options of several commands.
ModelFile = Annotated[Path, Parameter(help="Written by calibrate.")]
TestData = Annotated[str, Parameter(help="Probabilities and labels of held-out test data.")]
Force = Annotated[bool, Parameter(negative="", help="Overwrite an existing file.")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print everything as JSON.")]
Dask = Annotated[
    str | None,
    Parameter(help="Run on a dask cluster: the URL of its scheduler, or 'local' for all cores."),
]
Alpha = Annotated[
    str,
    Parameter(help="Target miscoverage: sets target coverage 1 - alpha. Such as 0.1 or 1/3."),
]
Confidence = Annotated[
    str | None,
    Parameter(help="Cover 1 - alpha with this probability over calibration sets, such as 0.9."),
]
Groups = Annotated[
    str | None,
    Parameter(
        help="File with the columns 'class' and 'groups', or one group per class in their order, "
        "for a method that takes 'groups'."
    ),
]
Prevalence = Annotated[
    str | None,
    Parameter(
        help="File with the columns 'class' and 'prevalence', or one number per class in their "
        "order, such as the training counts, for a score that takes 'prevalence'."
    ),
]
Settings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="Any other parameter of methods or scores that take it, as name=value, such as "
        "tau=0.9; may be repeated.",
    ),
]
Seed = Annotated[int, Parameter(help="Fixes every random choice.")]
FalseAlarm = Annotated[
    float | None, Parameter(help="Level of each test of the monitor; 0.05 in a new state.")
]
Tolerance = Annotated[
    float | None,
    Parameter(help="How far below 1 - alpha class coverage may be; 0.02 in a new state."),
]

Retention = Annotated[
    float | None, Parameter(help="Days to keep served rows and labels without a row. [90]")
]


@Parameter(name="*")
@dataclass(frozen=True)
class Input:
    """How the data file is to be read."""

    labels: str | None = None
    "File (or folder, glob or URL) of labels; joined by id if both sides have ids."
    logits: Switch = False
    "The numbers are logits; a softmax is applied."
    ids: str | None = None
    "File with one stable id per row; the same id always gets the same random choices."
    row_groups: str | None = None
    "File with the group of each row, for methods with a threshold for each group of rows."
    probabilities_key: str | None = None
    "Name of the numbers in the file; with one column per class, a glob such as 'p_*'."
    labels_key: str | None = None
    "Name of the labels, in the file or in that of --labels."
    ids_key: str | None = None
    "Name of the ids, in the file or in that of --ids."

    def open(self, data: str | Path, what: str, *, complete: bool = True) -> Source:
        """Open the data as a source that shows its progress, and note how labels were matched."""
        from evencover.data.open import ids_from_file

        source = as_source(
            data,
            self.labels,
            ids=None if self.ids is None else ids_from_file(self.ids, self.ids_key or "ids"),
            logits=True if self.logits else None,
            probabilities_key=self.probabilities_key,
            labels_key=self.labels_key,
            ids_key=None if self.ids else self.ids_key,
            complete=complete,
        )
        if source.matching is not None:
            note(source.matching)
        return watch(source, what)

    def groups(self, source: Source) -> Any:
        """Read the group of each row, matched as labels are; None if there are none."""
        from evencover.data.join import match
        from evencover.data.open import values_for

        if self.row_groups is None:
            return None
        groups, _, matching = match(source, values_for(source, self.row_groups, "groups"), "groups")
        if matching is not None:
            note(matching)
        return groups


READ = Input()


def open_state(state: str | None, retention: float | None) -> Store:
    """Open a monitor's state."""
    from evencover.monitoring.store import RETENTION, Store

    return Store(state, retention=RETENTION if retention is None else retention)


def load_model(model: Path, data: str | None = None) -> BasePredictor:
    """Load a model; raise InputError if the data come where the model belongs."""
    from evencover.persistence import is_model, load

    if data is not None and model.is_file():
        if not is_model(model) and Path(data).is_file() and is_model(data):
            raise InputError(f"The model comes first, then the data. Got '{model}', then '{data}'.")
        if model.suffix.lower() != ".safetensors":
            raise InputError(
                f"The model must be a file that calibrate wrote (.safetensors). Got '{model}'."
            )
    return load(model)


@contextmanager
def executor(dask: str | None) -> Iterator[Any]:
    """Open the cluster at a URL, or one on this machine ("local"); None stands for threads."""
    if dask is None:
        yield None
        return
    from evencover.engine.dask import dask_client

    with dask_client(dask) as client:
        yield client


def number_if_float(text: str | None) -> Any:
    """Return a decimal as a float; leave fractions and words as they were written."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """Replace numbers that JSON lacks, NaN and infinite thresholds, with null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Options of their own, or of no use here.
NOT_SETTABLE = (
    *("alpha", "score", "exact", "allow_empty", "from_logits", "temperature", "random_state"),
    *("groups", "prevalence", "confidence", "target_prevalence"),
)


def read_settings(
    pairs: Sequence[str] | None, groups: str | None, prevalence: str | None
) -> dict[str, Any]:
    """Return values by parameter name, including those of files."""
    from evencover.data.open import class_values_from_file

    settings: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name in NOT_SETTABLE:
            raise InputError(
                "--set takes name=value, such as --set tau=0.9, for a parameter of a method or a "
                f"score that has no option of its own. Got {pair!r}."
            )
        settings[name] = _value(value.strip())
    if groups is not None:
        settings["groups"] = class_values_from_file(groups, "groups")
    if prevalence is not None:
        settings["prevalence"] = read_numbers(prevalence, "--prevalence")
    return settings


def make_methods(names: Sequence[str], settings: Mapping[str, Any]) -> tuple[list[Any], set[str]]:
    """Make a predictor of each method with the settings it takes; also return their names."""
    from evencover.predictors import make_predictor, method_names, methods_for_all, predictor_class

    if list(names) == ["all"]:
        names = method_names() if "groups" in settings else methods_for_all()
    methods: list[Any] = []
    used: set[str] = set()
    for name in names:
        own = {k: settings[k] for k in predictor_class(name).parameter_names() if k in settings}
        methods.append(make_predictor(name, **own))
        used |= own.keys()
    return methods, used


def make_scores(names: Sequence[str], settings: Mapping[str, Any]) -> tuple[list[Any], set[str]]:
    """Make a score of each name with the settings it takes; also return their names."""
    from evencover.scores import make_score, score_names

    if list(names) == ["all"]:
        names = score_names()
    scores: list[Any] = []
    used: set[str] = set()
    for name in names:
        known = {field.name for field in fields(make_score(name))}
        own = {k: v for k, v in settings.items() if k in known}
        scores.append(make_score({"name": name, **own}))
        used |= own.keys()
    return scores, used


def with_choices(help_text: str) -> str:
    """Fill in the names of all methods, scores and metrics."""
    from evencover.comparison.compare import DEFAULT_METHODS, DEFAULT_SCORES
    from evencover.data.open import ARRAYS, TABLES
    from evencover.evaluation.metrics import shown_in
    from evencover.predictors import DEFAULT_METHOD, PREDICTORS, method_names
    from evencover.scores import SCORES, score_names

    method_names(), score_names()  # also those of installed packages
    choices = {
        "methods": _listed({name: cls.summary for name, cls in PREDICTORS.items()}),
        "scores": _listed({name: cls.summary for name, cls in SCORES.items()}),
        "default_method": DEFAULT_METHOD,
        "endings": ", ".join([*ARRAYS, *TABLES]),
        "more_methods": ", ".join(n for n in method_names() if n not in DEFAULT_METHODS),
        "study_metrics": ", ".join(metric.name for metric in shown_in("study")),
        "more_scores": ", ".join(n for n in SCORES if n not in DEFAULT_SCORES),
    }
    for name, text in choices.items():
        help_text = help_text.replace("{" + name + "}", text)
    return _unfolded(help_text)


def _unfolded(help_text: str) -> str:
    """Join the lines of each paragraph: the terminal folds them, not our editors."""
    before, heading, after = cleandoc(help_text).partition("\n\nParameters\n")
    paragraphs = [" ".join(each.split()) for each in before.split("\n\n")]
    lines: list[str] = []
    for line in after.splitlines():
        if lines and line.startswith("    ") and lines[-1].startswith("    "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n\n".join(paragraphs) + heading + "\n".join(lines)


def _listed(summaries: Mapping[str, str]) -> str:
    return "; ".join(f"{name} ({text})" if text else name for name, text in summaries.items())


def refuse_unused(settings: Mapping[str, Any], used: set[str], items: Sequence[Any]) -> None:
    """Raise InputError if no method or score takes a setting."""
    from evencover.predictors import PREDICTORS, method_names

    unused = [name for name in settings if name not in used]
    if not unused:
        return
    names = [getattr(item, "method", None) or item.name for item in items]
    others = [name for name in method_names() if unused[0] in PREDICTORS[name].parameter_names()]
    known: set[str] = set()
    for item in items:
        known |= set(item.get_params() if hasattr(item, "get_params") else item.to_dict())
    known = known - {*NOT_SETTABLE, "name"} | ({"groups", "prevalence"} & known)
    close = get_close_matches(unused[0], sorted(known), n=1)
    hint = f"they take {', '.join(sorted(known)) or 'none that could be set'}."
    hint = f"did you mean {close[0]!r}?" if close else hint
    hint = f"the methods {', '.join(others)} take it." if others else hint
    raise InputError(
        f"{unused[0]!r} is not a parameter of {', '.join(names[:-1])} or {names[-1]}; {hint}"
    )


def _value(text: str) -> Any:
    """Return an integer, a number, True or False, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)


def read_numbers(file: str, option: str) -> list[Any]:
    """Read one number per class, alone or in a pair with its class."""
    from evencover.data.open import class_values_from_file

    try:
        return [
            (each[0], float(each[1])) if isinstance(each, tuple) else float(each)
            for each in class_values_from_file(file, "prevalence")
        ]
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The file of {option} must hold one number per class.") from None
