"""The page tells the same numbers as the report, and as counting by hand."""

import json
import warnings

import numpy as np
import pytest

from evencover import EvencoverWarning
from evencover.predictors import make_predictor, method_names
from evencover.report.content import report_content

METHODS = method_names()


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(4000, 20, seed=3)


@pytest.fixture(scope="module")
def fitted(data, quietly):
    return {
        method: quietly(make_predictor(method), data.rows[:2000], data.labels[:2000])
        for method in METHODS
    }


@pytest.fixture(scope="module")
def test_rows(data):
    return data.rows[2000:], data.labels[2000:]


@pytest.mark.parametrize("method", METHODS)
def test_the_metrics_are_those_of_evaluate(fitted, test_rows, method):
    content = report_content(fitted[method], *test_rows)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    report = fitted[method].evaluate(*test_rows)
    assert content["metrics"].items() <= report.to_dict().items()
    assert list(content["metrics"]) == list(report.metrics())
    assert content["classes"]["rows"] == report.class_counts.tolist()
    assert content["classes"]["covered"] == report.class_covered.tolist()
    limits = report.class_coverage_interval
    assert np.allclose(content["classes"]["low"], limits[:, 0], atol=1e-4)
    assert np.allclose(content["classes"]["high"], limits[:, 1], atol=1e-4)
    for index in range(20):
        view = report.class_view(index)
        pairs = content["classes"]["confused"][index]
        assert list(zip(pairs[::2], pairs[1::2], strict=True)) == list(view.confused_with)
        shown = content["classes"]["threshold"][index]
        assert (np.inf if shown is None else shown) == pytest.approx(view.threshold, rel=1e-5)


def test_strata_are_what_counting_row_by_row_gives(fitted, test_rows):
    predictor, (rows, labels) = fitted["standard"], test_rows
    sets = predictor.predict_set(rows)
    table = report_content(predictor, rows, labels)["strata"]
    hits = [label in members for label, members in zip(labels, sets.to_lists(), strict=True)]
    for line in table:
        within = (sets.sizes >= line["smallest"]) & (sets.sizes <= line["largest"])
        assert line["rows"] == within.sum() > 0
        assert line["covered"] == np.sum(within & np.array(hits))
    assert sum(line["rows"] for line in table) == len(rows)
    starts = [line["smallest"] for line in table]
    assert starts == [start for start in (0, 1, 2, 3, 6, 11) if start in starts]


def test_examples_are_the_first_missed_and_covered_rows_with_their_sets(fitted, test_rows):
    predictor, (rows, labels) = fitted["standard"], test_rows
    content = report_content(predictor, rows, labels)
    sets = predictor.predict_set(rows)
    covered = sets.contains(labels)
    for index, examples in enumerate(content["classes"]["examples"]):
        mine = np.flatnonzero(labels == index)
        expected = [*mine[~covered[mine]][:3], *mine[covered[mine]][:2]]
        assert [example[0] for example in examples] == expected
        for row, is_covered, size, percent, members, percents in examples:
            assert is_covered == covered[row]
            assert size == len(sets[row])
            assert percent == pytest.approx(100 * rows[row, index], abs=0.5)
            assert set(members) <= set(sets[row].tolist())
            assert percents == sorted(percents, reverse=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_of_blocks_tells_the_same_as_the_whole(fitted, test_rows, method, monkeypatch):
    rows, labels = test_rows
    whole = report_content(fitted[method], rows, labels)
    for threads, step in [("1", 7), ("3", 33)]:
        monkeypatch.setenv("EVENCOVER_THREADS", threads)
        places = range(0, len(rows), step)
        blocks = ((rows[at : at + step], labels[at : at + step]) for at in places)
        assert report_content(fitted[method], blocks) == whole


@pytest.mark.filterwarnings("ignore:About .* copies of calibration rows")
def test_classes_without_test_rows_have_a_place(quietly, simulate):
    data = simulate(500, 10, long_tail=True)
    predictor = quietly(
        make_predictor("classwise"), data.rows, data.labels, class_names=list("abcdefghij")
    )
    content = report_content(predictor, data.rows[:100], data.labels[:100])
    assert content["classes"]["name"][:3] == ["a", "b", "c"]
    assert content["classes"]["state"][-1] == "0"
    assert content["classes"]["size"][-1] is None
    assert content["classes"]["threshold"][-1] is None  # in every set
    assert any("always included" in sentence for sentence in content["remedies"])


def test_data_warnings_are_those_of_evaluate(fitted, test_rows):
    rows, labels = test_rows
    rows = np.where(np.arange(len(rows))[:, None] % 2, rows, np.roll(rows, 1, axis=1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EvencoverWarning)
        report = fitted["standard"].evaluate(rows, labels)
        content = report_content(fitted["standard"], rows, labels)
    assert len(content["data_warnings"]) == len(report.data_warnings) == 1
    said = [str(each.message) for each in caught]
    assert said == list(report.data_warnings) + content["data_warnings"]


def test_pooled_tells_who_has_a_say(data, test_rows):
    predictor = make_predictor("pooled").fit(data.rows[:2000], data.labels[:2000])
    weights = report_content(predictor, *test_rows)["weights"]
    assert np.allclose(sum(map(np.array, weights.values())), 1, atol=2e-4)
    assert np.allclose(weights["its own calibration examples"], predictor.own_weight_, atol=1e-4)
    standard = make_predictor("standard").fit(data.rows[:2000], data.labels[:2000])
    assert report_content(standard, *test_rows)["weights"] == {}


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("score", ["softmax", "aps", "pas"])
def test_unknown_labels_are_counted_as_evaluate_counts_them(data, score):
    names = [f"c{k}" for k in range(data.rows.shape[1])]
    fitted = make_predictor("standard", score=score, floor=0.8).fit(
        data.rows[:1000], data.labels[:1000], class_names=names
    )
    told = np.array(names, dtype=object)[data.labels[1000:]]
    told[:7] = "other"
    report = fitted.evaluate(data.rows[1000:], told)
    content = report_content(fitted, data.rows[1000:], told)
    assert content["n_unknown"] == report.n_unknown == 7
    assert content["classes"]["covered"] == report.class_covered.tolist()
    assert content["classes"]["guaranteed"] == fitted.guarantees_.round(4).tolist()


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_unsafe_classes_are_those_of_evaluate(data, test_rows):
    predictor = make_predictor("classwise").fit(data.rows[:2000], data.labels[:2000])
    rows, labels = test_rows
    is_wrong = np.isin(rows.argmax(axis=1), [3, 5])
    labels = np.where(is_wrong, (labels + 1) % rows.shape[1], labels)
    report, content = predictor.evaluate(rows, labels), report_content(predictor, rows, labels)
    found = content["acceptance"]
    assert found["n_unsafe"] == report.is_unsafe.sum() > 0
    unsafe = {int(row["name"]): row for row in found["nodes"]}
    assert sorted(unsafe) == np.flatnonzero(report.is_unsafe).tolist()
    for index, row in unsafe.items():
        assert row["rows"] == report.accepted[index]
        assert row["accuracy"] == report.accepted_right[index] / report.accepted[index]


def test_accepted_predictions_and_labels_that_make_sets_large_are_those_of_evaluate(
    data, test_rows
):
    predictor = make_predictor("classwise").fit(data.rows[:2000], data.labels[:2000])
    report, content = predictor.evaluate(*test_rows), report_content(predictor, *test_rows)
    found = content["acceptance"]
    assert (found["share"], found["accuracy"]) == (report.accepted_share, report.accepted_accuracy)
    assert (found["n_unsafe"], found["nodes"]) == (0, [])
    added = [row["wrong"] for row in content["contributors"]]
    wrong = (report.appearances - report.class_covered)[report.largest_contributors()]
    assert added == wrong.tolist()
    assert added == sorted(added, reverse=True)
    assert content["crowding"] == pytest.approx(wrong.sum() / report.appearances.sum())
    first = content["contributors"][0]
    told = predictor.explain(report, first["class"]).appears
    assert told == f"appears in {first['sets']:.1%} of sets, right in {first['right']:.1%}"


@pytest.fixture(scope="module")
def crowded():
    """60 classes, three of which the model mostly overlooks, so they are in most sets."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(60), 80)
    rows = 1e-3 * rng.random((len(labels), 60))
    is_seen = (labels > 2) | (rng.random(len(labels)) < 0.3)
    rows[np.arange(len(labels)), labels] += 4 * rng.random(len(labels)) * is_seen
    rows[:, 3] += rng.random(len(labels)) * ~is_seen
    return rows / rows.sum(axis=1, keepdims=True), labels


def test_the_few_classes_with_most_labels_are_named_with_what_a_cap_gives(crowded):
    rows, labels = crowded
    half, test = slice(0, 2400), slice(2400, None)
    predictor = make_predictor("pooled").fit(rows[half], labels[half])
    report = predictor.evaluate(rows[test], labels[test])
    few = report.suppliers.classes
    assert set(few.tolist()) <= {0, 1, 2}
    assert report.appearances[few].sum() > report.appearances.sum() / 2
    # On the same rows: the caps come from these rows, and so do the counts.
    capped = predictor.thresholds_.copy()
    standard = make_predictor("standard").fit(rows[half], labels[half]).thresholds_
    for y in range(60):
        others = np.sort(1 - rows[test][labels[test] != y, y])
        if (others <= capped[y]).mean() > 0.1 and capped[y] > standard[y]:
            capped[y] = max(standard[y], others[int(0.1 * len(others)) - 1])
    is_in = 1 - rows[test] <= capped
    is_in[np.arange(len(is_in)), rows[test].argmax(axis=1)] = True
    sentence = report_content(predictor, rows[test], labels[test])["large_sets"]
    size, before = is_in.sum(axis=1).mean(), report.avg_size
    assert f"sets would have {size:.1f} labels instead of {before:.1f}" in sentence
    once = report_content(predictor, iter([(rows[test], labels[test])]))["large_sets"]
    assert report.large_sets == sentence  # `evaluate` states it, too
    assert " ".join(str(report).split()).count(sentence) == 1
    assert sentence in report._repr_html_().replace("&#39;", "'")
    assert sentence.startswith(once)  # rows that can be read once give no numbers
    assert "instead" not in once
    even = make_predictor("standard").fit(rows[half], labels[half])
    assert report_content(even, rows[test], labels[test])["large_sets"] == ""


def test_capped_classes_have_their_price_in_the_report(crowded):
    rows, labels = crowded
    predictor = make_predictor("pooled", max_share=0.1).fit(rows[:2400], labels[:2400])
    content = report_content(predictor, rows[2400:], labels[2400:])
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["large_sets"] == ""
    capped = np.flatnonzero(predictor.is_capped_).tolist()
    assert capped == [0, 1, 2]
    assert list(content["classes"]["price"]) == ["0", "1", "2"]
    assert f"into {predictor.share_[1]:.0%} of the sets" in content["classes"]["price"]["1"]
    assert content["without_guarantee"] == []  # they do not have too few examples
    assert "guaranteed 0%" not in content["guaranteed"]
