"""What waits for a seal is executed for the day that was sealed, whether there is anything in it or not."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge.triggers import evaluate_trigger
from nova_assets.execution.trigger_state import load_trigger_states
from nova_assets.store.store import Store

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

START = datetime(2024, 1, 3, 1, tzinfo=UTC)
DAYS = [nova.daily("dt", start="2024-01-01")]
DDL = "dt date, action string"

actions = nova.Channel("actions", schema=DDL, partitions=[*DAYS, nova.dynamic("action")], seal=nova.seal("dt"))
counts = nova.Channel("counts", schema="dt date, n bigint", partitions=DAYS)
totals = nova.Channel("totals", schema="n bigint")


@nova.task(consumes=nova.all(actions), produces=nova.base(counts))
def count(actions: Any) -> Any:
    return actions


@nova.task(consumes=nova.all(actions), produces=nova.base(totals))
def total(actions: Any) -> Any:
    return actions


def open_store(home: Path, *bindings: Any) -> Store:
    store = nova.open(nova.Project(list(bindings)), f"sqlite:///{home}/c.db", home / "wh")
    store.catalog.database.clock = lambda: START  # type: ignore[attr-defined]
    store.register(store.project)
    return store


def requested(store: Store, binding: Any, instance: Any) -> list[str | None]:
    answer = evaluate_trigger(binding, store, instance)
    found = answer if isinstance(answer, list) else [answer]
    return [r.partition_key for r in found if isinstance(r, dg.RunRequest)]


def test_each_day_by_itself(tmp_path: Path) -> None:
    by_day = nova.bind(nova.Workflowette("by_day", [count]), when=nova.on_sealed(actions))
    with open_store(tmp_path, by_day) as store, dg.DagsterInstance.ephemeral() as instance:
        store.insert("actions", [{"dt": date(2024, 1, 1), "action": "view"}])
        store.catalog.database.clock = lambda: START - timedelta(days=1)  # type: ignore[attr-defined]
        store.insert("actions", [{"dt": date(2024, 1, 3), "action": "view"}])
        store.catalog.database.clock = lambda: START  # type: ignore[attr-defined]
        assert requested(store, by_day, instance) == []
        assert [s.group for s in store.seal("actions")] == ["2024-01-01"]
        assert sorted(
            p for p, f in load_trigger_states(by_day, store.catalog, START).items() if f.sealed["actions"]
        ) == ["dt=2024-01-01"]
        assert requested(store, by_day, instance) == ["2024-01-01"]
        later = START + timedelta(days=2)
        store.catalog.database.clock = lambda: later  # type: ignore[attr-defined]
        assert [s.group for s in store.seal("actions")] == ["2024-01-03", "2024-01-04"]
        assert requested(store, by_day, instance) == ["2024-01-01", "2024-01-03", "2024-01-04"], (
            "the first again: no run"
        )


def test_or_all_of_it(tmp_path: Path) -> None:
    whole = nova.bind(nova.Workflowette("whole", [total]), when=nova.on_sealed("actions"), partitions=[])
    with open_store(tmp_path, whole) as store, dg.DagsterInstance.ephemeral() as instance:
        store.insert("actions", [{"dt": date(2024, 1, 1), "action": "view"}])
        assert requested(store, whole, instance) == []
        store.seal("actions")
        assert requested(store, whole, instance) == [None]


def test_a_channel_that_is_never_sealed_is_told() -> None:
    with pytest.raises(nova.DefinitionError, match="on_sealed names 'counts', which has no seal="):
        nova.Project([nova.bind(nova.Workflowette("w", [total]), when=nova.on_sealed(counts), partitions=[])], [counts])
