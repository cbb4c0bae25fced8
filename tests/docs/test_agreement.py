"""Pages agree with the code where they repeat it."""

import ast
import re
import sys
from pathlib import Path

import pytest

from evencover.data.open import ARRAYS, TABLES

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
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))
    used = re.findall(r"^```\{generated\} (\w+)$", pages, re.MULTILINE)
    assert sorted(used) == sorted(generated)
    for make in generated.values():
        heads, rule, *rows = make()
        assert set(rule) == set("| -")
        assert len(rows) >= 4
        assert {row.count(" | ") for row in rows} == {heads.count(" | ")}


def test_every_extension_is_documented():
    text = (ROOT / "docs" / "files.md").read_text("utf-8")
    formats = "".join(re.findall(r"^\| (`\..*?) \|", text, re.MULTILINE))
    assert set(re.findall(r"`(\.\w+)`", formats)) == {*ARRAYS, *TABLES}


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
