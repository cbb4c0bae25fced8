"""Mark the options that name outputs, and check these against all inputs before a command runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from inspect import BoundArguments
from pathlib import Path
from typing import Any, get_args, get_type_hints

from evencover.output.atomic import check_output, reject_inputs


@dataclass(frozen=True)
class Writes:
    """Mark an option, in its annotation, as a path that the command writes."""

    extensions: tuple[str, ...] = ()  # of a file; any if there are none
    folder: bool = False  # a path without an extension is a folder, which checks its own files


def check_outputs(command: Callable[..., Any], bound: BoundArguments) -> None:
    """Raise InputError if a command would overwrite an input, or a file without --force.

    Every path or text that is not marked as an output counts as an input.
    """
    bound.apply_defaults()
    outputs, inputs = [], []
    for name, value, annotation in _options(command, bound.arguments):
        marks = [mark for mark in get_args(annotation) if isinstance(mark, Writes)]
        if value is not None and marks:
            outputs.append((Path(value), marks[-1]))
        elif name != "force":
            inputs += [text for text in _texts(value) if text]
    force = any(value for name, value, _ in _options(command, bound.arguments) if name == "force")
    for number, (path, mark) in enumerate(outputs):
        others = [*inputs, *(other for other, _ in outputs[:number])]
        if mark.folder and (path.is_dir() or not path.suffix):
            reject_inputs(path, others)
        else:
            check_output(path, others, force=force, extensions=mark.extensions)


def _options(
    owner: Callable[..., Any] | type, values: dict[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and annotation of each option, those in groups of options included."""
    annotations = get_type_hints(owner, include_extras=True)
    for name, value in values.items():
        if is_dataclass(value):
            group = {field.name: getattr(value, field.name) for field in fields(value)}
            yield from _options(type(value), group)
        else:
            yield name, value, annotations.get(name)


def _texts(value: Any) -> list[str | Path]:
    if isinstance(value, str | Path):
        return [value]
    texts = [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
    return [*texts, *(text.partition("=")[2] for text in texts)]  # files of --set NAME=FILE
