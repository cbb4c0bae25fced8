"""One rule for labels: text is a name, an integer an index, unless a class has another number."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli.running import refused, succeeded
from one_door.material import (
    calibrated,
    fitted,
    simulated,
    state_of,
    with_header,
    write_cells,
    write_lines,
)

from evencover import CoverageMonitor, InputError, StandardPredictor, compare, recommend, save

NAMES = ["7", "0", "ant", "1", "bee", "2"]  # 1 is the index of "0", and the name of class 3
ALL_ROWS, ALL_LABELS = simulated(300, len(NAMES))
IS_DIGIT = np.array([name.isdecimal() for name in NAMES])[ALL_LABELS]
ROWS, LABELS = ALL_ROWS[IS_DIGIT], ALL_LABELS[IS_DIGIT]  # those whose label looks like a number
TEXTS = [NAMES[y] for y in LABELS]
NUMBERS = list(map(int, TEXTS))
IDS = [f"row {n}" for n in range(len(ROWS))]


def frame(names=NAMES):
    return pd.DataFrame(ROWS, columns=names)


def in_fit(labels, names=NAMES, **how):
    return state_of(fitted(ROWS, labels, class_names=names, **how))


def in_partial_fit(labels, names=NAMES, **how):
    return state_of(calibrated(len(names), names).partial_fit(ROWS, labels, ids=IDS, **how))


def in_fit_acceptance(labels, names=NAMES, **how):
    model = calibrated(len(names), names, keep_top=True)
    model.fit_acceptance(ROWS, labels, accuracy=0.5, ids=IDS, **how)
    return [np.asarray(part).tolist() for part in model.acceptance_[:3]]


def in_evaluate(labels, names=NAMES, **how):
    report = calibrated(len(names), names).evaluate(ROWS, labels, ids=IDS, **how)
    return repr(report.to_dict())


def in_compare(labels, names=NAMES, **how):
    options = {"methods": ["standard"], "scores": ["softmax"], "n_splits": 2}
    return repr(compare(frame(names), labels, **options, **how).to_dict())


def in_recommend(labels, names=NAMES, **how):
    return str(recommend(frame(names), labels, **how))


def in_monitor(labels, names=NAMES, **how):
    monitor = CoverageMonitor(calibrated(len(names), names))
    monitor.update(ROWS, labels, ids=IDS, **how)
    return monitor.snapshot().rows.tolist(), monitor.snapshot().covered.tolist()


USES = [
    in_fit,
    in_partial_fit,
    in_fit_acceptance,
    in_evaluate,
    in_compare,
    in_recommend,
    in_monitor,
]
every_use = pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__[3:])
ASKS = r"(?=.*labels_are)(?=.*--labels-are)"


@every_use
def test_integers_are_an_error_if_a_class_has_another_number_as_its_name(use):
    for labels in (NUMBERS, LABELS, np.array(NUMBERS, dtype=np.uint8), pd.Series(NUMBERS)):
        with pytest.raises(InputError, match=ASKS):
            use(labels)


@every_use
def test_labels_are_says_which(use):
    expected = use(TEXTS)
    assert use(NUMBERS, labels_are="names") == expected
    assert use(LABELS, labels_are="indices") == expected
    assert use(np.array(LABELS, dtype=np.int8), labels_are="indices") == expected
    with pytest.raises(InputError, match="labels_are"):
        use(NUMBERS, labels_are="numbers")
    with pytest.raises(InputError, match="7"):  # 7 is a name, and no index
        use([7, *LABELS[1:]], labels_are="indices")


@every_use
def test_text_is_a_name_whatever_it_looks_like(use):
    expected = use(TEXTS)
    alike = (
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        pd.Series(TEXTS),
        pd.Series(TEXTS, dtype="category"),
        pa.array(TEXTS),
        pa.array(TEXTS).dictionary_encode(),
    )
    for labels in alike:
        assert use(labels) == expected


@every_use
@pytest.mark.parametrize("names", [list("012345"), ["ant", "1", "cat", "3", "4th", "eel"]])
def test_integers_are_indices_if_no_class_has_another_number_as_its_name(use, names):
    expected = use(LABELS, names=names)
    if use not in (in_compare, in_recommend):  # columns 0, 1, 2, ... of a frame are no names
        assert use([names[y] for y in LABELS], names=names) == expected
    for labels in (LABELS, LABELS.tolist(), LABELS.astype(np.uint16)):
        assert use(labels, names=names) == expected
        assert use(labels, names=names, labels_are="indices") == expected


@every_use
def test_the_labels_themselves_decide_nothing(use):
    """Each of these could be told by its values; a later file of the same tool could not."""
    for labels in ([7] * len(ROWS), [4] * len(ROWS), [0] * len(ROWS)):
        with pytest.raises(InputError, match=ASKS):
            use(labels)


def test_a_model_without_names_takes_indices():
    expected = state_of(fitted(ROWS, LABELS, ids=IDS))
    assert state_of(fitted(ROWS, LABELS, ids=IDS, labels_are="indices")) == expected
    with pytest.raises(InputError, match="class_names"):
        fitted(ROWS, ["ant", *TEXTS[1:]], ids=IDS)


@pytest.mark.parametrize("numbers", [["10", "20", "30"], ["2", "0", "1"]])
def test_columns_that_are_called_by_numbers_are_names(numbers):
    rows, labels = simulated(60, 3)
    for names in (numbers, list(map(int, numbers))):
        table = pd.DataFrame(rows, columns=names)
        with pytest.raises(InputError, match=ASKS):
            fitted(table, [int(numbers[y]) for y in labels])
        found = fitted(table, [int(numbers[y]) for y in labels], labels_are="names")
        assert state_of(found) == state_of(
            fitted(rows, labels, class_names=numbers, labels_are="indices")
        )
        assert state_of(fitted(table, labels, labels_are="indices")) == state_of(found)


# ---- files -------------------------------------------------------------------------------------


def write_labels(name, labels):
    """Labels with ids, in another order than the rows; text has a type in Parquet only."""
    order, path = np.random.default_rng(3).permutation(len(ROWS)), Path(name)
    ids, labels = [IDS[row] for row in order], [labels[row] for row in order]
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": ids, "label": labels}), path)
    elif path.suffix == ".jsonl":
        write_lines(path, ({"id": i, "label": y} for i, y in zip(ids, labels, strict=True)))
    elif path.suffix == ".npz":
        np.savez(path, ids=ids, labels=labels)
    else:
        write_cells(path, [["id", "label"], *zip(ids, labels, strict=True)])
    return path


@pytest.fixture
def files(folder):
    np.savez("rows.npz", probs=ROWS, ids=IDS, class_names=NAMES)
    for name, labels in {"digits": TEXTS, "numbers": NUMBERS, "indices": LABELS.tolist()}.items():
        write_labels(f"{name}.csv", labels)
        write_labels(f"{name}.tsv", labels)
        write_labels(f"{name}.parquet", labels)
        write_labels(f"{name}.jsonl", labels)
        write_labels(f"{name}.npz", labels)
    save(calibrated(len(NAMES), NAMES), "m.safetensors")


COMMANDS = {
    "calibrate": ("calibrate", "rows.npz", "--score", "aps", "-o", "new.safetensors", "--force"),
    "update": ("update", "m.safetensors", "rows.npz", "-o", "new.safetensors", "--force"),
    "evaluate": ("evaluate", "m.safetensors", "rows.npz", "--json"),
    "report": ("report", "m.safetensors", "rows.npz", "-o", "r.html", "--force"),
    "compare": ("compare", "rows.npz", "--n-splits", 2, "--scores", "aps", "--json"),
    "recommend": ("recommend", "rows.npz"),
    "info": ("info", "rows.npz", "--json"),
    "monitor": ("monitor", "m.safetensors", "rows.npz", "--state", "{state}", "--json"),
}


def outcome(run, command, labels, *more):
    """What a command prints and writes."""
    state = f"{len(list(Path.cwd().iterdir()))}.db"  # a new one
    options = [str(option).format(state=state) for option in COMMANDS[command]]
    done = succeeded(run(*options, "--labels", labels, *more))
    models = [path.read_bytes() for path in Path.cwd().glob("new.safetensors")]
    return done.out, models


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("labels", ["digits.csv", "digits.tsv", "numbers.jsonl", "numbers.parquet"])
def test_commands_ask_what_digits_are(files, run, command, labels):
    if command in ("report", "recommend") and labels != "digits.csv":
        pytest.skip("as the other commands")
    options = [str(option).format(state="s.db") for option in COMMANDS[command]]
    assert "--labels-are" in refused(run(*options, "--labels", labels))
    assert not Path("new.safetensors").exists()
    expected = outcome(run, command, "digits.parquet")
    assert outcome(run, command, labels, "--labels-are", "names") == expected
    indices = labels.replace("digits", "indices").replace("numbers", "indices")
    assert outcome(run, command, indices, "--labels-are", "indices") == expected


@pytest.mark.parametrize("labels", ["digits.parquet", "digits.jsonl", "digits.npz"])
def test_text_that_is_stored_as_text_is_a_name(files, run, labels):
    expected = fitted(ROWS, TEXTS, ids=IDS, class_names=NAMES)
    assert state_of(fitted("rows.npz", labels)) == state_of(expected)
    succeeded(run("update", "m.safetensors", "rows.npz", "--labels", labels, "-o", "n.safetensors"))


def test_labels_by_id_alone_follow_the_same_rule(files, run):
    rows = ("m.safetensors", "--state", "s.db", "--labels")
    assert "--labels-are" in refused(run("monitor", *rows, "digits.csv"))
    done = run("monitor", *rows, "digits.csv", "--labels-are", "names", "--json")
    assert json.loads(succeeded(done).out)["waiting"] == len(ROWS)
    monitor = CoverageMonitor(calibrated(len(NAMES), NAMES), state="s.db")
    monitor.observe(ROWS, ids=IDS)
    expected = CoverageMonitor(calibrated(len(NAMES), NAMES))
    expected.update(ROWS, TEXTS, ids=IDS)
    assert monitor.snapshot().rows.tolist() == expected.snapshot().rows.tolist()
    assert monitor.snapshot().covered.tolist() == expected.snapshot().covered.tolist()


def test_labels_of_a_monitor_are_names_or_indices(files):
    model = calibrated(len(NAMES), NAMES)
    for labels, how in ((TEXTS, {}), (NUMBERS, {"labels_are": "names"})):
        monitor, expected = CoverageMonitor(model), CoverageMonitor(model)
        monitor.observe(ROWS, ids=IDS)
        if how:
            with pytest.raises(InputError, match="labels_are"):
                monitor.label(IDS, labels)
        monitor.label(IDS, labels, **how)
        expected.update(ROWS, TEXTS, ids=IDS)
        assert monitor.snapshot().covered.tolist() == expected.snapshot().covered.tolist()


DIGITS = ["7", "0", "4", "1", "9", "2"]


def write_stored(kind, labels):
    """Rows and their labels in one file."""
    table = frame(DIGITS).assign(label=labels)
    if kind == "csv":
        write_cells(Path("p.csv"), with_header(DIGITS, ROWS, label=labels))
    elif kind == "parquet":
        table.to_parquet("p.parquet", index=False)
    elif kind == "jsonl":
        write_lines(Path("p.jsonl"), table.to_dict("records"))
    elif kind == "npz":
        np.savez("p.npz", probs=ROWS, labels=labels, class_names=DIGITS)
    return table if kind == "frame" else f"p.{kind}"


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "npz", "frame"])
def test_labels_next_to_their_rows_follow_the_same_rule(folder, kind):
    texts = [DIGITS[y] for y in LABELS]
    expected = state_of(fitted(ROWS, texts, class_names=DIGITS))
    rows = write_stored(kind, list(map(int, texts)))
    with pytest.raises(InputError, match=ASKS):
        fitted(rows)
    assert state_of(fitted(rows, labels_are="names")) == expected
    assert state_of(fitted(write_stored(kind, LABELS.tolist()), labels_are="indices")) == expected
    if kind != "csv":  # which has no text of digits
        assert state_of(fitted(write_stored(kind, texts))) == expected


def test_cells_of_which_one_is_no_number_are_text(files):
    labels = ["ant", *TEXTS[1:]]
    expected = state_of(fitted(ROWS, labels, ids=IDS, class_names=NAMES))
    assert state_of(fitted("rows.npz", write_labels("mixed.csv", labels))) == expected


SPACED = ["a", " a", "a ", " ", "\u3000", "b"]


def test_lines_of_text_are_names_with_their_space(files):
    expected = state_of(fitted(ROWS, LABELS, ids=IDS, class_names=SPACED))
    lines = [SPACED[y] for y in LABELS]
    for end in ("\n", "\r\n"):
        Path("y.txt").write_text(end.join(lines) + end, encoding="utf-8", newline="")
        assert state_of(fitted(ROWS, "y.txt", ids=IDS, class_names=SPACED)) == expected
    Path("y.txt").write_text("".join(f" {y}\t\n" for y in LABELS))  # integers have none
    assert state_of(fitted(ROWS, "y.txt", ids=IDS, class_names=SPACED)) == expected
    Path("y.txt").write_text("".join(f"{NAMES[y]} \n" for y in [2, *LABELS[1:]]))
    with pytest.raises(InputError, match="white space"):
        fitted(ROWS, "y.txt", class_names=NAMES)


@every_use
@pytest.mark.parametrize("like", ["ant ", "\u00a0ant", "ant\u200b"])
def test_labels_that_only_look_like_a_class_are_no_unknown_classes(use, like):
    """They were left out, or counted as misses."""
    with pytest.raises(InputError, match=r"(?=.*differs from 'ant' only)(?=.*\brow 3\b)"):
        use([*TEXTS[:3], like, *TEXTS[4:]])


def test_other_unknown_labels_are_misses():
    """Characters that are alike but not equal may be classes of their own."""
    for label in ("\u00b2", "wasp", "Ant"):
        assert in_evaluate([label, *TEXTS[1:]]) != in_evaluate(TEXTS)


def test_labels_of_two_files_of_two_types_are_an_error_that_names_both(files):
    for kind in ("csv", "parquet"):
        write_labels(f"1.{kind}", LABELS.tolist() if kind == "csv" else NUMBERS)
        write_labels(f"2.{kind}", ["ant"] * len(ROWS))
        rows = {"probs": np.concatenate([ROWS, ROWS]), "class_names": NAMES}
        with pytest.raises(InputError, match=rf"(?=.*1\.{kind})(?=.*2\.{kind})"):
            fitted(rows, f"[12].{kind}")


def test_callers_that_know_say_so():
    """scikit-learn's labels of ConformalClassifier are values of `classes_`, never indices."""
    from sklearn.linear_model import LogisticRegression

    from evencover import ConformalClassifier

    values, means = np.array([7, 0, 2]), np.array([[0, 0], [3, 0], [0, 3]])
    places = np.random.default_rng(0).integers(0, 3, 300)
    features = means[places] + np.random.default_rng(1).normal(size=(300, 2))
    model = ConformalClassifier(LogisticRegression(), StandardPredictor())
    model.fit(features, values[places])
    sets = model.predict_set(features).to_lists(names=True)
    named = [str(y) in members for y, members in zip(values[places], sets, strict=True)]
    assert np.mean(named) > 0.85
