"""ConformalClassifier as scikit-learn, and as honest calibration, want it."""

import warnings

import numpy as np
import pytest
from depth import size
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from evencover import (
    APS,
    ClasswisePredictor,
    ConformalClassifier,
    EvencoverWarning,
    InputError,
    PooledPredictor,
)
from evencover.classifier import cost_scorer
from evencover.predictors import DEFAULT_METHOD, make_predictor

NAMES = np.array(["ant", "bee", "cät", "dog", "emu"])


@pytest.fixture(scope="module")
def data():
    return make_classification(
        2000, 12, n_informative=8, n_classes=5, n_clusters_per_class=1, flip_y=0.15, random_state=0
    )


class Recorder(ClassifierMixin, BaseEstimator):
    """Knows which rows (their first feature) trained it and which it was asked about."""

    def fit(self, X, y):
        self.trained_ = set(X[:, 0])
        self.classes_, counts = np.unique(y, return_counts=True)
        self.prior_ = counts / counts.sum()
        return self

    def predict_proba(self, X):
        self.asked_ = set(X[:, 0])
        return np.tile(self.prior_, (len(X), 1))


def numbered(labels):
    return np.arange(len(labels), dtype=float)[:, None], np.asarray(labels)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@parametrize_with_checks(
    [
        ConformalClassifier(LogisticRegression(), ClasswisePredictor(score="aps", exact=True)),
        ConformalClassifier(GaussianNB(), "standard"),
        ConformalClassifier(DecisionTreeClassifier(random_state=0), calibration_size=0.5),
    ][: size(short=2, deep=3)]
)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def test_sets_and_p_values_are_the_predictors_own(data):
    X, y = data
    model = ConformalClassifier(GaussianNB(), ClasswisePredictor(score=APS())).fit(X, y)
    p, ids = model.predict_proba(X), np.arange(len(X)) + 10**6
    assert model.predict_set(X, ids=ids) == model.predictor_.predict_set(p, ids=ids)
    assert model.predict_set(X, ids=ids) != model.predict_set(X)
    np.testing.assert_array_equal(
        model.predict_p(X, ids=ids), model.predictor_.predict_p(p, ids=ids)
    )


def test_string_labels_become_class_names(data):
    X, y = data
    by_index = ConformalClassifier(LogisticRegression(), "classwise").fit(X, y)
    by_name = ConformalClassifier(LogisticRegression(), "classwise").fit(X, NAMES[y])
    assert by_name.classes_.tolist() == sorted(NAMES)
    assert by_name.predict_set(X) == by_index.predict_set(X)
    first = by_name.predict_set(X[:1])
    assert first.to_lists(names=True)[0] == [NAMES[index] for index in first[0]]
    assert set(by_name.predict(X)) <= set(NAMES)


def test_it_lives_in_pipelines_and_around_them(data):
    X, y = data
    outside = ConformalClassifier(make_pipeline(StandardScaler(), LogisticRegression())).fit(X, y)
    inside = make_pipeline(StandardScaler(), ConformalClassifier(LogisticRegression())).fit(X, y)
    for model in (outside, inside):
        assert model.score(X, y) > 0.6
    assert len(outside.predict_set(X)) == len(X)
    assert cross_val_score(outside, X, y, cv=3).mean() > 0.6


def test_labels_that_the_model_does_not_know_count_as_misses(data):
    X, y = data
    model = ConformalClassifier(GaussianNB(), "standard").fit(X[:1000], NAMES[y][:1000])
    X_test, labels = X[1000:], NAMES[y][1000:].astype(object)
    known = model.evaluate(X_test, labels)
    labels[:30], labels[30:50] = "gnu", "hen"
    with pytest.warns(EvencoverWarning, match="50 of 1000 labels"):
        report = model.evaluate(X_test, labels)
    with pytest.warns(EvencoverWarning, match="50 of 1000 labels"):
        alone = model.predictor_.evaluate(model.predict_proba(X_test), labels)
    assert report.to_dict() == alone.to_dict()
    assert (report.n_unknown, list(report.class_names)) == (50, list(NAMES))
    assert report.avg_size == known.avg_size
    hits = model.predict_set(X_test).contains(y[1000:])
    assert report.marginal_coverage == hits[50:].sum() / 1000


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("n_unknown", [0, 3])
def test_the_cost_scorer_is_the_cost_of_compare(data, n_unknown):
    """The definition, row by row; unknown classes add nothing, as in `compare`."""
    X, y = data
    method = ClasswisePredictor(alpha=0.2, keep_top=False)
    model = ConformalClassifier(GaussianNB(), method).fit(X[:800], y[:800])
    X, labels = X[800:], y[800:].copy()
    labels[:n_unknown] = 100 + np.arange(n_unknown)
    known = np.arange(n_unknown, len(labels))
    sets, scores = model.predict_set(X), 1 - model.predict_proba(X)
    cost = sets.sizes.mean()
    for c in range(5):
        held = sets.to_mask()[:, c].mean()
        wanted = [(scores[:, c] <= s).mean() for s in scores[known][labels[known] == c, c]]
        cost += np.mean([max(v - held, 0) for v in wanted]) / 0.2
    assert cost_scorer(model, X, labels) == pytest.approx(-cost)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_a_search_scores_every_fold_although_some_classes_are_in_one_only():
    """Most classes have a few rows; sets of nearly all classes do not win by cost."""
    rng = np.random.default_rng(2)
    centers, share = rng.normal(size=(60, 8)), 1 / np.arange(1, 61)
    y = rng.choice(60, size=700, p=share / share.sum())
    X = centers[y] + 0.5 * rng.normal(size=(700, 8))
    y[:2] = 98, 99  # seen once
    model = ConformalClassifier(LogisticRegression(), ClasswisePredictor())
    grid = {"predictor": [ClasswisePredictor(), PooledPredictor()]}
    with pytest.warns(EvencoverWarning, match="have no calibration examples"):
        search = GridSearchCV(model, grid, scoring=cost_scorer, cv=KFold(3), refit=False).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert scores.argmax() == 1


@pytest.mark.parametrize("predictor", [None, "classwise", ClasswisePredictor(alpha=0.4)])
def test_alpha_is_a_parameter_of_its_own_and_of_the_predictor(data, predictor):
    X, y = data
    method = make_predictor(DEFAULT_METHOD if predictor is None else predictor).method
    expected = ConformalClassifier(GaussianNB(), make_predictor(method, alpha=0.2)).fit(X, y)
    model = ConformalClassifier(GaussianNB(), predictor)
    usual = model.fit(X, y).predictor_.thresholds_
    for parameters in ({"alpha": 0.2}, {"alpha": None, "predictor__alpha": 0.2}):
        model.set_params(**parameters)
        np.testing.assert_array_equal(model.predictor_.thresholds_, usual)  # until the next fit
        model.fit(X, y)
        assert model.predictor_.alpha == 0.2
        np.testing.assert_array_equal(model.predictor_.thresholds_, expected.predictor_.thresholds_)
        usual = model.predictor_.thresholds_
    if isinstance(predictor, str):
        assert model.predictor.method == predictor


def test_a_fitted_estimator_is_trained_again_with_a_warning_only(data):
    X, y = data
    inner = make_pipeline(StandardScaler(), GaussianNB())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConformalClassifier(inner).fit(X, y).fit(X, y)
    inner.fit(X[:1000], y[:1000])
    with pytest.warns(EvencoverWarning, match="FrozenEstimator"):
        ConformalClassifier(inner).fit(X[1000:], y[1000:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConformalClassifier(FrozenEstimator(inner)).fit(X[1000:], y[1000:])


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_no_row_both_trains_and_calibrates(share):
    X, y = numbered(np.arange(200) % 4)
    model = ConformalClassifier(Recorder(), calibration_size=share).fit(X, y)
    assert not hasattr(model.estimator, "trained_")  # a clone was fitted
    other = ConformalClassifier(Recorder(), "standard", calibration_size=share, random_state=1)
    other.fit(X, y)
    assert other.estimator_.asked_ != model.estimator_.asked_
    trained, calibrated = model.estimator_.trained_, model.estimator_.asked_
    assert not trained & calibrated
    assert trained | calibrated == set(X[:, 0])
    assert len(calibrated) == model.predictor_.n_calibration_ == 200 * share
    np.testing.assert_allclose(model.predictor_.class_counts_, 50 * share, atol=12)


def test_every_class_calibrates_on_its_share_of_rows_and_trains_on_others():
    X, y = numbered([0] * 50 + [1] * 3 + [2] * 2 + [3])
    model = ConformalClassifier(Recorder(), "standard", alpha=0.2, calibration_size=0.9)
    with pytest.warns(EvencoverWarning, match=r"1 of 4 classes have no .* \('3'\)"):
        model.fit(X, y)
    assert model.classes_.tolist() == model.estimator_.classes_.tolist() == [0, 1, 2, 3]
    assert model.predictor_.class_counts_.tolist() == [45, 2, 1, 0]
    assert len(model.estimator_.trained_ & set(range(50, 53))) == 1
    assert len(model.estimator_.trained_ & {53, 54}) == 1
    assert 55 in model.estimator_.trained_
    assert model.predictor_.guarantee_text in model.guarantee_text
    assert "drawn from each class" in model.guarantee_text
    other = clone(model).set_params(random_state=1)
    with pytest.warns(EvencoverWarning, match="have no calibration examples"):
        other.fit(X, y)
    assert other.estimator_.trained_ != model.estimator_.trained_


def test_some_class_must_have_a_row_for_each_part():
    X, y = numbered(np.arange(4))
    with pytest.raises(InputError, match="at least 2 samples"):
        ConformalClassifier(Recorder(), "standard").fit(X, y)


def test_classes_with_few_rows_do_not_make_sets_large():
    """Rows drawn from all classes at once gave 19 labels per set here."""
    rng, n_classes = np.random.default_rng(0), 120
    centers, counts = 1.6 * rng.normal(size=(n_classes, 20)), rng.integers(2, 7, n_classes)
    y = np.repeat(np.arange(n_classes), counts)
    model = ConformalClassifier(GaussianNB(var_smoothing=1), "pooled")
    model.fit(centers[y] + rng.normal(size=(len(y), 20)), y)
    y = rng.choice(n_classes, 2000, p=counts / counts.sum())
    report = model.evaluate(centers[y] + rng.normal(size=(2000, 20)), y)
    assert report.avg_size < 2
    assert report.marginal_coverage > 0.88


class Neighbours(ClassifierMixin, BaseEstimator):
    """As good for a class as it had rows of it: one feature, the class plus noise."""

    def fit(self, X, y):
        self.classes_, index = np.unique(y, return_inverse=True)
        self.means_ = np.bincount(index, weights=X[:, 0]) / np.bincount(index)
        return self

    def predict_proba(self, X):
        logits = -0.5 * (X[:, :1] - self.means_) ** 2 / 4
        rows = np.exp(logits - logits.max(axis=1, keepdims=True))
        return rows / rows.sum(axis=1, keepdims=True)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_coverage_over_rows_of_known_classes_holds_on_long_tails():
    """Most classes have a row or two. A class that no row was seen of cannot be covered.

    The mean over repetitions has a standard error of about .004 in the short form. Rows drawn from
    all classes at once counted the unseen ones as misses, and sets had 70 labels.
    """
    rng = np.random.default_rng(5)
    share = 1 / np.arange(1, 201) ** 1.3
    covered, sizes = [], []
    for seed in range(size(short=25, deep=500)):
        y = rng.choice(200, 1400, p=share / share.sum())
        X = (3.0 * y + 2 * rng.normal(size=1400))[:, None]
        model = ConformalClassifier(Neighbours(), "standard", random_state=seed)
        model.fit(X[:400], y[:400])
        known = np.isin(y[400:], model.classes_)
        sets = model.predict_set(X[400:][known])
        labels = np.searchsorted(model.classes_, y[400:][known])
        covered.append(sets.contains(labels, labels_are="indices").mean())
        sizes.append(sets.sizes.mean())
    assert 0.88 < np.mean(covered) < 0.93
    assert np.mean(sizes) < 3


def test_a_frozen_model_is_not_fitted_again_and_all_rows_calibrate():
    X, y = numbered(np.arange(100) % 4)
    frozen = FrozenEstimator(Recorder().fit(X[:20], y[:20]))
    model = ConformalClassifier(frozen, calibration_size=None).fit(X[20:], y[20:])
    assert frozen.trained_ == set(range(20))
    assert frozen.asked_ == set(range(20, 100))
    assert model.predictor_.n_calibration_ == 80
    assert model.estimator_ is frozen


BAD = [
    *({"calibration_size": share} for share in (0, 1.0, -0.5, "half", None, float("nan"))),
    {"random_state": None},
]


@pytest.mark.parametrize("parameters", BAD, ids=str)
def test_bad_parameters_are_rejected(data, parameters):
    with pytest.raises(InputError, match=f"'{next(iter(parameters))}'"):
        ConformalClassifier(GaussianNB(), **parameters).fit(*data)


def test_one_example_or_an_unknown_method_is_rejected(data):
    with pytest.raises(InputError, match="2 samples"):
        ConformalClassifier(Recorder()).fit(*numbered([0]))
    with pytest.raises(InputError, match="'clustered'"):
        ConformalClassifier(GaussianNB(), "clusterd").fit(*data)


@pytest.mark.parametrize("labels", [np.zeros(20, dtype=int), np.array(["0"] * 20)])
def test_labels_of_another_type_are_rejected(data, labels):
    X, y = data
    known = NAMES[y] if labels.dtype.kind == "i" else y
    frozen = FrozenEstimator(GaussianNB().fit(X, known))
    with pytest.raises(InputError, match="row 0"):
        ConformalClassifier(frozen).fit(X[:20], labels)
