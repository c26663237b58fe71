"""A deployment on a stub engine: a real catalog, real files, no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine


class TestClock:
    """A clock that is set by hand."""

    __test__ = False

    def __init__(self) -> None:
        self.now = datetime(2024, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


Opener = Callable[..., Store]


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The whole suite runs over each catalog."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    url: str = request.getfixturevalue("postgres_catalog_url")
    return url


@pytest.fixture
def opened(catalog_url: str, tmp_path: Path, clock: TestClock) -> Iterator[Opener]:
    """``opened(project)`` gives a store; called again, another store on the same catalog and warehouse."""
    stores: list[Store] = []

    def opener(
        project: nova.Project | None = None,
        lease: float = 100.0,
        owner: str | None = None,
        schema: str = "k bigint, v bigint",
    ) -> Store:
        settings = load_settings(
            start_folder=tmp_path, catalog=catalog_url, warehouse=str(tmp_path / "wh"), lease=lease
        )
        store = Store(
            settings, project, open_catalog(settings.catalog, clock=clock), StubEngine(tmp_path / "wh", schema)
        )
        store.runtime._owner = owner
        stores.append(store)
        return store

    yield opener
    for store in stores:
        store.close()
