"""Dagster's pages in a real browser, and a person before them."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nova_assets.store.store import Store
from nova_assets_tests.conftest import missing
from nova_assets_tests.dagster_dev import ROOT, waited_for

MARKS = [
    pytest.mark.spark,
    pytest.mark.dagster,
    pytest.mark.long,
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
]

PICTURES = ROOT / "build" / "screenshots"
RUNS = "{ runsOrError { ... on Runs { results { runId status } } } }"


class Deployment:
    """``dagster dev`` with what lies under it."""

    def __init__(self, store: Store, url: str) -> None:
        self.store = store
        self.url = url

    def runs(self) -> dict[str, str]:
        """Run -> status, latest first."""
        body = json.dumps({"query": RUNS}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return {r["runId"]: r["status"] for r in json.load(answer)["data"]["runsOrError"]["results"]}

    def new_run(self, before: dict[str, str], *statuses: str) -> str:
        """Wait for a run that was not there before and has come to one of these statuses."""

        def found() -> str | None:
            return next((r for r, s in self.runs().items() if r not in before and s in statuses), None)

        return waited_for(found, f"a run that is {' or '.join(statuses)}: {self.runs()}")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, while the block lasts."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no browser driver", "pip install playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if program is None:
        missing("no Chromium", "install the package chromium")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


class Person:
    """Somebody at the pages, whose every station is photographed."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url

    def go(self, place: str) -> None:
        self.page.goto(f"{self.url}/{place}")

    def sees(self, *texts: str) -> None:
        for text in texts:
            self.page.get_by_text(text).first.wait_for()

    def photographs(self, name: str) -> None:
        self.page.wait_for_timeout(1000)  # animations
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def materializes(self, asset: str, partitions: str | None = None) -> None:
        """By the asset's button, and the dialog that it opens for partitions."""
        self.go(f"assets/{asset}")
        self.page.get_by_role("button", name="Materialize").first.click()
        if partitions is not None:
            dialog = self.page.get_by_role("dialog")
            dialog.get_by_text("Show all partitions").click()
            box = dialog.locator("input[type=text]").first
            box.fill(partitions)
            box.press("Enter")
            self.photographs(f"materialize-{asset}-{re.sub('[^0-9]+', '-', partitions).strip('-')}")
            dialog.get_by_role("button", name=re.compile("Launch")).click()


@contextmanager
def at_the_pages(browser: Any, url: str) -> Iterator[Person]:
    """Somebody before a page of his own, while the block lasts."""
    page = browser.new_page(viewport={"width": 1500, "height": 950})
    page.set_default_timeout(180_000)
    here = Person(page, url)
    yield here
    here.photographs("last-station")
    page.close()
