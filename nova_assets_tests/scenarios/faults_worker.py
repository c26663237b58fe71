"""One of several processes that insert and run bindings over a line to PostgreSQL that breaks at random.

``python -m nova_assets_tests.scenarios.faults_worker CATALOG WAREHOUSE SECONDS N``

Each insert is repeated under its key until it is acknowledged, as an application would. It prints what is acknowledged,
and each error: ``ok KEY`` and ``error CODE CAUSE``. Anything that is no ``NovaError`` ends the process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.scenarios.contention_worker import project
from nova_assets_tests.stub_engine import StubEngine

T = TypeVar("T")

EXPECTED = (nova.ExecutionInProgress, nova.CommitConflict)


def main(catalog: str, warehouse: str, seconds: str, number: str) -> None:
    """Insert, run and read until the time is over."""
    until, n = time.monotonic() + float(seconds), 0
    with until_it_works(lambda: open_store(catalog, warehouse)) as store:
        while time.monotonic() < until:
            n += 1
            key = int(number) * 1_000_000 + n
            rows = [{"k": key, "v": n}]
            until_it_works(lambda key=key, rows=rows: store.insert("source", rows, idempotency_key=str(key)))  # type: ignore[misc]
            print("ok", key, flush=True)
            until_it_works(lambda binding=("one", "two")[n % 2]: run(store, binding))  # type: ignore[misc]
            rows_read = until_it_works(lambda: store.read("source").to_spark())
            assert any(r["k"] == key for r in rows_read), "what was acknowledged is read"


def open_store(catalog: str, warehouse: str) -> Store:
    settings = load_settings(catalog=catalog, warehouse=warehouse)
    return Store(settings, project, open_catalog(catalog, patience=20, timeout=2), StubEngine(warehouse))


def run(store: Store, binding: str) -> None:
    try:
        store.run(binding)
    except EXPECTED:
        return


def until_it_works(work: Callable[[], T]) -> T:
    """Call until it does not fail for want of the catalog."""
    while True:
        try:
            return work()
        except (nova.CatalogUnavailable, nova.CommitOutcomeUnknown) as error:
            print("error", error.code, str(error.found or error.what).replace("\n", " "), flush=True)
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
