"""The tidy table holds what plain predictors give on the same splits."""

import warnings

import numpy as np
import oracle
import pytest
from scoring import score_matrix, true_label_scores

from evencover import (
    APS,
    RAPS,
    EvencoverWarning,
    InputError,
    Softmax,
)
from evencover.experiments import Grid, Results, run
from evencover.experiments.study import coverage_of, plan, sample
from evencover.predictors import make_predictor
from evencover.randomness import RandomStream, uniforms

SEED = 7
SCORES = {"softmax": Softmax(), "aps": APS(), "raps": RAPS()}


def find(results, **wanted):
    rows = [r for r in results.records if all(r[k] == v for k, v in wanted.items())]
    assert len(rows) == 1
    return rows[0]


def split(data, n_avg, repetition):
    calibration = sample(900, 12, n_avg, repetition, SEED)
    test = np.setdiff1d(np.arange(len(data.labels)), calibration)
    return calibration, test


@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize("method", ["standard", "classwise", "clustered"])
@pytest.mark.parametrize("exact", [False, True])
def test_every_metric_is_what_the_definitions_give(results, data, score, method, exact):
    """From the whole score matrix, without any of the study's shortcuts."""
    calibration, test = split(data, 20, 1)
    scores = score_matrix(SCORES[score], data.rows, random_state=SEED)
    true_scores = true_label_scores(SCORES[score], data.rows, data.labels, random_state=SEED)
    predictor = make_predictor(method, exact=exact, random_state=SEED + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        predictor.fit_scores(
            true_scores[calibration], data.labels[calibration], 12, ids=calibration
        )
    limits = np.broadcast_to(predictor.thresholds_, scores.shape)
    if exact:
        keys = np.array(oracle.row_keys(data.rows), dtype=np.uint64)
        coin = uniforms(SEED, RandomStream.EXACT, keys)[:, None]
        tails = coin >= predictor.fit_.thresholds.upper_probability
        limits = np.where(tails, predictor.fit_.thresholds.lower, limits)
    member = (scores <= limits)[test]
    labels = data.labels[test]
    covered = member[np.arange(len(test)), labels]
    present = np.unique(labels)
    coverage = np.array([covered[labels == y].mean() for y in present])
    row = find(results, score=score, method=method, n_avg=20, repetition=1, exact=exact)
    assert row["covgap"] == pytest.approx(100 * np.abs(coverage - 0.9).mean(), abs=1e-10)
    assert row["frac_undercovered"] == np.mean(coverage <= 0.8 + 1e-12)
    assert row["macro_coverage"] == pytest.approx(coverage.mean())
    assert row["marginal_coverage"] == pytest.approx(covered.mean())
    assert row["avg_size"] == pytest.approx(member.sum(axis=1).mean())
    assert row["size_median"] == np.sort(member.sum(axis=1))[-(-len(test) // 2) - 1]
    assert row["n_classes_evaluated"] == len(present)


def test_the_summary_is_mean_and_standard_error(results):
    first = results.summary()[0]
    values = np.array([row["covgap"] for row in results.records[:3]])
    assert first["covgap"] == pytest.approx(values.mean())
    assert first["covgap_se"] == pytest.approx(np.sqrt(values.var(ddof=1) / 3))
    assert first["repetitions"] == 3


def test_how_units_are_cut_does_not_matter(results, make_grid, monkeypatch):
    monkeypatch.setattr("evencover.experiments.study.VECTORS_PER_UNIT", 5)
    assert len(plan(make_grid())) == 3 * 6
    cut = run(make_grid())
    assert cut.records == results.records
    assert cut.classes == results.classes


def test_class_coverage_is_summed_over_the_repetitions(results, data):
    covered, rows = np.zeros(12), np.zeros(12)
    for repetition in range(3):
        calibration, test = split(data, 10, repetition)
        predictor = make_predictor("standard")
        _fit_quietly(predictor, data, calibration)
        hit = true_label_scores(Softmax(), *data)[test] <= predictor.thresholds_[0]
        covered += np.bincount(data.labels[test], hit, 12)
        rows += np.bincount(data.labels[test], minlength=12)
    with np.errstate(invalid="ignore"):
        expected = covered / rows
    cell = {"score": "softmax", "method": "standard", "n_avg": 10, "exact": False}
    (row,) = [row for row in results.classes if cell.items() <= row.items()]
    np.testing.assert_array_equal(coverage_of(row), expected)


def _fit_quietly(predictor, data, calibration):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        predictor.fit_scores(
            true_label_scores(Softmax(), *data)[calibration], data.labels[calibration], 12
        )


def test_a_sample_is_without_replacement_and_differs_between_repetitions(data):
    one, same, other = (sample(900, 12, 20, r, SEED) for r in (0, 0, 1))
    assert len(np.unique(one)) == 240
    np.testing.assert_array_equal(one, same)
    assert len(np.intersect1d(one, other)) < 150
    nested = sample(900, 12, 10, 0, SEED)
    assert not np.isin(nested, one).all()


def test_fixed_test_rows_are_those_that_the_largest_size_leaves(make_grid, data):
    how = {"scores": ["softmax"], "methods": ["standard"], "exact": False, "fixed_test": True}
    found = run(make_grid(n_avg=[10, 20], **how))
    largest = [sample(900, 12, 20, r, SEED) for r in range(3)]
    n_test = [np.bincount(np.delete(data.labels, rows), minlength=12) for rows in largest]
    assert [row["rows"] for row in found.classes] == [np.sum(n_test, axis=0).tolist()] * 2
    assert {row["n_validation"] for row in found.records} == {900 - 240}
    for repetition, rows in enumerate(largest):
        assert np.isin(sample(900, 12, 10, repetition, SEED, of=20), rows).all()


def test_too_large_sizes_are_left_out_with_a_note(make_grid):
    grid = make_grid(n_avg=[10, 75, 80], scores=["softmax"], methods=["standard"])
    with pytest.warns(EvencoverWarning, match="n_avg = 75, 80"):
        found = run(grid)
    assert {row["n_avg"] for row in found.records} == {10}


def test_a_study_without_any_result_is_refused(make_grid, tmp_path):
    grid = make_grid(n_avg=[75], scores=["softmax"], methods=["standard"])
    with pytest.warns(EvencoverWarning), pytest.raises(InputError, match="no results"):
        run(grid, tmp_path / "out")


def test_the_paper_s_rule_fills_in_gamma_and_m(make_grid):
    auto = run(make_grid(scores=["softmax"], methods=["clustered"], exact=False, n_avg=[40]))
    fixed = run(
        make_grid(
            scores=["softmax"], methods=["clustered"], exact=False, n_avg=[40],
            gamma=[0.5], n_clusters=[3],
        )
    )  # fmt: skip
    assert all(0 <= row["gamma"] < 1 for row in auto.records)
    tuned = [row for row in fixed.records if row["parameters"]]
    assert {(row["gamma"], row["M"]) for row in tuned} == {(0.5, 3)}
    assert [row for row in fixed.records if row not in tuned] == auto.records


def test_a_metric_that_few_test_rows_leave_unknown_is_none(tmp_path):
    """At most two test rows of a class are too few for Shortfall."""
    rows, labels = np.full((60, 20), 0.5 / 19), np.repeat(np.arange(20), 3)
    rows[np.arange(60), labels] = 0.5
    rows, labels = rows[np.arange(60) % 3 > 0], labels[np.arange(60) % 3 > 0]
    how = {"methods": ["standard"], "scores": ["softmax"], "n_avg": [1], "repetitions": 2}
    results = run(Grid(datasets=[("few", rows, labels)], **how), tmp_path / "out")
    assert {row["shortfall"] for row in results.records} == {None}
    assert Results.load(tmp_path / "out").records == results.records
    assert np.isnan(results.summary()[0]["shortfall"])
