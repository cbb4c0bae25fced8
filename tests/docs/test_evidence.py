"""Pages show recorded numbers, and every file of numbers is shown.

`make evidence` measures them; docs/evidence/record.csv has the version and the date of each. That
they are those of the present code is what `make release` checks.
"""

import re
import sys
from pathlib import Path

import pytest

from evencover import __version__

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(p for p in DOCS.rglob("*.md") if p.parent.name != "evidence")]
ADVICE = "run `make evidence`"


@pytest.fixture(scope="module")
def evidence():
    """The functions that read the record, and the steps."""
    folders = [str(DOCS / "_extensions"), str(ROOT / "scripts")]
    sys.path[:0] = folders
    import evidence_files
    import executed_code
    from evidence import STEPS

    yield evidence_files, STEPS, executed_code
    for folder in folders:
        sys.path.remove(folder)


def shown(page):
    """Files of docs/evidence that a page shows."""
    text = page.read_text("utf-8")
    return {
        *re.findall(r"^```\{evidence\} ([\w.]+)$", text, re.MULTILINE),
        *re.findall(r"^<!-- evidence: ([\w.]+) -->$", text, re.MULTILINE),
        *re.findall(r"[(<]\.\./evidence/([\w.]+)[)>]", text),
    }


def test_pages_show_recorded_numbers_of_full_runs(evidence):
    record = evidence[0].read_record()
    for page in PAGES:
        for name in shown(page):
            measured = record[f"evidence/{name}"]
            assert measured.version != "quick", f"{page.name} shows {name}: {ADVICE}"


def test_a_new_version_makes_every_number_old(evidence, monkeypatch):
    """Every step executed the module that has the version, so `make release` finds its numbers."""
    executed_code, old = evidence[2], __version__.encode()
    before, code = executed_code.digest(["src/evencover/__init__.py"]), executed_code.code
    monkeypatch.setattr(executed_code, "code", lambda path: code(path).replace(old, b"0.1"))
    assert executed_code.digest(["src/evencover/__init__.py"]) != before


def test_files_are_as_they_were_measured(evidence):
    files = evidence[0]
    for output, measured in files.read_record().items():
        found = files.digest([DOCS / output])
        assert found == measured.content, f"docs/{output} was changed by hand: {ADVICE}"


def test_a_step_records_all_of_its_outputs_and_nothing_else(evidence):
    files, steps, _ = evidence
    record = files.read_record()
    for name in {row.step for row in record.values()}:
        recorded = {output for output, row in record.items() if row.step == name}
        assert recorded == set(steps[name].outputs), f"{name}: {ADVICE}"


def test_only_code_makes_a_number_old(evidence, tmp_path, monkeypatch):
    executed_code = evidence[2]
    monkeypatch.setattr(executed_code, "ROOT", tmp_path)
    module = tmp_path / "module.py"

    def digest(text):
        module.write_text(text)
        return executed_code.digest(["module.py"])

    before = digest('"Prose."\n\ndef f(x):\n    "More."\n    return x + 1  # why\n')
    assert digest('def f(x):\n    """Other\n    prose."""\n\n    return x + 1\n') == before
    assert digest('def f(x):\n    "More."\n    return x + 2\n') != before
    assert digest('def f(x):\n    "More."\n    return x + 1, "# why"\n') != before


def test_executed_modules_are_recorded(evidence):
    for step, executed in evidence[0].read_executed().items():
        assert step in evidence[1], f"{step} is gone: {ADVICE}"
        assert "src/evencover/__init__.py" in executed.modules.split()


def test_every_file_is_shown():
    written = {path.name for path in (DOCS / "evidence").iterdir()}
    written -= {"record.csv", "executed.csv"}
    assert written == set().union(*map(shown, PAGES))


def test_readme_has_the_present_numbers(evidence):
    text = (ROOT / "README.md").read_text("utf-8")
    assert text.count("<!-- evidence: ") >= 4
    assert evidence[0].with_blocks(text) == text


def test_a_changed_number_in_a_page_is_found(evidence):
    text = "<!-- evidence: guard.csv -->\n| other | numbers |\n<!-- end -->\n"
    assert evidence[0].with_blocks(text) != text
