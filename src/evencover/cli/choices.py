"""Methods and scores by name on the command line, with ``--set name=value`` for what they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from inspect import cleandoc
from typing import Annotated, Any

from cyclopts import Parameter

from evencover._validation import InputError

# Options of their own, or of no use here.
NOT_SETTABLE = (
    *("alpha", "score", "exact", "allow_empty", "from_logits", "temperature", "random_state"),
    *("groups", "prevalence", "confidence", "target_prevalence"),
)

Settings = Annotated[list[str] | None, Parameter(name="--set", negative="")]


def read_settings(
    pairs: Sequence[str] | None, groups: str | None, prevalence: str | None
) -> dict[str, Any]:
    """Values by parameter name, those of files included."""
    from evencover.data.files import class_values_from_file

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
        settings["prevalence"] = _numbers(prevalence, "--prevalence")
    return settings


def read_target(target: str | None) -> Any:
    """The target prevalence: a word, or the numbers of a file."""
    if target is None or target == "uniform":
        return target
    return _numbers(target, "--target-prevalence")


def make_methods(names: Sequence[str], settings: Mapping[str, Any]) -> tuple[list[Any], set[str]]:
    """A predictor of each method with the settings it takes, and which settings these are."""
    from evencover.predictors import (
        make_predictor,
        method_names,
        methods_for_all,
        predictor_class,
    )

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
    """A score of each name with the settings it takes, and which settings these are."""
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
    """A help text with the names of all methods, scores and metrics filled in."""
    from evencover.comparison.compare import DEFAULT_METHODS, DEFAULT_SCORES
    from evencover.data.files import ARRAYS, TABLES
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
    """A docstring with each paragraph in one line: the terminal folds it, not our editors."""
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
    """Every setting must be of use to somebody."""
    from evencover.predictors import PREDICTORS, method_names

    unused = [name for name in settings if name not in used]
    if not unused:
        return
    names = [getattr(item, "method", None) or item.name for item in items]
    sentence = f"{unused[0]!r} is not a parameter of {', '.join(names[:-1])} or {names[-1]}"
    others = [name for name in method_names() if unused[0] in PREDICTORS[name].parameter_names()]
    if others:
        raise InputError(f"{sentence}; the methods {', '.join(others)} take it.")
    known = sorted(_settable(items))
    close = get_close_matches(unused[0], known, n=1)
    if close:
        raise InputError(f"{sentence}; did you mean {close[0]!r}?")
    raise InputError(f"{sentence}; they take {', '.join(known) or 'none that could be set'}.")


def _settable(items: Sequence[Any]) -> set[str]:
    """The parameters of predictors and scores that may be set."""
    names: set[str] = set()
    for item in items:
        names |= set(item.get_params() if hasattr(item, "get_params") else item.to_dict())
    return names - {*NOT_SETTABLE, "name"} | ({"groups", "prevalence"} & names)


def _value(text: str) -> Any:
    """A whole number, a number, yes or no, or text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)


def _numbers(file: str, option: str) -> list[Any]:
    """Read one number per class, alone or in a pair with its class."""
    from evencover.data.files import class_values_from_file

    try:
        return [
            (each[0], float(each[1])) if isinstance(each, tuple) else float(each)
            for each in class_values_from_file(file, "prevalence")
        ]
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The file of {option} must hold one number per class.") from None
