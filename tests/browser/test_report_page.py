"""The report as a person meets it: from disk, with a mouse, a keyboard, a phone or on paper."""

import re

import numpy as np
import pytest

from evencover import EvencoverWarning
from evencover.data import load_languages
from evencover.predictors import make_predictor
from evencover.report import write_report

pytest.importorskip("altair")
pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")

EVIL = "<script>alert(1)</script>"
QUOTES = "\"double\" 'single' `tick` \\ </td>"
EMOJI = "🦊 fox & 🐺 wolf"
ARABIC = "الثعلب الأحمر (شمال)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def languages(folder, quietly):
    """Half of the bundled languages calibrates, half is reported on."""
    rows, labels, names = load_languages()
    half = len(labels) // 2
    predictor = quietly(
        make_predictor("clustered", n_clusters=4),
        rows[:half],
        labels[:half],
        class_names=names.tolist(),
    )
    path = folder / "languages.html"
    write_report(predictor, path, rows[half:], labels[half:], title="Languages")
    return path, predictor.evaluate(rows[half:], labels[half:])


@pytest.fixture(scope="module")
def strange(folder, simulate):
    """Names that try to be something else."""
    data = simulate(2000, 6, seed=4)
    names = [EVIL, QUOTES, EMOJI, ARABIC, "class 4", "x" * 300]
    predictor = make_predictor("classwise").fit(
        data.rows[:1000], data.labels[:1000], class_names=names
    )
    path = folder / "strange.html"
    ids = [f"<b>row {row}</b>" for row in range(1000)]
    tree = [(EVIL, "<i>tags</i>"), (QUOTES, "<i>tags</i>"), (EMOJI, "animals"), (ARABIC, "animals")]
    rows = data.rows[1000:], data.labels[1000:]
    write_report(predictor, path, *rows, ids=ids, title=EVIL, taxonomy=tree)
    return path


def names_in_table(page):
    return page.locator("#classes tbody .name").all_inner_texts()


def the_top_answers_the_question(page, report):
    below = np.flatnonzero(report.likely_below)
    assert f"{len(below)} of 505 classes " in page.inner_text("h1")
    assert "5% false discovery rate" in page.inner_text(".answers")
    assert f"{round(100 * report.marginal_coverage, 1):g}%" in page.inner_text(".answers")
    worst = sorted(below, key=lambda k: (report.class_coverage[k], -report.class_counts[k]))[:5]
    assert page.inner_text("#h-worst") == "Largest shortfalls"
    shown = page.locator("#worst .name").all_inner_texts()
    assert set(shown) == {report.class_names[k] for k in worst}
    shares = [int(text.rstrip("%")) for text in page.locator("#worst .value").all_inner_texts()]
    assert shares == sorted(shares)
    in_table = page.locator("#classes tbody .share").all_inner_texts()
    assert in_table == sorted(in_table, key=lambda text: int(text.rstrip("%")))
    # Charts are drawn, and told to those who do not see them.
    for chart in ("coverage", "calibration"):
        figure = page.locator(f"#chart-{chart}")
        figure.locator("svg").wait_for()
        assert len(figure.get_attribute("aria-label")) > 40


def search_ignores_case_and_accents(page, report):
    page.fill("#query", "PORTUGUES")
    assert names_in_table(page)
    assert all("Portugues" in name for name in names_in_table(page))
    assert page.inner_text("#hits").startswith(f"{len(names_in_table(page))} of 505 classes")
    page.fill("#query", "guarani")
    assert any("Guaraní" in name for name in names_in_table(page))
    page.fill("#query", "no such language")
    assert "No class matches" in page.inner_text("#classes tbody")
    page.click("text=Clear")
    page.locator("#classes tbody tr >> nth=49").wait_for()
    assert page.inner_text("#hits").startswith("505 classes")


def columns_sort_both_ways(page, report):

    def column():
        cells = page.locator("#classes tbody tr td:nth-child(4)").all_inner_texts()
        return [int(cell) for cell in cells]

    heading = page.locator("th[data-key=rows]")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(column())
    least = column()[0]
    page.keyboard.press("Enter")  # the heading keeps the focus
    assert heading.get_attribute("aria-sort") == "descending"
    assert column() == sorted(column(), reverse=True)
    assert column()[0] > least
    page.click("text=Next")
    assert "51 to 100" in page.inner_text("#pages")


def filters_count(page, report):
    page.check("#below")
    n_below = report.likely_below.sum()
    assert page.locator("#classes tbody tr.below").count() == min(50, n_below)
    assert page.inner_text("#hits") == f"{n_below} of 505 classes, {n_below} likely below 90%"
    page.uncheck("#below")
    page.select_option("#cluster", "1")
    n_members = (report.cluster_of_class == 1).sum()
    assert page.inner_text("#hits").startswith(f"{n_members} of 505")
    page.select_option("#cluster", "")
    page.fill("#least", "18")
    page.fill("#most", "20")
    counts = report.calibration_counts
    n_between = ((counts >= 18) & (counts <= 20)).sum()
    assert page.inner_text("#hits").startswith(f"{n_between} of 505")


def a_click_shows_the_class(page, report):
    page.fill("#query", "Basque")
    page.click("#classes tbody tr >> nth=0")
    index = report.class_names.index(page.inner_text("#detail h3"))
    view, text = report.class_view(index), page.inner_text("#detail")
    assert f"of {view.test_rows} test examples covered" in text
    n_others = (report.cluster_of_class == view.cluster).sum() - 1
    assert f"shared with {n_others} other" in text or "of all classes" in text
    assert page.locator("#classes tr[aria-current=true]").count() == 1
    assert page.locator("#detail .examples li").count() > 0
    assert page.locator("#detail .chip.truth, #detail .chip.absent").count() > 0
    other = page.locator("#detail .confusions button").first
    name = other.inner_text()
    other.click()
    assert page.inner_text("#detail h3") == name


def the_keyboard_is_enough(page, report):
    page.focus("#query")
    page.keyboard.type("chinese")
    page.focus("#classes tbody .name >> nth=0")
    page.keyboard.press("ArrowDown")
    second = names_in_table(page)[1]
    assert page.evaluate("document.activeElement.textContent") == second
    page.keyboard.press("Enter")
    assert page.inner_text("#detail h3") == second
    assert page.evaluate("document.activeElement.id") == "detail"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == second


def a_chart_names_and_selects_classes(page, report):
    page.locator("#chart-coverage").scroll_into_view_if_needed()
    box = page.locator("#chart-coverage").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#tip:not([hidden])")
    name = page.inner_text("#tip b")
    assert name in report.class_names
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.inner_text("#detail h3") == name


STEPS = [
    the_top_answers_the_question,
    columns_sort_both_ways,
    search_ignores_case_and_accents,
    filters_count,
    a_click_shows_the_class,
    the_keyboard_is_enough,
    a_chart_names_and_selects_classes,
]


def test_a_reader_finds_sorts_and_opens_classes(visit, languages):
    """One page for all steps, because it takes longer to open than to use."""
    path, report = languages
    page = visit(path)
    for step in STEPS:
        step(page, report)
        for field in ("#query", "#least", "#most"):
            page.fill(field, "")


@pytest.fixture(scope="module")
def by_class(folder, quietly):
    """98% for every twelfth language, a floor, 25 unknown labels."""
    rows, labels, names = load_languages()
    half, critical = len(labels) // 2, names[::12].tolist()
    kept = np.flatnonzero((labels[:half] != 10) | (np.cumsum(labels[:half] == 10) <= 2))
    alpha = {"default": 0.1, **dict.fromkeys(critical, 0.02)}
    predictor = quietly(
        make_predictor("standard", alpha=alpha, floor=0.8),
        rows[kept],
        labels[kept],
        class_names=names.tolist(),
    )
    told = names[labels[half:]].astype(object)
    told[:25] = "Klingon"
    path = folder / "by_class.html"
    with pytest.warns(EvencoverWarning, match="25 of 10100 labels"):
        write_report(predictor, path, rows[half:], told, title="By class")
    with pytest.warns(EvencoverWarning, match="25 of 10100 labels"):
        report = predictor.evaluate(rows[half:], told)
    return path, report, critical


def test_every_class_has_its_own_target_and_floors_their_numbers(visit, by_class):
    path, report, critical = by_class
    page = visit(path)
    below = int(report.likely_below.sum())
    assert f"{below} of 505 classes" in page.inner_text("h1")
    assert "98% for 43 classes" in page.inner_text(".verdict")
    assert "1 - alpha" in page.inner_text(".verdict")  # not rewritten to one percentage
    page.check("#below")
    assert page.inner_text("#hits").startswith(f"{below} of 505 classes")
    page.uncheck("#below")
    ticks = set()
    for name, target in ((critical[3], 98), (report.class_names[1], 90)):
        page.fill("#query", name)
        row = page.locator(f'#classes tbody tr:has(button[title="{name}"])')
        assert row.locator("td").nth(2).inner_text() == f"{target}%"
        ticks.add(row.locator(".interval .target").get_attribute("x1"))
        row.click()
        assert f"{target}%" in page.inner_text("#detail .statement")
    assert len(ticks) == 2
    marks = page.locator("#chart-coverage svg g.mark-rect path").count()
    assert marks >= report.n_classes_evaluated  # one tick for each class
    assert "25 labels are not among the classes" in page.inner_text(".answers")
    assert report.n_unknown == 25
    name = report.class_names[10]
    assert name in page.inner_text("#without-guarantee")
    page.fill("#query", name)
    page.click(f'#classes button[title="{name}"]')
    view = page.inner_text("#detail")
    assert re.search(r"Guaranteed\s+none", view)


def test_no_table_is_cut_off(visit, by_class):
    page = visit(by_class[0])
    for width in (1400, 1300, 1200, 400):
        page.set_viewport_size({"width": width, "height": 900})
        # Charts are drawn anew a moment later.
        page.wait_for_function("most => document.documentElement.scrollWidth <= most", arg=width)
        box = page.locator(".scroll")
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0


def test_a_phone_shows_a_class_as_a_sheet(visit, languages):
    page = visit(languages[0], width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.is_visible("#detail")
    page.click("#classes tbody tr >> nth=2")
    assert page.is_visible("#detail")
    assert page.locator("#detail").bounding_box()["width"] == 390
    page.click("#detail .close")
    assert not page.is_visible("#detail")


@pytest.mark.deep
def test_paper_has_the_verdict_and_the_first_rows(visit, languages):
    page = visit(languages[0], dark=True)
    assert len(page.pdf(format="A4")) > 20_000
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#classes tbody tr").count() == 100
    assert page.get_attribute("html", "data-theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#classes tbody tr").count() == 50
    assert page.get_attribute("html", "data-theme") == "dark"


def test_names_stay_text_wherever_they_are_shown(visit, strange):
    page = visit(strange)
    assert page.title() == EVIL
    names = page.locator("#classes tbody .name")
    assert ARABIC in page.locator("#classes tbody .name bdi").all_text_contents()
    assert set(names.all_text_contents()) == {EVIL, QUOTES, EMOJI, ARABIC, "class 4", "x" * 300}
    summaries = []
    for place in range(6):
        name = names.nth(place).text_content()
        names.nth(place).click()
        assert page.text_content("#detail h3") == name
        page.locator("#detail .examples").wait_for()
        summaries += page.locator("#detail .examples .summary").all_text_contents()
    assert any("all animals" in text for text in summaries)
    assert any("<i>tags</i>" in text for text in summaries)
    assert page.locator("#detail .examples i").count() == 0
    page.locator("#chart-coverage").scroll_into_view_if_needed()
    box = page.locator("#chart-coverage").bounding_box()
    for share in np.linspace(0.1, 0.95, 12):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 40)
    assert page.locator("script").count() == 4
    assert page.locator("main b:not(figcaption b)").count() == 0
    assert "<b>row " in page.inner_text("#detail")
