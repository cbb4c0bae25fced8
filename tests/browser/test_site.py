"""The site as it is published: tutorials run, links lead somewhere, and it fits a phone."""

import subprocess
import sys
from itertools import product

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


# What an eye would stumble over: a page that scrolls sideways, a picture that is not there, blocks
# that lie on each other, text that can hardly be told from its ground (a contrast below 3).
LOOK = """() => {
  const found = [], article = document.querySelector('article');
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) found.push(`scrolls sideways: ${width}`);
  if (!document.title.trim()) found.push('no title');
  for (const image of document.images)
    if (image.offsetParent && !image.naturalWidth) found.push(`no picture: ${image.src}`);
  const blocks = [...article.querySelectorAll('p, pre, h1, h2, h3, table, .sd-card')]
    .filter(block => block.offsetParent && getComputedStyle(block).position != 'absolute')
    .map(block => [block, block.getBoundingClientRect()]);
  blocks.forEach(([one, a], place) => blocks.slice(place + 1, place + 9).forEach(([other, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 2 && down > 2 && !one.contains(other))
      found.push(`on each other: ${one.innerText.slice(0, 30)}, ${other.innerText.slice(0, 30)}`);
  }));
  const color = text => text.match(/[\\d.]+/g).map(Number);
  const light = text => color(text).slice(0, 3).map(part => part / 255)
    .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0.05);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const text = getComputedStyle(element).backgroundColor;
      if ((color(text)[3] ?? 1) > 0.5) return text;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const holder = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !holder.offsetParent) continue;
    const ratio = light(getComputedStyle(holder).color) / light(ground(holder));
    if (Math.max(ratio, 1 / ratio) < 3) found.push(`pale: ${texts.currentNode.textContent.trim()}`);
  }
  return [...new Set(found)];
}"""


@pytest.fixture(params=[*product([400, 1400], ["light", "dark"])], ids=str)
def page(request, browser):
    room, scheme = request.param
    context = browser.new_context(viewport={"width": room, "height": 800}, color_scheme=scheme)
    yield context.new_page()
    context.close()


def test_every_page_looks_right(site, page):
    found = {}
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        if complaints := page.evaluate(LOOK):
            found[path.relative_to(site).as_posix()] = complaints
    assert found == {}


def test_the_front_page_has_the_theme_and_the_picture_for_its_reader(site, page, request):
    _, scheme = request.node.callspec.params["page"]
    page.goto((site / "index.html").as_uri())
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(color.partition("(")[2].split(",")[0])
    assert (red > 200) == (scheme == "light")
    pictures = page.locator("article img:visible")
    assert pictures.count() == 1
    assert pictures.get_attribute("src").endswith(f"filetypes_{scheme}.svg")
