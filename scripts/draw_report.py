"""Take the screenshot of the report: STANDARD on the bundled file types.

python scripts/draw_report.py          writes docs/images/report.png; needs Chromium
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from evencover import StandardPredictor, write_report
from evencover.data import load_filetypes

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "report.png"


def main() -> None:
    """Write the report and take a screenshot of its first screen."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium is needed.")
    rows, labels, names, _ = load_filetypes()
    half = len(labels) // 2
    predictor = StandardPredictor(alpha=0.1)
    predictor.fit(rows[:half], labels[:half], class_names=list(names))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = Path(folder) / "report.html"
        write_report(predictor, page, rows[half:], labels[half:], title="214 file types")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1400, "height": 1000})
        view.goto(page.as_uri())
        view.wait_for_selector("html[data-ready]")
        view.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
