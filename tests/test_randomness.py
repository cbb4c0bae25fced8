"""Randomness is a function of (random_state, stream, row key), and a good one.

The key of a row is its id, or a mix of its content and its index.
"""

import hashlib
import itertools
from datetime import datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import chisquare, kstest, spearmanr
from scoring import score_matrix, true_label_scores

from evencover import APS, StandardPredictor, _kernels
from evencover._kernels import Draws
from evencover.errors import InputError
from evencover.ids import id_keys
from evencover.randomness import RandomStream, random_order, row_indices, uniforms


def philox4x32(counter, key):
    """Ten rounds of Salmon et al. (2011), one number at a time."""
    (a, b, c, d), (k0, k1) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (
            (second >> 32) ^ b ^ k0,
            second & 0xFFFFFFFF,
            (first >> 32) ^ d ^ k1,
            first & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_our_philox_gives_the_published_answers(counter, key, answer):
    words = ([int(word, 16) for word in text.split()] for text in (counter, key))
    assert " ".join(f"{word:08x}" for word in philox4x32(*words)) == answer


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20),
    st.sampled_from(list(RandomStream)),
)
def test_uniforms_are_philox_of_seed_use_and_id(seed, ids, use):
    expected = []
    for row in ids:
        high, low, _, _ = philox4x32(
            (row & 0xFFFFFFFF, row >> 32, use.value, 0), (seed & 0xFFFFFFFF, seed >> 32)
        )
        expected.append(((high << 32 | low) >> 11) / 2**53)
    assert uniforms(seed, use, np.array(ids, dtype=np.uint64)).tolist() == expected


def test_uses_keep_their_numbers():
    """They are part of the file format: a saved model must draw the same numbers."""
    names = (
        "SCORE EXACT SPLIT DATA FOLDS SIMULATED_CLASSES SIMULATED_ROWS CALIBRATION_SCORE "
        "REPEATED_IDS"
    )
    expected = {name: number for number, name in enumerate(names.split(), start=1)}
    assert expected.items() <= {use.name: use.value for use in RandomStream}.items()


def test_uniforms_are_uniform_and_streams_independent():
    """Fixed seeds; each of the 16 tests below would fail for one seed in 10,000."""
    ids = row_indices(0, 20_000)
    streams = [
        uniforms(seed, use, ids)
        for seed in (0, 1)
        for use in (RandomStream.SCORE, RandomStream.EXACT)
    ]
    streams.append(uniforms(0, RandomStream.SPLIT, ids))
    for u in streams:
        assert (u >= 0).all()
        assert (u < 1).all()
        assert kstest(u, "uniform").pvalue > 1e-4
    for a, b in itertools.combinations(streams, 2):
        assert spearmanr(a, b).pvalue > 1e-4
    assert spearmanr(streams[0][:-1], streams[0][1:]).pvalue > 1e-4


def test_random_order_is_a_fair_permutation_of_the_ids():
    """Each of 6 orders of 3 rows equally often over 6,000 seeds; false alarm 1 in 10,000."""
    orders = [
        tuple(random_order(seed, RandomStream.SPLIT, row_indices(0, 3))) for seed in range(6000)
    ]
    counts = [orders.count(order) for order in itertools.permutations(range(3))]
    assert sum(counts) == 6000
    assert chisquare(counts).pvalue > 1e-4


@given(st.integers(0, 2**32), st.permutations(range(40)))
def test_random_order_follows_ids_not_places(seed, order):
    ids = np.arange(1000, 1040, dtype=np.uint64)
    shuffled = ids[order]
    assert (
        ids[random_order(seed, RandomStream.SPLIT, ids)].tolist()
        == shuffled[random_order(seed, RandomStream.SPLIT, shuffled)].tolist()
    )


def test_ids_may_be_numbers_or_text():
    assert id_keys([3, 5], 2).tolist() == [3, 5]
    text = id_keys(["patient 7", "patient 8", "patient 7"], 3)
    assert text[0] == text[2] != text[1]
    assert text.tolist() == id_keys(np.array(["patient 7", "patient 8", "patient 7"]), 3).tolist()
    # the decimal text of an integer is the integer, whatever else is among the ids
    both = [17, -3, 0, 2**63 - 1, 2**63, 2**64 - 1, 2**70]
    keys = [int(id_keys([each], 1)[0]) for each in both]
    assert keys[0] == 17
    assert keys[2:4] == [0, 2**63 - 1]
    assert len(set(keys)) == len(keys)
    assert id_keys([*map(str, both), "patient 7"], 8).tolist() == [*keys, text[0]]
    others = ["017", "+17", "17.0", "-0", "1_7", "١٧", "-9223372036854775809"]
    assert not np.isin(id_keys(others, 7), id_keys(np.arange(-20, 20), 40)).any()
    # BLAKE2b with 8 bytes, little endian, and a bit that no integer's key has
    digest = hashlib.blake2b(b"patient 7", digest_size=8).digest()
    assert int(text[0]) == int.from_bytes(digest, "little") | 2**63


def test_one_id_has_one_key_in_every_type():
    moment = datetime(2024, 1, 1, 9, 30, 0, 500_000)
    times = [[moment], np.array([moment], "M8[us]"), np.array([moment], "M8[ns]")]
    assert len({int(id_keys(each, 1)[0]) for each in times}) == 1
    whole = [[7], ["7"], [7.0], np.array([7.0], "f4"), np.array([7], "u1"), np.array(["7"])]
    assert {int(id_keys(each, 1)[0]) for each in whole} == {7}
    assert id_keys([UUID(int=5)], 1) == id_keys([str(UUID(int=5))], 1)


@pytest.mark.parametrize(
    "values",
    [
        [1, "a"], ["a", None], [1.0, None], [True], [1, True], [0.5], [float("nan")], ["a", " "],
        [b"a"], np.array(["NaT"], "M8[s]"), np.array([2.0**24], "f4"), [2.0**53], ["\ud800"],
        [Decimal(1)],
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_id_is_an_error_that_names_the_row(values):
    with pytest.raises(InputError, match=rf"(?s)'ids'.* row {len(values) - 1}"):
        id_keys(values, len(values))


def test_no_global_state_is_read_or_changed(simulate):
    rows, labels = simulate(100, 4)
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = StandardPredictor(score="aps", exact=True).fit(rows, labels).predict_set(rows)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    assert StandardPredictor(score="aps", exact=True).fit(rows, labels).predict_set(rows) == first


finite = st.floats(-60000, 60000, width=16)


@given(
    hnp.arrays(np.float16, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=finite),
    st.integers(0, 2**50),
)
def test_keys_are_the_oracles_whatever_the_type(rows, first):
    expected = oracle.row_keys(rows, first)
    for dtype in (np.float16, np.float32, np.float64):
        assert _kernels.row_keys(rows.astype(dtype), Draws(first=first)).tolist() == expected


@given(hnp.arrays(np.float64, (3, 7), elements=st.floats(allow_nan=False)))
def test_keys_of_doubles_see_every_digit_that_counts(rows):
    with np.errstate(over="ignore"):
        assert _kernels.row_keys(rows, Draws()).tolist() == oracle.row_keys(rows)
    nudged = rows.copy()
    nudged[0, 3] = 0.1
    nudged[1, 3] = np.nextafter(0.1, 1)
    nudged[2] = nudged[0]
    nudged[1, [0, 1, 2, 4, 5, 6]] = nudged[0, [0, 1, 2, 4, 5, 6]]
    keys = [int(_kernels.row_keys(nudged[i : i + 1], Draws())[0]) for i in range(3)]
    assert keys[0] == keys[2] != keys[1]


def test_equal_rows_differ_by_place_and_only_by_it():
    rows = np.full((50, 4), 0.25)
    keys = _kernels.row_keys(rows, Draws())
    assert len(set(keys.tolist())) == 50
    alone = [int(_kernels.row_keys(rows[i : i + 1], Draws())[0]) for i in range(50)]
    assert set(alone) == {int(keys[0])}
    cut = [_kernels.row_keys(rows[at : at + 7], Draws(first=at)) for at in range(0, 50, 7)]
    assert np.concatenate(cut).tolist() == keys.tolist()


def test_calibrating_and_predicting_share_no_number(simulate):
    rows, labels = simulate(200, 5)
    for ids in (None, np.arange(200)):
        one = true_label_scores(APS(), rows, labels, ids=ids)
        other = score_matrix(APS(), rows, ids=ids)[np.arange(200), labels]
        assert (one != other).all()
