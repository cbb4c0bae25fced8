"""The comparison as a person meets it."""

import pytest

from evencover import compare
from evencover.data import load_filetypes
from evencover.evaluation.metrics import shown_in
from evencover.report import write_comparison

pytest.importorskip("altair")
pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    data = load_filetypes()
    methods = ["standard", "classwise", "macro"]
    result = compare(data.probabilities[::8], data.labels[::8], methods=methods, n_splits=2)
    return write_comparison(result, tmp_path_factory.mktemp("pages") / "comparison.html"), result


def test_the_recommendation_comes_first_then_every_candidate(visit, comparison):
    path, result = comparison
    page = visit(path)
    assert page.inner_text("h1") == f"Recommended: {result.recommended.name}"
    assert page.locator(".advice").all_inner_texts() == result.reason.splitlines()[1:]
    assert page.locator("tr.recommended").inner_text().startswith(result.recommended.name)
    names = {candidate.name for candidate in result.candidates}
    assert page.locator("#candidates tbody tr").count() == len(names)
    assert page.locator("#chart-pareto .mark-symbol path").count() == len(names)
    named = set(page.locator("#chart-pareto text").all_text_contents())  # those with room
    assert result.recommended.name in named
    label = page.get_attribute("#chart-pareto", "aria-label")
    assert all(name in label for name in names)
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
    for width in (1400, 1300, 400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator(".scroll").evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    page.click("th[data-key=avg_size] button")
    first = page.locator("#candidates tbody tr").first.inner_text()
    smallest = min(result.candidates, key=lambda candidate: candidate.mean("avg_size"))
    assert first.startswith(smallest.name)
