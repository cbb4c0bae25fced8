"""Damaged files of every format are read or rejected in one sentence; nothing dies or hangs."""

import random
from pathlib import Path

import pytest
from attacks.test_doors import ENDINGS, write_any
from depth import size
from inputs import LABELS, ROWS, read

from evencover import InputError
from evencover.data import as_source

KEPT = sorted((Path(__file__).parent / "corpus").rglob("*.h5"))
N_DAMAGED = size(short=20, deep=2000)


@pytest.mark.parametrize("ending", [each for each in ENDINGS if each != "zarr"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_damage_is_one_sentence(tmp_path, ending, damage):
    path = write_any(tmp_path, ending, ROWS, LABELS)
    whole, rng, n_rejected = path.read_bytes(), random.Random(ending), 0
    for _ in range(N_DAMAGED):
        content, place = bytearray(whole), rng.randrange(len(whole))
        if damage == "cut":
            del content[place:]
        else:
            content[place] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            read(as_source(path))
        except InputError:
            n_rejected += 1
    assert n_rejected > 0


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_heap_without_an_end_is_rejected(path):
    with pytest.raises(InputError, match="heap"):
        read(as_source(path))
