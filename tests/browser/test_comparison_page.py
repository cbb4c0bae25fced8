"""The comparison as a person meets it."""

import pytest

from evencover import compare
from evencover.data import load_languages
from evencover.evaluation.metrics import shown_in
from evencover.report import write_comparison

pytest.importorskip("altair")
pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    rows, labels, _ = load_languages()
    result = compare(
        rows[::16], labels[::16], methods=["standard", "classwise", "macro"], n_splits=2
    )
    return write_comparison(result, tmp_path_factory.mktemp("pages") / "comparison.html"), result


def test_the_recommendation_comes_first(visit, comparison):
    path, result = comparison
    page = visit(path)
    headline, *lines = result.reason.splitlines()
    assert page.inner_text("h1") == headline
    shown = page.locator(".advice").all_inner_texts()
    assert shown == [" ".join(line.split()) for line in lines]
    assert page.locator("tr.recommended").inner_text().startswith(result.recommended.name)


def test_every_candidate_is_in_the_table_and_in_the_chart(visit, comparison):
    path, result = comparison
    page = visit(path)
    names = {candidate.name for candidate in result.candidates}
    assert page.locator("#candidates tbody tr").count() == len(names)
    assert names <= set(page.locator("#chart-pareto text").all_text_contents())
    label = page.get_attribute("#chart-pareto", "aria-label")
    assert all(name in label for name in names)


def test_the_columns_are_the_metrics_of_the_list(visit, comparison):
    path, result = comparison
    page = visit(path)
    heads = page.locator("#candidates th").all_inner_texts()
    titles = [metric.title.lower() for metric in shown_in("comparison")]
    assert [head.lower() for head in heads] == ["candidate", "cost", "note", *titles]
    explained = page.locator("dl.numbers dt").all_inner_texts()
    assert [title.lower() for title in explained] == ["cost", *titles]
    recommended = page.locator("tr.recommended td").all_inner_texts()
    for metric, cell in zip(shown_in("comparison"), recommended[3:], strict=True):
        mean, error = (
            result.recommended.mean(metric.name),
            result.recommended.standard_error(metric.name),
        )
        assert cell.split() == [metric.text(mean), "±", metric.text(error)]


@pytest.mark.parametrize(
    "width", [1300, *(pytest.param(width, marks=pytest.mark.deep) for width in (1400, 400))]
)
def test_the_table_is_not_cut_off(visit, comparison, width):
    box = visit(comparison[0], width=width).locator(".scroll")
    assert box.evaluate("each => each.scrollWidth - each.clientWidth") <= 0


def test_the_table_sorts(visit, comparison):
    path, result = comparison
    page = visit(path)
    page.click("th[data-key=avg_size] button")
    first = page.locator("#candidates tbody tr").first.inner_text()
    smallest = min(result.candidates, key=lambda candidate: candidate.mean("avg_size"))
    assert first.startswith(smallest.name)


@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_phone_is_wide_enough(visit, comparison, dark):
    page = visit(comparison[0], width=390, height=844, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_names_in_the_chart_do_not_meet_on_a_phone(visit, comparison):
    """Those without room are left out, never that of the recommended one."""
    path, result = comparison
    page = visit(path, width=390, height=844)
    names = {candidate.name for candidate in result.candidates}
    shown = [
        text for text in page.locator("#chart-pareto text").all() if text.text_content() in names
    ]
    assert result.recommended.name in [text.text_content() for text in shown]
    boxes = [text.bounding_box() for text in shown]
    for place, a in enumerate(boxes):
        for b in boxes[:place]:
            across = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
            down = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
            assert across < 5 or down < 5
