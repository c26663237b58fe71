"""What scenarios in a browser have in common. Each says itself what is ``deployed``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nova_assets_tests.scenarios.ui import Deployment, Person, at_the_pages, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def person(browser: Any, deployed: Deployment) -> Iterator[Person]:
    with at_the_pages(browser, deployed.url) as here:
        yield here
