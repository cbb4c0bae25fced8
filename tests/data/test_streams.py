"""Blocks that somebody else makes are read like a file."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from inputs import LABELS, ROWS, assert_holds, list_array, pa, read, write_table

from evencover import InputError, PooledPredictor
from evencover.data import as_source
from evencover.data.fingerprint import Sampler
from evencover.experiments import load_simulated


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
        ([ROWS, ROWS[:, :3]], None, "must have 4 classes. Got 3 from row 23 on"),
        ([(ROWS, LABELS), ROWS], None, "labels, or none"),
        ([ROWS, (ROWS, LABELS)], None, "labels, or none"),
        ([(ROWS, LABELS[1:])], None, "22 labels for 23 rows"),
        ([(ROWS, LABELS), (ROWS, LABELS + 1)], None, "Got 4 in row 26"),
        ([ROWS[0]], None, r"shape \(4,\)"),
        ([ROWS, ROWS], LABELS, "23 labels for (35|46) rows"),
        ([ROWS], np.append(LABELS, 0), "24 labels for 23 rows"),
        (["text"], None, "must be a matrix"),
    ],
)
def test_streams_that_break_a_rule(blocks, labels, words):
    with pytest.raises(InputError, match=words):
        read(as_source(iter(blocks), labels))


def keys_of(source):
    blocks = list(source.blocks())
    return None if blocks[0].ids is None else np.concatenate([b.ids for b in blocks]).tolist()


IDS = np.random.default_rng(0).permutation(len(ROWS)) + 100
FRAME = pd.DataFrame(ROWS, columns=["a", "b", "c", "d"])
WITH_IDS = {
    "a dictionary": lambda rows: {"probs": ROWS[rows], "ids": IDS[rows]},
    "a dictionary of text": lambda rows: {"probs": ROWS[rows], "id": [str(i) for i in IDS[rows]]},
    "a frame": lambda rows: FRAME.assign(id=IDS)[rows],
    "an Arrow table": lambda rows: pa.table(FRAME.assign(id=IDS)[rows]),
    "a polars frame": lambda rows: pl.DataFrame(FRAME.assign(id=IDS)[rows]),
    "a pair with labels": lambda rows: (FRAME.assign(id=IDS)[rows], LABELS[rows]),
}


@pytest.mark.parametrize("block", WITH_IDS.values(), ids=WITH_IDS)
def test_blocks_keep_their_ids(block, block_elements):
    blocks = [block(slice(start, start + 7)) for start in range(0, len(ROWS), 7)]
    assert keys_of(as_source(blocks)) == keys_of(as_source(iter(blocks))) == IDS.tolist()
    given = np.arange(len(ROWS)) + 7
    assert keys_of(as_source(iter(blocks), ids=given)) == given.tolist()


@pytest.mark.parametrize(
    "blocks",
    [
        [{"probs": ROWS, "ids": IDS}, {"probs": ROWS}],
        [{"probs": ROWS}, {"probs": ROWS, "ids": IDS}],
        [{"probs": ROWS, "ids": IDS[1:]}],
        [{"probs": ROWS, "ids": IDS / 2}],
    ],
)
def test_ids_of_some_blocks_are_rejected(blocks):
    with pytest.raises(InputError, match=r"ids"):
        keys_of(as_source(iter(blocks)))


@pytest.mark.parametrize("score", ["aps", "softmax"])
def test_sets_do_not_depend_on_how_rows_with_ids_arrive(score):
    source = load_simulated("cifar-100", scale=0.1)
    p, labels, ids = source.reader.rows(0, 600), source.labels[:600], np.arange(600)[::-1] + 5

    def blocks(rows, size=70):
        starts = range(rows.start, rows.stop, size)
        some = [slice(start, min(start + size, rows.stop)) for start in starts]
        return ({"probs": p[part], "labels": labels[part], "ids": ids[part]} for part in some)

    fit, test = slice(0, 400), slice(400, 600)
    whole = PooledPredictor(score=score).fit(p[fit], labels[fit], ids=ids[fit])
    streamed = PooledPredictor(score=score).fit(blocks(fit))
    assert whole.thresholds_.tobytes() == streamed.thresholds_.tobytes()
    assert streamed.predict_set(blocks(test)) == whole.predict_set(p[test], ids=ids[test])


def test_the_fingerprint_knows_rows_by_their_content(tmp_path, block_elements):
    np.savez_compressed(tmp_path / "p.npz", probs=ROWS, labels=LABELS)
    write_table(tmp_path / "p.parquet", pa.table({"probs": list_array("list"), "label": LABELS}))

    def fingerprint(*arguments):
        source = as_source(*arguments)
        sampler = Sampler(source.n_rows)
        for block in source.blocks():
            sampler.add(sampler.of(block))
        return sampler.result().hexdigest()

    mine = fingerprint(ROWS, LABELS)
    assert mine == fingerprint(tmp_path / "p.npz") == fingerprint(tmp_path / "p.parquet")
    assert mine == fingerprint(iter(cut(ROWS, LABELS)))
    assert mine != fingerprint(ROWS, LABELS[::-1].copy())
    assert mine != fingerprint(ROWS[1:], LABELS[1:])


UNREAD = {
    "npz": lambda path: np.savez(path, probs=ROWS, labels=np.array(["?"])),
    "csv": lambda path: FRAME.assign(label=["?", *[""] * (len(ROWS) - 1)]).to_csv(path),
    "parquet": lambda path: FRAME.assign(label=None).to_parquet(path),
    "jsonl": lambda path: FRAME.assign(label=None).to_json(path, orient="records", lines=True),
}


@pytest.mark.parametrize("kind", UNREAD)
@pytest.mark.filterwarnings("ignore:Ignored non-class columns")
def test_prediction_does_not_read_labels(tmp_path, kind):
    """Labels that no fit would accept change nothing."""
    model = PooledPredictor().fit(FRAME.astype("f8").round(8), LABELS)
    path = tmp_path / f"p.{kind}"
    UNREAD[kind](path)
    with pytest.raises(InputError):
        as_source(path)
    assert model.predict_set(path).to_lists() == model.predict_set(FRAME).to_lists()
