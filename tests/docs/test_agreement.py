"""Pages agree with the code where they repeat it."""

import ast
import re
import sys
from pathlib import Path

import pytest

from evencover.data.formats import ARRAYS, TABLES
from evencover.predictors.method import Method

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generated():
    """The tables that the site generates from the code."""
    pytest.importorskip("docutils")
    sys.path.insert(0, str(ROOT / "docs" / "_extensions"))
    import generated_tables

    yield generated_tables.TABLES
    sys.path.remove(str(ROOT / "docs" / "_extensions"))


def test_every_generated_table_has_rows_and_is_used(generated):
    docs = ROOT / "docs"
    files = [*docs.glob("*.md"), *docs.glob("howto/*.md")]
    pages = "".join(path.read_text("utf-8") for path in files)
    used = re.findall(r"^```\{generated\} (\w+)$", pages, re.MULTILINE)
    assert sorted(used) == sorted(generated)
    for make in generated.values():
        heads, rule, *rows = make()
        assert set(rule) == set("| -")
        assert len(rows) >= 2
        assert {row.count(" | ") for row in rows} == {heads.count(" | ")}


def test_every_extension_is_documented():
    text = (ROOT / "docs" / "files.md").read_text("utf-8")
    formats = "".join(re.findall(r"^\| (`\..*?) \|", text, re.MULTILINE))
    assert set(re.findall(r"`(\.\w+)`", formats)) == {*ARRAYS, *TABLES}


def test_what_a_method_may_define_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("A method may also define")[2]
    rows = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    names = re.findall(r"`(\w+)[`(]", " ".join(rows))
    assert len(names) > 12
    assert [name for name in names if not hasattr(Method, name)] == []


def messages():
    """All strings of the package; the values in them are left open."""
    for path in (ROOT / "src" / "evencover").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (getattr(part, "value", "") for part in node.values)
                yield "".join(part if isinstance(part, str) else "..." for part in parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_warnings_in_the_troubleshooting_page_exist():
    text = (ROOT / "docs" / "howto" / "troubleshooting.md").read_text("utf-8")
    quoted = re.findall(r'^\| "(.+?)" \|', text, re.MULTILINE)
    known = list(messages())
    assert len(quoted) > 15
    missing = [
        each
        for each in quoted
        if not any(re.search(re.escape(each).replace(r"\.\.\.", ".+"), text) for text in known)
    ]
    assert not missing


def relative_links(path):
    """Yield the targets of links to files, and of images."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)|src(?:set)?=\"([^\"]+)\"", text):
        link = "".join(target).partition("#")[0]
        if link and not link.startswith(("http:", "https:", "mailto:")):
            yield link


def test_links_outside_the_site_lead_to_files():
    """Sphinx checks those within the site."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md"), ROOT / "benchmarks" / "README.md"]
    broken = {
        f"{path.relative_to(ROOT)}: {link}"
        for path in pages
        for link in relative_links(path)
        if not (path.parent / link).exists()
    }
    assert len(list(relative_links(ROOT / "README.md"))) > 20
    assert not broken
