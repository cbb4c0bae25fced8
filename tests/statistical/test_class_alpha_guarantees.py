"""The guarantees of an alpha per class and of the floor, by coverage that is computed exactly.

Scores of class y are u ** (1 / shape_y), so a threshold q covers q ** shape_y of the class, and the
coverage of a fit is no estimate. Coverage is averaged over calibrations, with labels drawn at
random: a mean that is significantly below its guarantee fails. `broken` lowers all ranks, and
floors are also tried at a lower level; both must be noticed.
"""

import numpy as np
import pytest
from depth import size

from evencover import quantiles
from evencover.predictors import predictor_class

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

N_CLASSES, N_ROWS, SIGMAS = 24, 3000, 4
LEVELS = np.array([0.01, 0.05, 0.1, 0.2])
ALPHA = LEVELS[np.arange(N_CLASSES) % 4]  # classes of every size and shape at each level
FREQUENCY = np.geomspace(1, 0.08, N_CLASSES) / np.geomspace(1, 0.08, N_CLASSES).sum()
SHAPE = np.random.default_rng(7).permutation(np.geomspace(0.5, 8, N_CLASSES))


@pytest.fixture(params=[False, True], ids=["as it is", "broken"])
def broken(request, monkeypatch):
    """Everything is tested twice: as it is, and with every conformal rank 1.5% too low."""
    if request.param:
        ranks_of = quantiles.conformal_ranks

        def lowered(counts, *level):
            return np.maximum(ranks_of(counts, *level) - 1 - counts // 60, 0)

        monkeypatch.setattr(quantiles, "conformal_ranks", lowered)
    return request.param


def calibration(rng, ties=False):
    labels = rng.choice(N_CLASSES, N_ROWS, p=FREQUENCY)
    scores = rng.random(N_ROWS) ** (1 / SHAPE[labels])
    return np.ceil(scores * 40) / 40 if ties else scores, labels


def coverage(predictor, ties=False):
    """Coverage of each class (K,), given the calibration."""

    def below(limit):
        limit = np.clip(limit, 0, 1)
        return (np.floor(limit * 40 + 1e-9) / 40 if ties else limit) ** SHAPE

    upper, lower, chance, _ = predictor.fit_.thresholds
    if lower is None:
        return below(upper)
    return chance * below(upper) + (1 - chance) * below(lower)


def means_over_calibrations(method, n, ties=False, **parameters):
    """Mean over calibrations, and its standard error, of each class's and each level's coverage."""
    rng, classes, levels = np.random.default_rng(5), [], []
    for repetition in range(n):
        predictor = predictor_class(method)(random_state=repetition, **parameters)
        found = coverage(predictor.fit_scores(*calibration(rng, ties), N_CLASSES), ties)
        classes.append(found)
        weights = [FREQUENCY * (level == ALPHA) for level in LEVELS]
        levels.append([found @ weight / weight.sum() for weight in weights])
    return [
        (np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(n))
        for found in (classes, levels)
    ]


def holds(mean, error, guarantee):
    return bool((mean >= guarantee - SIGMAS * error - 1e-12).all())


def test_classwise_covers_each_class_at_its_own_level(broken):
    found, _ = means_over_calibrations("classwise", size(short=120, deep=800), alpha=ALPHA)
    assert holds(*found, 1 - ALPHA) != broken


@pytest.mark.parametrize(
    ("method", "more"), [("standard", {}), ("pooled", {"split": "holdout"})], ids=str
)
def test_classes_of_one_level_are_covered_at_that_level(broken, method, more):
    _, found = means_over_calibrations(method, size(short=40, deep=800), alpha=ALPHA, **more)
    assert holds(*found, 1 - LEVELS) != broken


@pytest.mark.parametrize(
    ("method", "more"),
    [("standard", {}), ("pooled", {"split": "holdout", "floor": None})],  # a floor adds to it
    ids=str,
)
def test_exact_coverage_equals_each_level(method, more):
    n = size(short=40, deep=800)
    _, (mean, error) = means_over_calibrations(method, n, alpha=ALPHA, exact=True, **more)
    assert (np.abs(mean - (1 - LEVELS)) < SIGMAS * error).all()


def test_pooled_is_near_each_level():
    _, (mean, _) = means_over_calibrations("pooled", size(short=40, deep=800), alpha=ALPHA)
    assert np.abs(mean - (1 - LEVELS)).max() < 0.006


def test_clustered_covers_equal_classes_at_their_own_levels(monkeypatch):
    """Proposition 3 with distance 0: where all scores have one law, each class has its level."""
    monkeypatch.setitem(globals(), "SHAPE", np.ones(N_CLASSES))
    found, _ = means_over_calibrations(
        "clustered", size(short=50, deep=500), alpha=ALPHA, n_clusters=2, gamma=0.5
    )
    assert holds(*found, 1 - ALPHA)
    assert (found[0] < 1 - ALPHA + 0.01).all()


METHODS = [
    *("standard", "pooled", "interpolated"),
    *(
        pytest.param(m, marks=pytest.mark.deep)
        for m in ("classwise", "clustered", "macro", "fuzzy")
    ),
]


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("method", METHODS)
def test_the_floor_holds_for_every_class(method, ties):
    """At alpha = 0.4 the methods themselves cover less than the floor."""
    n = size(short=40, deep=800)
    given = {"floor": 0.8, "alpha": 0.4}
    found, _ = means_over_calibrations(method, n, ties, **given)
    assert holds(*found, 0.8)
    if method != "interpolated" or ties:
        lower, _ = means_over_calibrations(method, n // 2, ties, **{**given, "floor": 0.7})
        assert not holds(*lower, 0.8)


def test_the_floor_of_rc3p_holds_for_scores_and_ranks():
    """Labels are drawn from rows, and sets are looked at: RC3P limits scores and ranks."""
    rng, hits, guaranteed = np.random.default_rng(2), [], []
    for repetition in range(size(short=40, deep=800)):
        p = rng.dirichlet(np.geomspace(1, 0.2, 5), 300)
        labels = (p.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1).clip(max=4)
        predictor = predictor_class("rc3p")(alpha=0.5, floor=0.8, random_state=repetition)
        covered = predictor.fit(p[:150], labels[:150]).predict_set(p[150:]).contains(labels[150:])
        counts = np.bincount(labels[150:], minlength=5)
        hits.append(np.bincount(labels[150:][covered], minlength=5) / np.maximum(counts, 1))
        guaranteed.append(predictor.guarantees_)
    mean, error = np.mean(hits, axis=0), np.std(hits, axis=0) / np.sqrt(len(hits))
    assert np.mean(guaranteed) > 0.75  # 0 with fewer than 9 examples, else 0.8 or more
    assert holds(mean, error, np.mean(guaranteed, axis=0))
