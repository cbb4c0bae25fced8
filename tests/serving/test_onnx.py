"""Sets from ONNX Runtime are those of `predict_set`: every method, score, type and kind of tie."""

import json
from itertools import product

import numpy as np
import pytest
from depth import IS_DEEP, size

from evencover import (
    APS,
    PAS,
    RAPS,
    SAPS,
    ClasswisePredictor,
    InputError,
    Score,
    StandardPredictor,
    to_onnx,
)
from evencover.predictors import PREDICTORS, make_predictor, method_names

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.compose")
runtime = pytest.importorskip("onnxruntime")
from evencover.serving.onnx import onnx_inputs  # noqa: E402

K = 9
SCORES = ["softmax", APS(), APS(randomize=False), RAPS(k_reg=1), SAPS(), PAS()]
pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


def session(path):
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(path, options)


def exported(fitted, path, **how):
    to_onnx(fitted, path, force=True, **how)
    return session(path)


def made(method, score, **parameters):
    own = {"gamma": 0.4, "n_clusters": 2} if method == "clustered" else {}
    return make_predictor(method, score=score, **own, **parameters)


def assert_sets(found, sets):
    """No membership differs, and the other outputs are those of the sets, too."""
    membership, sizes, classes, valid, accepted, answers = found
    assert valid.all()
    np.testing.assert_array_equal(membership, sets.to_mask())
    np.testing.assert_array_equal(sizes, sets.sizes)
    is_listed = np.arange(membership.shape[1]) < sizes[:, None]
    assert (classes[~is_listed] == -1).all()
    np.testing.assert_array_equal(classes[is_listed], sets.indices)
    np.testing.assert_array_equal(accepted, sets.accepted)
    np.testing.assert_array_equal(answers, sets.answer_nodes)


def assert_same_sets(graph, fitted, rows):
    """A graph gives the sets of `predict_set`."""
    found = graph.run(None, {"rows": rows, **onnx_inputs(fitted, rows)})
    assert_sets(found, fitted.predict_set(rows))


def variants(method, score):
    """(exact, keep_top, type) of a predictor: few in the short form, all in the full one."""
    can_be_exact = "exact" in PREDICTORS[method].supports
    if IS_DEEP:
        exact = [True, False] if can_be_exact else [False]
        return list(product(exact, [True, False], ["float16", "float32", "float64"]))
    return list(product([can_be_exact and score == SCORES[1]], [True, False], ["float32"]))


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("score", SCORES, ids=str)
@pytest.mark.parametrize("method", method_names())
def test_no_membership_differs(simulate, tmp_path, method, score, logits):
    """In the full form a million memberships of each method, score and kind of input.

    Some of the 50 classes then have too few calibration rows for a finite threshold of their own.
    """
    n_classes, n_fit = size(short=K, deep=50), size(short=300, deep=600)
    wanted, block, n_compared = size(short=9_000, deep=1_000_000), 20_000, 0
    kinds = variants(method, score)
    n_rows = -(-wanted // (n_classes * len(kinds)))
    data, labels = simulate(n_fit + n_rows, n_classes, seed=4)
    for exact, keep_top, dtype in kinds:
        rows = (np.log(data + 1e-30) if logits else data).astype(dtype)
        fitted = made(method, score, exact=exact, keep_top=keep_top, from_logits=logits)
        fitted.fit(rows[:n_fit], labels[:n_fit])
        graph = exported(fitted, tmp_path / "sets.onnx", dtype=dtype)
        for start in range(n_fit, len(rows), block):
            new = rows[start : start + block]
            assert_same_sets(graph, fitted, new)
            n_compared += new.size
    assert n_compared >= wanted


@pytest.mark.parametrize("ties", ["saturated", "duplicated", "quantised"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("score", ["softmax", APS(randomize=False), SAPS()], ids=str)
def test_ties_and_types(simulate, tmp_path, score, dtype, ties):
    rows, labels = simulate(700, K, seed=5, ties=ties)
    rows = rows.astype(dtype)
    fitted = ClasswisePredictor(score=score, alpha=0.2).fit(rows[:300], labels[:300])
    assert_same_sets(exported(fitted, tmp_path / "sets.onnx", dtype=dtype), fitted, rows[300:])


@pytest.mark.parametrize("exact", [False, True])
def test_capped_thresholds_are_exported(simulate, tmp_path, exact):
    rows, labels = simulate(700, K, seed=5, dtype=np.float32)
    fitted = ClasswisePredictor(score="aps", alpha=0.02, max_share=0.1, exact=exact)
    fitted.fit(rows[:300], labels[:300])
    assert fitted.is_capped_.any()
    assert_same_sets(exported(fitted, tmp_path / "sets.onnx"), fitted, rows[300:])


@pytest.mark.parametrize("n_classes", [2, 3, 257, size(short=300, deep=5000)])
def test_any_number_of_classes_and_infinite_thresholds(simulate, tmp_path, n_classes):
    rows, labels = simulate(400, n_classes, seed=6, long_tail=True, dtype=np.float32)
    for method in ("classwise", "rc3p"):
        fitted = made(method, "aps").fit(rows, labels)
        assert_same_sets(exported(fitted, tmp_path / "sets.onnx"), fitted, rows)
        if n_classes > 100:
            assert np.isinf(fitted.thresholds_).any()


@pytest.mark.parametrize("score", ["aps", "raps", "saps"])
def test_without_random_numbers_sets_are_as_large_as_they_can_be(simulate, tmp_path, score):
    rows, labels = simulate(400, K, seed=8, dtype=np.float32)
    fitted = StandardPredictor(score=score, exact=True).fit(rows, labels)
    graph = exported(fitted, tmp_path / "sets.onnx")
    largest, sizes = graph.run(["membership", "sizes"], {"rows": rows})
    rng = np.random.default_rng(1)
    for numbers in ((0, 0), (0, 1), (1, 0), (1, 1), *rng.random((5, 2)).tolist()):
        given = {
            n: np.full(400, v, float) for n, v in zip(("uniform", "draw"), numbers, strict=True)
        }
        found, some = graph.run(["membership", "sizes"], {"rows": rows, **given})
        assert (found <= largest).all()
        assert some.sum() < sizes.sum() or numbers[0] == 0


@pytest.mark.parametrize("logits", [False, True])
def test_a_bad_row_is_marked_and_spoils_no_other(simulate, tmp_path, logits):
    rows, labels = simulate(300, K, seed=9)
    given = np.log(rows) if logits else rows
    fitted = StandardPredictor(score="aps", from_logits=logits).fit(given, labels)
    graph = exported(fitted, tmp_path / "sets.onnx", dtype="float64")
    whole = graph.run(None, {"rows": given})
    spoilt = given.copy()
    bad = {3: np.nan, 5: np.inf} if logits else {3: np.nan, 5: -0.5, 8: 0.9, 9: np.inf}
    for row, value in bad.items():
        spoilt[row, 2] = value
    if logits:
        spoilt[7] = -np.inf
        spoilt[11, 4] = -np.inf  # a masked class is none
    found = graph.run(None, {"rows": spoilt})
    is_bad = [row in bad or (logits and row == 7) for row in range(300)]
    assert found[3].tolist() == [not each for each in is_bad]
    same = ~np.array(is_bad)
    same[11] = not logits
    np.testing.assert_array_equal(found[0][same], whole[0][same])
    np.testing.assert_array_equal(found[4][same], whole[4][same])
    assert not found[4][is_bad].any()
    for row in np.flatnonzero(is_bad):
        with pytest.raises(InputError):
            fitted.predict_set(spoilt[[row]])
    fitted.predict_set(spoilt[[11]])
    if not logits:  # `predict_set` divides them by their sums
        rounded = np.full((1, K), 0.11)
        assert not graph.run(["valid"], {"rows": rounded})[0].any()
        fitted.predict_set(rounded)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("score", ["softmax", "raps"])
def test_merged_with_a_classifier(tmp_path, score, opset):
    """ONNX Runtime's own product makes the logits; the sets follow from those very logits."""
    helper, proto = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(4, K)).astype(np.float32)
    linear = helper.make_graph(
        [helper.make_node("MatMul", ["input", "weights"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info("input", proto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("logits", proto.FLOAT, ["N", K])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    opsets = [helper.make_opsetid("", opset)]
    classifier = helper.make_model(linear, opset_imports=opsets, ir_version=10)
    inputs = rng.normal(size=(800, 4)).astype(np.float32)
    labels = (inputs @ weights + rng.gumbel(size=(800, K))).argmax(axis=1)
    logits = session(classifier.SerializeToString()).run(None, {"input": inputs})[0]
    fitted = ClasswisePredictor(score=score, from_logits=True).fit(logits[:500], labels[:500])
    sets = onnx.load(to_onnx(fitted, tmp_path / "sets.onnx", opset=opset))
    sets.ir_version = classifier.ir_version
    both = onnx.compose.merge_models(classifier, sets, io_map=[("logits", "rows")])
    given = {"input": inputs[500:], **onnx_inputs(fitted, logits[500:])}
    found = session(both.SerializeToString()).run(None, given)
    assert_sets(found, fitted.predict_set(logits[500:]))


# Files, own scores, bad input ---------------------------------------------------------------------


def test_the_file_says_what_it_is_and_passes_the_checker(simulate, tmp_path):
    names = [f"naïve {n}" for n in range(K)]
    fitted = StandardPredictor(score="aps").fit(*simulate(100, K, seed=1), class_names=names)
    path = to_onnx(fitted, tmp_path / "sets.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about["evencover.method"] == "standard"
    assert json.loads(about["evencover.class_names"]) == names
    assert json.loads(about["evencover.score"]) == {"name": "aps", "randomize": True}
    assert {each.domain for each in model.opset_import} == {""}  # no operator of anybody's own
    assert fitted.guarantee_text in model.doc_string


class Margin(Score):
    name = "margin"
    needs_order = False

    def formula(self, at):
        return np.where(at.p != at.top, abs(at.top - at.p) / 2, -at.top)

    def maximum(self, n_classes):
        return 1.0


class Entropy(Margin):
    name = "entropy"

    def formula(self, at):
        return -np.log(at.p)


def test_a_score_of_ones_own_is_exported_if_its_bits_are_certain(simulate, tmp_path):
    rows, labels = simulate(400, K, seed=3, dtype=np.float32)
    fitted = ClasswisePredictor(score=Margin()).fit(rows, labels)
    assert_same_sets(exported(fitted, tmp_path / "sets.onnx"), fitted, rows)
    fitted = ClasswisePredictor(score=Entropy()).fit(rows, labels)
    with pytest.raises(InputError, match="Got 'log'"):
        to_onnx(fitted, tmp_path / "log.onnx")
    assert not (tmp_path / "log.onnx").exists()


def test_the_command(simulate, tmp_path, monkeypatch):
    from evencover import save
    from evencover.cli import main

    monkeypatch.chdir(tmp_path)
    rows, labels = simulate(300, K, seed=1, dtype=np.float32)
    fitted = StandardPredictor(score="aps").fit(rows, labels)
    save(fitted, "model.safetensors")
    main(["export", "model.safetensors", "-o", "sets.onnx"])
    assert_same_sets(session("sets.onnx"), fitted, rows)
    for wrong in (["-o", "sets.onnx"], ["-o", "sets.json"], ["-o", "new.onnx", "--opset", "12"]):
        with pytest.raises(SystemExit, match="2"):
            main(["export", "model.safetensors", *wrong])
