"""Results of every public function and command, for a comparison of block and sample sizes.

    python tests/every_function.py FOLDER [methods | files | functions | commands] ...

Works in the folder, and prints the results by name as JSON, warnings included.
"""

import hashlib
import io
import json
import os
import re
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import numpy as np

from evencover import (
    CoverageMonitor,
    compare,
    load,
    predict_to_folder,
    recommend,
    save,
)
from evencover.cli import main
from evencover.data import as_source
from evencover.output.writers import Listing, write_sets
from evencover.predictors import make_predictor, method_names
from evencover.report.content import report_content
from evencover.scores import score_names

K, N = 6, 2200
NAMES = [f"class {index}" for index in range(K)]
GROUPS = ["a", "a", "b", "b", "c", "c"]
GRID = """
datasets = ["cal.npz"]
methods = ["standard", "classwise", "clustered", "rc3p"]
scores = ["aps"]
n_avg = [10, 20]
repetitions = 2
"""
MODEL = """
import numpy as np

def lengths(texts):
    noise = [[len(text) % (7 + index) / 5 for index in range(6)] for text in texts]
    return np.array(noise) + [2 * np.eye(6)[int(text[0])] for text in texts]
"""


def simulated(seed, n_rows, easy=1):
    """Rows, labels and ids; a tenth of the rows are copies, and some probabilities are equal."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(K, n_rows, p=np.arange(1, K + 1) / 21)
    logits = rng.normal(size=(n_rows, K))
    logits[np.arange(n_rows), labels] += easy * labels * rng.exponential(size=n_rows)
    rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows[::7] = np.eye(K)[labels[::7]]
    rows[::10], labels[::10] = rows[1::10][: len(rows[::10])], labels[1::10][: len(rows[::10])]
    return rows, labels, np.array([f"row {seed} {number}" for number in range(n_rows)])


CAL, NEW = simulated(1, 500), simulated(2, N, easy=0.2)
NEW[0][:300], NEW[1][:300] = CAL[0][:300], CAL[1][:300]  # which `evaluate` notices


def digest(value):
    """Shorten arrays and files; leave what a reader would compare by eye."""
    if isinstance(value, Path):
        return digest(value.read_bytes())
    if isinstance(value, np.ndarray):
        return digest([str(value.dtype), value.shape, value.tobytes()])
    if isinstance(value, bytes):
        return hashlib.blake2b(value, digest_size=8).hexdigest()
    if isinstance(value, dict):
        return {str(name): digest(item) for name, item in value.items()}
    return [digest(item) for item in value] if isinstance(value, tuple | list) else repr(value)


def fitted_and_applied(method, score, source):
    own = {"groups": GROUPS} if method == "grouped" else {}
    own |= {"n_clusters": 2, "gamma": 0.4} if method == "clustered" else {}
    model = make_predictor(method, score=score, **own).fit(source)
    rows, labels, ids = (column[:700] for column in NEW)
    yield model.thresholds_
    yield model.predict_set(rows, ids=ids).to_mask()
    yield model.predict_set(rows[:1]).to_mask()
    with suppress(ValueError):  # not every method has p-values
        yield model.predict_p(rows[:60], ids=ids[:60])
    report = model.evaluate(rows, labels, ids=ids)
    yield report.to_dict()
    yield str(model.explain(report, 1))
    with suppress(ValueError):  # nor keeps its rows
        yield model.with_alpha(0.3).thresholds_
        yield model.partial_fit(rows[:200], labels[:200], ids=ids[:200], window=300).thresholds_


def methods():
    source = as_source(CAL[0], CAL[1], ids=CAL[2], class_names=NAMES)
    for method in method_names():
        yield method, list(fitted_and_applied(method, "softmax", source))
    for score in score_names():
        yield score, list(fitted_and_applied("pooled", score, source))


def files():
    """Write the data in every format that needs no extra, then read them."""
    rows, labels, ids = CAL
    np.savez("cal.npz", probs=rows, labels=labels, ids=ids, class_names=NAMES)
    np.savez("new.npz", probs=NEW[0], labels=NEW[1], ids=NEW[2], class_names=NAMES)
    np.savez("logits.npz", logits=np.log(rows + 1e-9), labels=labels, ids=ids)
    header = ",".join(["id", *NAMES, "label"])
    lines = [
        ",".join([name, *map(repr, row.tolist()), NAMES[label]])
        for name, row, label in zip(ids, rows, labels, strict=True)
    ]
    Path("cal.csv").write_text("\n".join([header, *lines]) + "\n")
    records = [
        {"id": name, "probs": row.tolist(), "label": int(label)}
        for name, row, label in zip(ids.tolist(), rows, labels, strict=True)
    ]
    Path("cal.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    Path("parts").mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(rows)), 3)):
        np.savez(f"parts/{number}.npz", probs=rows[part], labels=labels[part], ids=ids[part])
    paths = ["cal.npz", "cal.csv", "cal.jsonl", "parts"]
    with suppress(ImportError):
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: rows[:, index] for index, name in enumerate(NAMES)}
        table = pa.table({"id": ids, **columns, "label": [NAMES[label] for label in labels]})
        pq.write_table(table, "wide.parquet", row_group_size=90)
        pq.write_table(pa.Table.from_pylist(records), "lists.parquet", row_group_size=70)
        paths += ["wide.parquet", "lists.parquet"]
    for path in paths:
        model = make_predictor("clustered", score="aps", n_clusters=2, gamma=0.4).fit(path)
        yield path, [model.thresholds_, model.predict_set(path).to_mask()]


def functions():
    rows, labels, ids = CAL
    model = make_predictor("pooled").fit(rows, labels, ids=ids, class_names=NAMES)
    save(model, "model.safetensors")
    yield "saved", Path("model.safetensors")
    yield "loaded", load("model.safetensors").predict_set(NEW[0]).to_mask()
    for extension in (".jsonl", ".csv"):
        listing = Listing(with_probabilities=True, top=3)
        write_sets(f"sets{extension}", listing.blocks(model, NEW[0], ids=NEW[2]), NAMES, ids=NEW[2])
        yield f"sets{extension}", Path(f"sets{extension}")
    with suppress(ImportError):
        import pyarrow.parquet as pq

        predict_to_folder(model, NEW[0], "sets", ids=NEW[2], with_probabilities=True)
        yield "folder", digest(pq.read_table("sets").to_pydict())  # partitions may differ
    of_logits = make_predictor("standard", from_logits=True, score="aps")
    yield "logits", of_logits.fit(as_source("logits.npz")).thresholds_
    rows, labels, _ = (column[:700] for column in NEW)
    options = {"scores": ["softmax", "saps"], "n_splits": 2, "floor": 0.8}
    yield "compare", compare(rows, labels, methods="all", **options).to_dict()
    yield "recommend", str(recommend(rows, labels, floor=0.8))
    yield "report", json.dumps(report_content(model, *NEW[:2], ids=NEW[2]), default=repr)
    monitor = CoverageMonitor(model)
    monitor.observe(NEW[0][900:1800], ids=NEW[2][900:1800], period="2")
    monitor.label(NEW[2][900:1500], NEW[1][900:1500], period="2")
    monitor.update(NEW[0][1800:], NEW[1][1800:], ids=NEW[2][1800:], period="3")

    yield "monitor", [monitor.snapshot().summary(), monitor.periods()]


COMMANDS = {
    "calibrate": "calibrate cal.csv -o m.safetensors --score aps --alpha 0.2 --floor 0.7",
    "predict": "predict m.safetensors new.npz -o a.jsonl --with-probabilities --alpha 0.3",
    "evaluate": "evaluate m.safetensors new.npz --json --csv classes.csv",
    "report": "report m.safetensors new.npz -o page.html",
    "info": "info new.npz",
    "info of a model": "info m.safetensors --json",
    "recommend": "recommend cal.npz",
    "compare": "compare cal.npz --n-splits 2 --scores softmax,raps --csv c.csv",
    "monitor": "monitor m.safetensors new.npz --state s.db --period 1 --json",
    "update": "update m.safetensors new.npz -o u.safetensors --window 700",
    "experiment": "experiment run grid.toml -o study",
    "table": "experiment table study",
    "infer": "infer model.py:lengths texts.csv -o scores --batch-size 4 --class-names names.txt",
    "calibrate on outputs": "calibrate scores -o i.safetensors --method standard",
    "plan": "cutoffs --plan found.csv -n 20 -o plan.csv",
    "cutoffs": "cutoffs found.csv --right-key ok -o cutoffs.csv",
    "keep": "cutoffs found.csv --right-key ok --apply found.csv -o kept.csv",
}
WRITTEN = "m.safetensors a.jsonl classes.csv c.csv u.safetensors i.safetensors plan.csv kept.csv"


def commands():
    Path("grid.toml").write_text(GRID)
    Path("model.py").write_text(MODEL)
    Path("names.txt").write_text("\n".join(NAMES))
    texts = [f"{number % K}{' word' * (number % 23)},class {number % K}" for number in range(80)]
    Path("texts.csv").write_text("\n".join(["text,label", *texts]) + "\n")
    found = [f"{row},bird {row % 3},{row % 7 / 7},{int(row % 5 > 0)}" for row in range(90)]
    Path("found.csv").write_text("\n".join(["id,species,score,ok", *found]) + "\n")
    for name, line in COMMANDS.items():
        out, notes, code = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(notes):
            try:
                main(line.split())
            except SystemExit as stop:
                code = stop.code
        lines = [line for line in notes.getvalue().splitlines() if ": file " not in line]
        said = re.sub(r"in \d+ files", "in files", out.getvalue())
        yield f"{name}, printed", [code, said, lines]  # there may be more files
    study = Path("study/results.csv").read_text().splitlines()
    yield "study", sorted(study)  # whose order depends on its files
    for name in WRITTEN.split():
        yield name, Path(name) if Path(name).exists() else "NOT WRITTEN"


def results(parts):
    for part in parts:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for name, value in part():
                said = sorted({str(warning.message) for warning in caught})
                caught.clear()
                yield f"{part.__name__}: {name}", [digest(value), said]


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    json.dump(dict(results(globals()[name] for name in sys.argv[2:])), sys.stdout)
