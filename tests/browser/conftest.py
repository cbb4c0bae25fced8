"""A real browser, and pages for it. In CI (CI=true) a missing browser is a failure, not a skip."""

import os
import shutil

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


def _missing(what):
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is needed in CI")
    pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, headless."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright")
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        _missing("chromium")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=FLAGS.split())
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Open a page from disk; it must ask for nothing else and log nothing."""
    contexts, complaints = [], []

    def go(path, *, width=1280, height=900, dark=False):
        scheme = "dark" if dark else "light"
        viewport = {"width": width, "height": height}
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        address = path.as_uri()
        page.on(
            "request",
            lambda request: request.url.split("#")[0] == address or complaints.append(request.url),
        )
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
