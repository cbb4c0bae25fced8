"""compare: the naive loop's numbers, splits as asked for, and no claim that noise could make."""

import json
from dataclasses import replace

import numpy as np
import oracle
import pytest
from depth import IS_DEEP
from scoring import true_label_scores

from evencover import APS, RAPS, EvencoverWarning, InputError, Softmax, compare
from evencover.comparison import Candidate, Comparison
from evencover.comparison.splits import calibration_split
from evencover.evaluation import CoverageReport, Tally
from evencover.evaluation.metrics import shown_in
from evencover.evaluation.statistics import squared_gaps, squared_shortfalls
from evencover.predictors import (
    ClasswisePredictor,
    ClusteredPredictor,
    PooledPredictor,
    StandardPredictor,
)

SEED = 3
CLUSTERED = {"gamma": 0.4, "n_clusters": 2}


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(600, 8, seed=2)


def naive_reports(data, make, score, alpha, n_splits, size):
    """Fit on the rows of each split, make the sets of the others, evaluate them."""
    everything = np.arange(len(data.labels))
    true_scores = true_label_scores(score, *data, random_state=SEED)
    keys = np.array(oracle.row_keys(data.rows), dtype=np.uint64)
    for repetition in range(n_splits):
        rows = calibration_split(data.labels, SEED, repetition, size)
        test = np.setdiff1d(everything, rows)
        predictor = make(alpha=alpha, score=score, random_state=SEED + repetition)
        predictor.fit_scores(true_scores[rows], data.labels[rows], data.rows.shape[1], ids=rows)
        fit = predictor.fit_  # with the rows' own random numbers
        predictor.set_params(random_state=SEED)
        predictor.fit_ = replace(fit, method=replace(fit.method, random_state=SEED))
        source = predictor.fit_.open(data.rows[test], data.labels[test], allow_unknown=True)
        yield predictor.evaluate(replace(source, keys=keys[test]))


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize(
    ("sizes", "variant"),
    [
        (sizes, variant)
        for sizes in ([0.5], [10, 25, 0.7])
        for variant in ({}, {"exact": True}, {"keep_top": True})
        if IS_DEEP or (len(sizes) > 1) == (not variant)
    ],
    ids=str,
)
def test_compare_is_the_naive_loop(data, sizes, variant):
    makers = {
        StandardPredictor: lambda **p: StandardPredictor(**variant, **p),
        ClasswisePredictor: lambda **p: ClasswisePredictor(**variant, **p),
        ClusteredPredictor: lambda **p: ClusteredPredictor(**CLUSTERED, **variant, **p),
        PooledPredictor: lambda **p: PooledPredictor(strength=9.0, **variant, **p),
    }
    scores = [Softmax(), APS(), RAPS(k_reg=2)]
    alpha = 0.3 if "keep_top" in variant else 0.1
    result = compare(
        *data,
        methods=[make() for make in makers.values()],
        scores=scores,
        alpha=alpha,
        n_splits=3,
        random_state=SEED,
        calibration_sizes=sizes,
    )
    assert [each.calibration_size for each in result.by_size] == sizes
    pairs = [(score, method) for score in scores for method in makers]
    for of_size in result.by_size:
        assert [(c.score, c.method) for c in of_size.candidates] == [
            (score.name, method.method) for score, method in pairs
        ]
        size = of_size.calibration_size
        for candidate, (score, method) in zip(of_size.candidates, pairs, strict=True):
            expected = naive_reports(data, makers[method], score, alpha, 3, size)
            for mine, theirs in zip(candidate.reports, expected, strict=True):
                np.testing.assert_array_equal(mine.class_counts, theirs.class_counts)
                np.testing.assert_array_equal(mine.class_covered, theirs.class_covered)
                np.testing.assert_array_equal(mine.size_counts, theirs.size_counts)
                # A comparison counts the sizes of sets, but not those of sets with their label.
                theirs = replace(theirs, covered_sizes=None)
                np.testing.assert_equal(mine.metrics(), theirs.metrics())


@pytest.mark.parametrize(
    ("metric", "estimate"), [("true_gap", squared_gaps), ("shortfall", squared_shortfalls)]
)
def test_squares_are_averaged_over_splits_before_the_root(data, metric, estimate):
    result = compare(*data, methods=["standard"], scores=["softmax"], n_splits=5)
    (candidate,) = result.candidates
    squares = np.array([estimate(r.class_covered, r.class_counts, 0.1) for r in candidate.reports])
    root = np.sqrt(squares.mean())
    assert candidate.mean(metric) == pytest.approx(root)
    error = squares.mean(axis=1).std(ddof=1) / np.sqrt(5)
    assert candidate.standard_error(metric) == pytest.approx(error / (2 * root))
    gaps = candidate.values("covgap")  # other metrics are averaged as they are
    assert candidate.mean("covgap") == gaps.mean()
    assert candidate.standard_error("covgap") == pytest.approx(gaps.std(ddof=1) / np.sqrt(5))
    alone = replace(candidate, reports=candidate.reports[:1], costs=candidate.costs[:1])
    assert alone.mean(metric) == pytest.approx(getattr(candidate.reports[0], metric))


FEW = {"methods": ["standard", "classwise"]}


@pytest.mark.parametrize("n", [1, 5, 10**4])
def test_so_many_rows_of_each_class_calibrate(n):
    labels = np.repeat([0, 1, 2, 4], [40, 3, 2, 1])
    rows = calibration_split(labels, 0, 0, n)
    counts = np.bincount(labels[rows], minlength=5)
    # every class that has two rows keeps one to test on
    assert counts.tolist() == [min(n, 39), min(n, 2), 1, 0, 1]


def test_a_learning_curve_has_every_candidate_at_every_size(data):
    result = compare(*data, scores=["softmax"], n_splits=2, calibration_sizes=[30, 10], **FEW)
    few, many = result.by_size
    assert (few.n_calibration, many.n_calibration) == (80, 240)
    assert [row["n_calibration"] for row in result.rows()] == [80, 80, 240, 240]
    assert few.rows() == result.rows()[:2]
    title, *lines = result.curve_table().splitlines()
    assert title.endswith("  10 per class  30 per class")
    metrics = ("avg_size", "shortfall")
    assert lines[1].endswith("{:.1f}, {:.1f}".format(*map(many.candidates[1].mean, metrics)))
    assert lines[1] in str(result)


def test_sizes_that_the_data_cannot_serve_are_reported(data):
    counts = np.bincount(data.labels)
    some, none = int(np.median(counts)), int(counts.max())
    with pytest.warns(EvencoverWarning, match=f"Calibration size {none} is left out"):
        result = compare(*data, scores=["softmax"], n_splits=2, calibration_sizes=[5, none], **FEW)
    assert [each.calibration_size for each in result.by_size] == [5]
    few = (counts <= some).sum()
    with pytest.warns(EvencoverWarning, match=f"{few} of 8 classes have no more than {some}"):
        compare(*data, scores=["softmax"], n_splits=2, calibration_sizes=some, **FEW)


def test_splits_differ_and_reach_every_row(data):
    splits = [set(calibration_split(data.labels, 0, number)) for number in range(20)]
    assert len({frozenset(split) for split in splits}) == 20
    assert set.union(*splits) == set(range(600))
    overlap = np.mean([len(splits[0] & other) for other in splits[1:]])
    assert abs(overlap - 150) < 10  # half of each half: they are independent
    for share in (0.1, 0.999, 1e-9):
        rows = calibration_split(data.labels, 0, 0, share)
        assert len(rows) == max(1, int(share * 600))
        assert (np.diff(rows) > 0).all()


def candidate(method, costs, size, gap):
    """A candidate with these costs; its classes miss 0.5 by the gap, with sets of the size."""
    counts = np.zeros(1001, dtype=int)
    counts[size] = 1000
    covered = np.array([round(500 - 10 * gap)])
    report = CoverageReport.from_tally(Tally(np.array([1000]), covered, counts), 0.5)
    return Candidate(method, "softmax", (report,) * len(costs), tuple(costs))


def comparison(*candidates):
    return Comparison(candidates, 0.5, len(candidates[0].reports), 500, 500)


def test_the_difference_is_paired_corrected_for_overlap_and_for_all_pairs():
    one = candidate("one", [1.0, 5.0, 3.0, 9.0], 1, 1)
    other = candidate("other", [2.0, 6.5, 4.0, 10.5], 1, 1)
    difference = comparison(one, other).difference_to_best(other)
    steps = np.array([1.0, 1.5, 1.0, 1.5])
    assert comparison(one, other).difference_to_best(one) == (0, 0, False)
    assert difference.mean == pytest.approx(1.25)
    # Nadeau and Bengio: (1/J + n_test/n_train) times the variance
    assert difference.standard_error == pytest.approx(np.sqrt((1 / 4 + 1) * steps.var(ddof=1)))
    assert difference.is_significant  # 1.25 / 0.32 = 3.9, beyond 3.18 for one pair
    more = [candidate(str(n), [20.0, 21.0, 19.0, 20.0], 1, 1) for n in range(3)]
    assert not comparison(one, other, *more).difference_to_best(other).is_significant  # 5.8 for ten


def test_the_pareto_front_is_what_nobody_beats():
    costs = [1.0] * 4
    front = [candidate("a", costs, 3, 5), candidate("b", costs, 2, 9), candidate("c", costs, 1, 14)]
    twin = candidate("twin", costs, 1, 14)
    beaten = [candidate("x", costs, 3, 9), candidate("y", costs, 1, 20)]
    result = comparison(*front, twin, *beaten)
    flags = {c.method: result.is_on_pareto_front(c) for c in result.candidates}
    assert flags == {"a": True, "b": True, "c": True, "twin": True, "x": False, "y": False}


def test_everything_can_be_read_in_every_form(data):
    result = compare(*data, scores=["softmax", "aps"], n_splits=3, **FEW)
    about = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    names = ("alpha", "n_splits", "n_calibration", "n_test")
    assert [about[name] for name in names] == [0.1, 3, 300, 300]
    assert about["candidates"] == result.rows()
    assert about["recommended"] == {
        "method": result.recommended.method,
        "score": result.recommended.score,
        "max_share": None,
    }
    assert about["noise_floor"] == result.candidates[1].mean("covgap_noise_floor")
    rows = result.rows()
    assert len(rows) == 4
    for metric in (each.name for each in shown_in("comparison")):
        assert [row[metric] for row in rows] == [c.mean(metric) for c in result.candidates]
        errors = [c.standard_error(metric) for c in result.candidates]
        assert [row[f"{metric}_se"] for row in rows] == errors
    assert min(row["cost_above_best"] for row in rows) == 0
    assert [row["cost"] for row in rows] == [np.mean(c.costs) for c in result.candidates]
    assert " ".join(str(result).split()).endswith(" ".join(result.reason.split()))
    assert max(map(len, str(result).splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"n_splits": 1}, "'n_splits'"),
        ({"alpha": 1.2}, "'alpha'"),
        ({"calibration_sizes": 1.0}, "fraction"),
        ({"calibration_sizes": 0}, "'calibration_sizes'"),
        ({"calibration_sizes": []}, "'calibration_sizes'"),
        ({"calibration_sizes": np.ones(8)}, "'calibration_sizes'"),
        ({"methods": ["standrad"]}, "'standard'"),
        ({"scores": ["softmx"]}, "'softmax'"),
        ({"methods": []}, "method"),
        ({"scores": []}, "score"),
        ({"random_state": -1}, "'random_state'"),
    ],
)
def test_bad_parameters_are_rejected(data, arguments, name):
    with pytest.raises(InputError, match=name):
        compare(*data, **arguments)


@pytest.mark.parametrize(
    ("rows", "labels", "words"),
    [
        (np.full((1, 3), 1 / 3), [0], "'calibration_sizes'"),
        (np.full((9, 3), 1 / 3), None, "'labels'"),
        (iter([(np.full((9, 3), 1 / 3), [0, 1, 2] * 3)]), None, "iterator"),
    ],
)
def test_unsuitable_data_are_rejected(rows, labels, words):
    with pytest.raises(InputError, match=words):
        compare(rows, labels)


def test_frames_have_one_row_per_candidate_or_per_split(data):
    result = compare(*data, methods=["standard"], n_splits=3)
    candidates, splits = result.to_pandas(), result.to_pandas("splits")
    assert not splits.drop(columns="max_share").isna().any(axis=None)
    assert candidates.to_dict("records") == result.rows()
    assert splits.groupby("score")["cost"].mean().loc["aps"] == pytest.approx(
        candidates.set_index("score").loc["aps", "cost"]
    )
    assert splits["split"].tolist() == [0, 1, 2] * 3
    assert splits["avg_size"][0] == result.candidates[0].reports[0].avg_size
    with pytest.raises(InputError, match="classes"):
        result.to_pandas("classes")


def test_splits_of_a_capped_method_are_told_apart(data):
    shares = [None, 0.5]
    result = compare(*data, methods=["pooled"], scores=["softmax"], max_share=shares, n_splits=2)
    found = result.to_pandas("splits")["max_share"]
    assert found.isna().tolist() == [True, True, False, False]
    assert found[2] == found[3] == 0.5
