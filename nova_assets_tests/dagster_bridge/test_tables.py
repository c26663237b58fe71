"""Channels in tables that others read, under Dagster: a sensor sees what is behind, a run shows it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.dataset as ds
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions
from nova_assets.dagster_bridge.published_tables import request_publish_run

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

DDL = "id bigint"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wanted(store: nova.Store) -> list[str]:
    requests = request_publish_run(store).run_requests or []
    return [c for r in requests for c in r.run_config["ops"]["publish"]["config"]["channels"]]


def test_a_table_that_is_behind_is_shown_anew(home: Path) -> None:
    orders = nova.Channel("orders", nova.Upsert(key="id"), DDL, publish=nova.hive("exports/orders", every="1m"))
    project, where = (
        nova.Project(channels=[orders]),
        {"catalog": f"sqlite:///{home}/c.db", "warehouse": str(home / "w")},
    )
    defs = build_definitions(project, **where)
    job: Any = defs.resolve_job_def("nova_tables")
    with nova.open(project, **where) as store, dg.DagsterInstance.ephemeral() as instance:
        assert wanted(store) == [], "the catalog does not know it yet"
        store.insert("orders", [{"id": 1}])
        assert wanted(store) == ["orders"]
        done = job.execute_in_process(instance=instance)
        assert done.output_for_node("publish") == {"orders": ["hive:exports/orders shows 1, edition 1"]}
        store.insert("orders", [{"id": 1}, {"id": 2}])
        assert wanted(store) == [], "not within the minute"
        now = store.catalog.now()
        store.catalog.database.clock = lambda: now + timedelta(minutes=2)  # type: ignore[attr-defined]
        assert wanted(store) == ["orders"]
        job.execute_in_process(instance=instance)
        assert ds.dataset(os.path.realpath("exports/orders"), partitioning=None).count_rows() == 2
        records = instance.fetch_observations(dg.AssetKey("orders"), limit=10).records
        assert [r.asset_observation.metadata["nova/edition"].value for r in records if r.asset_observation] == [2, 1]


def test_one_that_cannot_be_published_keeps_no_other_from_it(home: Path) -> None:
    (home / "exports/b").mkdir(parents=True)
    channels = [nova.Channel(n, schema=DDL, publish=nova.hive(f"exports/{n}")) for n in "bc"]
    project, where = (
        nova.Project(channels=channels),
        {"catalog": f"sqlite:///{home}/c.db", "warehouse": str(home / "w")},
    )
    job: Any = build_definitions(project, **where).resolve_job_def("nova_tables")
    with nova.open(project, **where) as store:
        for name in "bc":
            store.insert(name, [{"id": 1}])
        done = job.execute_in_process(raise_on_error=False)
        assert not done.success
        (failure,) = [e for e in done.all_events if e.is_step_failure]
        assert "exists already, and does not belong to this channel" in str(failure.step_failure_data.error)
        assert ds.dataset(os.path.realpath("exports/c"), partitioning=None).count_rows() == 1
        assert wanted(store) == ["b"]


def test_without_tables_there_is_no_such_job() -> None:
    defs = build_definitions(nova.Project(channels=[nova.Channel("plain", schema=DDL)]))
    assert "nova_tables" not in {j.name for j in defs.jobs or ()}
