"""Rows coarser or finer than the calibration rows get one warning; empty inputs give no sets."""

import warnings

import numpy as np
import pytest
from inputs import pa, write_file, write_table

import evencover
from evencover import EvencoverWarning, StandardPredictor, load, save
from evencover.precision import PRECISIONS, precision_of

RNG = np.random.default_rng(3)
N, K = 1200, 30
ROWS = RNG.dirichlet(np.full(K, 0.4), N).astype(np.float32)
LABELS = (ROWS.cumsum(axis=1) > RNG.random((N, 1))).argmax(axis=1)
HALVES = [slice(0, N // 2), slice(N // 2, N)]
STORED = {
    "float64": ROWS.astype("f8"),
    "float32": ROWS,
    "6 digits": ROWS.astype("f8").round(6),
    "float16": ROWS.astype("f2"),
    "float16 in float32": ROWS.astype("f2").astype("f4"),
    "4 digits": ROWS.astype("f8").round(4),
    "4 digits in float32": ROWS.round(4),
}
NAME_OF = {"float64": "full precision", "float32": "full precision", "6 digits": "full precision"}


def precisions(caught):
    return [str(each.message) for each in caught if "precision of the" in str(each.message)]


@pytest.mark.filterwarnings("ignore:Rows whose sum is off")
@pytest.mark.parametrize("stored", list(STORED))
@pytest.mark.parametrize("later", list(STORED))
def test_only_another_precision_gets_one_warning(stored, later, monkeypatch):
    monkeypatch.setattr("evencover.predictors.base.FEW_ELEMENTS", 1 << 16)  # 90 rows are few
    model = StandardPredictor().fit(STORED[stored][HALVES[0]], LABELS[HALVES[0]])
    rows, labels = STORED[later][HALVES[1]], LABELS[HALVES[1]]
    known = {NAME_OF.get(name, name.removesuffix(" in float32")) for name in (stored, later)}
    for use in (
        lambda: model.evaluate(rows, labels),
        lambda: [model.predict_set(rows[:1]), *map(model.predict_set, (rows[:90], rows[90:180]))],
        lambda: model.predict_set(rows.tolist()),
        lambda: model.predict_set(iter([rows[:90], rows[90:]])),
        lambda: model.predict_p(rows),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            use()
        assert len(precisions(caught)) == len(known) - 1


@pytest.mark.parametrize("step", [1 / 255, 1 / 65535, 0.01, 0.001, 1e-4, 1e-5])
def test_steps_are_recognized_in_probabilities_and_logits(step):
    for numbers in (ROWS.astype("f8"), RNG.normal(size=(90, K)) * 5):
        rounded = np.rint(numbers / step) * step
        assert precision_of(rounded) == precision_of(rounded.astype("f4")) == step


def test_few_or_saturated_numbers_tell_nothing():
    assert precision_of(ROWS[:2].astype("f2")) is None
    assert precision_of(np.eye(K)[np.arange(N) % K]) is None
    assert precision_of(ROWS[:0]) is None
    assert precision_of(np.tile([0.25, 0.7, 0.05], (N, 1))) is None
    assert PRECISIONS[precision_of((ROWS.view("u4") & 0xFFFF0000).view("f4"))] == "bfloat16"


def test_a_stored_model_and_a_service_know_the_precision(tmp_path):
    model = StandardPredictor().fit(ROWS.astype("f2")[HALVES[0]], LABELS[HALVES[0]])
    save(model, tmp_path / "m.safetensors")
    from evencover.serving.service import Service

    with pytest.warns(EvencoverWarning, match="full precision, and float16"):
        load(tmp_path / "m.safetensors").evaluate(ROWS[HALVES[1]], LABELS[HALVES[1]])
    service = Service(tmp_path / "m.safetensors", tmp_path / "state.db")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for first in (0, 50, 100):
            service.sets(ROWS[first : first + 50])
    assert len(precisions(caught)) == 1


def test_no_rows_give_no_sets(tmp_path):
    names = [f"c{column}" for column in range(K)]
    model = StandardPredictor().fit(ROWS, LABELS, class_names=names)
    table = pa.table({name: np.zeros(0) for name in names})
    write_table(tmp_path / "p.parquet", table)
    (tmp_path / "p.jsonl").write_text("")
    files = [write_file(tmp_path / "e", kind, ROWS[:0], LABELS[:0]) for kind in ("npy", "npz")]
    for rows in (ROWS[:0], [], iter([]), [ROWS[:0]], {"probs": ROWS[:0]}, *files):
        assert model.predict_set(rows).to_lists() == []
    for name in ("p.parquet", "p.jsonl"):
        assert model.predict_set(tmp_path / name).to_lists() == []
    assert model.rule().predict_set(ROWS[:0]).to_lists() == []
    assert model.predict_p(ROWS[:0]).shape == (0, K)
    with pytest.raises(evencover.InputError, match="at least one row"):
        model.evaluate(ROWS[:0], LABELS[:0])
