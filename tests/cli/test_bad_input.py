"""Bad options, commands and files: one sentence, exit code 2, and nothing is written."""

import numpy as np
import pytest
from cli.running import NAMES, K, listing, refused, succeeded

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(((f"--alpha={alpha}",), "'alpha'") for alpha in ("0", "nan", "x", "", "1/0", "3/2")),
        (("--method", "clusterd"), "did you mean 'clustered'"),
        (("--score", "sofmax"), "did you mean 'softmax'"),
        (("--metod", "standard"), "--method"),
        (("--seed", "-1"), "'random_state'"),
        (("--seed", "x"), "--seed"),
        (("--method", "clustered", "--set", "gamma=1.5"), "'gamma'"),
        (("--method", "clustered", "--set", "n_clusters=0"), "'n_clusters'"),
        (("--score", "raps", "--set", "k_reg=-1"), "'k_reg'"),
        (("--set", "gamma=0.5"), "Unknown parameter of pooled, softmax: 'gamma'"),
        (("--method", "standard", "--set", "confidence=2"), "'confidence'"),
        (("--method", "macro", "--set", "exact=true"), "'exact'"),
        (("--labels", "labels"), "no such file"),
        (("--alpha-of", "oak=0.1"), "oak"),
        (("--alpha-of", f"{NAMES[0]}=2"), "'alpha'"),
        (("--alpha-of", f"{NAMES[0]}="), "'alpha'"),
        (("--alpha-of", "none.csv"), "no such file"),
        (("--alpha-of", f"{NAMES[0]}=.1", "--alpha-of", f"{NAMES[0]}=.2"), NAMES[0]),
        (("--alpha-of", "labels.npy"), "--alpha-of"),
        (("--alpha-of", f"{NAMES[0]}=.1", "--method", "macro"), "'alpha'"),
        *((("--floor", floor), "'floor'") for floor in ("1", "x")),
        (("--set", "floor=0.5"), "--set"),
        (("unexpected",), "unexpected"),
    ],
)
def test_bad_options_of_calibrate(folder, run, arguments, words):
    before = listing(folder)
    assert words in refused(run("calibrate", "cal.npz", "-o", "m.safetensors", *arguments))
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("calibrat",), 'Did you mean "calibrate"'),
        (("calibrate",), "DATA"),
        (("predict", "model.safetensors"), "DATA"),
        (("predict", "none.safetensors", "new.npy", "-o", "sets.xlsx"), "must be one of .parquet"),
        (("predict", "model.safetensors", "new.npy", "-o", "."), "contains the input"),
        (("predict", "model.safetensors", "new.npy", "-o", "no/sets.csv"), "'no' does not exist"),
        (("predict", "model.safetensors", "none.npy", "-o", "a.csv"), "no such file"),
        (("evaluate", "model.safetensors", "new.npy"), "needs labels"),
        (("predict", "model.safetensors", "wide.npy", "-o", "a.csv"), "the 6 classes"),
        (("predict", "model.safetensors", "new.npy", "-o", "a.csv", "--top", "0"), "'top'"),
        (("info", "readme.txt"), "extension must be one of"),
        (("compare", "cal.npz", "--methods", "standrd"), "did you mean 'standard'"),
        (("compare", "cal.npz", "--scores", "softmax,"), "Unknown score ''"),
        (("compare", "cal.npz", "--n-splits", "1"), "'n_splits'"),
        (("compare", "cal.npz", "--set", "gama=0.5"), "did you mean 'gamma'"),
        (("compare", "cal.npz", "--set", "gamma"), "--set takes name=value"),
        (("compare", "cal.npz", "--set", "alpha=0.2"), "--set takes name=value"),
        (
            ("compare", "cal.npz", "--methods", "grouped", "--set", "groups=none.txt"),
            "no such file",
        ),
        (
            ("compare", "cal.npz", "--scores", "pas", "--set", "prevalence=readme.txt"),
            "'prevalence'",
        ),
        (("compare", "cal.npz", "--csv", "readme.txt"), "exists already"),
        (("compare", "new.npy"), "A comparison needs labels"),
        (("compare", "cal.npz", "--calibration-sizes", "ten"), "--calibration-sizes"),
    ],
)
def test_bad_commands(model, folder, run, data, arguments, words):
    np.save("wide.npy", np.full((300, K + 1), 1 / (K + 1)))
    (folder / "readme.txt").write_text("hello")
    before = listing(folder)
    assert words in refused(run(*arguments))
    assert listing(folder) == before


def test_probabilities_for_a_model_of_logits(folder, run, data):
    np.savez("logits.npz", logits=np.log(data.rows[:300]), labels=data.labels[:300])
    succeeded(run("calibrate", "logits.npz", "-o", "m.safetensors"))
    arguments = ("predict", "m.safetensors", "new.npy", "-o", "sets.jsonl")
    assert "--logits" in refused(run(*arguments))
    assert not (folder / "sets.jsonl").exists()
    succeeded(run(*arguments, "--logits"))


@pytest.mark.parametrize("command", ["calibrate", "compare", "recommend"])
def test_a_text_column_that_may_hold_the_labels_is_suggested(folder, run, data, command):
    columns = [f"c{k}" for k in range(K)]
    table = {name: data.rows[:300, k] for k, name in enumerate(columns)}
    table["category"] = [columns[label] for label in data.labels[:300]]
    pq.write_table(pa.table(table), "named.parquet")
    output = ("-o", "m.safetensors") if command == "calibrate" else ()
    found = run(command, "named.parquet", *output)
    assert (found.code, found.out) == (2, "")
    *_, error = found.err.splitlines()  # after a note on the columns left out
    assert "--labels-key category" in error
    succeeded(run(command, "named.parquet", "--labels-key", "category", *output))


def changed(values, index, value):
    values = np.array(values)
    values[index] = value
    return values


BAD_DATA = {
    "NaN": (lambda p, y: (changed(p, (7, 2), np.nan), y), "row 7 of 'bad.npz', class 2"),
    "sum": (lambda p, y: (changed(p, 7, 0.3), y), "Row 7 of 'bad.npz' sums to 1.8"),
    "logits": (lambda p, y: (np.log(p), y), "--logits"),
    "no rows": (lambda p, y: (p[:0], y[:0]), "at least one row"),
    "text": (lambda p, y: (p.astype(str), y), "real numbers"),
    "wrong label": (lambda p, y: (p, changed(y, 7, 6)), "Got 6 in row 7"),
    "missing labels": (lambda p, y: (p, None), "needs labels"),
    "pickled rows": (lambda p, y: (p.astype(object), y), "pickled Python objects"),
}


# `predict` does not read labels, and no rows have no sets.
UNREAD = ("wrong label", "missing labels", "no rows")


@pytest.mark.parametrize("what", BAD_DATA)
@pytest.mark.parametrize("command", ["calibrate", "evaluate", "predict", "compare"])
def test_bad_data(model, folder, run, data, what, command):
    spoil, words = BAD_DATA[what]
    rows, labels = spoil(data.rows[:300], data.labels[:300])
    arrays = {"probs": rows} | ({} if labels is None else {"labels": labels})
    np.savez("bad.npz", **arrays)
    arguments = {
        "calibrate": ("calibrate", "bad.npz", "-o", "new.safetensors"),
        "evaluate": ("evaluate", model, "bad.npz"),
        "predict": ("predict", model, "bad.npz", "-o", "sets.csv"),
        "compare": ("compare", "bad.npz"),
    }[command]
    before = listing(folder)
    if what in UNREAD and command == "predict":
        succeeded(run(*arguments))
        return
    line = refused(run(*arguments))
    assert words in line or (what, command) == ("missing labels", "compare")
    assert listing(folder) == before


def test_a_bad_number_of_threads(model, run, monkeypatch):
    monkeypatch.setenv("EVENCOVER_THREADS", "many")
    assert "EVENCOVER_THREADS" in refused(run("predict", model, "new.npy", "-o", "sets.csv"))
