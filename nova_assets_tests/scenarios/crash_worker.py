"""What a crash test kills: one insert and one run of a two-channel binding, in a process of its own.

``python -m nova_assets_tests.scenarios.crash_worker CATALOG WAREHOUSE stub|spark
insert|run|sweep|compact|collect|repair|dagster``
"""

from __future__ import annotations

import sys
from typing import Any

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.crash_points import crash_point
from nova_assets.settings import load_settings
from nova_assets.store.repair import Repair
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

DDL = "k bigint, v bigint"
LEASE, GRACE = 0.5, 0.1

source = nova.Channel("source", schema=DDL)
copy = nova.Channel("copy", schema=DDL)
total = nova.Channel("total", merge=nova.Upsert(key="k"), schema=DDL)


@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def mirror(source: Any) -> Any:
    return source


@nova.task(consumes=nova.new(copy), produces=nova.delta(total))
def last(copy: Any) -> Any:
    if isinstance(copy, list):
        return list({r["k"]: r for r in copy}.values())
    return copy.dropDuplicates(["k"])


project = nova.Project([nova.bind(nova.Workflowette("w", [mirror, last]))])


def open_store(catalog: str, warehouse: str, engine: str) -> Store:
    if engine == "spark":
        return nova.open(project, catalog, warehouse, lease=LEASE, grace=GRACE)
    settings = load_settings(catalog=catalog, warehouse=warehouse, lease=LEASE, grace=GRACE, gc_grace=0.01)
    made = open_catalog(settings.catalog, on_before_commit=lambda: crash_point("commit.inside"))
    return Store(settings, project, made, StubEngine(warehouse))


def rows(engine: str, *keys: int) -> Any:
    data = [{"k": k, "v": k} for k in keys]
    if engine == "stub":
        return data
    import pyarrow as pa

    return pa.Table.from_pylist(data)


def run_under_dagster(catalog: str, warehouse: str) -> None:
    """The binding as Dagster's job, on the instance in DAGSTER_HOME and the stub engine."""
    import dagster as dg

    from nova_assets.dagster_bridge import build_definitions, resources

    def opened(known: Any = None, *, spark: Any = None, settings: Any = None) -> Store:
        return Store(settings, known, open_catalog(settings.catalog), StubEngine(settings.warehouse))

    setattr(resources, "open_store", opened)  # noqa: B010  a stub, as the type checker need not know
    defs = build_definitions(project, catalog=catalog, warehouse=warehouse)
    with dg.DagsterInstance.get() as instance:
        defs.resolve_job_def("w").execute_in_process(instance=instance)


def main(catalog: str, warehouse: str, engine: str, action: str) -> None:
    if action == "dagster":
        run_under_dagster(catalog, warehouse)
        return
    with open_store(catalog, warehouse, engine) as store:
        if action == "insert":
            store.insert("source", rows(engine, 3, 4), idempotency_key="second")
        elif action == "run":
            store.run("w")
        elif action == "compact":
            store.compact("total")
        elif action == "collect":
            store.collect_garbage("total")
        elif action == "repair":
            repair = Repair(store.runtime, LEASE)
            assert all(o.mended for o in repair.repair_damages(repair.find_damages().damages))
        else:
            store.runtime.delete_dead_staging()
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
