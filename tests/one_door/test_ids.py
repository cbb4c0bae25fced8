"""Ids are all or nothing: a column of ids is used, or is an error that names the row."""

import datetime
import decimal
import hashlib
import json
import uuid
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import zarr
from cli.running import refused, sets_in, succeeded
from one_door.material import (
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
from safetensors.numpy import save_file

from evencover import InputError, save

N, K = 40, 5
NAMES = ["ant", "bee", "cat", "dog", "eel"]
ROWS, LABELS = simulated(N, K)
TEXTS = [NAMES[y] for y in LABELS]
NUMBERS = np.random.default_rng(4).permutation(1000)[:N]
MODEL = calibrated(K, NAMES)
ORDER = np.random.default_rng(5).permutation(N)


def sets_of(rows, **how):
    return MODEL.predict_set(rows, **how).to_lists()


BY_ID = sets_of(ROWS, ids=NUMBERS)


def test_these_sets_depend_on_ids():
    assert sets_of(ROWS) != BY_ID
    assert sets_of(ROWS, ids=NUMBERS + 1) != BY_ID
    assert state_of(fitted(ROWS, LABELS, ids=NUMBERS)) != state_of(fitted(ROWS, LABELS))


# ---- what is no id -----------------------------------------------------------------------------

BAD = {
    "null": None,
    "NaN": np.nan,
    "blank": "",
    "spaces": "  ",
    "fraction": 1.5,
    "bool": True,
    "list": [1],
    "far": 2.0**60,
}


def column_with(bad):
    """Ids of which that of row 3 is none; the others have the type that makes it likely."""
    is_text = isinstance(BAD[bad], str)
    is_float = isinstance(BAD[bad], float) and bad != "NaN"
    column = [str(n) if is_text else float(n) if is_float else int(n) for n in NUMBERS]
    return [*column[:3], BAD[bad], *column[4:]]


def write(folder, kind, ids, name="id"):
    """Rows and ids in a file of this kind, or in memory."""
    path = folder / f"p.{kind.split()[-1]}"
    frame = pd.DataFrame(ROWS, columns=NAMES)
    if kind == "frame":
        return frame.assign(**{name: pd.Series(ids, dtype=object if None in ids else None)})
    if kind == "polars":
        return pl.DataFrame(frame).with_columns(pl.Series(name, ids, strict=True))
    if kind in ("csv", "tsv"):
        cells = ["" if value is None else value for value in ids]
        return write_cells(path, with_header(NAMES, ROWS, **{name: cells}))
    if kind == "timm csv":
        lists = [[value for pair in zip(*(e.values() for e in row), strict=True) for value in pair]
                 for row in entries_of(ROWS, 2, NAMES)]  # fmt: skip
        cells = ["" if value is None else value for value in ids]
        heading = [f"{kind}_{rank}" for kind in ("label", "prob") for rank in range(2)]
        rows = [[*row, cell] for row, cell in zip(lists, cells, strict=True)]
        return write_cells(path, [[*heading, name], *rows])
    if kind == "dense jsonl":
        dense = (dict(zip(NAMES, row, strict=True)) for row in ROWS.tolist())
        return write_lines(path, (r | {name: i} for r, i in zip(dense, ids, strict=True)))
    if kind == "entries jsonl":
        listed = zip(entries_of(ROWS, 2, NAMES), ids, strict=True)
        return write_lines(path, ({"output": row, name: i} for row, i in listed))
    if kind == "lists parquet":
        lists = entries_of(ROWS, 2, NAMES)
        columns = {f"{key}s": [[e[key] for e in row] for row in lists] for key in lists[0][0]}
        table = pa.table(columns | {name: pa.array(ids)})
    else:
        table = pa.table({n: ROWS[:, y] for y, n in enumerate(NAMES)} | {name: pa.array(ids)})
    if kind == "arrow":
        return table
    if kind == "feather":
        feather.write_feather(table, path)
    else:
        pq.write_table(table, path)
    return path


TABLES = [
    *("frame", "polars", "arrow", "csv", "tsv", "timm csv", "dense jsonl", "entries jsonl"),
    *("lists parquet", "parquet", "feather"),
]
LISTED = ("timm csv", "entries jsonl", "lists parquet")


TEXT_FILES = ("csv", "tsv", "timm csv")  # where everything but a blank cell is text
UNWRITABLE = {("polars", "bool"), ("dense jsonl", "NaN"), ("entries jsonl", "NaN")}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("bad", BAD)
def test_one_bad_id_is_an_error_that_names_its_row(tmp_path, kind, bad):
    if (kind, bad) in UNWRITABLE or (kind in TEXT_FILES and bad not in ("null", "blank", "spaces")):
        pytest.skip("cannot be stored")
    try:
        rows = write(tmp_path, kind, column_with(bad))
    except (pa.ArrowException, TypeError, ValueError):
        pytest.skip("cannot be stored")
    for use in (MODEL.predict_set, MODEL.predict_p, lambda rows: fitted(rows, TEXTS)):
        with pytest.raises(InputError, match=r"(?s)(?=.*\brow 3\b)(?=.*\bid)"):
            use(rows)


@pytest.mark.parametrize("kind", ["dense jsonl", "entries jsonl"])
def test_a_record_without_its_id_is_an_error(tmp_path, kind):
    rows = write(tmp_path, kind, NUMBERS.tolist())
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    del lines[3]["id"]
    write_lines(rows, lines)
    with pytest.raises(InputError, match=r"\brow 3\b"):
        sets_of(rows)
    with pytest.raises(InputError, match=r"\brow 3\b"):
        fitted(rows, TEXTS)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", ["id", "ids"])
def test_a_column_of_another_type_is_an_error(tmp_path, kind, name):
    """None of these was an error: ids were left out, and rows paired by position."""
    columns = {
        "bytes": [b"a%d" % n for n in NUMBERS],
        "bools": [n % 2 == 0 for n in NUMBERS],
        "fractions": [n + 0.25 for n in NUMBERS.tolist()],
        "lists": [[int(n)] for n in NUMBERS],
        "mixed": ["a", *NUMBERS[1:].tolist()],
        "nulls": [None] * N,
    }
    for what, ids in columns.items():
        try:
            rows = write(tmp_path, kind, ids, name)
        except (pa.ArrowException, TypeError, ValueError):
            continue  # cannot be stored
        if kind in TEXT_FILES and what != "nulls":
            continue
        with pytest.raises(InputError, match=r"\bid"):
            sets_of(rows)


@pytest.mark.parametrize("kind", ["npz", "safetensors", "hdf5", "zarr", "dictionary"])
def test_arrays_of_ids_follow_the_same_rules(tmp_path, kind):
    def rows_with(ids):
        path = tmp_path / f"p.{kind}"
        if kind == "dictionary":
            return {"probs": ROWS, "ids": ids}
        if kind == "npz":
            np.savez(path, probs=ROWS, ids=ids)
        elif kind == "safetensors":
            save_file({"probs": ROWS, "ids": ids}, path)
        elif kind == "hdf5":
            with h5py.File(path, "w") as file:
                file["probs"], file["ids"] = ROWS, ids
        else:
            group = zarr.open_group(path, mode="w")
            for key, values in {"probs": ROWS, "ids": ids}.items():
                group.create_array(key, data=values)
        return path

    assert sets_of(rows_with(NUMBERS)) == BY_ID
    assert sets_of(rows_with(NUMBERS * 1.0)) == BY_ID
    assert sets_of(rows_with(NUMBERS.astype(np.float32))) == BY_ID
    with_fraction, with_nan = NUMBERS * 1.0, NUMBERS * 1.0
    with_fraction[3], with_nan[3] = 2.5, np.nan
    for ids in (with_fraction, with_nan):
        with pytest.raises(InputError, match=r"(?=.*\brow 3\b)(?=.*id)"):
            sets_of(rows_with(ids))
    is_even = NUMBERS % 2 == 0
    for ids in (is_even, NUMBERS[:, None] + [0, 1], NUMBERS[:-1], NUMBERS + 2.0**53):
        with pytest.raises(InputError, match="id"):
            sets_of(rows_with(ids))


PASSED = {
    "null": [*NUMBERS[:-1].tolist(), None],
    "text after integers": [*NUMBERS[:-1].tolist(), "a"],
    "fraction": [*NUMBERS[:-1].tolist(), 0.5],
    "blank": [*map(str, NUMBERS[:-1]), ""],
    "space": [*map(str, NUMBERS[:-1]), " "],
    "bools": [True] * N,
    "bytes": [b"a"] * N,
    "array of bools": NUMBERS % 2 == 0,
    "array of fractions": NUMBERS + 0.5,
    "array of long floats": NUMBERS.astype(np.float32) + 2.0**24,
    "nullable integers": pd.Series([*NUMBERS[:-1].tolist(), None], dtype="Int64"),
    "Arrow integers": pa.array([*NUMBERS[:-1].tolist(), None]),
    "too few": NUMBERS[:-1],
    "two columns": NUMBERS.reshape(-1, 2),
    "one": 7,
    "True": True,
}


@pytest.mark.parametrize("what", PASSED)
def test_ids_that_are_passed_follow_the_same_rules(what):
    with pytest.raises(InputError, match="id"):
        sets_of(ROWS, ids=PASSED[what])
    with pytest.raises(InputError, match="id"):
        fitted(ROWS, LABELS, ids=PASSED[what])


def test_whole_floats_are_exact_up_to_their_precision():
    ids = 2.0**53 - N + np.arange(N)
    assert sets_of(ROWS, ids=ids) == sets_of(ROWS, ids=ids.astype(np.int64))
    ids = 2.0**24 - N + np.arange(N)
    assert sets_of(ROWS, ids=ids.astype(np.float32)) == sets_of(ROWS, ids=ids.astype(np.int64))


# ---- what is an id -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("spelling", ["integers", "texts", "floats"])
def test_integers_equal_their_decimal_text_in_every_format(tmp_path, kind, spelling):
    make = {"integers": int, "texts": str, "floats": float}[spelling]
    if kind in TEXT_FILES and spelling == "floats":
        pytest.skip("12.0 may be a text or a number")
    rows = write(tmp_path, kind, list(map(make, NUMBERS)))
    expected = sets_of(top_of(ROWS, 2), ids=NUMBERS) if kind in LISTED else BY_ID
    assert sets_of(rows) == expected


@pytest.mark.parametrize("kind", TEXT_FILES)
def test_cells_that_look_like_floats_are_ids_or_an_error(tmp_path, kind):
    known = top_of(ROWS, 2) if kind in LISTED else ROWS
    for texts in (
        [f"{n}.0" for n in NUMBERS],
        [f"{n}.5" for n in NUMBERS],
        [f"{n}e0" for n in NUMBERS],
    ):
        rows = write(tmp_path, kind, texts)
        try:
            found = sets_of(rows)
        except InputError:
            continue
        assert found in (sets_of(known, ids=texts), sets_of(known, ids=NUMBERS))


def test_bad_ids_of_labels_name_their_file(tmp_path):
    table = pd.DataFrame({"id": [b"a"] * N, "label": TEXTS})
    table.to_parquet(tmp_path / "labels.parquet", index=False)
    rows = pd.DataFrame(ROWS, columns=NAMES).assign(id=NUMBERS)
    with pytest.raises(InputError, match=r"bytes in row 0 of '.*labels\.parquet'"):
        MODEL.evaluate(rows, tmp_path / "labels.parquet")


TYPED = {
    "timestamps": [
        datetime.datetime(2026, 3, 1) + datetime.timedelta(hours=int(n)) for n in NUMBERS
    ],
    "dates": [datetime.date(2026, 3, 1) + datetime.timedelta(days=int(n)) for n in NUMBERS],
    "uuids": [uuid.UUID(int=int(n) << 64 | 7) for n in NUMBERS],
    "decimals": [decimal.Decimal(int(n)) for n in NUMBERS],
}


def typed_table(kind, order, *, is_stored):
    """Rows with ids of a type and labels, as a frame, or as the table that a file stores."""
    ids = [TYPED[kind][row] for row in order]
    frame = pd.DataFrame(ROWS[order], columns=NAMES).assign(label=[TEXTS[row] for row in order])
    if not is_stored:
        return frame.assign(id=ids)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    is_uuid = kind == "uuids"
    column = pa.array([i.bytes for i in ids], pa.uuid()) if is_uuid else pa.array(ids)
    return table.append_column("id", column)


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("is_file", [False, True])
def test_timestamps_and_uuids_are_ids(tmp_path, kind, is_file):
    """A row keeps its set, and its label, wherever it stands; dates and decimals may be errors."""
    if is_file and kind == "uuids" and not hasattr(pa, "uuid"):
        pytest.skip("this version of pyarrow has no type for UUIDs")

    def given(name, order, columns=None):
        table = typed_table(kind, order, is_stored=is_file)
        if columns is not None:
            table = table.select(columns) if is_file else table[columns]
        if not is_file:
            return table
        pq.write_table(table, tmp_path / name)
        return tmp_path / name

    everything = given("a.parquet", np.arange(N))
    try:
        straight = sets_of(everything)
    except InputError:
        assert kind in ("dates", "decimals")
        return
    assert sets_of(given("b.parquet", ORDER)) == [straight[row] for row in ORDER]
    assert straight != sets_of(ROWS)
    without = given("c.parquet", np.arange(N), [*NAMES, "id"])
    apart = given("y.parquet", ORDER, ["id", "label"])
    assert state_of(fitted(without, apart)) == state_of(fitted(everything))


def test_times_with_a_zone_are_instants_and_never_equal_those_without(tmp_path):
    naive = pd.Series(pd.to_datetime(TYPED["timestamps"]))
    zoned = naive.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    rows = pd.DataFrame(ROWS, columns=NAMES)
    found = {}
    for name, ids in {"naive": naive, "zoned": zoned, "utc": zoned.dt.tz_convert("UTC")}.items():
        rows.assign(id=ids).to_parquet(tmp_path / "p.parquet", index=False)
        found[name] = sets_of(tmp_path / "p.parquet")
        assert found[name] == sets_of(rows.assign(id=ids))
    assert found["zoned"] == found["utc"] != found["naive"]


@pytest.mark.parametrize("kind", ["float", "timestamp", "text", "integer"])
def test_labels_are_joined_by_ids_of_every_type(tmp_path, kind):
    """Neighbors that change places look like plausible labels by position."""
    order = np.arange(N).reshape(-1, 2)[:, ::-1].ravel()
    ids = {
        "float": NUMBERS * 1.0,
        "timestamp": pd.to_datetime(TYPED["timestamps"]),
        "text": [f"row {n}" for n in NUMBERS],
        "integer": NUMBERS,
    }[kind]
    table = pd.DataFrame(ROWS, columns=NAMES).assign(id=ids, label=TEXTS)
    table.to_parquet(tmp_path / "all.parquet", index=False)
    table.drop(columns="label").to_parquet(tmp_path / "rows.parquet", index=False)
    table[["id", "label"]].iloc[order].to_parquet(tmp_path / "labels.parquet", index=False)
    found = MODEL.evaluate(tmp_path / "rows.parquet", tmp_path / "labels.parquet")
    expected = MODEL.evaluate(tmp_path / "all.parquet")
    assert found.class_covered.tolist() == expected.class_covered.tolist()
    if kind in ("float", "integer"):
        known = MODEL.evaluate(ROWS, LABELS, ids=NUMBERS)
        assert found.class_covered.tolist() == known.class_covered.tolist()


@pytest.mark.parametrize("bad", ["null", "fraction", "blank"])
def test_bad_ids_of_labels_are_an_error(tmp_path, bad):
    labels = pd.DataFrame({"id": pd.Series(column_with(bad), dtype=object), "label": TEXTS})
    rows = pd.DataFrame(ROWS, columns=NAMES).assign(id=NUMBERS)
    cells = [["" if i is None else i, y] for i, y in zip(labels["id"], TEXTS, strict=True)]
    path = write_cells(tmp_path / "y.csv", [["id", "label"], *cells])
    for given in (labels, path)[: 1 + (bad != "fraction")]:
        with pytest.raises(InputError, match=r"(?=.*\brow 3\b)(?=.*id)"):
            fitted(rows, given)


# ---- files of a folder, and batches ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "csv", "dense jsonl", "entries jsonl", "npz"])
@pytest.mark.parametrize("without", [0, 1])
def test_a_folder_where_one_file_lacks_ids_is_an_error(tmp_path, kind, without):
    for part in range(2):
        where = tmp_path / "parts" / str(part)
        where.mkdir(parents=True)
        if kind == "npz":
            ids = {} if part == without else {"ids": NUMBERS}
            np.savez(where / "p.npz", probs=ROWS, **ids)
        else:
            name = "note" if part == without else "id"
            write(where, kind, [f"row {n}" for n in NUMBERS], name)
    paths = sorted((tmp_path / "parts").glob("*/p.*"))
    for rows in (paths, str(tmp_path / "parts" / "*" / paths[0].name)):
        with pytest.raises(InputError, match="id"):
            sets_of(rows)
        assert len(sets_of(rows, ids=False)) == 2 * N


def test_ids_of_parts_are_those_of_one_file(tmp_path):
    """The ids of the first part look like integers, those of the second do not."""
    ids = [str(n) if row < 20 else f"x{n}" for row, n in enumerate(NUMBERS)]
    write(tmp_path, "csv", ids)
    heading, *lines = (tmp_path / "p.csv").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "parts").mkdir()
    for part, rows in enumerate((lines[:20], lines[20:])):
        (tmp_path / "parts" / f"{part}.csv").write_text("".join([heading, *rows]), "utf-8")
    assert sets_of(tmp_path / "parts") == sets_of(tmp_path / "p.csv") == sets_of(ROWS, ids=ids)


def test_batches_of_which_one_lacks_ids_are_an_error():
    batches = [{"probs": ROWS[:20], "ids": NUMBERS[:20]}, {"probs": ROWS[20:]}]
    for given in (batches, batches[::-1]):
        with pytest.raises(InputError, match="id"):
            sets_of(given)


# ---- without ids -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_ids_are_ignored_on_request_alone(tmp_path, kind):
    known = top_of(ROWS, 2, NAMES) if kind in LISTED else ROWS
    expected = state_of(fitted(known, TEXTS, class_names=NAMES))
    for ids in (NUMBERS.tolist(), ["", *map(str, NUMBERS[1:])]):
        rows = write(tmp_path, kind, ids)
        assert sets_of(rows, ids=False) == sets_of(known)
        assert state_of(fitted(rows, TEXTS, ids=False)) == expected


def test_no_ids_on_the_command_line(folder, run):
    save(MODEL, "m.safetensors")
    write(folder, "parquet", column_with("null"))
    predict = ("predict", "m.safetensors", "p.parquet", "-o", "s.jsonl")
    assert "--no-ids" in refused(run(*predict))
    assert not Path("s.jsonl").exists()
    succeeded(run(*predict, "--no-ids"))
    assert sets_in("s.jsonl") == sets_of(ROWS)
    assert "id" not in json.loads(Path("s.jsonl").read_text().splitlines()[0])
    np.save("y.npy", LABELS)
    fit = ("--labels", "y.npy", "--score", "aps", "--method", "standard", "--alpha", "0.3")
    succeeded(run("calibrate", "p.parquet", *fit, "--no-ids", "-o", "n.safetensors"))


# ---- keys --------------------------------------------------------------------------------------


def draws_differ(first, second):
    """Whether two ids have random numbers of their own."""
    row = ROWS[:1].repeat(2, axis=0)
    ids = pa.array([str(first), str(second)]) if isinstance(first, str) else [first, second]
    return any(
        len(set(map(tuple, calibrated(K, random_state=seed).predict_set(row, ids=ids).to_lists())))
        > 1
        for seed in range(40)
    )


def key_of(text):
    """The integer whose key a text had: BLAKE2b, 64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("-1", str(2**64 - 1)),
        (str(-(2**63)), str(2**63)),
        ("row 1", str(key_of("row 1"))),
        ("12", "012"),
        ("12", "12.0"),
        ("12", " 12"),
        ("12", "+12"),
        ("-0", "0"),
        (str(2**64), "0"),
    ],
)
def test_different_ids_never_share_a_key(first, second):
    """An error is no shared key either."""
    table = pd.DataFrame(ROWS[:2], columns=NAMES).assign(id=[first, second])
    labels = pd.DataFrame({"id": [second, first], "label": ["ant", "bee"]})
    with suppress(InputError):
        assert draws_differ(first, second)
        expected = fitted(ROWS[:2], ["bee", "ant"], ids=[first, second], class_names=NAMES)
        assert state_of(fitted(table, labels)) == state_of(expected)
    with pytest.raises(InputError, match="id"):
        fitted(table, labels.assign(id=[first, "other"]))


def test_the_same_id_shares_its_key_whatever_its_type():
    row = ROWS[:1].repeat(2, axis=0)
    for number in (0, 7, -1, 2**62):
        for seed in range(4):
            model = calibrated(K, random_state=seed)
            alike = ([number] * 2, [str(number)] * 2, np.array([number] * 2, dtype=object))
            sets = [model.predict_set(row, ids=ids).to_lists() for ids in alike]
            assert sets[0] == sets[1] == sets[2]
            assert sets[0][0] == sets[0][1]
