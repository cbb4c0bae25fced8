"""Methods and scores by name on the command line, with ``--set name=value`` for what they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any

from cyclopts import Parameter

from evencover._validation import InputError, raise_unknown

# Options of their own, or of no use here.
NOT_SETTABLE = (
    *("alpha", "score", "exact", "allow_empty", "from_logits", "temperature", "random_state"),
    *("groups", "prevalence"),
)

Settings = Annotated[list[str] | None, Parameter(name="--set", negative="")]


def read_settings(
    pairs: Sequence[str] | None, groups: str | None, prevalence: str | None
) -> dict[str, Any]:
    """Values by parameter name, those of files included."""
    from evencover.data.opening import column_from_file

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
        settings["groups"] = column_from_file(groups, "groups").tolist()
    if prevalence is not None:
        settings["prevalence"] = tuple(_numbers(column_from_file(prevalence, "prevalence")))
    return settings


def make_methods(names: Sequence[str], settings: Mapping[str, Any]) -> tuple[list[Any], set[str]]:
    """A predictor of each method with the settings it takes, and which settings these are."""
    from evencover.predictors import PREDICTORS, make_predictor

    if list(names) == ["all"]:
        names = list(PREDICTORS)
    methods: list[Any] = []
    used: set[str] = set()
    for name in names:
        known = set(make_predictor(name).get_params())
        methods.append(make_predictor(name, **{k: v for k, v in settings.items() if k in known}))
        used |= known & settings.keys()
    return methods, used


def make_scores(names: Sequence[str], settings: Mapping[str, Any]) -> tuple[list[Any], set[str]]:
    """A score of each name with the settings it takes, and which settings these are."""
    from evencover.scores import SCORES, make_score

    if list(names) == ["all"]:
        names = list(SCORES)
    scores: list[Any] = []
    used: set[str] = set()
    for name in names:
        known = {field.name for field in fields(make_score(name))}
        own = {k: v for k, v in settings.items() if k in known}
        scores.append(make_score({"name": name, **own}))
        used |= own.keys()
    return scores, used


def refuse_unused(settings: Mapping[str, Any], used: set[str], items: Sequence[Any]) -> None:
    """Every setting must be of use to somebody."""
    unused = [name for name in settings if name not in used]
    if unused:
        raise_unknown("setting", unused[0], sorted(_settable(items)))


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


def _numbers(values: Any) -> list[float]:
    try:
        return [float(value) for value in values.tolist()]
    except ValueError:
        raise InputError("The file of --prevalence must hold one number per class.") from None
