"""All trials in one pass give what each predictor alone would give."""

import numpy as np
import oracle
import pytest

import evencover.comparison.trials as trials_module
import evencover.data.readers as source_module
from evencover import APS, PAS, RAPS, SAPS, Softmax
from evencover.comparison.cost import Trial
from evencover.comparison.trials import ScoredRows
from evencover.data import as_source
from evencover.evaluation.metrics import Tally
from evencover.predictors import make_predictor, method_names

SCORES = [Softmax(), APS(), APS(randomize=False), RAPS(penalty=0.1, k_reg=2)]
MORE = [PAS(), PAS([1, 2, 3, 4, 5, 6, 7]), SAPS()]
SEED = 5


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(300, 7, seed=1)


def scored(data, scores=SCORES, **changes):
    return ScoredRows(as_source(*data), scores, random_state=SEED, **changes)


def trials_of(rows, data, **parameters):
    """One trial per score and method, calibrated on the first 150 rows and tested on some."""
    is_test = np.arange(300) % 3 == 0
    return [
        Trial(
            make_predictor(method, score=score, random_state=SEED, **parameters).fit_scores(
                rows.calibration_scores[score][:150], data.labels[:150], 7
            ),
            is_test,
        )
        for score in rows.test_scores
        for method in ("standard", "classwise")
    ]


def tallies_of(rows, trials):
    return [outcome.tally for outcome in rows.measure(trials)]


def alone(trial, data):
    """The same counts from the sets themselves."""
    tested = np.flatnonzero(trial.is_test)
    keys = np.array(oracle.row_keys(data.rows), dtype=np.uint64)
    sets = trial.predictor.rule().predict_set(data.rows[tested], keys=keys[tested])
    tally = Tally.of(sets, data.labels[tested])
    uncounted = ("size_sums", "appearances", "accepted", "accepted_right", "covered_sizes")
    return tally._replace(**dict.fromkeys(uncounted))


def assert_equal(tallies, expected):
    for one, other in zip(tallies, expected, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("keep_top", [False, True])
@pytest.mark.parametrize("alpha", [0.05, 0.4])
def test_one_pass_counts_what_every_trial_alone_counts(data, alpha, exact, keep_top):
    rows = scored(data)
    trials = trials_of(rows, data, alpha=alpha, exact=exact, keep_top=keep_top)[::-1]
    tallies = tallies_of(rows, trials)
    assert_equal(tallies, [alone(trial, data) for trial in trials])
    assert all(tally.rows.sum() == tally.sizes.sum() == 100 for tally in tallies)
    n_empty = sum(tally.sizes[0] for tally in tallies)
    assert n_empty > 0 if alpha == 0.4 and not keep_top else n_empty < 10
    assert not keep_top or n_empty == 0


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("keep_top", [False, True])
def test_every_method_and_score_counts_the_same_in_one_pass(data, keep_top):
    """With rank limits, and with scores whose parameters come from each trial's labels."""
    rows = scored(data, [*SCORES, *MORE], with_ranks=True)
    trials = []
    for number, method in enumerate(method_names()):
        for score in rows.test_scores:
            predictor = make_predictor(
                method, score=score, random_state=SEED, keep_top=keep_top, alpha=0.3
            )
            rows.calibrate(predictor, np.arange(20 * number, 120 + 15 * number))
            trials.append(Trial(predictor, np.arange(300) % 3 == 0))
    assert_equal(tallies_of(rows, trials), [alone(trial, data) for trial in trials])
    limits = [trial.thresholds.rank_limit for trial in trials]
    assert any(limit is not None and limit.min() < 7 for limit in limits)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_a_trial_is_the_predictor_fitted_on_its_rows(data):
    rows = scored(data, [PAS()], with_ranks=True)
    some = np.arange(40, 190)
    for method in method_names():
        trial = make_predictor(method, score="pas", random_state=SEED)
        rows.calibrate(trial, some)
        plain = make_predictor(method, score="pas", random_state=SEED)
        plain.fit(data.rows[some], data.labels[some], ids=some)
        np.testing.assert_array_equal(trial.thresholds_, plain.thresholds_)


def test_ids_go_with_their_rows_in_every_task(data, monkeypatch, tmp_path):
    monkeypatch.setattr(trials_module, "ROWS_AT_ONCE", 23)
    monkeypatch.setattr(source_module, "BLOCK_ELEMENTS", 7 * 40)
    ids = np.arange(300)[::-1] + 7
    np.savez(tmp_path / "rows.npz", probabilities=data.rows, labels=data.labels, ids=ids)
    rows = ScoredRows(as_source(tmp_path / "rows.npz"), SCORES, random_state=SEED)
    np.testing.assert_array_equal(rows.source.ids, ids)
    trials = trials_of(rows, data, exact=True)
    tested = np.flatnonzero(trials[0].is_test)
    sets = [trial.predictor.predict_set(data.rows[tested], ids=ids[tested]) for trial in trials]
    sizes = [np.bincount(each.sizes, minlength=8) for each in sets]
    np.testing.assert_array_equal([tally.sizes for tally in tallies_of(rows, trials)], sizes)
