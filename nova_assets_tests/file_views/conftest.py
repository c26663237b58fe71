"""A store on a stub engine, whose channel ``t`` has partitions p=a, p=b and p=c."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

DDL = "p string, k bigint"
PARTITIONS = ("p=a", "p=b", "p=c")


def channel(name: str = "t") -> nova.Channel:
    return nova.Channel(name, merge=nova.Append(), schema=DDL, partitions=nova.dynamic("p"))


def put(store: Store, k: int, partitions: str = "abc", name: str = "t") -> None:
    """One row in each of these partitions."""
    store.insert(name, [{"p": p, "k": k} for p in partitions])


def opened(folder: Path, url: str) -> Store:
    settings = load_settings(start_folder=folder, catalog=url, warehouse=str(folder / "wh"), gc_grace=1e-6)
    return Store(settings, None, open_catalog(url), StubEngine(folder / "wh", DDL))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def store(tmp_path: Path, url: str) -> Iterator[Store]:
    with opened(tmp_path, url) as store:
        store.register(channel())
        yield store
