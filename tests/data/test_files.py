"""Every kind of file and stream gives the same rows; a broken one gives one sentence."""

import io
import re
import zipfile

import numpy as np
import pytest

import evencover.data.source as source_module
from evencover import InputError, StandardPredictor
from evencover.data import as_source
from evencover.data.files import column_from_file

pa = pytest.importorskip("pyarrow")
ipc = pytest.importorskip("pyarrow.ipc")
pq = pytest.importorskip("pyarrow.parquet")

N, K = 23, 4
NAMES = ["ant", "bee", "çédille", "海"]
LOGITS = np.random.default_rng(5).normal(size=(N, K)).astype(np.float32)
ROWS = (np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)).astype(np.float32)
LABELS = np.arange(N) % K


@pytest.fixture(params=[None, 1, 3 * K, 5 * K + 1], ids=lambda n: f"blocks-{n}")
def block_elements(request, monkeypatch):
    """Whole files, single rows, and block sizes that do not divide the file."""
    if request.param is not None:
        monkeypatch.setattr(source_module, "BLOCK_ELEMENTS", request.param)
    return request.param


def read(source):
    """All rows and labels; the blocks must be in order and no larger than asked for."""
    rows, labels, start = [], [], 0
    for block in source.blocks():
        assert block.start == start
        assert len(block.rows) <= source_module.rows_per_block(source.n_classes)
        start += len(block.rows)
        rows.append(block.rows)
        labels.append(block.labels)
    assert source.n_rows in (None, start)
    has_labels = labels[0] is not None
    assert source.has_labels == has_labels
    return np.concatenate(rows), np.concatenate(labels) if has_labels else None


def assert_holds(source, rows=ROWS, labels=LABELS):
    found_rows, found_labels = read(source)
    np.testing.assert_array_equal(found_rows, rows)
    assert found_rows.dtype == rows.dtype
    np.testing.assert_array_equal(found_labels, labels)
    again, _ = read(source)  # a file can be read twice
    np.testing.assert_array_equal(again, rows)


def assert_refused(path, words, **arguments):
    """Reading the file to its end fails with one sentence that names it."""
    with pytest.raises(InputError, match=words) as caught:
        read(as_source(path, **arguments))
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


# NumPy ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_order_and_type(tmp_path, block_elements, order, dtype):
    rows = np.asarray(ROWS, dtype=dtype, order=order)
    np.save(tmp_path / "p.npy", rows)
    source = as_source(tmp_path / "p.npy", LABELS)
    assert source.logits is None
    expected = rows if rows.dtype.isnative else rows.astype(np.float64)
    assert_holds(source, expected)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_npz_stored_or_compressed(tmp_path, block_elements, save, order, dtype):
    rows = np.asarray(ROWS, dtype=dtype, order=order)
    save(tmp_path / "p.npz", labels=LABELS, extra=np.arange(7), probs=rows, class_names=NAMES)
    source = as_source(tmp_path / "p.npz")
    assert source.class_names == NAMES
    assert_holds(source, rows)


@pytest.mark.parametrize("key", ["probs", "probabilities", "softmax", "logits"])
def test_npz_keys(tmp_path, key):
    np.savez(tmp_path / "p.npz", **{key: ROWS})
    source = as_source(tmp_path / "p.npz")
    assert source.logits is (key == "logits")
    assert not source.has_labels
    assert_holds(source, labels=None)


@pytest.mark.parametrize("key", ["labels", "label"])
@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(np.uint8), np.array(NAMES)[LABELS]])
def test_npz_labels_as_indices_or_names(tmp_path, block_elements, key, labels):
    np.savez(tmp_path / "p.npz", probs=ROWS, class_names=NAMES, **{key: labels})
    assert_holds(as_source(tmp_path / "p.npz"))


def test_labels_given_beside_a_file_replace_its_own(tmp_path):
    np.savez(tmp_path / "p.npz", probs=ROWS, labels=np.zeros(N, dtype=int))
    assert_holds(as_source(tmp_path / "p.npz", LABELS))


def test_logits_may_be_said_beside_the_file(tmp_path):
    np.savez(tmp_path / "p.npz", probs=LOGITS, labels=LABELS)
    named_logits = tmp_path / "l.npz"
    np.savez(named_logits, logits=LOGITS, labels=LABELS)
    said = StandardPredictor().fit(as_source(tmp_path / "p.npz", logits=True))
    named = StandardPredictor().fit(named_logits)
    probabilities = StandardPredictor(from_logits=True).fit(LOGITS, LABELS)
    assert said.thresholds_[0] == named.thresholds_[0] == probabilities.thresholds_[0]


def test_paths_may_be_text(tmp_path):
    np.save(tmp_path / "p.npy", ROWS)
    assert_holds(as_source(str(tmp_path / "p.npy"), LABELS))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"other": ROWS}, "one matrix under .* Got the keys other"),
        ({"probs": ROWS, "logits": LOGITS}, "one matrix under .* Got the keys probs, logits"),
        ({"probs": ROWS[0]}, r"shape \(4,\)"),
        ({"probs": ROWS[:, :1]}, "at least 2 classes"),
        ({"probs": ROWS[:0]}, "at least one row"),
        ({"probs": ROWS.astype(str)}, "real numbers"),
        ({"probs": ROWS.astype(complex)}, "real numbers"),
        ({"probs": ROWS.astype(object)}, "pickled Python objects"),
        ({"probs": ROWS, "labels": LABELS.astype(object)}, "pickled Python objects"),
        ({"probs": ROWS, "class_names": np.array(NAMES, dtype=object)}, "pickled Python objects"),
        ({"probs": ROWS, "class_names": NAMES[:3]}, "3 names for 4 classes"),
    ],
)
def test_npz_that_break_a_rule(tmp_path, arrays, words):
    np.savez(tmp_path / "bad.npz", **arrays)
    assert_refused(tmp_path / "bad.npz", words)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (LABELS[:-1], "22 labels for 23 rows"),
        (np.append(LABELS, 0), "24 labels for 23 rows"),
        (LABELS + 1, r"between 0 and 3.*Got 4 in row 3"),
        (LABELS - 1, "Got -1 in row 0"),
        (LABELS.astype(float), "must be integers.*float64"),
        (np.array(NAMES)[LABELS], "must be integers"),
        (LABELS[:, None][:, [0, 0]], "one dimension"),
    ],
)
def test_labels_that_break_a_rule(tmp_path, labels, words):
    np.savez(tmp_path / "p.npz", probs=ROWS, labels=labels)
    np.save(tmp_path / "p.npy", ROWS)
    for arguments in ((tmp_path / "p.npz",), (tmp_path / "p.npy", labels), (ROWS, labels)):
        with pytest.raises(InputError, match=words):
            read(as_source(*arguments))


def test_a_label_that_is_no_class_name(tmp_path):
    labels = np.array(NAMES)[LABELS]
    labels[5] = "wasp"
    np.savez(tmp_path / "p.npz", probs=ROWS, labels=labels, class_names=NAMES)
    with pytest.raises(InputError, match=r"one of the 4 class names\. Got 'wasp'"):
        as_source(tmp_path / "p.npz")


def test_names_as_labels_may_wait_for_the_names_of_the_model(tmp_path):
    np.save(tmp_path / "p.npy", ROWS)
    model = StandardPredictor(alpha=0.3).fit(ROWS, LABELS, class_names=NAMES)
    by_name = model.evaluate(tmp_path / "p.npy", [*np.array(NAMES)[LABELS][:-1].tolist(), "bee"])
    expected = model.evaluate(ROWS, np.append(LABELS[:-1], 1))
    assert by_name.to_dict() == expected.to_dict()


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "arrow", "feather"])
@pytest.mark.parametrize("content", [b"", b"not such a file", b"\x93NUMPY", b"PK\x03\x04", b"PAR1"])
def test_files_that_are_something_else(tmp_path, ending, content):
    path = tmp_path / f"bad.{ending}"
    path.write_bytes(content)
    assert_refused(path, "truncated or not of the kind its ending says")


def test_files_with_the_wrong_ending(tmp_path):
    np.savez(tmp_path / "p.npz", probs=ROWS)
    np.save(tmp_path / "p.npy", ROWS)
    zipped, plain = (tmp_path / "p.npz").read_bytes(), (tmp_path / "p.npy").read_bytes()
    for name, content in {"a.npy": zipped, "a.npz": plain, "a.parquet": plain}.items():
        (tmp_path / name).write_bytes(content)
        assert_refused(tmp_path / name, "not of the kind its ending says")
    (tmp_path / "p.txt").write_bytes(plain)
    assert_refused(tmp_path / "p.txt", r"must be one of \.npy, \.npz.*Got '\.txt'")
    (tmp_path / "p").write_bytes(plain)
    assert_refused(tmp_path / "p", "Got 'none'")


def test_files_that_are_not_there(tmp_path):
    assert_refused(tmp_path / "absent.npy", "no such file")
    (tmp_path / "folder.npy").mkdir()
    assert_refused(tmp_path / "folder.npy", "the folder holds no file that ends in")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_cut_anywhere(tmp_path, save):
    save(tmp_path / "p.npz", probs=ROWS, labels=LABELS)
    whole = (tmp_path / "p.npz").read_bytes()
    for length in range(0, len(whole), 101):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        assert_refused(tmp_path / "cut.npz", "truncated")


def test_npy_cut_anywhere(tmp_path):
    np.save(tmp_path / "p.npy", ROWS)
    whole = (tmp_path / "p.npy").read_bytes()
    for length in range(0, len(whole), 53):
        (tmp_path / "cut.npy").write_bytes(whole[:length])
        assert_refused(tmp_path / "cut.npy", "truncated")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_npz_whose_matrix_is_shorter_than_it_says(tmp_path, compression):
    buffer = io.BytesIO()
    np.save(buffer, ROWS)
    with zipfile.ZipFile(tmp_path / "bad.npz", "w", compression) as archive:
        archive.writestr("probs.npy", buffer.getvalue()[:-8])
        archive.writestr("more.npy", buffer.getvalue())  # what a careless memory map would show
    assert_refused(tmp_path / "bad.npz", "end")


def test_damage_in_a_compressed_npz_is_noticed(tmp_path):
    np.savez_compressed(tmp_path / "p.npz", probs=np.tile(ROWS, (50, 1)))
    damaged = bytearray((tmp_path / "p.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (tmp_path / "p.npz").write_bytes(damaged)
    assert_refused(tmp_path / "p.npz", "truncated")


# Arrow and Parquet ------------------------------------------------------------------------------


def list_array(kind, rows=ROWS):
    flat = pa.array(rows.ravel())
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    make, offset_type = {
        "list": (pa.ListArray, pa.int32()),
        "large": (pa.LargeListArray, pa.int64()),
    }[kind]
    offsets = pa.array(np.arange(len(rows) + 1) * rows.shape[1], offset_type)
    return make.from_arrays(offsets, flat)


def write_table(path, table, rows_per_group=7):
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows_per_group)
    else:
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_per_group)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather"])
@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_a_list_column(tmp_path, block_elements, ending, kind, dtype):
    rows = ROWS.astype(dtype)
    table = pa.table({"id": np.arange(N), "softmax": list_array(kind, rows), "label": LABELS})
    write_table(tmp_path / f"p.{ending}", table)
    source = as_source(tmp_path / f"p.{ending}")
    assert source.logits is False
    assert_holds(source, rows)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("by_name", [False, True])
def test_one_column_per_class(tmp_path, block_elements, ending, by_name):
    labels = np.array(NAMES)[LABELS] if by_name else LABELS
    columns = {name: ROWS[:, place] for place, name in enumerate(NAMES)}
    path = tmp_path / f"p.{ending}"
    write_table(path, pa.table({"id": np.arange(N), **columns, "labels": labels}))
    source = as_source(path)
    assert source.class_names == NAMES
    assert_holds(source)


def test_labels_as_a_dictionary_column(tmp_path):
    names = pa.array(np.array(NAMES)[LABELS]).dictionary_encode()
    columns = {name: ROWS[:, place] for place, name in enumerate(NAMES)}
    write_table(tmp_path / "p.parquet", pa.table({**columns, "label": names}))
    assert_holds(as_source(tmp_path / "p.parquet"))


@pytest.mark.parametrize(
    ("name", "logits"), [("logits", True), ("probs", False), ("embedding", None)]
)
def test_the_list_column_says_what_it_holds(tmp_path, name, logits):
    write_table(tmp_path / "p.parquet", pa.table({name: list_array("fixed")}))
    source = as_source(tmp_path / "p.parquet")
    assert source.logits is logits
    assert_holds(source, labels=None)


def test_a_named_list_column_is_preferred(tmp_path):
    table = pa.table({"embedding": list_array("list", LOGITS), "probs": list_array("list")})
    write_table(tmp_path / "p.parquet", table)
    assert_holds(as_source(tmp_path / "p.parquet"), labels=None)


def test_compressed_arrow_batches(tmp_path):
    table = pa.table({"probs": list_array("fixed"), "labels": LABELS})
    options = ipc.IpcWriteOptions(compression="zstd")
    with ipc.new_file(tmp_path / "p.arrow", table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=5)
    assert_holds(as_source(tmp_path / "p.arrow"))


def with_null_in(values, row):
    return pa.array([None if i == row else v for i, v in enumerate(values.tolist())])


RAGGED = [row[: 3 if i == 9 else 4] for i, row in enumerate(ROWS.tolist())]
NULL_ROW = [None if i == 9 else row for i, row in enumerate(ROWS.tolist())]
NULL_CELL = [[None, *row[1:]] if i == 9 else row for i, row in enumerate(ROWS.tolist())]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"probs": RAGGED}, "row 9"),
        ({"probs": NULL_ROW}, "Got null in row 9"),
        ({"probs": NULL_CELL}, "Got null in row 9"),
        ({"probs": list_array("list"), "labels": with_null_in(LABELS, 11)}, "Got null in row 11"),
        ({"a": ROWS[:, 0], "b": with_null_in(ROWS[:, 1], 8)}, "Got null in row 8"),
        ({"a": list_array("list"), "b": list_array("list")}, "one list column.*'a', 'b'"),
        ({"probs": list_array("list"), "logits": list_array("list")}, "'probs', 'logits'"),
        ({"probs": [["a", "b"]] * N}, "list column of probabilities"),
        ({"id": np.arange(N), "text": ["x"] * N}, "Got the columns id, text"),
        ({"only": ROWS[:, 0]}, "at least 2 classes"),
        ({"probs": list_array("list", ROWS[:, :1])}, "at least 2 classes"),
        ({"probs": pa.array([[]] * N, pa.list_(pa.float32()))}, "at least 2 classes"),
        ({"probs": list_array("list")[:0]}, "at least one row"),
        ({"a": ROWS[:0, 0], "b": ROWS[:0, 1]}, "at least one row"),
    ],
)
@pytest.mark.parametrize("rows_per_group", [4, 100])
def test_tables_that_break_a_rule(tmp_path, ending, columns, words, rows_per_group):
    path = tmp_path / f"bad.{ending}"
    write_table(path, pa.table(columns), rows_per_group)
    assert_refused(path, words)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_tables_cut_anywhere(tmp_path, ending):
    write_table(tmp_path / f"p.{ending}", pa.table({"probs": list_array("list"), "label": LABELS}))
    whole = (tmp_path / f"p.{ending}").read_bytes()
    cut = tmp_path / f"cut.{ending}"
    for length in range(0, len(whole), 201):
        cut.write_bytes(whole[:length])
        assert_refused(cut, "truncated")


# Labels and ids of their own --------------------------------------------------------------------


@pytest.mark.parametrize("text", ["2\n0\n1\n", "2\r\n0\r\n1", "\ufeff2\n0\n1\n", " 2 \n\n0\n1\n\n"])
def test_a_column_of_numbers_as_text(tmp_path, text):
    (tmp_path / "y.txt").write_text(text, encoding="utf-8", newline="")
    column = column_from_file(tmp_path / "y.txt")
    assert column.dtype == np.int64
    assert column.tolist() == [2, 0, 1]


def test_a_column_of_names_as_text(tmp_path):
    (tmp_path / "y.txt").write_text("\n".join(np.array(NAMES)[LABELS]), encoding="utf-8")
    np.save(tmp_path / "p.npy", ROWS)
    source = as_source(tmp_path / "p.npy", class_names=NAMES)
    source.attach_labels(column_from_file(tmp_path / "y.txt"))
    assert_holds(source)


def test_numbers_beyond_64_bits_are_text(tmp_path):
    (tmp_path / "ids.txt").write_text("18446744073709551616\n2\n")
    assert column_from_file(tmp_path / "ids.txt").tolist() == ["18446744073709551616", "2"]


def test_a_column_in_numpy_files(tmp_path):
    np.save(tmp_path / "y.npy", LABELS)
    np.savez(tmp_path / "y.npz", labels=LABELS, ids=LABELS + 5)
    assert column_from_file(tmp_path / "y.npy").tolist() == LABELS.tolist()
    assert column_from_file(tmp_path / "y.npz").tolist() == LABELS.tolist()
    assert column_from_file(tmp_path / "y.npz", "ids").tolist() == (LABELS + 5).tolist()


@pytest.mark.parametrize("name", ["y.npy", "y.npz", "y.txt"])
def test_broken_columns_are_refused_by_name(tmp_path, name):
    with pytest.raises(InputError, match=f"{re.escape(name)}.*no such file"):
        column_from_file(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=f"Cannot read .*{re.escape(name)}"):
        column_from_file(tmp_path / name)


def test_pickled_columns_are_refused(tmp_path):
    np.save(tmp_path / "y.npy", LABELS.astype(object))
    np.savez(tmp_path / "y.npz", labels=LABELS.astype(object))
    for name in ("y.npy", "y.npz"):
        with pytest.raises(InputError, match=f"{re.escape(name)}' must .* pickled Python objects"):
            column_from_file(tmp_path / name)
    with pytest.raises(InputError, match=r"must hold 'ids'. Got \['labels'\]"):
        column_from_file(tmp_path / "y.npz", "ids")


# Streams of blocks ------------------------------------------------------------------------------


def cut(*arrays, sizes=(1, 10, 0, 5, 7)):
    stops = np.cumsum(sizes)
    return [
        tuple(array[stop - size : stop] for array in arrays)
        for size, stop in zip(sizes, stops, strict=True)
    ]


def assert_streams(source, labels=LABELS):
    found_rows, found_labels = read(source)
    np.testing.assert_array_equal(found_rows, ROWS)
    np.testing.assert_array_equal(found_labels, labels)


def test_blocks_in_any_container(block_elements):
    blocks = [rows for (rows,) in cut(ROWS)]
    values = dict(enumerate(blocks)).values()
    for stream in (blocks, tuple(blocks), iter(blocks), (block for block in blocks), values):
        assert_streams(as_source(stream), labels=None)
    assert_streams(as_source(iter(blocks), LABELS))


def test_blocks_with_labels(block_elements):
    pairs = cut(ROWS, LABELS)
    assert_streams(as_source(pairs))
    assert_streams(as_source(pair for pair in pairs))
    assert_streams(as_source([[rows, labels] for rows, labels in pairs]))  # as torch's DataLoader
    assert_streams(as_source((rows, labels.tolist()) for rows, labels in pairs))
    assert_streams(as_source(pairs, LABELS))


def test_nested_lists_are_one_matrix():
    assert_holds(as_source(ROWS.astype(float).tolist(), LABELS), ROWS.astype(float))
    two_rows = [[0.5, 0.5], [0.25, 0.75]]
    assert_holds(as_source(two_rows, [0, 1]), np.array(two_rows), [0, 1])
    assert_holds(as_source([np.array(row) for row in two_rows]), np.array(two_rows), None)


@pytest.mark.parametrize(
    ("blocks", "labels", "words"),
    [
        ([], None, "at least one block"),
        ([ROWS[:0], ROWS[:0]], None, "at least one row"),
        ([ROWS, ROWS[:, :3]], None, "must have 4 classes. Got 3 from row 23 on"),
        ([(ROWS, LABELS), ROWS], None, "labels, or none"),
        ([ROWS, (ROWS, LABELS)], None, "labels, or none"),
        ([(ROWS, LABELS[1:])], None, "22 labels for 23 rows"),
        ([(ROWS, LABELS), (ROWS, LABELS + 1)], None, "Got 4 in row 26"),
        ([ROWS[0]], None, r"shape \(4,\)"),
        ([ROWS, ROWS], LABELS, "0 labels for 23 rows"),
        ([ROWS], np.append(LABELS, 0), "24 labels for 23 rows"),
        (["text"], None, "must be a matrix"),
        ([None], None, "at least one block|must be a matrix"),
    ],
)
def test_streams_that_break_a_rule(blocks, labels, words):
    with pytest.raises(InputError, match=words):
        read(as_source(iter(blocks), labels))


def test_errors_of_the_reader_are_not_hidden():
    def stream():
        yield ROWS
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        read(as_source(stream()))


def test_rows_are_counted_from_the_start_of_the_stream(monkeypatch):
    monkeypatch.setattr(source_module, "BLOCK_ELEMENTS", 3 * K)
    rows = ROWS.copy()
    rows[17, 2] = np.nan
    with pytest.raises(InputError, match="NaN in row 17, class 2"):
        StandardPredictor().fit(rows, LABELS)


# What stays the same however the rows are cut ---------------------------------------------------


def test_the_fingerprint_knows_rows_by_their_content(tmp_path, block_elements):
    np.savez_compressed(tmp_path / "p.npz", probs=ROWS, labels=LABELS)
    write_table(tmp_path / "p.parquet", pa.table({"probs": list_array("list"), "label": LABELS}))

    def fingerprint(*arguments):
        source = as_source(*arguments)
        read(source)
        return source.fingerprint

    mine = fingerprint(ROWS, LABELS)
    assert mine == fingerprint(tmp_path / "p.npz") == fingerprint(tmp_path / "p.parquet")
    assert mine == fingerprint(iter(cut(ROWS, LABELS)))
    assert mine != fingerprint(ROWS, LABELS[::-1].copy())
    assert mine != fingerprint(ROWS[1:], LABELS[1:])
