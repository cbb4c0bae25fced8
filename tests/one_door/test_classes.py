"""A name is a class only if the model has it; a plain integer is an index only without names."""

import json

import numpy as np
import pandas as pd
import pytest
from cli.running import refused, sets_in, succeeded
from one_door.material import (
    best,
    calibrated,
    entries_of,
    fitted,
    simulated,
    state_of,
    top_of,
    with_header,
    write_cells,
    write_lines,
)
from scipy.sparse import csr_array, save_npz

from evencover import InputError, TopK, load, save
from evencover.data import as_source

K = 12
NAMES = [f"LABEL_{y}" for y in range(K)]  # LABEL_10 sorts before LABEL_2
ROWS, LABELS = simulated(80, K)
TEXTS = [NAMES[y] for y in LABELS]
IDS = [f"row {n}" for n in range(len(ROWS))]


def write_entries(path, names, k=10):
    """Ids and the best k classes of each row."""
    records = zip(IDS, entries_of(ROWS, k, names), strict=True)
    return write_lines(path, ({"id": i, "output": output} for i, output in records))


def sets_of(model, rows, **how):
    return model.predict_set(rows, **how).to_lists()


# ---- a model without names ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def nameless():
    return calibrated(K)


def named_inputs(folder):
    """Rows whose classes have names, in several forms."""
    frame = pd.DataFrame(ROWS, columns=NAMES)
    np.savez(folder / "p.npz", probs=ROWS, class_names=NAMES)
    lists = [{"classes": [e["label"] for e in row], "scores": [e["score"] for e in row]}
             for row in entries_of(ROWS, 10, NAMES)]  # fmt: skip
    return {
        "entries": write_entries(folder / "top10.jsonl", NAMES),
        "entries of all classes": write_entries(folder / "all.jsonl", NAMES, K),
        "entries in memory": entries_of(ROWS, 10, NAMES),
        "lists": write_lines(folder / "lists.jsonl", lists),
        "TopK": top_of(ROWS, 10, NAMES),
        "frame": frame,
        "frame in another order": frame[NAMES[::-1]],
        "csv": write_cells(folder / "p.csv", with_header(NAMES, ROWS)),
        "npz": folder / "p.npz",
    }


INPUTS = [
    *("entries", "entries of all classes", "entries in memory", "lists", "TopK"),
    *("frame", "frame in another order", "csv", "npz"),
]


@pytest.mark.parametrize("kind", INPUTS)
def test_names_are_no_indices_of_a_model_without_names(tmp_path, kind):
    rows, model = named_inputs(tmp_path)[kind], calibrated(K, keep_top=True)
    before = state_of(model)
    for use in (model.predict_set, model.predict_p):
        with pytest.raises(InputError, match="class_names"):
            use(rows)
    for use in (model.evaluate, model.partial_fit, model.fit_acceptance):
        for labels in (LABELS, TEXTS):
            with pytest.raises(InputError, match="class_names"):
                use(rows, labels)
    assert state_of(model) == before


@pytest.mark.parametrize("kind", INPUTS)
def test_class_names_map_them(nameless, tmp_path, kind):
    rows, is_listed = named_inputs(tmp_path)[kind], kind not in INPUTS[5:]
    k = 10 if is_listed and "all" not in kind else K
    known = top_of(ROWS, k) if is_listed else ROWS
    how = {"ids": IDS, "class_names": NAMES}
    assert sets_of(nameless, rows, **how) == sets_of(nameless, known, ids=IDS)
    report = nameless.evaluate(rows, TEXTS, **how)
    expected = nameless.evaluate(known, LABELS, ids=IDS)
    np.testing.assert_array_equal(report.class_coverage, expected.class_coverage)
    updated = calibrated(K).partial_fit(rows, TEXTS, **how)
    expected = calibrated(K).partial_fit(known, LABELS, ids=IDS)
    assert state_of(updated)[1:] == state_of(expected)[1:]


def stored_names(folder):
    """Class names as people keep them."""
    (folder / "names.txt").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    write_cells(folder / "names.csv", [["class"], *([name] for name in NAMES)])
    (folder / "names.json").write_text(json.dumps(NAMES), encoding="utf-8")
    save(calibrated(K, NAMES), folder / "other.safetensors")
    return ["names.txt", "names.csv", "names.json", "other.safetensors"]


def test_class_names_are_a_list_a_mapping_or_a_file(nameless, folder):
    rows, expected = (
        write_entries(folder / "top10.jsonl", NAMES),
        sets_of(nameless, top_of(ROWS, 10), ids=IDS),
    )
    files = stored_names(folder)
    for names in (NAMES, tuple(NAMES), dict(enumerate(NAMES)), *files, folder / files[0]):
        assert sets_of(nameless, rows, class_names=names) == expected, names
    for names in (NAMES[:-1], [*NAMES, "more"], [*NAMES[:-1], "LABEL_0"]):
        with pytest.raises(InputError, match="name"):
            nameless.predict_set(rows, class_names=names)


@pytest.mark.parametrize("index", range(4))
def test_class_names_on_the_command_line(nameless, folder, run, index):
    names, rows = stored_names(folder)[index], write_entries(folder / "top10.jsonl", NAMES).name
    save(nameless, "m.safetensors")
    line = refused(run("predict", "m.safetensors", rows, "-o", "s.jsonl"))
    assert "--class-names" in line
    assert not (folder / "s.jsonl").exists()
    succeeded(run("predict", "m.safetensors", rows, "-o", "s.jsonl", "--class-names", names))
    found = [json.loads(line)["set"] for line in (folder / "s.jsonl").read_text().splitlines()]
    assert found == sets_of(nameless, top_of(ROWS, 10), ids=IDS)


ORDER = np.random.default_rng(2).permutation(K)


def numbered_inputs(folder):
    """Rows whose classes are plain integers, in another order than that of the model."""
    texts = [str(y) for y in range(K)]
    reversed_entries = [row[::-1] for row in entries_of(ROWS, 10, texts)]
    timm = [
        [*row, *scores]
        for row, scores in zip(*(part.tolist() for part in best(ROWS, 10)), strict=True)
    ]
    heading = [f"{kind}_{rank}" for kind in ("index", "prob") for rank in range(10)]
    return {
        "integers": pd.DataFrame(ROWS[:, ORDER], columns=ORDER),
        "texts": pd.DataFrame(ROWS[:, ORDER], columns=list(map(str, ORDER))),
        "csv": write_cells(folder / "p.csv", with_header(ORDER.tolist(), ROWS[:, ORDER])),
        "entries": write_entries(folder / "top10.jsonl", None),
        "entries with texts": write_entries(folder / "texts.jsonl", texts),
        "entries in memory": reversed_entries,
        "timm": write_cells(folder / "timm.csv", [heading, *timm]),
    }


@pytest.mark.parametrize(
    "kind",
    ["integers", "texts", "csv", "entries", "entries with texts", "entries in memory", "timm"],
)
def test_plain_integers_are_indices_of_a_model_without_names(nameless, tmp_path, kind):
    rows = numbered_inputs(tmp_path)[kind]
    known = ROWS if kind in ("integers", "texts", "csv") else top_of(ROWS, 10)
    assert sets_of(nameless, rows, ids=IDS) == sets_of(nameless, known, ids=IDS)


@pytest.mark.parametrize("bad", ["03", "3.0", "+3", "³", "-1", str(K), "10000000000", " 3"])
def test_other_spellings_of_integers_are_names(nameless, bad):
    names = [bad if y == 3 else str(y) for y in range(K)]
    for rows in (entries_of(ROWS, K, names), pd.DataFrame(ROWS, columns=names)):
        with pytest.raises(InputError, match="class"):
            nameless.predict_set(rows)


# ---- classes that calibration never saw --------------------------------------------------------


def test_a_name_that_calibration_never_saw_is_an_error_with_a_remedy(tmp_path):
    model = fitted(entries_of(ROWS, 10, NAMES), TEXTS)
    more = entries_of(ROWS[:3], 10, NAMES)
    more[1][0]["label"] = "LABEL_99"
    with pytest.raises(InputError, match=r"(?=.*LABEL_99)(?=.*class.names)"):
        model.predict_set(more)


def test_declared_classes_need_no_row(folder, run):
    declared = [*NAMES, "LABEL_99"]
    (folder / "names.txt").write_text("\n".join(declared), encoding="utf-8")
    records = zip(entries_of(ROWS, 10, NAMES), TEXTS, strict=True)
    write_lines(folder / "cal.jsonl", ({"output": o, "label": y} for o, y in records))
    more = entries_of(ROWS[:3], 10, NAMES)
    more[1][0]["label"] = "LABEL_99"
    write_lines(folder / "new.jsonl", more)
    how = ("-o", "m.safetensors", "--score", "aps", "--force")
    succeeded(run("calibrate", "cal.jsonl", *how))
    assert "--class-names" in refused(run("predict", "m.safetensors", "new.jsonl", "-o", "s.jsonl"))
    succeeded(run("calibrate", "cal.jsonl", "--class-names", "names.txt", *how))
    succeeded(run("predict", "m.safetensors", "new.jsonl", "-o", "s.jsonl"))
    model = load("m.safetensors")
    assert list(model.class_names_) == declared
    assert model.class_counts_.tolist() == [*np.bincount(LABELS, minlength=K), 0]
    known = TopK([[declared.index(e["label"]) for e in row] for row in more],
                 [[e["score"] for e in row] for row in more], n_classes=K + 1)  # fmt: skip
    found = [json.loads(line)["set"] for line in (folder / "s.jsonl").read_text().splitlines()]
    assert found == model.predict_set(known).to_lists()


# ---- another number of classes -----------------------------------------------------------------


def sparse_file(folder, rows):
    save_npz(folder / "rows.npz", rows)
    return folder / "rows.npz"


@pytest.mark.parametrize("kind", ["TopK", "sparse", "npz"])
@pytest.mark.parametrize("has_names", [False, True])
@pytest.mark.parametrize("n_classes", [5, 9])
def test_rows_of_another_number_of_classes_are_an_error(tmp_path, kind, has_names, n_classes):
    model = calibrated(7, NAMES[:7] if has_names else None, keep_top=True)
    few, labels = simulated(80, 5)
    rows = csr_array(np.pad(few, ((0, 0), (0, n_classes - 5))))
    given = {"TopK": TopK.from_sparse(rows), "sparse": rows, "npz": sparse_file(tmp_path, rows)}[
        kind
    ]
    with pytest.raises(InputError, match=rf"\b{n_classes}\b"):
        model.predict_set(given)
    for use in (model.evaluate, model.partial_fit, model.fit_acceptance):
        with pytest.raises(InputError, match=rf"\b{n_classes}\b"):
            use(given, labels)


def test_top_k_rows_may_name_some_of_the_classes():
    model, some = calibrated(7, NAMES[:7]), [NAMES[y] for y in (5, 0, 3)]
    rows = TopK([[0, 1], [2, 1]], [[0.5, 0.3], [0.6, 0.2]], class_names=some)
    known = TopK([[5, 0], [3, 0]], [[0.5, 0.3], [0.6, 0.2]], n_classes=7)
    assert sets_of(model, rows, ids=[1, 2]) == sets_of(model, known, ids=[1, 2])


# ---- names that are hard to see ----------------------------------------------------------------

LIKE = ["café", "bee", "cat", "dog", "eel"]
OTHERS = {
    "cafe\u0301": "Unicode",
    " café": "space",
    "café ": "space",
    "café\u00a0": "space",
    "\tcafé": "space",
}


@pytest.mark.parametrize("other", OTHERS, ids=ascii)
def test_names_that_only_look_alike_never_match_and_the_error_says_so(tmp_path, other):
    model, names = calibrated(5, LIKE), [other, *LIKE[1:]]
    rows, labels = simulated(80, 5)
    frame, word = pd.DataFrame(rows, columns=names), rf"(?i){OTHERS[other]}"
    np.savez(tmp_path / "p.npz", probs=rows, class_names=names)
    for given in (frame, entries_of(rows, 3, names), tmp_path / "p.npz"):
        with pytest.raises(InputError, match=word):
            model.predict_set(given)
    with pytest.raises(InputError, match=word):
        model.partial_fit(rows, [names[y] for y in labels], ids=range(10_000, 10_080))


def test_names_that_only_look_alike_are_different_classes():
    names = ["café", "cafe\u0301", "café ", " café", "bee"]
    rows, labels = simulated(80, 5)
    model = fitted(pd.DataFrame(rows, columns=names), [names[y] for y in labels], ids=range(80))
    assert state_of(model)[1:] == state_of(fitted(rows, labels, ids=range(80)))[1:]
    assert list(model.class_names_) == names


SPACES = [" ", "\u3000", "bee", "  ", "eel"]


def write_spaces(folder, kind, rows):
    if kind == "npz":
        np.savez(folder / "p.npz", probs=rows, class_names=np.array(SPACES))
    elif kind == "csv":
        write_cells(folder / "p.csv", with_header(SPACES, rows))
    elif kind == "parquet":
        pd.DataFrame(rows, columns=SPACES).to_parquet(folder / "p.parquet", index=False)
    else:
        write_lines(
            folder / "p.jsonl", (dict(zip(SPACES, row, strict=True)) for row in rows.tolist())
        )
    return f"p.{kind}"


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet", "jsonl"])
def test_white_space_is_a_name(folder, run, kind):
    rows, labels = simulated(80, 5)
    path = write_spaces(folder, kind, rows)
    np.save("labels.npy", labels)
    found = json.loads(succeeded(run("info", path, "--json")).out)
    assert (found["n_classes"], found["has_class_names"]) == (5, True)
    options = ("--labels", "labels.npy", "--score", "aps", "-o", "m.safetensors")
    succeeded(run("calibrate", path, *options))
    assert list(load("m.safetensors").class_names_) == SPACES
    assert list(as_source(folder / path).class_names) == SPACES


MISSING = ["NA", "nan", "None", "null", "N/A", "ant", "bee"]


@pytest.mark.parametrize(
    "kind", ["csv", "timm.csv", "jsonl", "entries.jsonl", "parquet", "npz", "frame"]
)
def test_a_class_may_be_called_na(tmp_path, kind):
    rows, labels = simulated(120, 7)
    texts, path = [MISSING[y] for y in labels], tmp_path / f"p.{kind}"
    ids = np.arange(len(rows))
    if kind == "csv":
        write_cells(path, with_header(MISSING, rows, label=texts, id=ids.tolist()))
    elif kind == "timm.csv":
        heading = [
            *(f"label_{r}" for r in range(7)),
            *(f"prob_{r}" for r in range(7)),
            "target",
            "id",
        ]
        entries = zip(entries_of(rows, 7, MISSING), texts, ids.tolist(), strict=True)
        lines = [
            [*(e[key] for key in ("label", "score") for e in row), *more] for row, *more in entries
        ]
        write_cells(path, [heading, *lines])
    elif kind == "npz":
        np.savez(path, probs=rows, labels=texts, class_names=MISSING, ids=ids)
    elif kind.endswith("jsonl"):
        records = entries_of(rows, 7, MISSING) if "entries" in kind else rows.tolist()
        write_lines(
            path,
            (
                ({"output": row} if "entries" in kind else dict(zip(MISSING, row, strict=True)))
                | {"label": text, "id": n}
                for n, (row, text) in enumerate(zip(records, texts, strict=True))
            ),
        )
    frame = pd.DataFrame(rows, columns=MISSING).assign(label=texts, id=ids)
    if kind == "parquet":
        frame.to_parquet(path, index=False)
    model = fitted(frame if kind == "frame" else path)
    known = fitted(rows, labels, ids=ids, class_names=MISSING)
    assert sorted(zip(model.class_names_, model.class_counts_, strict=True)) == sorted(
        zip(known.class_names_, known.class_counts_, strict=True)
    )
    assert model.thresholds_[0] == known.thresholds_[0]
    found = model.predict_set(frame if kind == "frame" else path).to_lists(names=True)
    assert found == known.predict_set(rows, ids=ids).to_lists(names=True)


# ---- what the door keeps ------------------------------------------------------------------------


def test_columns_without_names_are_in_the_order_of_the_model():
    model = calibrated(K, NAMES)
    expected = sets_of(model, ROWS, ids=IDS)
    for rows in (pd.DataFrame(ROWS), {"probs": ROWS}, [ROWS[:30], ROWS[30:]]):
        assert sets_of(model, rows, ids=IDS) == expected
    assert (
        sets_of(model, ROWS[:, ORDER], ids=IDS, class_names=[NAMES[y] for y in ORDER]) == expected
    )


PERMUTED = [str(y) for y in ORDER]
NUMBERED = [PERMUTED[y] for y in LABELS]


@pytest.mark.parametrize("kind", ["frame", "batches", "csv", "parquet", "jsonl", "parts"])
def test_columns_0_1_2_are_asked_if_classes_have_these_names_in_another_order(tmp_path, kind):
    model = calibrated(K, PERMUTED)
    path = tmp_path / f"p.{kind}"
    frame = pd.DataFrame(ROWS, columns=list(map(str, range(K))))
    if kind == "csv":
        write_cells(path, with_header(list(frame), ROWS))
    elif kind == "parquet":
        frame.to_parquet(path, index=False)
    elif kind == "jsonl":
        write_lines(path, frame.to_dict("records"))
    elif kind == "parts":
        path.mkdir()
        for part, rows in enumerate(np.split(ROWS, [30])):
            write_cells(path / f"{part}.csv", with_header(list(frame), rows))
    rows = {"frame": frame, "batches": [frame[:30], frame[30:]]}.get(kind, path)
    for use in (model.predict_set, model.predict_p, lambda x: model.evaluate(x, NUMBERED)):
        with pytest.raises(InputError, match=r"(?=.*labels_are)(?=.*--labels-are)"):
            use(rows)
    how = {"ids": IDS, "labels_are": "names"}
    by_name = sets_of(model, ROWS[:, ORDER], ids=IDS)
    assert sets_of(model, rows, **how) == by_name
    assert [s for block in model.predict_set_blocks(rows, **how) for s in block.to_lists()] == (
        by_name
    )
    np.testing.assert_array_equal(
        model.predict_p(rows, **how), model.predict_p(ROWS[:, ORDER], ids=IDS)
    )
    by_index = sets_of(model, ROWS, ids=IDS)
    assert by_index != by_name
    assert sets_of(model, rows, ids=IDS, labels_are="indices") == by_index
    assert sets_of(model, rows, ids=IDS, class_names=PERMUTED) == by_index


def test_other_columns_0_1_2_are_in_the_order_of_the_model():
    for names in (NAMES, [f"{y}0" for y in range(K)], list(map(str, range(K)))):
        model, frame = calibrated(K, names), pd.DataFrame(ROWS)
        for how in ({}, {"labels_are": "names"}, {"labels_are": "indices"}):
            assert sets_of(model, frame, ids=IDS, **how) == sets_of(model, ROWS, ids=IDS)


@pytest.mark.parametrize("kind", ["columns", "lists"])
def test_predict_takes_the_remedy_that_it_names(folder, run, kind):
    model = calibrated(K, PERMUTED)
    save(model, "m.safetensors")
    if kind == "columns":
        known = ROWS
        write_cells(folder / "p.csv", with_header(range(K), ROWS, id=IDS))
    else:
        known, path = top_of(ROWS, 3), folder / "p.jsonl"
        lists = zip(IDS, *(part.tolist() for part in best(ROWS, 3)), strict=True)
        write_lines(path, ({"id": i, "labels": c, "scores": p} for i, c, p in lists))
    rows = "p.csv" if kind == "columns" else "p.jsonl"
    assert "--labels-are" in refused(run("predict", "m.safetensors", rows, "-o", "s.jsonl"))
    succeeded(run("predict", "m.safetensors", rows, "-o", "s.jsonl", "--labels-are", "indices"))
    assert sets_in("s.jsonl") == sets_of(model, known, ids=IDS)


def test_lists_of_a_later_file_are_asked_too(tmp_path):
    """The first file states that its integers are indices."""
    lists = [part.tolist() for part in best(ROWS, 3)]
    for part, key in enumerate(["indices", "labels"]):
        records = ({key: c, "scores": p} for c, p in zip(*lists, strict=True))
        write_lines(tmp_path / f"{part}.jsonl", records)
    with pytest.raises(InputError, match="labels_are"):
        calibrated(K, PERMUTED).predict_set(tmp_path)


def test_a_model_with_names_takes_no_other_class_names():
    model = calibrated(K, NAMES)
    with pytest.raises(InputError, match="ant"):
        model.predict_set(ROWS, class_names=["ant", *NAMES[1:]])
