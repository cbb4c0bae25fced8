"""A JSON record says everything once: a second key, or a second list of entries, is an error."""

import json

import pytest
from one_door.material import calibrated, entries_of, fitted, simulated, top_of

from evencover import InputError

K = 5
NAMES = ["ant", "bee", "cat", "dog", "eel"]
ROWS, LABELS = simulated(30, K)
TEXTS = [NAMES[y] for y in LABELS]
MODEL = calibrated(K, NAMES)
GOOD = [json.dumps(row) for row in entries_of(ROWS, 3, NAMES)]


def written(path, line, kind="output"):
    """Good records, of which one is this line."""
    lines = [
        f'{{"{kind}": {entries}, "label": "{text}"}}'
        for entries, text in zip(GOOD, TEXTS, strict=True)
    ]
    lines[4] = line
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


TWICE = {
    "the entries": f'{{"output": {GOOD[4]}, "output": {GOOD[5]}, "label": "ant"}}',
    "the label": f'{{"output": {GOOD[4]}, "label": "ant", "label": "bee"}}',
    "the id": f'{{"output": {GOOD[4]}, "label": "ant", "id": 1, "id": 2}}',
    "a score": '{"output": [{"label": "ant", "score": 0.5, "score": 0.2}], "label": "ant"}',
    "a class": '{"output": [{"label": "ant", "label": "bee", "score": 0.5}], "label": "ant"}',
    "another key": f'{{"output": {GOOD[4]}, "label": "ant", "note": {{"a": 1, "a": 2}}}}',
}


@pytest.mark.parametrize("what", TWICE)
def test_a_key_that_is_there_twice_is_an_error(tmp_path, what):
    path = written(tmp_path / "p.jsonl", TWICE[what])
    for use in (fitted, MODEL.predict_set):
        with pytest.raises(
            InputError, match=r"(?i)(?=.*\brow 4\b)(?=.*(twice|once|unique|duplicate))"
        ):
            use(path)


LISTS = {
    "another name": f'{{"output": {GOOD[4]}, "others": {GOOD[5]}, "label": "ant"}}',
    "before": f'{{"again": {GOOD[5]}, "output": {GOOD[4]}, "label": "ant"}}',
    "parallel lists": f'{{"output": {GOOD[4]}, "classes": ["ant"], "scores": [0.5]}}',
}


@pytest.mark.parametrize("what", LISTS)
@pytest.mark.parametrize("row", [0, 4])
def test_a_second_list_of_entries_is_an_error(tmp_path, what, row):
    path = written(tmp_path / "p.jsonl", LISTS[what])
    if row == 0:
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[4], *lines[1:]]))
    for use in (lambda rows: fitted(rows, TEXTS), MODEL.predict_set):
        with pytest.raises(InputError, match=r"p\.jsonl"):
            use(path)


@pytest.mark.parametrize(
    "line",
    [
        '{"classes": ["ant", "bee"], "scores": [0.5], "label": "ant"}',
        '{"classes": ["ant"], "classes": ["bee"], "scores": [0.5], "label": "ant"}',
        '{"classes": ["ant", "ant"], "scores": [0.5, 0.2], "label": "ant"}',
        '{"classes": ["ant", null], "scores": [0.5, 0.2], "label": "ant"}',
        '{"classes": ["ant", "bee"], "scores": [0.5, "0.2"], "label": "ant"}',
        '{"classes": "ant", "scores": 0.5, "label": "ant"}',
        '{"classes": ["ant"], "label": "ant"}',
    ],
)
def test_parallel_lists_that_do_not_fit_are_an_error(tmp_path, line):
    lists = [
        {"classes": [e["label"] for e in row], "scores": [e["score"] for e in row], "label": text}
        for row, text in zip(entries_of(ROWS, 3, NAMES), TEXTS, strict=True)
    ]
    lines = list(map(json.dumps, lists))
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(lines))
    assert MODEL.predict_set(path).to_lists() == MODEL.predict_set(top_of(ROWS, 3)).to_lists()
    lines[4] = line
    path.write_text("\n".join(lines))
    for use in (fitted, MODEL.predict_set):
        with pytest.raises(InputError, match=r"\brow 4\b"):
            use(path)


@pytest.mark.parametrize(
    "entries",
    [
        [{"label": "ant", "score": True}],
        [{"label": True, "score": 0.5}],
        [{"label": "ant", "score": None}],
        [{"label": None, "score": 0.5}],
        [{"label": ["ant"], "score": 0.5}],
        [{"label": "ant", "score": "0.5"}],
        [{"label": "ant", "score": float("nan")}],
        [{"label": 1.0, "score": 0.5}],
        [{"label": "ant"}],
        [{"score": 0.5}],
        [{"label": "ant", "score": 0.5}, ["bee", 0.2]],
        {"label": "ant", "score": 0.5},
        [],
        None,
    ],
    ids=str,
)
def test_entries_that_are_none_are_an_error(tmp_path, entries):
    path = written(tmp_path / "p.jsonl", json.dumps({"output": entries, "label": "ant"}))
    in_memory = entries_of(ROWS, 3, NAMES)
    in_memory[4] = entries
    for use in (fitted, MODEL.predict_set):
        with pytest.raises(InputError, match=r"\brow 4\b"):
            use(path)
    for use in (lambda rows: fitted(rows, TEXTS), MODEL.predict_set):
        with pytest.raises(InputError, match=r"\brow 4\b"):
            use(in_memory)
