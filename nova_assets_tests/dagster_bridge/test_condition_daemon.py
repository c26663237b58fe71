"""Conditions of plain assets, evaluated by the daemon: one run for each block, whatever else happens to channels."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster._core.execution.backfill import BulkActionStatus
from dagster._daemon.backfill import execute_backfill_iteration

from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import insert, opened, write_definitions
from nova_assets_tests.dagster_bridge.test_backfills import backfill

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

DDL = "day string, k bigint"
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
FIRST_HOUR = timedelta(minutes=40)
"""How long after the start the hours of ``on_cron`` begin."""

DEFINITIONS = """
import dagster as dg
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

day = nova.daily("day", start="2024-01-01")
DDL = "day string, k bigint"
clicks, counts, filled = (nova.Channel(n, schema=DDL, partitions=day) for n in ("clicks", "counts", "filled"))
orders, listed, hourly = (nova.Channel(n, schema=DDL) for n in ("orders", "listed", "hourly"))


def new(channel):
    return {channel: dg.AssetIn(channel, metadata={"nova/mode": "new"})}


@dg.asset(
    key="counts",
    metadata={"nova/produces": "delta"},
    ins=new("clicks"),
    partitions_def=dg.DailyPartitionsDefinition("2024-01-01", end_offset=1),
    automation_condition=nova.condition.has_unread(),
)
def counts_asset(clicks):
    return clicks


@dg.asset(
    key="listed",
    metadata={"nova/produces": "delta"},
    ins=new("orders"),
    automation_condition=dg.AutomationCondition.eager(),
)
def listed_asset(orders):
    return orders


@dg.asset(
    key="hourly",
    metadata={"nova/produces": "delta"},
    ins=new("orders"),
    automation_condition=dg.AutomationCondition.on_cron("{minute} * * * *"),
)
def hourly_asset(orders):
    return orders


@dg.asset(
    key="filled",
    metadata={"nova/produces": "delta"},
    ins=new("clicks"),
    partitions_def=dg.DailyPartitionsDefinition("2024-01-01"),
    automation_condition=dg.AutomationCondition.on_missing(),
)
def filled_asset(clicks):
    return clicks


project = nova.Project([], channels=[clicks, counts, filled, orders, listed, hourly])
assets = [counts_asset, listed_asset, hourly_asset, filled_asset]
own = ["listed", "hourly", "filled"]
conditions_of_dagster = dg.AutomationConditionSensorDefinition(
    "conditions_of_dagster", target=own, use_user_code_server=True, default_status=dg.DefaultSensorStatus.RUNNING
)
defs = dg.Definitions.merge(
    build_definitions(project, assets=assets, catalog={catalog!r}, warehouse={warehouse!r}),
    dg.Definitions(sensors=[conditions_of_dagster]),
)
"""


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path, datetime.now(UTC).replace(microsecond=0), DDL)
    write_definitions(made, DEFINITIONS, monkeypatch, minute=str((made.now + FIRST_HOUR).minute))
    with made.held:
        yield made


def new_runs(it: Daemon, before: list[str]) -> Counter[str]:
    """Runs since then, by asset and partition, after the daemon has evaluated all sensors several times."""
    for _ in range(3):
        it.later(minutes=1)
        it.iterate()
        list(execute_backfill_iteration(it.workspace, logging.getLogger("dagster.backfill")))  # several partitions
    runs = [r for r in it.instance.get_runs() if r.run_id not in before]
    before += [r.run_id for r in runs]
    assert {r.status.value for r in runs} <= {"SUCCESS"}
    own = {"counts", "listed", "hourly", "filled"}
    named = [(k.to_user_string(), r.tags.get("dagster/partition")) for r in runs for k in r.asset_selection or ()]
    return Counter(f"{key} {partition}" if partition else key for key, partition in named if key in own)


def upkeep(it: Daemon, *channels: str) -> None:
    with opened(it) as store:
        for channel in channels:
            store.compact(channel)
            store.compact(channel, chained=True)
            store.collect_garbage(channel)
        assert [i for i in store.timeline(channels[0]) if i.action == "compact"], "there was something to compact"


def test_one_run_for_each_block(it: Daemon) -> None:
    known: list[str] = []
    assert new_runs(it, known) == {}
    insert(it, "orders", 1, day=DAYS[0])
    for day in DAYS[:2]:
        insert(it, "clicks", 1, day=day)
    assert new_runs(it, known) == {"listed": 1, f"counts {DAYS[0]}": 1, f"counts {DAYS[1]}": 1}
    insert(it, "orders", 2, day=DAYS[0])
    insert(it, "clicks", 2, day=DAYS[1])
    assert new_runs(it, known) == {"listed": 1, f"counts {DAYS[1]}": 1}

    upkeep(it, "orders", "clicks", "listed", "counts")
    assert new_runs(it, known) == {}, "upkeep is no new data"

    with opened(it) as store:
        assert store.drop("clicks", f"day={DAYS[0]}") is not None
    assert new_runs(it, known) == {}, "a partition that is dropped is no new data (R19)"

    insert(it, "clicks", 3, day=DAYS[2])
    assert backfill(it, "counts", partitions=DAYS[1:]) == BulkActionStatus.COMPLETED_SUCCESS
    of_backfill = {r.run_id for r in it.instance.get_runs()} - set(known)
    assert len(of_backfill) == 2
    known += of_backfill
    assert new_runs(it, known) == {}, "the backfill has read the block"
    with opened(it) as store:
        assert sorted(r["k"] for r in store.read("counts").to_spark()) == [1, 1, 2, 3]  # type: ignore[union-attr]


@pytest.mark.long
@pytest.mark.exhaustive
def test_on_cron_runs_once_after_each_hour_that_brought_blocks(it: Daemon) -> None:
    known: list[str] = []
    new_runs(it, known)
    insert(it, "orders", 1, day=DAYS[0])
    assert new_runs(it, known) == {"listed": 1}, "the hour has not begun"
    it.now += FIRST_HOUR
    assert new_runs(it, known) == {}, "the hour has begun, and the block came before"
    insert(it, "orders", 2, day=DAYS[0])
    assert new_runs(it, known) == {"listed": 1, "hourly": 1}
    insert(it, "orders", 3, day=DAYS[0])
    assert new_runs(it, known) == {"listed": 1}, "once an hour"
    it.now += timedelta(hours=1)
    upkeep(it, "orders", "listed")
    assert new_runs(it, known) == {}, "upkeep is no new data"
    insert(it, "orders", 4, day=DAYS[0])
    assert new_runs(it, known) == {"listed": 1, "hourly": 1}
    with opened(it) as store:
        assert sorted(r["k"] for r in store.read("hourly").to_spark()) == [1, 2, 3, 4]  # type: ignore[union-attr]


@pytest.mark.long
@pytest.mark.exhaustive
def test_on_missing_runs_once_for_a_day_whose_block_has_come(it: Daemon) -> None:
    known: list[str] = []
    new_runs(it, known)
    today = it.now.date().isoformat()
    it.now += timedelta(days=1)
    assert new_runs(it, known) == {}, "the day is over, and nothing has come"
    insert(it, "clicks", 1, day=today)
    assert new_runs(it, known) == {f"counts {today}": 1, f"filled {today}": 1}
    insert(it, "clicks", 2, day=today)
    assert new_runs(it, known) == {f"counts {today}": 1}, "the day is not missing any more"
    upkeep(it, "clicks", "counts")
    with opened(it) as store:
        assert store.drop("clicks", f"day={today}") is not None
    assert new_runs(it, known) == {}
