"""Alpha per class, the floor, and another alpha from the rows that a model keeps."""

from fractions import Fraction

import numpy as np
import oracle
import pytest

from evencover import InputError, load, save
from evencover.predictors import predictor_class
from evencover.quantiles import ClassAlpha, conformal_rank, conformal_ranks

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

NAMES = ["ant", "bee", "cat", "dog"]
PER_CLASS = ("standard", "classwise", "clustered", "pooled", "rc3p")
ONE_FOR_ALL = ("interpolated", "fuzzy", "macro", "grouped")
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
    return predictor_class(method)(**parameters).fit(p, labels, class_names=NAMES)


def same(one, other):
    """Whether two fits agree in every threshold, bit for bit."""
    pairs = zip(one.fit_.thresholds, other.fit_.thresholds, strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


# ---- reading -------------------------------------------------------------------------------------


def test_alpha_in_single_precision_is_the_decimal_that_was_written():
    named = {"bee": np.float32(0.02), "default": np.float16(0.1)}
    for alpha in (named, np.array([0.1, 0.02, 0.1, 0.1], dtype=np.float32)):
        read = ClassAlpha.of(alpha, NAMES, 4)
        assert read.values.tolist() == [0.02, 0.1]
        assert read.of_class.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize(
    "alpha", [{"bee": 1.5, "default": 0.1}, [0.1, 0.2], {}, [0.1] * 3 + [np.nan]]
)
def test_alpha_that_does_not_fit_the_classes_is_rejected(alpha):
    with pytest.raises(InputError, match="'alpha'"):
        fitted("pooled", *rows(), alpha=alpha)


@pytest.mark.parametrize("method", ONE_FOR_ALL)
def test_other_methods_take_one_alpha(method):
    with pytest.raises(InputError, match="'alpha'"):
        fitted(method, *rows(), alpha=ALPHAS)


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
    scores = fits["standard"].fit_.rows.scores.tolist()
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
    groups = fits["clustered"].fit_.groups
    for y in range(4):
        own = groups.scores.of(groups.of_class[y]).tolist()
        assert fits["clustered"].thresholds_[y] == oracle.conformal_quantile(own, MEANT[y])


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
    of_one, of_each = (oracle.p_values_of(fit, p[:20]) for fit in (one, each))
    np.testing.assert_array_equal(of_one, of_each)


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
    assert len(predictor.fit_.derived.held_out.scores.scores) == 2 * len(labels)
    assert (
        predictor.fit_.derived.t.upper.max() == np.inf
    )  # and 400 examples are too few for 0.001, too
    assert np.isfinite(predictor.thresholds_[:3]).all()


# ---- the floor -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*PER_CLASS, *ONE_FOR_ALL])
@pytest.mark.parametrize("score", SCORES)
def test_the_floor_is_classwise_at_that_level(method, score):
    p, labels = rows(n=120)
    without = fitted(method, p, labels, score=score, alpha=0.5, floor=None)
    floored = fitted(method, p, labels, score=score, alpha=0.5, floor=0.8)
    share = Fraction(1, 10) if method == "rc3p" else Fraction(1, 5)
    own = fitted("classwise", p, labels, score=score, alpha=share).thresholds_
    expected = np.where(np.isinf(own), -np.inf, own)
    assert np.array_equal(floored.thresholds_, np.maximum(without.thresholds_, expected))
    assert (floored.predict_set(p).to_mask() >= without.predict_set(p).to_mask()).all()


def test_the_floor_names_classes_with_too_few_examples():
    p, labels = rows(n=120)
    few = np.flatnonzero(labels == 3)[3:]
    p, labels = np.delete(p, few, axis=0), np.delete(labels, few)
    floored = fitted("pooled", p, labels, floor=0.8)
    assert (floored.guarantees_ > 0).tolist() == [True, True, True, False]
    assert (floored.guarantees_[:3] >= 0.8).all()
    assert "'dog'" in floored.guarantee_text
    assert "80%" in floored.guarantee_text
    assert "on average over calibration sets" in floored.guarantee_text


@pytest.mark.parametrize(
    ("method", "alpha"),
    [*((method, ALPHAS) for method in PER_CLASS), *((m, 0.1) for m in (*PER_CLASS, *ONE_FOR_ALL))],
    ids=lambda value: value if isinstance(value, str) else "one" if value == 0.1 else "by class",
)
def test_the_graded_floor_is_an_own_score_of_each_class(method, alpha):
    """For RC3P of scores and of ranks, each at half of alpha."""
    p, labels = rows(n=120)
    fit = fitted(method, p, labels, alpha=alpha, floor="auto")
    n, scores = np.bincount(labels, minlength=4), 1 - p[np.arange(len(p)), labels]
    parts = 2 if method == "rc3p" else 1
    meant = MEANT if alpha is ALPHAS else [Fraction(1, 10)] * 4
    k = np.array([oracle.guard_rank(int(c), a / parts) for c, a in zip(n, meant, strict=True)])
    guard = [np.sort(scores[labels == y])[k[y] - 1] if k[y] else -np.inf for y in range(4)]
    assert (fit.thresholds_ >= guard).all()
    guaranteed = np.maximum(1 - parts * (1 - k / (n + 1)), 0)
    assert (fit.guarantees_ >= guaranteed - 1e-12).all()
    if method in ("pooled", "rc3p", "interpolated", "fuzzy", "macro"):
        np.testing.assert_allclose(fit.guarantees_, guaranteed)
    assert "on average over calibration sets" in fit.guarantee_text


def test_each_method_states_what_it_guarantees_to_a_class():
    p, labels = rows(n=120)
    n = np.bincount(labels, minlength=4)
    rank = np.ceil((n + 1) * Fraction(9, 10)).astype(int)
    classwise = fitted("classwise", p, labels)
    np.testing.assert_allclose(classwise.guarantees_, rank / (n + 1))
    np.testing.assert_allclose(fitted("classwise", p, labels, exact=True).guarantees_, 0.9)
    for method in ("standard", "clustered", "fuzzy", "macro", "interpolated", "rc3p"):
        assert not fitted(method, p, labels).guarantees_.any()
    # A class alone in its group, or with an alpha of its own, has the guarantee of the group.
    grouped = fitted("grouped", p, labels, groups=["a", "b", "b", "b"]).guarantees_
    np.testing.assert_allclose(grouped, [classwise.guarantees_[0], 0, 0, 0])
    own_alpha = fitted("standard", p, labels, alpha={"bee": 0.05, "default": 0.1})
    assert (own_alpha.guarantees_ > 0).tolist() == [name == "bee" for name in NAMES]
    pooled = fitted("pooled", p, labels)
    assert (pooled.guarantees_ > 0).all()
    assert not fitted("pooled", p, labels, floor=None).guarantees_.any()
    assert (fitted("pooled", p, labels, strength=0).guarantees_ == 0.9).all()


# ---- another alpha, files ------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*PER_CLASS, *ONE_FOR_ALL])
@pytest.mark.parametrize("score", ["softmax", "aps", "pas"])
def test_with_alpha_is_a_new_fit(method, score):
    p, labels = rows()
    names = [f"row {i}" for i in range(len(p))]
    alpha = 0.03 if method not in PER_CLASS else {"cat": 0.03, "default": 0.2}
    make = predictor_class(method)
    first = make(score=score, floor=0.7).fit(p, labels, ids=names, class_names=NAMES)
    before = first.thresholds_.copy()
    other, new = first.with_alpha(alpha), make(score=score, floor=0.7, alpha=alpha)
    new.fit(p, labels, ids=names, class_names=NAMES)
    assert same(other, new)
    assert (other.guarantee_text, other.fit_.inputs.fingerprints) == (
        new.guarantee_text,
        new.fit_.inputs.fingerprints,
    )
    assert np.array_equal(first.thresholds_, before)
    assert first.alpha == 0.1


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
