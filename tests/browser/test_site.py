"""The site as it is published: tutorials run, links lead somewhere, and it fits a phone."""

import subprocess
import sys

import pytest
from site_building import ROOT, build, copy_sources

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, with every tutorial run."""
    return build(copy_sources(tmp_path_factory.mktemp("published")), "html")


def test_no_link_is_broken(site):
    script = ROOT / "scripts" / "check_site.py"
    done = subprocess.run([sys.executable, script, site], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_tutorials_show_what_they_printed(site):
    page = (site / "tutorials" / "1_first_sets.html").read_text("utf-8")
    assert "20200 rows, 505 classes" in page
    assert "sphx_glr_1_first_sets_001.png" in page


@pytest.mark.parametrize("room", [400, 1400])
def test_no_page_scrolls_sideways(site, browser, room):
    context = browser.new_context(viewport={"width": room, "height": 800})
    page = context.new_page()
    wide = {}
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > room:
            wide[path.relative_to(site).as_posix()] = width
    context.close()
    assert wide == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_reader(site, browser, scheme):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(colour.partition("(")[2].split(",")[0])
    context.close()
    assert (red > 200) == (scheme == "light")
