"""The site is built without a warning, and every public name is on its page of the API."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import evencover

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built in a process of its own: Sphinx sets warnings, logging and themes for all."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", folder / "doctrees", DOCS, folder / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


def test_the_site_is_built_without_warnings(site):
    pages = {path.stem for path in DOCS.glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}


def test_every_public_name_is_on_the_page_of_the_api(site):
    listed = set(re.findall(r'id="evencover\.(\w+)"', (site / "api.html").read_text("utf-8")))
    assert set(evencover.__all__) - listed == {"__version__"}


def test_the_metrics_of_a_report_are_on_the_page_of_the_api(site):
    assert 'id="evencover.CoverageReport.covgap"' in (site / "api.html").read_text("utf-8")
