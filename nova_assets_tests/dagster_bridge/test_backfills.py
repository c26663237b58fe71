"""Dagster's backfills over channels: partitions without news are done, and the backfill is completed (R17)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.utils import make_new_backfill_id
from dagster._daemon.backfill import execute_backfill_iteration

from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import insert, opened, write_definitions

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

DAYS = ("2024-01-01", "2024-01-02")
DDL = "day string, k bigint"
DEFINITIONS = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

day = nova.daily("day", start="2024-01-01")
daily, sums, more = (nova.Channel(n, schema="day string, k bigint", partitions=day) for n in ("daily", "sums", "more"))
first, second, third = (nova.Channel(n, schema="day string, k bigint") for n in ("first", "second", "third"))

@nova.task(consumes=nova.new(daily), produces=nova.delta(sums))
def by_day(daily):
    return daily

@nova.task(consumes=nova.new(sums), produces=nova.delta(more))
def again(sums):
    return sums

@nova.task(consumes=nova.new(first), produces=nova.delta(second))
def mirror(first):
    return first

@nova.task(consumes=nova.new(second), produces=nova.delta(third))
def pick(second):
    return [r for r in second if r["k"] > 10]

project = nova.Project([nova.bind(nova.Workflowette(t.name, [t])) for t in (by_day, again, mirror, pick)])
defs = build_definitions(project, catalog={catalog!r}, warehouse={warehouse!r})
"""


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path, datetime.now(UTC), DDL)
    write_definitions(made, DEFINITIONS, monkeypatch)
    with made.held:
        yield made


def backfill(it: Daemon, *assets: str, partitions: tuple[str, ...] = DAYS) -> BulkActionStatus:
    """Have Dagster's daemon carry out a backfill, as the page of an asset launches it."""
    made = PartitionBackfill.from_asset_partitions(
        backfill_id=make_new_backfill_id(),
        asset_graph=it.workspace.create_request_context().asset_graph,
        partition_names=list(partitions) or None,
        asset_selection=[dg.AssetKey(a) for a in assets],
        backfill_timestamp=it.now.timestamp(),
        tags={},
        dynamic_partitions_store=it.instance,
        all_partitions=not partitions,
        title=None,
        description=None,
        run_config=None,
    )
    it.instance.add_backfill(made)
    for _ in range(9):
        list(execute_backfill_iteration(it.workspace, logging.getLogger("dagster.backfill")))
        status: BulkActionStatus = it.instance.get_backfill(made.backfill_id).status  # type: ignore[union-attr]
        if status != BulkActionStatus.REQUESTED:
            return status
    raise AssertionError("it does not end")


def versions(it: Daemon, asset: str) -> list[tuple[str | None, str]]:
    """Partition and data version of each materialization, oldest first."""
    records = it.instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
    events = [r.asset_materialization for r in reversed(records)]
    return [(e.partition, e.tags["dagster/data_version"]) for e in events if e is not None]


def test_partitions_with_nothing_new_are_done_and_the_backfill_is_completed(deployment: Daemon) -> None:
    it = deployment
    insert(it, "daily", 1, 2, day=DAYS[0])
    assert backfill(it, "sums", "more") == BulkActionStatus.COMPLETED_SUCCESS
    shown = [(DAYS[0], "1"), (DAYS[1], "0")]
    assert sorted(versions(it, "sums")) == shown and sorted(versions(it, "more")) == shown
    assert backfill(it, "sums") == BulkActionStatus.COMPLETED_SUCCESS, "all of it was read before"
    assert set(versions(it, "sums")) == set(shown), "of the same versions: nothing that follows is stale"
    with opened(it) as store:
        assert [i.seq for i in store.timeline("sums")] == [1], "no block of it"


def test_a_backfill_without_partitions_goes_on_below_what_has_nothing_new(deployment: Daemon) -> None:
    it = deployment
    insert(it, "first", 1, day=DAYS[0])
    assert backfill(it, "second", "third", partitions=()) == BulkActionStatus.COMPLETED_SUCCESS
    assert versions(it, "second") == [(None, "1")] and versions(it, "third") == [(None, "0")]
    insert(it, "second", 11, day=DAYS[0])
    assert backfill(it, "second", "third", partitions=()) == BulkActionStatus.COMPLETED_SUCCESS
    assert versions(it, "third") == [(None, "0"), (None, "1")]
