"""A maintained query in Dagster: it is materialized again and again, and its lineage leads to its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

pytestmark = [pytest.mark.spark, pytest.mark.dagster]

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")
TOTALS = nova.Channel("totals", merge=nova.Upsert(key="user"), schema="user int, total bigint")


def test_each_materialization_writes_the_changed_groups(tmp_path: Path, spark: Any) -> None:
    task = nova.incremental(
        "keep", "SELECT user, SUM(amount) AS total FROM orders GROUP BY user", produces=nova.delta(TOTALS)
    )
    binding = nova.bind(nova.Workflowette("keep_totals", [task]), channels={"orders": ORDERS})
    project = nova.Project([binding], channels=[ORDERS])
    catalog, warehouse = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "warehouse")
    definitions = build_definitions(project, catalog=catalog, warehouse=warehouse)
    graph = definitions.resolve_asset_graph()
    assert graph.get(dg.AssetKey("totals")).parent_keys == {dg.AssetKey("orders")}
    instance = dg.DagsterInstance.ephemeral()
    job = definitions.resolve_job_def("keep_totals")
    with nova.open(project, catalog, warehouse, spark) as store:
        store.register(project)
        for rows in ([(1, 1, 5), (2, 2, 7)], [(3, 1, 10)]):
            store.insert("orders", [{"id": i, "user": u, "amount": a} for i, u, a in rows])
            assert job.execute_in_process(instance=instance).success
        change = store.read("totals", since=1).to_arrow().to_pylist()
    assert change == [{"user": 1, "total": 15, "_deleted": False}]


def test_a_maintained_dataset_is_an_asset_like_any_other(tmp_path: Path, spark: Any) -> None:
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "sums.sql").write_text("SELECT user, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY user")
    project = nova.Project(nova.datasets(folder, channels=[ORDERS], refresh="incremental"), channels=[ORDERS])
    catalog, warehouse = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "warehouse")
    definitions = build_definitions(project, catalog=catalog, warehouse=warehouse)
    graph = definitions.resolve_asset_graph()
    assert graph.get(dg.AssetKey("sums")).parent_keys == {dg.AssetKey("orders")}
    [link] = graph.get(dg.AssetKey("sums")).metadata["dagster/code_references"].code_references
    assert Path(link.file_path) == folder / "sums.sql"
    instance = dg.DagsterInstance.ephemeral()
    job = definitions.resolve_job_def("sums")
    with nova.open(project, catalog, warehouse, spark) as store:
        store.register(project)
        for rows in ([(1, 1, 5), (2, 2, 7)], [(3, 1, 10)]):
            store.insert("orders", [{"id": i, "user": u, "amount": a} for i, u, a in rows])
            ran = job.execute_in_process(instance=instance)
            [made] = ran.get_asset_materialization_events()
            lineage = made.materialization.metadata["dagster/column_lineage"].value.deps_by_column  # type: ignore[union-attr]
            assert lineage["total"] == [dg.TableColumnDep(dg.AssetKey("orders"), "amount")], "without being asked"
        change = store.read("sums", since=1).to_arrow().to_pylist()
    assert sorted((r["user"], r["n"], r["total"], r["_deleted"]) for r in change) == [
        (1, 1, 5, True),
        (1, 2, 15, False),
    ]
