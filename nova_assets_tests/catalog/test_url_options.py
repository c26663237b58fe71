"""Options of a catalog's URL, and connections by way of PgBouncer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets_tests import postgres
from nova_assets_tests.catalog.mirror_project import count_keys, open_store, project, run_in_threads, with_query
from nova_assets_tests.conftest import missing
from nova_assets_tests.effort import EXHAUSTIVE
from nova_assets_tests.pgbouncer import NoPgbouncer, pooled

pytestmark = pytest.mark.slow


@pytest.mark.postgres
def test_the_options_of_the_url_are_kept(postgres_catalog_url: str) -> None:
    with postgres.connect(postgres_catalog_url) as c:
        c.execute("CREATE SCHEMA lake")
    open_catalog(with_query(postgres_catalog_url, options="-csearch_path=lake")).close()
    with postgres.connect(postgres_catalog_url) as c:
        found = c.execute("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'nova%'").fetchall()
    assert found == [("lake",)]


@pytest.mark.postgres
def test_limits_that_the_url_sets_are_kept(postgres_catalog_url: str) -> None:
    def limits(catalog: Catalog) -> tuple[str, ...]:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        return catalog.database.read(lambda c: tuple(c.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names))

    own = open_catalog(postgres_catalog_url)
    assert limits(own) == ("1min", "5s", "5min")
    own.close()
    theirs = open_catalog(with_query(postgres_catalog_url, options="-cstatement_timeout=7s -clock_timeout=3s"))
    assert limits(theirs) == ("7s", "3s", "5min")
    theirs.close()


@pytest.mark.postgres
@pytest.mark.parametrize("threshold", ["0", "1", "none"])
def test_a_threshold_for_prepared_statements(postgres_catalog_url: str, threshold: str, tmp_path: Path) -> None:
    with open_store(with_query(postgres_catalog_url, prepare_threshold=threshold), tmp_path) as store:
        store.register(project)
        for n in range(3):
            store.insert("c", [{"k": n, "v": n}])
        assert count_keys(store, "c") == Counter(range(3))


@pytest.mark.core
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("query", "what"),
    [
        ({"prepare_threshold": "soon"}, "prepare_threshold in the catalog's URL is not a number"),
        ({"autocommit": "1"}, "has an unknown parameter"),
        ({"colour": "red"}, "has an unknown parameter"),
        ({"options": "-cnothing=1"}, "refuses a parameter of the connection"),
    ],
)
def test_parameters_that_are_none(postgres_catalog_url: str, query: dict[str, str], what: str) -> None:
    with pytest.raises(nova.CatalogUnavailable, match=what):
        open_catalog(with_query(postgres_catalog_url, **query))


@pytest.mark.core
def test_options_of_a_sqlite_url_are_refused(tmp_path: Path) -> None:
    with pytest.raises(nova.CatalogUnavailable, match="a SQLite URL takes none") as caught:
        open_catalog(f"sqlite:///{tmp_path}/c.db?mode=ro&password=hidden-word")
    assert caught.value.found == "mode, password" and "hidden-word" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.postgres
@pytest.mark.parametrize("query", [{}, pytest.param({"prepare_threshold": "0"}, marks=EXHAUSTIVE)])
def test_pgbouncer_in_transaction_mode(postgres_catalog_url: str, tmp_path: Path, query: dict[str, str]) -> None:
    try:
        with pooled(postgres_catalog_url) as url, open_store(with_query(url, **query), tmp_path) as store:
            store.register(project)

            def work(n: int) -> None:
                for k in range(8):
                    store.insert("c", [{"k": 100 * n + k, "v": k}])

            run_in_threads(work, 4)
            store.run("mirror")
            assert count_keys(store, "copy") == Counter(100 * n + k for n in range(4) for k in range(8))
    except NoPgbouncer as reason:
        missing(f"no PgBouncer: {reason}", "install the package pgbouncer")


@pytest.mark.postgres
def test_a_schema_that_pgbouncer_drops_from_the_url_is_missed(postgres_catalog_url: str, tmp_path: Path) -> None:
    try:
        with pooled(postgres_catalog_url, settings="ignore_startup_parameters = options,extra_float_digits") as url:
            with pytest.raises(
                nova.CatalogUnavailable, match="without the search_path that its URL asks for"
            ) as caught:
                open_store(with_query(url, options="-csearch_path=lake"), tmp_path)
            assert "ALTER ROLE" in str(caught.value)
            open_store(url, tmp_path).close()
    except NoPgbouncer as reason:
        missing(f"no PgBouncer: {reason}", "install the package pgbouncer")
