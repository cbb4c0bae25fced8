"""The site is read without a warning, and every public name and command has a page.

Here the tutorials are not run and no HTML is written; tests/browser/test_site.py does that.
"""

import pytest
from site_building import build, copy_sources

import evencover
from evencover.cli.main import make_app

pytestmark = pytest.mark.deep  # the same build is a job of its own in CI


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """The sources, with the pages that building generates."""
    docs = copy_sources(tmp_path_factory.mktemp("site"))
    build(docs, "dummy", "-D", "plot_gallery=0")
    return docs


def test_every_public_name_has_a_page(docs):
    pages = {path.name for path in (docs / "api").glob("*.rst")}
    assert {f"evencover.{name}.rst" for name in evencover.__all__} - pages == {
        "evencover.__version__.rst"
    }


def test_every_command_has_a_page(docs):
    commands = {name for name in make_app() if not name.startswith("-")}
    assert {path.stem for path in (docs / "commands").glob("*.md")} == commands
    page = (docs / "commands" / "calibrate.md").read_text("utf-8")
    assert "\nevencover calibrate --output PATH [OPTIONS] DATA\n" in page
    assert "--alpha" in page


def test_every_tutorial_has_a_page(docs):
    for gallery in ("tutorials", "studies"):
        scripts = {path.stem for path in (docs.parent / "examples" / gallery).glob("*.py")}
        assert scripts
        assert scripts <= {path.stem for path in (docs / gallery).glob("*.rst")}
