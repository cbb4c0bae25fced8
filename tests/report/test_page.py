"""The page is one file: small, safe against its own class names, written whole or not at all."""

import builtins
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from depth import size

from evencover import InputError, compare, save
from evencover.predictors import make_predictor
from evencover.report import render_comparison, render_report, write_report
from evencover.report.content import comparison_content, report_content

pytest.importorskip("altair")
pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")


def report_html(predictor, rows, labels, title="Coverage"):
    return render_report(report_content(predictor, rows, labels), title)


EVIL = "</script><script>alert(1)</script><!-- & \u2028 \"'"


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(600, 6, seed=2)


@pytest.fixture(scope="module")
def predictor(data):
    names = [EVIL, *"bcde", "<img src=x onerror=alert(1)>"]
    return make_predictor("standard").fit(data.rows[:300], data.labels[:300], class_names=names)


@pytest.fixture(scope="module")
def html(predictor, data):
    return report_html(predictor, data.rows[300:], data.labels[300:], title=EVIL)


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.addresses = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [v for k, v in attributes if k in ("src", "href", "action", "data")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, text):
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += text


def embedded(html):
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.DOTALL)
    return json.loads(found[1])


def test_names_stay_text(html):
    elements = Elements(html)
    assert elements.tags.count("script") == 4  # theme, data, Vega, the page's own
    assert "img" not in elements.tags
    assert embedded(html)["classes"]["name"][0] == EVIL
    data = elements.scripts[1]
    assert not re.search("[<>&\u2028\u2029]", data)
    assert elements.addresses == ["#main"]
    assert "default-src 'none'" in html


def test_a_thousand_classes_stay_below_two_megabytes(quietly, simulate):
    half = size(short=3_000, deep=10_000)
    data = simulate(2 * half, 1000, dtype=np.float32)
    names = [f"A class with a name of usual length, {k}" for k in range(1000)]
    predictor = quietly(
        make_predictor("classwise"), data.rows[:half], data.labels[:half], class_names=names
    )
    html = report_html(predictor, data.rows[half:], data.labels[half:])
    assert len(html.encode()) < 2_000_000


def test_a_comparison_has_a_page(data):
    result = compare(data.rows, data.labels, methods=["standard", "classwise"], n_splits=3)
    html = render_comparison(comparison_content(result), "<b>mine</b>")
    content = embedded(html)
    assert content["noise_floor"] == result.noise_floor
    assert [row["covgap"] for row in content["candidates"]] == [
        candidate.mean("covgap") for candidate in result.candidates
    ]
    assert sum(row["is_recommended"] for row in content["candidates"]) == 1
    assert content["headline"] == f"Recommended: {result.recommended.name}"
    assert [content["headline"], *content["advice"]] == result.reason.splitlines()
    assert all(f">{line.strip()}<" in html for line in result.reason.splitlines())
    assert "<b>mine" not in html


def test_without_the_extra_one_sentence_says_what_to_install(
    predictor, data, monkeypatch, tmp_path
):
    real = builtins.__import__

    def without_altair(name, *arguments, **named):
        if name == "altair":
            raise ModuleNotFoundError("no", name="altair")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without_altair)
    with pytest.raises(InputError, match=r"pip install 'evencover\[report\]'"):
        write_report(predictor, tmp_path / "page.html", data.rows[300:], data.labels[300:])


def test_the_commands_write_pages(tmp_path, predictor, data, capsys):
    from evencover.cli import main

    np.savez(tmp_path / "test.npz", probabilities=data.rows[300:], labels=data.labels[300:])
    save(predictor, tmp_path / "model.safetensors")
    page, pages = tmp_path / "page.html", tmp_path / "comparison.html"
    arguments = ["report", str(tmp_path / "model.safetensors"), str(tmp_path / "test.npz")]
    main([*arguments, "-o", str(page)])
    assert "open it in a browser" in capsys.readouterr().out
    assert embedded(page.read_text())["n_rows"] == 300
    with pytest.raises(InputError, match="exists"):
        write_report(predictor, page, data.rows[300:], data.labels[300:])
    choices = ["--methods", "standard,classwise", "--n-splits", "2"]
    main(["compare", str(tmp_path / "test.npz"), *choices, "--report", str(pages)])
    assert len(embedded(pages.read_text())["candidates"]) == 6
