"""Take screenshots of the report: STANDARD on the bundled file types.

python scripts/draw_report.py     writes report_light.png and report_dark.png in docs/images; needs
                                  Chromium
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from evencover import StandardPredictor, write_report
from evencover.data import load_filetypes

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    """Write the report and take screenshots of its first screen."""
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
        for theme in ("light", "dark"):
            size: Any = {"width": 1400, "height": 1000}
            view = browser.new_page(viewport=size, color_scheme=theme)
            view.goto(page.as_uri())
            view.wait_for_selector("html[data-ready]")
            view.screenshot(path=IMAGES / f"report_{theme}.png")
        browser.close()


if __name__ == "__main__":
    main()
