"""Alpha per class, the floor, and another alpha from the rows that a model keeps."""

from fractions import Fraction

import numpy as np
import oracle
import pandas as pd
import pytest

from evencover import InputError, load, quantiles, save
from evencover._kernels import reference
from evencover.data.source import Block
from evencover.predictors import predictor_class
from evencover.quantiles import ClassAlpha, conformal_rank, conformal_ranks

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

NAMES = ["ant", "bee", "cat", "dog"]
PER_CLASS = ("standard", "classwise", "clustered", "pooled", "rc3p")
ONE_FOR_ALL = ("interpolated", "fuzzy", "macro", "grouped", "row-grouped")
ALPHAS = {"bee": 0.02, "dog": Fraction(1, 3), "default": 0.1}
MEANT = [Fraction(1, 10), Fraction(1, 50), Fraction(1, 10), Fraction(1, 3)]
SCORES = ("softmax", "aps", "raps", "saps", "pas")


def rows(n=400, n_classes=4, seed=3, digits=None):
    """Rows of unequally frequent classes; with `digits`, rounded probabilities that tie."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.geomspace(1, 0.1, n_classes), n)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=n_classes - 1)
    if digits is not None:
        p = np.maximum(np.round(p, digits), 10.0**-digits)
        p /= p.sum(axis=1, keepdims=True)
    return p, labels


def fitted(method, p, labels, **parameters):
    more = {"groups": labels % 2} if method == "row-grouped" else {}
    return predictor_class(method)(**parameters).fit(p, labels, class_names=NAMES, **more)


def same(one, other):
    """Whether two fits agree in every threshold, bit for bit."""
    pairs = zip(one.limits_, other.limits_, strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


# ---- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "alpha",
    [
        ALPHAS,
        {"dog": "1/3", "cat": 0.1, "bee": 0.02, "ant": 0.1},
        pd.Series({"dog": 1 / 3, "bee": 0.02, "default": 0.1}),
        [0.1, 0.02, 0.1, 1 / 3],
        np.array([0.1, 0.02, 0.1, 1 / 3]),
    ],
)
def test_alpha_is_aligned_by_name(alpha):
    read = ClassAlpha.of(alpha, NAMES, 4)
    assert [read.exact(i) for i in read.of_class] == MEANT
    assert fitted("classwise", *rows(), alpha=alpha).alpha_.tolist() == list(map(float, MEANT))


@pytest.mark.parametrize(
    "alpha",
    [
        {"bee": np.float32(0.02), "default": 0.1},
        {"bee": 0.02, "ant": np.float32(0.1), "default": np.float16(0.1)},
        np.array([0.1, 0.02, 0.1, 0.1], dtype=np.float32),
        pd.Series([0.02, 0.1], index=["bee", "default"], dtype="float32"),
        pd.DataFrame({"class": ["bee", "default"], "alpha": np.float32([0.02, 0.1])}),
    ],
)
def test_alpha_in_single_precision_is_the_decimal_that_was_written(alpha):
    read = ClassAlpha.of(alpha, NAMES, 4)
    assert read.values.tolist() == [0.02, 0.1]
    assert read.of_class.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("alpha", "shown"),
    [
        ({"bee": 0.02}, "ant"),
        ({"wasp": 0.02, "default": 0.1}, "wasp"),
        ({"bee": 1.5, "default": 0.1}, "1.5"),
        ([0.1, 0.2], "alpha"),
        ({}, "alpha"),
        (None, "alpha"),
        ([0.1, 0.2, 0.3, np.nan], "nan"),
    ],
)
def test_alpha_that_does_not_fit_the_classes_is_rejected(alpha, shown):
    with pytest.raises(InputError, match=shown):
        fitted("pooled", *rows(), alpha=alpha)


def test_a_class_named_default_is_a_class():
    p, labels = rows(n_classes=2)
    names = ["default", "bee"]
    predictor = predictor_class("standard")(alpha={"default": 0.2, "bee": 0.1})
    assert predictor.fit(p, labels, class_names=names).alpha_.tolist() == [0.2, 0.1]
    with pytest.raises(InputError, match="bee"):
        predictor_class("standard")(alpha={"default": 0.2}).fit(p, labels, class_names=names)


@pytest.mark.parametrize("method", ONE_FOR_ALL)
def test_other_methods_take_one_alpha(method):
    with pytest.raises(InputError, match="'alpha'"):
        fitted(method, *rows(), alpha=ALPHAS)


def test_a_target_prevalence_takes_one_alpha():
    with pytest.raises(InputError, match=r"'alpha'.*'target_prevalence'"):
        fitted("standard", *rows(), alpha=ALPHAS, target_prevalence="uniform")


def test_ranks_are_those_of_each_alpha():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 5000, 300)
    alphas = [Fraction(int(a), 1000) for a in rng.integers(1, 1000, 300)]
    own = ClassAlpha.of(alphas, None, 300)
    expected = [oracle.rank(n, a) for n, a in zip(counts.tolist(), alphas, strict=True)]
    assert conformal_ranks(counts, own).tolist() == expected
    confident = conformal_ranks(counts, own, 0.9)
    assert confident[:20].tolist() == [
        int(conformal_ranks(counts[i : i + 1], alphas[i], 0.9)[0]) for i in range(20)
    ]
    assert conformal_rank(10, alphas[0]) == oracle.rank(10, alphas[0])


# ---- thresholds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["softmax", "raps"])
def test_thresholds_are_those_of_the_definition(score):
    p, labels = rows()
    known = labels.tolist()
    fits = {method: fitted(method, p, labels, score=score, alpha=ALPHAS) for method in PER_CLASS}
    scores = fits["standard"].kept_scores_.tolist()
    members = {
        "classwise": [[y] for y in range(4)],
        "standard": [[z for z in range(4) if MEANT[z] == MEANT[y]] for y in range(4)],
    }
    for method, groups in members.items():
        assert fits[method].thresholds_.tolist() == [
            oracle.conformal_quantile(
                [s for s, label in zip(scores, known, strict=True) if label in groups[y]], MEANT[y]
            )
            for y in range(4)
        ]
    clustered = fits["clustered"]
    for y in range(4):
        group = clustered.group_of_class_[y]
        own = clustered.groups_.of(group).tolist()
        assert clustered.thresholds_[y] == oracle.conformal_quantile(own, MEANT[y])


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("method", PER_CLASS)
def test_equal_alphas_are_one_alpha(method, exact):
    p, labels = rows(digits=2)
    more = {"exact": True} if exact and method != "rc3p" else {}
    if not more and method in ("standard", "classwise"):
        more = {"confidence": 0.8}
    one = fitted(method, p, labels, alpha=0.15, **more)
    each = fitted(method, p, labels, alpha=dict.fromkeys(NAMES, 0.15), **more)
    assert same(one, each)
    assert one.guarantee_text == each.guarantee_text
    assert np.array_equal(one.predict_p(p[:20]), each.predict_p(p[:20]))


@pytest.mark.parametrize("method", ["standard", "classwise", "clustered", "pooled"])
def test_sets_are_the_classes_whose_p_value_exceeds_their_alpha(method):
    p, labels = rows()
    predictor = fitted(method, p, labels, alpha=ALPHAS)
    test, _ = rows(seed=8)
    inside = predictor.predict_p(test) > predictor.alpha_
    assert np.array_equal(predictor.predict_set(test).to_mask(), inside)


def test_pooled_uses_all_classes_where_an_alpha_has_too_few_examples():
    p, labels = rows()
    with pytest.warns(UserWarning, match="'dog'"):
        predictor = fitted("pooled", p, labels, alpha={"dog": 0.001, "default": 0.1})
    levels = predictor.calibration_levels_
    assert len(levels) == 2 * len(labels)
    assert predictor.level_ == np.inf  # and 400 examples are too few for 0.001, too
    assert np.isfinite(predictor.thresholds_[:3]).all()


# ---- the floor -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*PER_CLASS, *ONE_FOR_ALL])
@pytest.mark.parametrize("score", SCORES)
def test_the_floor_is_classwise_at_that_level(method, score):
    p, labels = rows(n=120)
    without = fitted(method, p, labels, score=score, alpha=0.5)
    floored = fitted(method, p, labels, score=score, alpha=0.5, floor=0.8)
    share = Fraction(1, 10) if method == "rc3p" else Fraction(1, 5)
    own = fitted("classwise", p, labels, score=score, alpha=share).thresholds_
    expected = np.where(np.isinf(own), -np.inf, own)
    if method == "row-grouped":
        assert np.array_equal(floored.floor_thresholds_, expected)
        groups = np.zeros(120, dtype=int)
        inside = floored.predict_set(p, groups=groups).to_mask()
        assert (inside >= without.predict_set(p, groups=groups).to_mask()).all()
        return
    assert np.array_equal(floored.thresholds_, np.maximum(without.thresholds_, expected))
    assert (floored.predict_set(p).to_mask() >= without.predict_set(p).to_mask()).all()


def test_the_floor_names_classes_with_too_few_examples():
    p, labels = rows(n=120)
    few = np.flatnonzero(labels == 3)[3:]
    p, labels = np.delete(p, few, axis=0), np.delete(labels, few)
    floored = fitted("pooled", p, labels, floor=0.8)
    assert floored.below_floor_.tolist() == [False, False, False, True]
    assert "'dog'" in floored.guarantee_text
    assert "80%" in floored.guarantee_text
    assert floored.floor_thresholds_[3] == -np.inf
    strict = fitted("pooled", p, labels, floor=0.8, strict_floor=True)
    assert strict.thresholds_[3] == np.inf
    assert "'dog'" not in strict.guarantee_text


@pytest.mark.parametrize("floor", [0, 1, 1.2, "high"])
def test_a_floor_outside_the_unit_interval_is_rejected(floor):
    with pytest.raises(InputError, match="'floor'"):
        fitted("pooled", *rows(), floor=floor)


# ---- another alpha, files ------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [None, "rows"])
@pytest.mark.parametrize("method", [*PER_CLASS, "interpolated", "fuzzy", "macro", "grouped"])
@pytest.mark.parametrize("score", ["softmax", "aps", "pas"])
def test_with_alpha_is_a_new_fit(method, score, ids):
    p, labels = rows()
    names = None if ids is None else [f"row {i}" for i in range(len(p))]
    alpha = 0.03 if method not in PER_CLASS else {"cat": 0.03, "default": 0.2}
    make = predictor_class(method)
    first = make(score=score, floor=0.7).fit(p, labels, ids=names, class_names=NAMES)
    before = first.thresholds_.copy()
    other, new = first.with_alpha(alpha), make(score=score, floor=0.7, alpha=alpha)
    new.fit(p, labels, ids=names, class_names=NAMES)
    assert same(other, new)
    assert (other.guarantee_text, other.fingerprints_) == (new.guarantee_text, new.fingerprints_)
    assert np.array_equal(first.thresholds_, before)
    assert first.alpha == 0.1


def test_with_alpha_needs_rows():
    p, labels = rows()
    fit = predictor_class("standard")(temperature="fit", from_logits=True).fit(np.log(p), labels)
    with pytest.raises(InputError, match="calibration rows"):
        fit.with_alpha(0.2)


@pytest.mark.parametrize("method", PER_CLASS)
@pytest.mark.parametrize("alpha", [ALPHAS, [0.1, 0.02, 0.1, 0.3], {1: 0.01, "default": 0.2}])
def test_files_keep_alpha_and_floor(tmp_path, method, alpha):
    p, labels = rows()
    named = isinstance(alpha, list) or "bee" in alpha
    predictor = predictor_class(method)(alpha=alpha, floor=0.75)
    predictor.fit(p, labels, class_names=NAMES if named else None)
    save(predictor, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert same(loaded, predictor)
    assert loaded.alpha_.tolist() == predictor.alpha_.tolist()
    assert loaded.guarantee_text == predictor.guarantee_text
    assert loaded.predict_set(p) == predictor.predict_set(p)
    added = loaded.partial_fit(p[:50], labels[:50])
    assert same(
        added,
        predictor_class(method)(alpha=alpha, floor=0.75).fit(
            np.concatenate([p, p[:50]]),
            np.concatenate([labels, labels[:50]]),
            class_names=NAMES if named else None,
        ),
    )


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("score", ["softmax", "aps", "raps"])
@pytest.mark.parametrize("method", PER_CLASS[:4])
def test_the_numpy_kernels_give_the_same_sets(method, score, exact):
    p, labels = rows()
    predictor = fitted(method, p, labels, score=score, alpha=ALPHAS, floor=0.75, exact=exact)
    rule, block = predictor.rule(), Block(0, p, None, None)
    draws = rule.scoring.draws(block, None, exact=rule.is_randomized)
    formula, options = rule.scoring.score.base.kernel, rule.scoring.options
    sizes, classes = reference.prediction_sets(
        formula, p, draws, rule.limits, allow_empty=True, **options
    )
    sets = predictor.predict_set(p)
    assert sizes.tolist() == sets.sizes.tolist()
    assert classes.tolist() == sets.indices.tolist()


def test_alphas_of_numpy_are_checked_without_fractions(monkeypatch):
    """Ten thousand of them would take longer than the rest of a fit."""
    monkeypatch.setattr(quantiles, "exact_fraction", None)
    alpha = dict(zip(NAMES, np.array([0.1, 0.02, 0.3, 0.2]), strict=True))
    assert quantiles.check_alpha(alpha) == 0.3


def test_guarantees_name_the_classes_that_they_are_for():
    text = fitted("standard", *rows(), alpha=ALPHAS, confidence=0.9).guarantee_text
    assert "same alpha" in text
    assert "overall" not in text.lower()
    text = fitted("standard", *rows(), alpha=ALPHAS, floor=0.5).guarantee_text
    assert "no single class" not in text


def test_pooled_states_for_which_alpha_there_are_too_few_examples():
    alpha = {"bee": 0.0001, "default": 0.1}
    predictor = fitted("pooled", *rows(), alpha=alpha, split="holdout")
    assert "1 of 4 classes ('bee') have an alpha with too few" in predictor.guarantee_text
    assert "too few" not in fitted("pooled", *rows(), alpha=0.1).guarantee_text
