"""One of several processes that insert into, or run bindings over, one catalog.

``python -m nova_assets_tests.scenarios.contention_worker CATALOG WAREHOUSE SECONDS insert|run N``
"""

from __future__ import annotations

import sys
import time

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

DDL = "k bigint, v bigint"
source = nova.Channel("source", schema=DDL)
copies = {n: nova.Channel(f"copy_{n}", schema=DDL) for n in ("one", "two")}


@nova.task(consumes=nova.new("source"), produces=nova.delta("copy"))
def mirror(source: list[Row]) -> list[Row]:
    return source


workflowette = nova.Workflowette("mirror", [mirror])
project = nova.Project(
    [nova.bind(workflowette, name=n, channels={"source": source, "copy": c}) for n, c in copies.items()]
)


def open_store(catalog: str, warehouse: str) -> Store:
    settings = load_settings(catalog=catalog, warehouse=warehouse)
    return Store(settings, project, open_catalog(settings.catalog), StubEngine(warehouse))


def main(catalog: str, warehouse: str, seconds: str, role: str, number: str) -> None:
    """Insert keys of this process's own, printing each that was acknowledged; or run both bindings, over and over."""
    until, n, commits = time.monotonic() + float(seconds), 0, 0
    with open_store(catalog, warehouse) as store:
        while time.monotonic() < until:
            n += 1
            if role == "insert":
                key = int(number) * 1_000_000 + n
                store.insert("source", [{"k": key, "v": n}], idempotency_key=str(key) if n % 2 else None)
                print(key, flush=True)
                continue
            try:
                commits += bool(store.run(("one", "two")[n % 2]).commit)
            except (nova.ExecutionInProgress, nova.CommitConflict):
                time.sleep(0.05)
    if role == "run":
        print(commits)


if __name__ == "__main__":
    main(*sys.argv[1:])
