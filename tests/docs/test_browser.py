"""Pages of the site in a browser: nothing for axe to find, nothing wider than the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from tests.conftest import PATIENCE
from tests.web.test_browser import chromium

PAGES = (
    "index",
    "tutorials/first-ring",
    "operations/runbooks",
    "reference/api/nodes",
    "explanation/benchmarks",
    "explanation/comparison",
)


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.long), (390, "dark")]
)
def test_axe_finds_nothing_and_no_page_is_too_wide(site: Path, width: int, scheme: Any) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"], timeout=PATIENCE * 1000
        )
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(PATIENCE * 1000)
        for name in PAGES:
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            found = Axe().run(page).response["violations"]
            assert [(each["id"], len(each["nodes"])) for each in found] == [], name
        browser.close()
