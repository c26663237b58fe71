"""Threads and processes that use a catalog at the same time."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.database.transactions import MAX_RACE_ATTEMPTS
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.execution.warehouse_identity import check_or_adopt_warehouse
from nova_assets_tests import postgres
from nova_assets_tests.catalog.mirror_project import count_keys, open_store, project, run_in_threads

pytestmark = pytest.mark.slow


@pytest.mark.postgres
def test_first_opens_at_the_same_time_under_serializable_isolation(postgres_catalog_url: str) -> None:
    name = make_url(postgres_catalog_url).database
    with postgres.connect(postgres_catalog_url) as c:
        c.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'".encode())
    run_in_threads(lambda n: open_catalog(postgres_catalog_url).close(), 4)


def test_threads_may_share_a_store(url: str, tmp_path: Path) -> None:
    with open_store(url, tmp_path) as store:
        store.register(project)

        def work(n: int) -> None:
            for k in range(5):
                store.insert("c", [{"k": 10 * n + k, "v": k}])
                assert count_keys(store, "c")[10 * n + k] == 1
                try:
                    store.run("mirror")
                except (nova.ExecutionInProgress, nova.CommitConflict):
                    continue

        run_in_threads(work, 4)
        store.run("mirror")
        assert (
            count_keys(store, "c")
            == count_keys(store, "copy")
            == Counter(10 * n + k for n in range(4) for k in range(5))
        )


def test_first_writers_at_the_same_time_agree_on_the_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked = Warehouse.write_catalog_marker

    def slowly(warehouse: Warehouse, catalog: str, identity: str) -> None:
        time.sleep(0.1)
        marked(warehouse, catalog, identity)

    monkeypatch.setattr(Warehouse, "write_catalog_marker", slowly)

    def work(n: int) -> None:
        with open_store(f"sqlite:///{tmp_path}/catalog.db", tmp_path) as store:
            time.sleep(n * 0.04)
            check_or_adopt_warehouse(store.catalog, store.engine)

    open_catalog(f"sqlite:///{tmp_path}/catalog.db").close()
    run_in_threads(work, 8)


def test_threads_may_open_new_catalogs_at_once(tmp_path: Path) -> None:
    run_in_threads(lambda n: open_catalog(f"sqlite:///{tmp_path}/{n}.db").close(), 4)
    run_in_threads(lambda n: open_catalog(f"sqlite:///{tmp_path}/one.db").close(), 4)


def test_a_row_that_is_there_at_every_attempt_is_no_race_for_ever(catalog: Catalog) -> None:
    attempts: list[int] = []

    def insert_again(c: Any) -> None:
        attempts.append(len(attempts))
        assert len(attempts) <= MAX_RACE_ATTEMPTS
        c.exec_driver_sql("INSERT INTO nova_channels SELECT * FROM nova_channels")

    with pytest.raises(nova.CatalogUnavailable, match="refuses a statement"):
        catalog.database.write(insert_again)
    assert len(attempts) == MAX_RACE_ATTEMPTS
