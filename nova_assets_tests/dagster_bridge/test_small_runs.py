"""What a small run under Dagster does besides its work: transactions, resources, and what its commit remembers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import event

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.settings import Settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

ORDERS = nova.Channel("orders", schema="id bigint, shop string")
LATEST = nova.Channel("latest", merge=nova.Upsert(key="id"), schema="id bigint, shop string")


@nova.task(consumes=nova.new(ORDERS), produces=nova.delta(LATEST))
def copy(orders: Any) -> Any:
    return orders


PROJECT = nova.Project([nova.bind(nova.Workflowette("small", [copy]))])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    def open_with_stub_engine(project: nova.Project, *, settings: Settings, spark: Any) -> Store:
        engine = StubEngine(settings.warehouse, "id bigint, shop string")
        return Store(settings, project, open_catalog(settings.catalog), engine)

    monkeypatch.setattr(resources, "open_store", open_with_stub_engine)
    with definitions(tmp_path, "one").resources["nova"].store() as store:  # type: ignore[index,union-attr]
        store.register(PROJECT)
        yield store


def definitions(folder: Path, steps: Any) -> dg.Definitions:
    return build_definitions(PROJECT, catalog=f"sqlite:///{folder}/c.db", warehouse=str(folder / "wh"), steps=steps)


def run_once(store: Store, folder: Path, steps: Any) -> dg.ExecuteInProcessResult:
    store.insert(ORDERS, [{"id": 1, "shop": "a"}])
    result = definitions(folder, steps).resolve_job_def("small").execute_in_process()
    assert result.success
    return result


def test_a_run_in_one_step_needs_few_transactions_and_one_resource(store: Store, tmp_path: Path) -> None:
    run_once(store, tmp_path, "one")  # loads what a process needs once
    store.insert(ORDERS, [{"id": 2, "shop": "b"}])
    job = definitions(tmp_path, "one").resolve_job_def("small")
    transactions: list[object] = []
    assert isinstance(store.catalog, Catalog)
    event.listen(store.catalog.database.engine, "begin", transactions.append)
    result = job.execute_in_process()
    assert result.success
    assert len(transactions) <= 20, "for the pins, the task, the commit and its report"
    started = [str(e.message) for e in result.all_events if e.event_type_value == "RESOURCE_INIT_STARTED"]
    assert [m for m in started if "nova" in m] == ["Starting initialization of resources [nova]."]


@pytest.mark.parametrize("steps", ["one", "per_task"])
def test_a_commit_has_the_reports_of_the_tasks_of_this_process(store: Store, tmp_path: Path, steps: str) -> None:
    run_once(store, tmp_path, steps)
    instant = store.timeline("latest")[-1]
    assert [report["task"] for report in instant.details["tasks"]] == ["copy"]
