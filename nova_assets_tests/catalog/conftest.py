"""A catalog on each kind of database, with one channel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets_tests.catalog.commit_requests import channel


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    postgres_url: str = request.getfixturevalue("postgres_catalog_url")
    return postgres_url


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    opened_catalog = open_catalog(url)
    opened_catalog.definitions.register([channel])
    yield opened_catalog
    opened_catalog.close()
