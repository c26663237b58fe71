"""What scenarios in a browser have in common, and those of a catalog on SQLite.

Each scenario in a browser says itself what is ``deployed``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nova_assets_tests.scenarios.ui import Deployment, Person, at_the_pages, chromium

if TYPE_CHECKING:
    from nova_assets_tests import catalog_acts


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def person(browser: Any, deployed: Deployment) -> Iterator[Person]:
    with at_the_pages(browser, deployed.url) as here:
        yield here


@pytest.fixture
def deployment(tmp_path: Path) -> catalog_acts.Deployment:
    """A deployment on SQLite that no process has open."""
    from nova_assets_tests.catalog_acts import create_deployment  # imports the service: other scenarios do without

    return create_deployment(tmp_path / "project")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the project, for the service's log and views."""
    return tmp_path / "service"
