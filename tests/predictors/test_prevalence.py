"""Thresholds for other class frequencies: a weighted conformal quantile."""

from fractions import Fraction

import numpy as np
import oracle
import pytest

from evencover import (
    ClusteredPredictor,
    EvencoverWarning,
    InputError,
    StandardPredictor,
    estimate_prevalence,
    load,
    save,
)
from evencover.cli.info import of_model
from evencover.predictors import make_predictor

METHODS = ("standard", "clustered", "pooled")
OWN = {"clustered": {"gamma": 0.5, "n_clusters": 2}}


def make(method, **parameters):
    return make_predictor(method, **OWN.get(method, {}), **parameters)


def exact_weights(labels, target):
    return oracle.target_weights(labels.tolist(), [Fraction(t) for t in target])


@pytest.mark.parametrize("target", [[5, 1, 2, 1], [1, 1, 1, 1], [0, 3, 1, 9]])
def test_standard_thresholds_are_the_oracles(simulate, target):
    rows, labels = simulate(150, 4, ties="quantised")
    scores = (1 - rows[np.arange(150), labels]).tolist()
    weights = exact_weights(labels, target)
    fitted = StandardPredictor(target_prevalence=target).fit(rows, labels)
    expected = [
        oracle.weighted_threshold(scores, [weights[y] for y in labels], own, Fraction(1, 10))
        for own in weights
    ]
    assert fitted.thresholds_.tolist() == expected


def test_clusters_are_weighted_within(simulate):
    rows, labels = simulate(600, 8)
    target = [1, 2, 3, 4, 5, 6, 7, 8]
    fitted = ClusteredPredictor(gamma=0.5, n_clusters=2, target_prevalence=target)
    fitted.fit(rows, labels)
    plain = ClusteredPredictor(gamma=0.5, n_clusters=2).fit(rows, labels)
    np.testing.assert_array_equal(fitted.cluster_of_class_, plain.cluster_of_class_)
    weights = exact_weights(labels, target)
    groups, group_of_class, *_ = fitted._groups
    label_of_score = dict(zip((1 - rows[np.arange(600), labels]).tolist(), labels, strict=True))
    for y in range(8):
        own = groups.of(group_of_class[y]).tolist()
        of_rows = [weights[label_of_score[score]] for score in own]
        expected = oracle.weighted_threshold(own, of_rows, weights[y], Fraction(1, 10))
        assert fitted.thresholds_[y] == expected


@pytest.mark.parametrize("method", METHODS)
def test_the_calibration_frequencies_themselves_change_nothing(simulate, method):
    for n in (149, 564):
        rows, labels = simulate(n, 6, ties="quantised")
        plain = make(method).fit(rows, labels)
        same = make(method, target_prevalence=np.bincount(labels, minlength=6)).fit(rows, labels)
        np.testing.assert_array_equal(plain.thresholds_, same.thresholds_)
        np.testing.assert_allclose(plain.predict_p(rows), same.predict_p(rows), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("score", ["softmax", "aps", "pas"])
def test_sets_are_p_values_above_alpha_also_from_a_file(simulate, tmp_path, method, score):
    rows, labels = simulate(400, 6)
    how = {"target_prevalence": [9, 1, 1, 4, 1, 1], "keep_top": False}
    fitted = make(method, score=score, **how).fit(rows, labels)
    save(fitted, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    new = simulate(200, 6, seed=3).rows
    np.testing.assert_array_equal(loaded.predict_set(new).to_mask(), fitted.predict_p(new) > 0.1)
    assert of_model(loaded)["target_prevalence"] == "as given"
    assert "target prevalence" in of_model(loaded)["guarantee"]


def test_a_file_will_do_and_is_read_once(simulate, tmp_path):
    rows, labels = simulate(200, 4)
    np.savetxt(tmp_path / "target.txt", [4, 3, 2, 1])
    fitted = StandardPredictor(target_prevalence=tmp_path / "target.txt").fit(rows, labels)
    given = StandardPredictor(target_prevalence=[4, 3, 2, 1]).fit(rows, labels)
    np.testing.assert_array_equal(fitted.thresholds_, given.thresholds_)
    save(fitted, tmp_path / "m.safetensors")
    (tmp_path / "target.txt").unlink()
    np.testing.assert_array_equal(load(tmp_path / "m.safetensors").fit_.target_shares[0], 0.4)


def test_classes_that_no_row_speaks_for_are_said(simulate):
    rows, labels = simulate(200, 4)
    few = labels < 3
    predictor = StandardPredictor(target_prevalence=[1, 1, 1, 1])
    with pytest.warns(EvencoverWarning) as caught:
        predictor.fit(rows[few], labels[few])
    assert any("25.0% of the target prevalence" in str(each.message) for each in caught)
    assert predictor.thresholds_[3] == predictor.thresholds_.max()


@pytest.mark.parametrize(
    "target", [[1, 1], [1, 1, -1, 1], [0, 0, 0, 0], [1, np.nan, 1, 1], ["a"] * 4, [[1, 1, 1, 1]]]
)
def test_a_bad_target_is_refused(simulate, target):
    with pytest.raises(InputError, match="'target_prevalence'"):
        StandardPredictor(target_prevalence=target).fit(*simulate(50, 4))


@pytest.mark.parametrize("also", [{"exact": True}, {"confidence": 0.9}])
def test_weights_have_no_rank_to_randomise_or_raise(also):
    (name,) = also
    with pytest.raises(InputError, match=f"'{name}' and 'target_prevalence'"):
        StandardPredictor(target_prevalence="uniform", **also).fit_scores([0.5], [0], 2)


@pytest.mark.filterwarnings("ignore:.*they use the standard threshold")
def test_estimates_are_shares_with_the_mass_of_classes_without_rows(simulate):
    rows, labels = simulate(2000, 5)
    few, new = np.arange(2000) < 1000, rows[1000:]
    few &= labels < 4
    known = (rows[few], labels[few])
    predictor = StandardPredictor().fit(*known)
    found = estimate_prevalence(predictor, new, *known)
    assert found.is_shift
    assert found.prevalence.sum() == pytest.approx(1)
    assert found.prevalence[4] == pytest.approx((labels[1000:] == 4).mean(), abs=0.05)
    with pytest.warns(EvencoverWarning, match=r"[12]\d\.\d% of the target prevalence"):
        StandardPredictor(target_prevalence=found.prevalence).fit(*known)
    with np.errstate(divide="ignore"):
        logits = np.log(rows)
    predictor = StandardPredictor(from_logits=True).fit(logits[few], labels[few])
    same = estimate_prevalence(predictor, logits[1000:], logits[few], labels[few])
    np.testing.assert_allclose(same.prevalence, found.prevalence, atol=1e-6)


def test_estimates_need_the_rows_that_calibrated(simulate):
    rows, labels = simulate(300, 5)
    predictor = StandardPredictor().fit(rows[:200], labels[:200])
    with pytest.raises(InputError, match="labels"):
        estimate_prevalence(predictor, rows, rows[:200])
    with pytest.raises(InputError, match="'calibration'"):
        estimate_prevalence(predictor, rows, rows[100:], labels[100:])
