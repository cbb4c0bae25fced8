"""JSON documents of deployed tools: rules for where rows, names, scores and ids stand.

A rule is a function of a document that returns its records, or None for another document.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

from evencover.data.columns import Keys, entry_keys
from evencover.data.location import Location, as_location, reading
from evencover.data.records import RecordTable, is_entries, json_lines, lists_classes, parse_json
from evencover.errors import InputError

Records = list[Any] | None


def species_net(document: Any) -> Records:
    """SpeciesNet: the labels are those of its classifier, with their taxonomy; no failed images."""
    predictions = document.get("predictions") if isinstance(document, Mapping) else None
    if not isinstance(predictions, list):
        return None
    if not all(isinstance(each, Mapping) and "filepath" in each for each in predictions):
        return None
    found = [each for each in predictions if isinstance(each.get("classifications"), Mapping)]
    paths = [{"id": each["filepath"], "filepath": each["filepath"]} for each in found]
    return [path | each["classifications"] for path, each in zip(paths, found, strict=True)]


def table_by_id(document: Any) -> Records:
    """Return the records of {id: record}, as timm and pandas (orient="index") write them."""
    if not isinstance(document, Mapping) or not document:
        return None
    is_row = [isinstance(row, Mapping) and lists_classes(row) for row in document.values()]
    return [{"id": name, **row} for name, row in document.items()] if all(is_row) else None


def table_by_column(document: Any) -> Records:
    """Return the records of {columns, data}, as timm and pandas (orient="split") write them."""
    if not isinstance(document, Mapping) or document.keys() - {"index"} != {"columns", "data"}:
        return None
    found = [dict(zip(document["columns"], row, strict=True)) for row in document["data"]]
    ids = document.get("index")
    return found if ids is None else [{"id": i, **row} for i, row in zip(ids, found, strict=True)]


def one_row(document: Any) -> Records:
    """One result of a zero-shot pipeline."""
    return [document] if isinstance(document, Mapping) and lists_classes(document) else None


RULES: tuple[Callable[[Any], Records], ...] = (species_net, table_by_column, one_row, table_by_id)


def records_of(document: Any, owner: str) -> list[Any]:
    """Return the records of a document, by the first rule that fits.

    A flat list of labels with scores may be one row, or several of one label each. It is read as
    several if one row cannot have these labels and scores.
    """
    for rule in RULES:
        found = rule(document)
        if found is not None:
            return found
    if isinstance(document, list | tuple):
        if not is_entries(document) or not all(isinstance(each, Mapping) for each in document):
            return list(document)
        name, score = entry_keys(tuple(document[0])) or ("", "")
        names = [str(entry.get(name)) for entry in document]
        scores = [entry.get(score) for entry in document]
        total = sum(number for number in scores if isinstance(number, Real))
        if len(names) > 1 and len({*names}) == len(names) and total < 1.01:
            raise InputError(
                f"The flat list of labels with scores in {owner} may be one row, or one label per "
                "row. Write [[...]] around the entries of one row, and [[...], [...]] for several."
            )
        return [[entry] for entry in document]
    keys = list(document)[:5] if isinstance(document, Mapping) else type(document).__name__
    raise InputError(
        f"{owner} must be a list of rows, or the output of SpeciesNet, of a Hugging Face pipeline "
        f"or of timm. Got {keys}; write one JSON object per line (.jsonl)."
    )


def read_document(location: Location) -> Any:
    """Parse a JSON file; timm gives its JSON lines the same extension."""
    with location.open("rb") as file:
        text = file.read()
    try:
        return parse_json(text, f"'{location}'")
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
    return list(json_lines(location))


def records_of_file(location: Location) -> Iterator[Any]:
    """Return the records of a JSON file."""
    return iter(records_of(read_document(location), f"'{location}'"))


def read_species_net(path: str) -> Any:
    """Parse a JSON file that SpeciesNet wrote."""
    location, document = as_location(path), None
    if location.suffix.lower() == ".json":
        with reading(location):
            document = read_document(location)
    if species_net(document) is None:
        raise InputError(
            f"A .json output needs predictions of SpeciesNet. Got '{path}'; write .jsonl, .csv or "
            ".parquet."
        )
    return document


def are_records(values: Any) -> bool:
    """Return whether values in memory are what a tool writes, or lists of the top classes."""
    if isinstance(values, Mapping):
        return any(rule(values) is not None for rule in RULES)
    if not isinstance(values, list | tuple) or not values:
        return False
    first = values[0]
    if isinstance(first, Mapping):
        return lists_classes(first) or _names_numbers(first) or is_entries(values)
    return isinstance(first, list | tuple) and len(first) > 0 and isinstance(first[0], Mapping)


def _names_numbers(row: Mapping[Any, Any]) -> bool:
    """Return whether a row has a number by class, as requests to a service may have."""
    return len(row) > 0 and all(isinstance(number, Real) for number in row.values())


def table_of_rows(values: Any, keys: Keys) -> RecordTable:
    """Return what a tool writes, or rows as a pipeline returns them, as a table."""
    owner = "the dictionary" if isinstance(values, Mapping) else "the list"
    found = [
        [{"label": name, "score": number} for name, number in row.items()]
        if isinstance(row, Mapping) and _names_numbers(row)
        else row
        for row in records_of(values, owner)
    ]
    return RecordTable.open(None, None, keys, lambda _: iter(found), owner)


# SpeciesNet's own answer to a file.
OWN_ANSWER = ("prediction", "prediction_score", "prediction_source")

# ---- writing -------------------------------------------------------------------------------------


def with_sets(document: Any, rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return the document of SpeciesNet with the values of each prediction's row.

    An answer takes the place of the tool's prediction; a row for review has none.
    """
    left, changed = iter(rows), []
    for prediction in document["predictions"]:
        if isinstance(prediction.get("classifications"), Mapping):
            row = dict(next(left))
            if "answer" in row:
                names = ("answer", "answer_level", "answer_probability")
                answer, level, probability = (row.pop(name) for name in names)
                source = f"evencover: {level}" if answer else None
                own = zip(OWN_ANSWER, (answer, probability, source), strict=True)
                prediction = {k: v for k, v in prediction.items() if k not in OWN_ANSWER}
                row |= {name: value for name, value in own if answer}
            prediction = {**prediction, **row}
        changed.append(prediction)
    return {**document, "predictions": changed}
