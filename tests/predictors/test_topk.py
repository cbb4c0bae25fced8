"""Top-k rows: as dense rows where every class is listed, and censored labels where not."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import numpy as np
import oracle
import pyarrow.parquet as pq
import pytest
from depth import size
from scipy.sparse import coo_array, csc_matrix, csr_array, csr_matrix

import evencover
from evencover import (
    ClasswisePredictor,
    CoverageMonitor,
    InputError,
    PooledPredictor,
    StandardPredictor,
    TopK,
    compare,
    load,
    predict_to_folder,
    recommend,
    save,
    to_onnx,
    write_report,
)
from evencover.cli.main import main
from evencover.evaluation.recall import RecallAtK
from evencover.evaluation.statistics import clopper_pearson
from evencover.predictors import make_predictor, method_names, predictor_class

K = 12


def model_rows(seed, n, n_classes=K, dtype=np.float64):
    """Labels drawn from the rows' own probabilities, so that everything is calibrated."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(n_classes, 0.3), n).astype(dtype)
    labels = (rng.random((n, 1)) > np.cumsum(rows, axis=1)).sum(axis=1).clip(max=n_classes - 1)
    return rows, labels


def top_of(rows, k):
    """The k most probable classes of each row, the least probable first."""
    classes = np.argsort(-rows, axis=1, kind="stable")[:, :k][:, ::-1]
    return TopK(classes, np.take_along_axis(rows, classes, axis=1), n_classes=rows.shape[1])


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", evencover.EvencoverWarning)
        yield


def plain(value):
    """Turn what a predictor returns into lists, to compare all of it at once."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    if isinstance(value, np.ndarray | np.generic):
        return repr(value.tolist())  # NaN equals itself
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return plain(list(vars(value).items())) if hasattr(value, "__dict__") else value


def outcomes(predictor, form):
    """Everything that follows from rows, given in this form."""
    (rows, labels), (more, new_labels) = model_rows(0, 300), model_rows(1, 80)
    test, test_labels = model_rows(2, 120)
    predictor.fit(form(rows), labels)
    yield predictor.thresholds_
    predictor.partial_fit(form(more), new_labels)
    yield predictor.fit_.thresholds
    yield predictor.fit_.inputs
    yield predictor.fit_.rows
    if not predictor.exact:  # which has no top class in every set
        predictor.fit_acceptance(form(more), new_labels, accuracy=0.6)
    sets = predictor.predict_set(form(test))
    yield sets.to_lists()
    yield sets.accepted
    yield oracle.p_values_of(predictor, form(test))
    yield predictor.evaluate(form(test), test_labels)
    yield predictor.rule().predict_set(form(test[:5])).to_lists()
    yield predictor.guarantee_text


METHODS = [
    (method, exact)
    for method in method_names()
    for exact in (False, True)
    if "exact" in predictor_class(method).supports or not exact
]


def every_class(rows):
    return top_of(rows, rows.shape[1])


@pytest.mark.parametrize("score", ["softmax", "aps", "raps", "saps", "pas"])
@pytest.mark.parametrize(("method", "exact"), METHODS)
def test_rows_that_list_every_class_are_dense_rows(method, exact, score):
    dense, listed = (make_predictor(method, score=score, exact=exact) for _ in range(2))
    pairs = zip(outcomes(dense, np.asarray), outcomes(listed, every_class), strict=True)
    for expected, found in pairs:
        assert plain(found) == plain(expected)


def test_comparisons_and_pages_of_rows_that_list_every_class_are_those_of_dense_rows(tmp_path):
    rows, labels = model_rows(3, size(200, 400), dtype=np.float32)
    options = {"methods": ["pooled", "rc3p"], "n_splits": 2}
    results = [
        compare(form(rows), labels, scores=["aps"], **options).to_dict()
        for form in (np.asarray, every_class)
    ]
    assert results[0] == results[1]
    assert repr(recommend(rows, labels)) == repr(recommend(every_class(rows), labels))
    fitted = StandardPredictor().fit(rows, labels)
    pages = [
        write_report(fitted, tmp_path / f"{form.__name__}.html", form(rows), labels).read_text()
        for form in (np.asarray, every_class)
    ]
    assert pages[0] == pages[1]


@pytest.mark.parametrize("score", ["softmax", "aps", "pas"])
@pytest.mark.parametrize(("method", "exact"), METHODS)
def test_sets_contain_listed_classes_within_their_thresholds(method, exact, score, tmp_path):
    (rows, labels), (test, test_labels) = model_rows(4, 400), model_rows(5, 150)
    top, ids = top_of(rows, 3), np.arange(150)
    predictor = make_predictor(method, score=score, exact=exact, keep_top=False).fit(top, labels)
    is_listed = (np.sort(rows, axis=1)[:, -3] <= rows[np.arange(400), labels]).astype(bool)
    assert np.array_equal(predictor.fit_.rows.scores < np.inf, is_listed)
    assert not np.isnan(predictor.thresholds_).any()
    sets = predictor.predict_set(top_of(test, 3), ids=ids)
    # The same thresholds on whole rows, restricted to the three most probable classes.
    largest = np.argsort(-test, axis=1, kind="stable")[:, :3]
    whole = predictor.predict_set(test, ids=ids).to_lists()
    expected = [[y for y in row if y in top3] for row, top3 in zip(whole, largest, strict=True)]
    assert sets.to_lists() == expected
    report = predictor.evaluate(top_of(test, 3), test_labels, ids=ids)
    covered = [y in row for y, row in zip(test_labels, sets.to_lists(), strict=True)]
    assert report.marginal_coverage == np.mean(covered)
    assert report.avg_size == sets.sizes.mean()
    p = oracle.p_values_of(predictor, top_of(test, 3), ids=ids)
    if method in ("standard", "classwise") and not exact:
        assert predictor.predict_p(top_of(test, 3), ids=ids).nnz == 450
        assert sets.sizes.tolist() == (p > 0.1).sum(axis=1).tolist()
    save(predictor, tmp_path / "model.evencover")
    loaded = load(tmp_path / "model.evencover")
    assert loaded.predict_set(top_of(test, 3), ids=ids).to_lists() == sets.to_lists()


@pytest.mark.parametrize("method", method_names())
def test_pages_can_be_written_for_every_method(method, tmp_path):
    (rows, labels), (test, test_labels) = model_rows(4, 400), model_rows(5, 150)
    predictor = make_predictor(method).fit(top_of(rows, 3), labels)
    assert write_report(predictor, tmp_path / "page.html", top_of(test, 3), test_labels).exists()


def test_a_comparison_counts_labels_that_are_not_listed_as_misses():
    rows, labels = model_rows(6, 600)
    result = compare(top_of(rows, 2), labels, methods=["standard", "classwise"], n_splits=2)
    recall = np.mean(np.sort(rows, axis=1)[:, -2] <= rows[np.arange(600), labels])
    assert recall < 0.85
    for candidate in result.candidates:
        assert candidate.mean("marginal_coverage") <= recall + 0.05
        assert candidate.mean("avg_size") <= 2


@pytest.mark.parametrize("kind", [csr_array, csr_matrix, csc_matrix, coo_array])
def test_sparse_matrices_are_top_k_rows(kind):
    rows, labels = model_rows(7, 200)
    sparse = kind(np.where(rows < np.sort(rows, axis=1)[:, -3:-2], 0, rows))
    expected = StandardPredictor().fit(top_of(rows, 3), labels)
    found = StandardPredictor().fit(sparse, labels)
    assert np.array_equal(found.thresholds_, expected.thresholds_)
    assert found.predict_set(sparse).to_lists() == expected.predict_set(top_of(rows, 3)).to_lists()


def test_stored_zeros_are_listed():
    matrix = csr_array(([0.0, 0.5], [1, 2], [0, 2]), shape=(1, 4))
    assert TopK.from_sparse(matrix).classes.tolist() == [1, 2]


def test_streams_blocks_and_partitions_do_not_change_results():
    rows, labels = model_rows(8, 300)
    top = top_of(rows, 4)
    expected = PooledPredictor(score="aps", exact=True).fit(top, labels)
    parts = ((top[at : at + 70], labels[at : at + 70]) for at in range(0, 300, 70))
    streamed = PooledPredictor(score="aps", exact=True).fit(parts)
    with ThreadPoolExecutor(2) as executor:
        divided = PooledPredictor(score="aps", exact=True).fit(top, labels, executor=executor)
        sets = divided.predict_set(top, executor=executor)
    for found in (streamed, divided):
        assert plain(found.fit_.thresholds) == plain(expected.fit_.thresholds)
    assert sets.to_lists() == expected.predict_set(top).to_lists()


def test_classes_are_matched_by_name():
    names = [f"class {index}" for index in range(K)]
    rows, labels = model_rows(9, 200)
    top = top_of(rows, 3)
    named = TopK.from_csr(top.starts, top.classes, top.values, K, names)
    predictor = StandardPredictor().fit(named, [names[label] for label in labels])
    some = TopK([["class 7", "class 2"]], [[0.6, 0.3]], class_names=["class 7", "class 2"])
    expected = TopK([[7, 2]], [[0.6, 0.3]], n_classes=K)
    found = predictor.predict_set(some)
    assert found.to_lists() == predictor.predict_set(expected).to_lists()
    assert predictor.evaluate(some, ["class 3"]).class_counts.tolist() == [0, 0, 0, 1] + [0] * 8
    unknown = TopK([["other"]], [[0.6]], class_names=["other"])
    with pytest.raises(InputError, match="other"):
        predictor.predict_set(unknown)


def test_rows_do_not_change():
    values = np.array([[0.5, 0.25]])
    rows = TopK([[0, 1]], values, n_classes=3)
    with pytest.raises(ValueError, match="read-only"):
        rows.values[0] = 0.5
    with pytest.raises(FrozenInstanceError):
        rows.n_classes = 2
    values[0, 0] = 0.75  # the array of the user is still theirs


def test_numbers_of_listed_classes_are_found_by_row_and_class():
    rows, _ = model_rows(10, 50)
    top = top_of(rows, 5)
    every_row, every_column = np.arange(50)[:, None], np.arange(K)
    assert np.array_equal(top[every_row, every_column], top.to_dense())
    assert np.array_equal(top.argmax(axis=1), rows.argmax(axis=1))
    assert np.array_equal(top[[3, 1, 3]].to_dense(), top.to_dense()[[3, 1, 3]])


@pytest.mark.parametrize("values", [[0.9, 0.2], [-0.1, 0.5], [np.nan, 0.5], [3.0, 0.1], []])
def test_bad_rows_are_named(values):
    rows, labels = model_rows(11, 60)
    predictor = StandardPredictor().fit(top_of(rows, 3), labels)
    bad = TopK([[0, 1], list(range(len(values)))], [[0.5, 0.1], values], n_classes=K)
    for call in (predictor.predict_set, predictor.rule().predict_set, predictor.predict_p):
        with pytest.raises(InputError, match="row 1"):
            call(bad)
    with pytest.raises(InputError, match="row 1"):
        StandardPredictor().fit(bad, [0, 0])


@pytest.mark.parametrize(
    ("classes", "probabilities"),
    [([[0], None], [[0.5], [0.5]]), ([0, 1], [0.5, 0.5]), ([[0], [1]], [[0.5], [[0.5]]])],
)
def test_nested_nulls_and_scalars_are_rejected(classes, probabilities):
    with pytest.raises(InputError):
        TopK(classes, probabilities, n_classes=3)


@pytest.mark.parametrize("score", ["softmax", "aps"])
def test_sums_above_one_by_rounding_are_divided(score):
    rows, labels = model_rows(12, 200)
    predictor = StandardPredictor(score=score).fit(top_of(rows, 3), labels)
    rounded = TopK([[0, 1, 2], [0, 1, 2]], [[0.35, 0.34, 0.32], [0.4, 0.3, 0.2]], n_classes=K)
    whole = np.array([0.35, 0.34, 0.32]) / np.sum([0.35, 0.34, 0.32])
    exact = TopK([[0, 1, 2], [0, 1, 2]], [whole, [0.4, 0.3, 0.2]], n_classes=K)
    with pytest.warns(evencover.EvencoverWarning, match="divided"):
        sets = predictor.predict_set(rounded)
    assert sets.to_lists() == predictor.predict_set(exact).to_lists()


def test_logits_are_rejected():
    rows, labels = model_rows(13, 60)
    with pytest.raises(InputError, match="logits"):
        StandardPredictor(from_logits=True).fit(top_of(rows, 3), labels)


def test_labels_that_do_not_belong_to_the_rows_are_noticed():
    rows, labels = model_rows(14, 2000, n_classes=40)
    with pytest.warns(evencover.MismatchWarning):
        StandardPredictor().fit(top_of(rows, 5), np.random.default_rng(0).permutation(labels))
    with warnings.catch_warnings():
        warnings.simplefilter("error", evencover.MismatchWarning)
        StandardPredictor().fit(top_of(rows, 5), labels)


def test_recall_at_k_is_reported(tmp_path, capsys):
    (rows, labels), (test, test_labels) = model_rows(17, 400), model_rows(18, 300)
    predictor = ClasswisePredictor(alpha=0.02).fit(top_of(rows, 5), labels)
    recall, low, high = predictor.fit_.recall.interval()
    assert recall == np.isfinite(predictor.fit_.rows.scores).mean()
    assert low < recall < high
    assert f"{recall:.1%}" in predictor.guarantee_text
    report = predictor.evaluate(top_of(test, 5), test_labels)
    is_listed = top_of(test, 5).lists(test_labels)
    is_capped = np.isinf(predictor.thresholds_)[test_labels]
    for classes, (share, low, high) in zip((..., is_capped), report.recall_at_k, strict=True):
        assert share == is_listed[classes].mean()
        assert low <= share <= high
    assert "recall at k" in str(report)
    assert report.to_dict()["recall_at_k"] == report.recall_at_k[0].tolist()
    page = write_report(predictor, tmp_path / "page.html", top_of(test, 5), test_labels)
    assert "recall at k" in page.read_text("utf-8")
    save(predictor, tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").guarantee_text == predictor.guarantee_text
    main(["info", str(tmp_path / "model.safetensors")])
    assert "recall at k" in capsys.readouterr().out
    updated = predictor.partial_fit(rows, labels)  # rows of all classes
    assert updated.fit_.recall.counts.sum() == 800


def test_a_recall_below_the_target_is_warned_of():
    rows, labels = model_rows(19, 500)
    with pytest.warns(evencover.EvencoverWarning, match="[Rr]ecall at k"):
        predictor = StandardPredictor().fit(top_of(rows, 2), labels)
    with pytest.warns(evencover.EvencoverWarning, match="[Rr]ecall at k"):
        predictor.evaluate(top_of(rows[:400], 2), labels[:400])
    with warnings.catch_warnings():
        warnings.simplefilter("error", evencover.EvencoverWarning)
        StandardPredictor().fit(top_of(rows, 8), labels)


def test_rows_of_all_classes_have_no_recall_at_k():
    rows, labels = model_rows(20, 200)
    for form in (np.asarray, every_class):
        predictor = StandardPredictor().fit(form(rows), labels)
        assert predictor.fit_.recall is None
        assert predictor.evaluate(form(rows), labels).recall_at_k is None


def test_guarantees_by_class_are_never_above_what_recall_allows():
    """Compare with the exact coverage of the k-th own score, E min(U_(k), r)."""
    n, k = np.array([9, 9, 50, 50, 200]), np.array([9, 10, 46, 46, 181])
    listed = np.array([7, 9, 40, 50, 180])
    recall = RecallAtK(n, listed, k > n)
    low = clopper_pearson(listed, n, 0.9)[:, 0]
    limited = recall.limited(k / (n + 1))
    draws = np.random.default_rng(0).beta(k, np.maximum(n + 1 - k, 1e-9), (20_000, 5))
    assert (limited <= np.minimum(draws, low).mean(axis=0) + 0.01).all()
    assert (limited <= k / (n + 1)).all()
    assert limited[3] > 0.85


def test_a_monitor_counts_labels_that_are_not_listed_as_misses():
    (rows, labels), (test, test_labels) = model_rows(21, 600), model_rows(22, 600)
    predictor = ClasswisePredictor().fit(top_of(rows, 3), labels)
    assert np.isinf(predictor.thresholds_).any()
    monitor = CoverageMonitor(predictor)
    monitor.update(top_of(test, 3), test_labels)
    report = predictor.evaluate(top_of(test, 3), test_labels)
    snapshot = monitor.snapshot()
    assert np.array_equal(snapshot.covered, report.class_covered)
    assert not len(snapshot.shifts)  # infinite limits are no evidence


def test_sets_in_a_folder_are_those_in_memory(tmp_path):
    (rows, labels), (test, _) = model_rows(23, 300), model_rows(24, 200)
    predictor = PooledPredictor().fit(top_of(rows, 4), labels)
    predict_to_folder(predictor, top_of(test, 4), tmp_path, with_probabilities=True)
    table = pq.read_table(tmp_path)
    sets = predictor.predict_set(top_of(test, 4)).to_lists()
    assert table["set"].to_pylist() == sets
    expected = [row[members].tolist() for row, members in zip(test, sets, strict=True)]
    assert table["probabilities"].to_pylist() == expected
    again = predict_to_folder(predictor, top_of(test, 4), tmp_path, with_probabilities=True)
    assert again.n_there == again.n_files  # the same rows, recognized by their content


def test_onnx_rejects_top_k_rows(tmp_path):
    pytest.importorskip("onnx")
    rows, labels = model_rows(25, 100)
    predictor = StandardPredictor().fit(top_of(rows, 3), labels)
    with pytest.raises(InputError, match="top-k"):
        to_onnx(predictor, tmp_path / "sets.onnx")


def test_numbers_of_listed_and_other_classes_are_those_of_the_matrix():
    """Also of several classes of a row, in any order, and of rows that list none of them."""
    rng = np.random.default_rng(4)
    dense = rng.random((30, 9)).astype(np.float32) * (rng.random((30, 9)) < 0.3)
    classes = [rng.permutation(np.flatnonzero(row)) for row in dense]
    starts = np.cumsum([0, *map(len, classes)])
    values = np.concatenate([row[some] for row, some in zip(dense, classes, strict=True)])
    rows = TopK.from_csr(starts, np.concatenate(classes), values, 9)
    for chosen in (np.arange(30), rng.integers(0, 30, 200), np.zeros(0, dtype=int)):
        asked = rng.integers(0, 9, len(chosen))
        found = rows[chosen, asked]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, dense[chosen, asked])
