"""Blocks that somebody else makes are read like a file."""

import numpy as np
import pytest
from inputs import LABELS, ROWS, assert_holds, list_array, pa, read, write_table

from evencover import InputError
from evencover.data import as_source
from evencover.engine.blocks import blocks_of


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


def test_the_fingerprint_knows_rows_by_their_content(tmp_path, block_elements):
    np.savez_compressed(tmp_path / "p.npz", probs=ROWS, labels=LABELS)
    write_table(tmp_path / "p.parquet", pa.table({"probs": list_array("list"), "label": LABELS}))

    def fingerprint(*arguments):
        source = as_source(*arguments)
        list(blocks_of(source, fingerprint=True))
        return source.rows_read.hexdigest()

    mine = fingerprint(ROWS, LABELS)
    assert mine == fingerprint(tmp_path / "p.npz") == fingerprint(tmp_path / "p.parquet")
    assert mine == fingerprint(iter(cut(ROWS, LABELS)))
    assert mine != fingerprint(ROWS, LABELS[::-1].copy())
    assert mine != fingerprint(ROWS[1:], LABELS[1:])
