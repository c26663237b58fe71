"""Fixtures that any test may ask for by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from nova_assets_tests import postgres

ROOT = Path(__file__).resolve().parents[1]

os.environ["NOVA_CACHE"] = ""  # no test finds what another one kept, nor leaves anything in anybody's home

# Spark's statements are small here, and its generated code is short-lived: to optimise it costs more than to run it.
# The simple compiler needs room for its code, or discards it all the time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest. Otherwise one worker has such a file left when all others are done."""
    if not hasattr(config, "workerinput"):  # one process gains nothing
        return
    ranks = {"long": 0, "slow": 1, "spark": 2}
    by_file: dict[Path, int] = {}
    for item in items:
        rank = min((ranks[m.name] for m in item.iter_markers() if m.name in ranks), default=len(ranks))
        by_file[item.path] = min(rank, by_file.get(item.path, rank))
    items.sort(key=lambda item: by_file[item.path])


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test, saying what it needs; in continuous integration (``CI=true``) fail it, since it must run there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} ({remedy}), and CI=true", pytrace=False)
    pytest.skip(f"{what} ({remedy})")


@pytest.fixture(autouse=True, scope="module")
def new_catalogs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spare the migrations of each new SQLite catalog, except in the tests of the catalog itself."""
    from nova_assets_tests.quick_catalogs import quick_catalogs

    if request.path.parent.name == "catalog":
        yield
        return
    with quick_catalogs():
        yield


@pytest.fixture(autouse=True, scope="session")
def migrations_read_once() -> Iterator[None]:
    """Spare the reading of Dagster's migrations for each storage that it opens."""
    from nova_assets_tests.quick_storages import quick_storages

    with quick_storages():
        yield


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The SQLAlchemy URL of a real PostgreSQL server: that of NOVA_TEST_POSTGRES, or one started for the session."""
    given = os.environ.get("NOVA_TEST_POSTGRES")
    if given:
        yield given
        return
    try:
        with postgres.server() as url:
            yield url
    except postgres.NoPostgres as reason:
        missing(f"no PostgreSQL server: {reason}", "install PostgreSQL, or set NOVA_TEST_POSTGRES to the URL of one")


@pytest.fixture
def postgres_catalog_url(postgres_url: str) -> Iterator[str]:
    """The SQLAlchemy URL of a database on that server which is empty, and this test's alone."""
    with postgres.fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data: NOVA_SHARED_DATA, or ``../shared/data`` beside the checkout (see its SOURCES.md)."""
    folder = Path(os.environ.get("NOVA_SHARED_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "SOURCES.md").is_file():
        missing(f"no real data in {folder}", "set NOVA_SHARED_DATA to the folder that holds its SOURCES.md")
    return folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One warm session for all tests; only those that kill processes start their own.

    With NOVA_TEST_SPARK=connect, a client of a Spark Connect server that is started for it.
    """
    from nova_assets.engine.session.lazy_session import LazySparkSession
    from nova_assets.engine.session.spark_session import get_or_build_session

    if os.environ.get("NOVA_TEST_SPARK") != "connect":
        yield LazySparkSession().get()
        return
    from nova_assets.engine.session import connect_server

    home = tmp_path_factory.mktemp("spark")
    yield get_or_build_session("server", home)
    connect_server.stop_server(home)
