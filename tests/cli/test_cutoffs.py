"""Cutoffs on the command line: from detections over reviews to kept detections."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import listing, refused, succeeded

from evencover import fit_cutoffs

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
BIRDS = {
    "Strix aluco": ("Tawny Owl", 2.0),
    "Turdus merula": ("Eurasian Blackbird", 4.0),
    "Corvus corax": ("Common Raven", -1.0),
}
COLUMNS = ["Start (s)", "End (s)", "Scientific name", "Common name", "Confidence", "File"]


def read(path):
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    """Write rows in the format of the extension, numbers as numbers where there are types."""
    if Path(path).suffix in (".csv", ".tsv"):
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            how = {"delimiter": "," if path.endswith("csv") else "\t"}
            writer = csv.DictWriter(file, list(rows[0]), **how)
            writer.writeheader()
            writer.writerows(rows)
        return
    rows = [row | {"Confidence": float(row["Confidence"])} for row in rows]
    if path.endswith("jsonl"):
        Path(path).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def birds(tmp_path, monkeypatch):
    """Write detections as BirdNET-Analyzer does, two in some segments, and reviews of some."""
    monkeypatch.chdir(tmp_path)
    rng, rows = np.random.default_rng(4), []
    for k in range(2000):
        name = list(BIRDS)[rng.integers(3)]
        confidence = rng.random()
        start = 3 * (k // 2 % 600)
        cells = [f"{start:.1f}", f"{start + 3:.1f}", name, BIRDS[name][0], f"{confidence:.4f}"]
        row = dict(zip(COLUMNS, [*cells, f"/rec/A{k // 1200}.wav"], strict=True))
        chance = 1 / (1 + np.exp(-BIRDS[name][1] - 5 * (confidence - 0.5)))
        rows.append(row | {"correct": "yes" if rng.random() < chance else "no"})
    write("all.csv", [{name: row[name] for name in COLUMNS} for row in rows])
    write("reviewed.csv", rows[:240])
    return rows


def fitted(rows, **how):
    values = ([row[name] for row in rows] for name in ("Scientific name", "Confidence", "correct"))
    return fit_cutoffs(*values, **how)


def test_cutoffs_are_those_of_python(birds, run):
    out = succeeded(run("cutoffs", "reviewed.csv", "--accuracy", "0.8", "-o", "cutoffs.csv")).out
    found = fitted(birds[:240], accuracy=0.8)
    rows = read("cutoffs.csv")
    assert [row["class"] for row in rows] == sorted(BIRDS)
    for row, cutoff, safe in zip(rows, found.cutoffs, found.is_guaranteed, strict=True):
        assert row["cutoff"] == ("never" if np.isinf(cutoff) else repr(float(cutoff)))
        assert row["guaranteed"] == ("0.9" if safe else "")
    assert found.is_guaranteed.any()
    assert f"{found.is_guaranteed.sum()} are guaranteed" in " ".join(out.split())


def test_json_is_for_tools(birds, run):
    bad = [row | {"correct": "no"} if row["Scientific name"][0] == "C" else row for row in birds]
    write("reviewed.csv", bad[:60])
    out = succeeded(run("cutoffs", "reviewed.csv", "-o", "cutoffs.json")).out
    cutoffs = json.loads(Path("cutoffs.json").read_text("utf-8"))
    assert cutoffs["Corvus corax"] is None
    assert cutoffs["Turdus merula"] == fitted(bad[:60]).cutoffs[2]
    assert "All cutoffs are estimates" in " ".join(out.split())


@pytest.mark.parametrize("suffix", ["tsv", "parquet", "jsonl"])
def test_every_format_gives_the_same(birds, run, suffix):
    write(f"reviewed.{suffix}", birds[:240])
    write(f"all.{suffix}", birds)
    for kind in ("csv", suffix):
        succeeded(run("cutoffs", f"reviewed.{kind}", "-o", f"{kind}-cutoffs.csv"))
        arguments = ("--apply", f"all.{kind}", "-o", f"{kind}-kept.csv")
        succeeded(run("cutoffs", f"reviewed.{kind}", *arguments))
    assert Path("csv-cutoffs.csv").read_bytes() == Path(f"{suffix}-cutoffs.csv").read_bytes()
    both = [read(f"{kind}-kept.csv") for kind in ("csv", suffix)]
    assert [row["Start (s)"] for row in both[0]] == [row["Start (s)"] for row in both[1]]
    assert len(both[0]) > 500


def test_kept_predictions_keep_their_cells_and_are_marked(birds, run):
    strange = birds[0] | {"Scientific name": "Pica pica", "Confidence": "0.9999"}
    write("all.csv", [{name: row[name] for name in COLUMNS} for row in [*birds, strange]])
    how = ("--accuracy", "0.8", "--apply", "all.csv", "-o", "kept.csv")
    out = " ".join(succeeded(run("cutoffs", "reviewed.csv", *how)).out.split())
    found, kept = fitted(birds[:240], accuracy=0.8), read("kept.csv")
    names = [row["Scientific name"] for row in birds]
    is_kept = found.is_accepted(names, [float(row["Confidence"]) for row in birds])
    assert [{name: row[name] for name in COLUMNS} for row in kept] == [
        {name: row[name] for name in COLUMNS}
        for row, keep in zip(birds, is_kept, strict=True)
        if keep
    ]
    safe = dict(zip(found.class_names, found.is_guaranteed, strict=True))
    assert [row["guaranteed"] for row in kept] == [str(safe[r["Scientific name"]]) for r in kept]
    assert f"{is_kept.sum()} of 2001 predictions are kept" in out
    assert "1 are not kept because their class has no reviews" in out
    precision = found.expected[[found.class_names.index(r["Scientific name"]) for r in kept]].mean()
    assert f"expected precision: {precision:.1%}" in out
    succeeded(run("cutoffs", "reviewed.csv", "-o", "c.csv", "--detections", "all.csv"))


def test_selection_tables_of_birdnet_are_read_like_its_csv(birds, run):
    """A file per recording, in the format of Raven; a recording without detections has a row."""
    columns = "Selection,View,Channel,Begin Time (s),End Time (s),Low Freq (Hz),High Freq (Hz)"
    columns += ",Common Name,Species Code,Confidence,Begin Path,File Offset (s)"
    tables = {"A0": [], "A1": [], "A2": ["1\tS\t1\t0\t3\t0\t15000\tnocall\tnocall\t1.0\tA2\t0"]}
    for row in birds:
        start, end, _, name, confidence, path = (row[column] for column in COLUMNS)
        lines = tables[Path(path).stem]
        code = name.replace(" ", "").lower()[:6]
        cells = [len(lines) + 1, "Spectrogram 1", 1, start, end, 0, 15000]
        lines.append("\t".join(map(str, [*cells, name, code, confidence, path, start])))
    Path("out").mkdir()
    for name, lines in tables.items():
        text = "\n".join([columns.replace(",", "\t"), *lines, ""])
        Path(f"out/{name}.BirdNET.selection.table.txt").write_text(text, encoding="utf-8")
    how = ("--accuracy", "0.8", "--class-key", "Common name")
    write("all.csv", [{name: row[name] for name in COLUMNS} for row in birds])
    succeeded(run("cutoffs", "reviewed.csv", *how, "--apply", "all.csv", "-o", "kept.csv"))
    used = ("Common name", "Confidence", "correct", "File", "Start (s)")
    write("named.csv", [{name: row[name] for name in used} for row in birds[:240]])
    for data in ("out", "out/*.txt"):
        arguments = ("--accuracy", "0.8", "--apply", data, "-o", "raven.csv", "--force")
        out = " ".join(succeeded(run("cutoffs", "named.csv", *arguments)).out.split())
        assert "of 2000 predictions are kept" in out
        assert "0 are not kept because their class has no reviews" in out
    same = [
        [(row[path], row[start], row["Confidence"]) for row in read(name)]
        for name, path, start in (
            ("raven.csv", "Begin Path", "Begin Time (s)"),
            ("kept.csv", "File", "Start (s)"),
        )
    ]
    assert sorted(same[0]) == sorted(same[1])
    out = succeeded(run("cutoffs", "--plan", "out", "-n", "30", "-o", "plan.csv")).out
    assert "30 predictions of 3 of 3 classes" in out


def test_nothing_kept_is_a_table_without_rows(birds, run):
    write("reviewed.csv", [row | {"correct": "no"} for row in birds[:60]])
    out = succeeded(run("cutoffs", "reviewed.csv", "--apply", "all.csv", "-o", "kept.csv")).out
    assert "expected precision: none" in " ".join(out.split())
    assert Path("kept.csv").read_text("utf-8") == ",".join([*COLUMNS, "guaranteed"]) + "\n"


def test_a_plan_gives_every_class_its_share_and_is_filled_in(birds, run):
    assert (
        "30 predictions of 3 of 3 classes"
        in succeeded(run("cutoffs", "--plan", "all.csv", "-n", "30", "-o", "plan.csv")).out
    )
    plan = read("plan.csv")
    counts = [sum(row["Scientific name"] == name for row in plan) for name in BIRDS]
    assert counts == [10, 10, 10]
    assert {row["correct"] for row in plan} == {""}
    assert "row 0 of 'plan.csv'" in refused(run("cutoffs", "plan.csv", "-o", "cutoffs.csv"))
    succeeded(run("cutoffs", "--plan", "all.csv", "-n", "60", "-o", "more.csv"))
    assert read("more.csv")[:30] == plan  # a larger plan continues a smaller one
    write("plan.csv", [row | {"correct": "1"} for row in plan])
    succeeded(run("cutoffs", "plan.csv", "-o", "cutoffs.csv"))


def test_a_folder_with_a_file_per_recording_is_one_table(birds, run):
    Path("out").mkdir()
    for part in range(3):
        rows = birds[part::3] if part < 2 else birds[2::3]
        write(f"out/{part}.csv", [{name: row[name] for name in COLUMNS} for row in rows])
    Path("out/3.csv").write_text(",".join(COLUMNS) + "\n")  # nothing was detected
    for data in ("all.csv", "out", "out/*.csv"):
        out = succeeded(
            run("cutoffs", "reviewed.csv", "-o", "c.csv", "--detections", data, "--force")
        )
        assert "of 2000 predictions are kept" in " ".join(out.out.split())


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (("label", "score", "right"), ()),
        (("scientific_name", "PROBABILITY", "Reviewed"), ()),
        (("Taxon", "Confidence", "valid"), ()),
        (
            ("who", "logit", "ok"),
            ("--class-key", "who", "--score-key", "logit", "--right-key", "ok"),
        ),
    ],
)
def test_columns_have_usual_names_or_are_named(birds, run, names, options):
    used = ("Scientific name", "Confidence", "correct")
    write("r.csv", [dict(zip(names, map(row.get, used), strict=True)) for row in birds[:240]])
    succeeded(run("cutoffs", "r.csv", "-o", "c.csv", *options))
    succeeded(run("cutoffs", "reviewed.csv", "-o", "same.csv"))
    assert Path("c.csv").read_bytes() == Path("same.csv").read_bytes()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_may_list_several_predictions(birds, run, suffix):
    """One row per segment, with lists of classes, scores and, once reviewed, answers."""
    used, rows = ("Scientific name", "Confidence", "correct"), []
    for first in range(0, 240, 2):
        pair = [row | {"Confidence": float(row["Confidence"])} for row in birds[first : first + 2]]
        rows.append({"Start": 3 * first, **{name: [row[name] for row in pair] for name in used}})
    if suffix == "jsonl":
        Path("lists.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), "lists.parquet")
    succeeded(run("cutoffs", f"lists.{suffix}", "-o", "lists.csv"))
    succeeded(run("cutoffs", "reviewed.csv", "-o", "same.csv"))
    assert Path("lists.csv").read_bytes() == Path("same.csv").read_bytes()
    rows = [{name: row[name] for name in ("Start", *used[:2])} for row in rows]
    rows += [{"Start": 999, used[0]: [], used[1]: []}, {"Start": 999, used[0]: None, used[1]: None}]
    Path("all.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    succeeded(run("cutoffs", "--plan", "all.jsonl", "-n", "240", "-o", "plan.csv"))
    names = used[:2]
    planned = [(row["Start"], *map(row.get, names)) for row in read("plan.csv")]
    made = [(3 * k, row[names[0]], float(row[names[1]])) for k, row in enumerate(birds[:240])]
    made = [(str(start // 6 * 6), name, str(score)) for start, name, score in made]
    assert sorted(planned) == sorted(made)
    rows[3][used[0]] = rows[3][used[0]][:1]
    Path("all.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert "Got 1, 2 in row 3" in refused(run("cutoffs", "--plan", "all.jsonl", "-o", "new.csv"))


def test_repeated_reviews_count_once(birds, run):
    write("reviewed.csv", [*birds[:60], *birds[:9]])
    assert "60 reviews" in " ".join(
        succeeded(run("cutoffs", "reviewed.csv", "-o", "c.csv")).out.split()
    )
    same = [{"species": "a", "score": "0.5", "right": answer} for answer in ("1", "0", "1")]
    write("few.csv", same)  # no column tells these apart, so they are three
    assert "3 reviews" in succeeded(run("cutoffs", "few.csv", "-o", "few-c.csv")).out


def other(row, **cells):
    return row | {COLUMNS[2]: "Strix aluco"} | {k.replace("_", " "): v for k, v in cells.items()}


BAD = {
    "answer": (lambda rows: [*rows[:9], other(rows[9], correct="perhaps")], "'perhaps' in row 9"),
    "no answer": (lambda rows: [*rows[:9], other(rows[9], correct="")], "'' in row 9"),
    "no class": (lambda rows: [rows[0] | {COLUMNS[2]: ""}], "class. Got none in row 0"),
    "NaN": (lambda rows: [*rows[:5], rows[5] | {"Confidence": "nan"}], "'nan' in row 5"),
    "text": (lambda rows: [*rows[:5], rows[5] | {"Confidence": "high"}], "'high' in row 5"),
    "two answers": (
        lambda rows: [*rows[:20], rows[3] | {"correct": "no"}, rows[3] | {"correct": "yes"}],
        "row 3 of 'bad.csv' and row 2",
    ),
    "two by id": (
        lambda rows: [
            row | {"id": str(k % 3), "by": str(k), "correct": "yes" if k < 3 else "no"}
            for k, row in enumerate([rows[0]] * 4)
        ],
        "row 0 of 'bad.csv' and row 3 of 'bad.csv'",
    ),
    "no rows": (lambda rows: [], "one at least"),
    "two classes": (lambda rows: [row | {"label": "x"} for row in rows], "--class-key"),
    "two spellings": (lambda rows: [row | {"confidence": "1"} for row in rows], "--score-key"),
    "no scores": (
        lambda rows: [{k: v for k, v in row.items() if k != "Confidence"} for row in rows],
        "--score-key",
    ),
    "no reviews": (
        lambda rows: [{k: v for k, v in row.items() if k != "correct"} for row in rows],
        "--right-key",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_reviews_are_one_sentence_with_the_row(birds, run, what):
    spoil, words = BAD[what]
    rows = spoil(birds[:30])
    if rows:
        write("bad.csv", rows)
    else:
        Path("bad.csv").write_text(",".join([*COLUMNS, "correct"]) + "\n")
    before = listing(Path())
    assert words in refused(run("cutoffs", "bad.csv", "-o", "new.csv"))
    assert listing(Path()) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "c.csv"), "--plan"),
        (("reviewed.csv", "--plan", "all.csv", "-o", "c.csv"), "--plan"),
        (("reviewed.csv", "--detections", "all.csv", "--apply", "all.csv", "-o", "c.csv"), "or"),
        (("--plan", "all.csv", "--apply", "all.csv", "-o", "c.csv"), "alone"),
        (("--plan", "all.csv", "-n", "0", "-o", "c.csv"), "'number'"),
        (("--plan", "reviewed.csv", "-o", "c.csv"), "'correct'"),
        (("reviewed.csv", "-o", "c.xlsx"), ".json"),
        (("reviewed.csv", "--apply", "all.csv", "-o", "c.json"), ".csv"),
        (("reviewed.csv", "--apply", "none.csv", "-o", "c.csv"), "no such file"),
        (("reviewed.csv", "--apply", "marked.csv", "-o", "c.csv"), "'guaranteed'"),
        (("reviewed.csv", "--detections", "mixed", "-o", "c.csv"), "same columns"),
        (("reviewed.csv", "--accuracy", "1", "-o", "c.csv"), "'accuracy'"),
        (("reviewed.csv", "--class-key", "Species", "-o", "c.csv"), "--class-key"),
        (("twice.csv", "-o", "c.csv"), "unique"),
        (("notes.txt", "-o", "c.csv"), "--class-key"),
        (("notes.pdf", "-o", "c.csv"), "extension"),
    ],
)
def test_bad_commands(birds, run, arguments, words):
    write("marked.csv", [row | {"guaranteed": "x"} for row in birds[:5]])
    Path("twice.csv").write_text("species,score,score\na,1,2\n")
    Path("notes.txt").write_text("hello")
    Path("notes.pdf").write_text("hello")
    Path("mixed").mkdir()
    write("mixed/a.csv", birds[:5])
    write("mixed/b.csv", [{name: row[name] for name in COLUMNS} for row in birds[:5]])
    before = listing(Path())
    assert words in refused(run("cutoffs", *arguments))
    assert listing(Path()) == before
