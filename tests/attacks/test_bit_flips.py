"""One bit of a model is wrong: it is refused, or every set and every p-value is the same."""

import itertools
import random

import numpy as np
import pytest
from depth import size

from evencover import APS, RAPS, InputError, load, save
from evencover.predictors import PREDICTORS, make_predictor, method_names

K = 6
N_FLIPS = size(short=10, deep=1310)  # of each of 23 kinds of models
NAMES = ["a", "b", "é", "|", "=1", "f"]
OWN = {
    "clustered": {"gamma": 0.4, "n_clusters": 2},
    "grouped": {"groups": [0, 0, 1, 1, 2, 2]},
}
KINDS = [
    *itertools.product(method_names(), ["softmax", "aps"]),
    *((method, RAPS(penalty=0.1)) for method in ("standard", "classwise")),
    *((method, APS(randomize=False)) for method in ("standard", "classwise", "clustered")),
]


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize(("method", "score"), KINDS[:: size(short=3, deep=1)])
def test_a_flipped_bit_changes_nothing_or_is_refused(method, score, simulate, tmp_path):
    cls = PREDICTORS[method]
    rows, labels = simulate(120, K, seed=8)
    groups = np.arange(120) % 3 if "row groups" in cls.needs else None
    predictor = make_predictor(
        method, score=score, exact=cls.supports_exact, random_state=3, **OWN.get(method, {})
    )
    predictor.fit(rows, labels, class_names=NAMES, groups=groups)
    path = tmp_path / "m.safetensors"
    save(predictor, path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    rng = random.Random(f"{method} {score}")
    n_read = 0
    for number in range(N_FLIPS):
        place = rng.randrange(header if number % 2 else len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            loaded = load(path)
        except InputError:
            continue
        n_read += 1
        assert answers(loaded, rows, groups) == answers(predictor, rows, groups)
    assert n_read < 0.1 * N_FLIPS + 3


def answers(predictor, rows, groups):
    """All that a user is told."""
    given = {} if groups is None else {"groups": groups[:40]}
    sets = predictor.predict_set(rows[:40], **given)
    try:
        p_values = predictor.predict_p(rows[:40], **given).tobytes()
    except InputError as error:  # of methods without them
        p_values = str(error)
    return sets.to_lists(), list(sets.class_names), p_values, str(predictor.alpha)
