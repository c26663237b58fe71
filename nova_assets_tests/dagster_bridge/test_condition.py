"""Declarative automation of plain assets that read channels: fired once for each block, and never by upkeep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets.errors import DefinitionError
from nova_assets_tests.dagster_bridge.asset_deployment import DELTA, LISTED, NEW, ORDERS, Deploy, Deployment

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


class Automation:
    """Dagster's evaluation of the conditions of a deployment, one tick after the other."""

    def __init__(self, world: Deployment) -> None:
        self.world = world
        self.cursor: Any = None

    def tick(self, at: datetime | None = None) -> list[str]:
        """Requested assets or partitions. Commits that no step has reported are reported before."""
        for event in collect_missing_events(self.world.store, self.world.instance):
            self.world.instance.report_runless_asset_event(event)
        result = dg.evaluate_automation_conditions(
            self.world.defs, self.world.instance, cursor=self.cursor, evaluation_time=at
        )
        self.cursor = result.cursor
        return sorted(
            partition or key.to_user_string()
            for key in self.world.defs.resolve_asset_graph().get_all_asset_keys()
            for partition in result.get_requested_partitions(key)
        )


def reader(condition: Any, **options: Any) -> Any:
    @dg.asset(key="mail", ins=NEW, automation_condition=condition, **options)
    def mail(orders: pa.Table) -> None: ...

    return mail


def writer(condition: Any) -> Any:
    @dg.asset(key="listed", metadata=DELTA, ins=NEW, automation_condition=condition)
    def listed(orders: pa.Table) -> pa.Table:
        return orders

    return listed


@pytest.mark.parametrize("make", [reader, writer])
def test_unread_data_requests_a_run_until_it_is_read(deploy: Deploy, make: Any) -> None:
    asset = make(nova.condition.has_unread())
    world = deploy(asset)
    key, automation = asset.key.to_user_string(), Automation(world)
    assert automation.tick() == []
    world.insert(1)
    assert automation.tick() == [key]
    assert world.run(key).success
    world.run(key)  # a reader's cursor moves when its next run looks for the evidence
    assert automation.tick() == []
    world.insert(2)
    world.store.compact("orders")
    assert automation.tick() == [key]
    world.run(key)
    world.run(key)
    world.store.compact("orders", chained=True)
    world.store.collect_garbage("orders")
    assert automation.tick() == [], "upkeep makes nothing unread"


@pytest.mark.core
def test_rows_and_age(deploy: Deploy) -> None:
    rows, age = nova.condition.has_unread(min_rows=3), nova.condition.has_unread(older_than="1 hour")
    world = deploy(writer(rows | age))
    automation = Automation(world)
    world.insert(1, 2)
    assert automation.tick() == []
    world.insert(3)
    assert automation.tick() == ["listed"]


@pytest.mark.core
def test_each_partition_by_itself(deploy: Deploy) -> None:
    day = nova.daily("day", start="2026-01-01")
    clicks = nova.Channel("clicks", schema="day date, n int", partitions=day)
    counts = nova.Channel("counts", schema="day date, n int", partitions=day)

    @dg.asset(
        key="counts",
        metadata=DELTA,
        partitions_def=dg.DailyPartitionsDefinition("2026-01-01", end_offset=1),
        ins={"clicks": dg.AssetIn("clicks", metadata={"nova/mode": "new"})},
        automation_condition=nova.condition.has_unread(),
    )
    def count(clicks: pa.Table) -> pa.Table:
        return clicks

    world = deploy(count, channels=[clicks, counts])
    automation = Automation(world)
    rows: list[Any] = [{"day": f"2026-01-0{n}", "n": n} for n in (2, 4)]
    world.store.insert("clicks", rows)
    assert automation.tick() == ["2026-01-02", "2026-01-04"]
    assert world.run("counts", partition_key="2026-01-02").success
    assert automation.tick() == ["2026-01-04"]


def test_dagsters_own_conditions_fire_once_for_each_block(deploy: Deploy) -> None:
    world = deploy(writer(dg.AutomationCondition.eager()))
    automation = Automation(world)
    automation.tick()
    for n in (1, 2):
        world.insert(n)
        assert automation.tick() == ["listed"]
        assert world.run("listed").success
        assert automation.tick() == []
    world.store.compact("orders")
    world.store.compact("orders", chained=True)
    assert automation.tick() == [], "compaction is no new data"


def test_on_missing_requests_a_new_partition_once(deploy: Deploy) -> None:
    day = nova.daily("day", start="2026-01-01")
    clicks = nova.Channel("clicks", schema="day date, n int", partitions=day)
    counts = nova.Channel("counts", schema="day date, n int", partitions=day)

    @dg.asset(
        key="counts",
        metadata=DELTA,
        partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
        ins={"clicks": dg.AssetIn("clicks", metadata={"nova/mode": "new"})},
        automation_condition=dg.AutomationCondition.on_missing(),
    )
    def count(clicks: pa.Table) -> pa.Table:
        return clicks

    world = deploy(count, channels=[clicks, counts])
    automation = Automation(world)
    assert automation.tick(datetime(2026, 1, 2, 0, 10, tzinfo=UTC)) == []
    next_day = datetime(2026, 1, 3, 0, 10, tzinfo=UTC)
    assert automation.tick(next_day) == [], "the day is over, but its input is missing"
    world.store.insert("clicks", [{"day": "2026-01-02", "n": 1}])
    assert automation.tick(next_day) == ["2026-01-02"] and automation.tick(next_day) == []
    assert world.run("counts", partition_key="2026-01-02").success
    world.store.insert("clicks", [{"day": "2026-01-02", "n": 2}])
    world.store.compact("clicks")
    assert automation.tick(next_day) == [], "the partition is not missing any more"


def test_on_cron_requests_a_run_after_the_hour_that_brought_a_block(deploy: Deploy) -> None:
    world = deploy(writer(dg.AutomationCondition.on_cron("0 * * * *")))
    automation = Automation(world)
    now = datetime.now(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0)
    assert automation.tick(hour - timedelta(minutes=1)) == []
    assert automation.tick(hour + timedelta(seconds=1)) == [], "an hour has begun, but no block has come"
    world.insert(1)
    assert (
        automation.tick(now + timedelta(seconds=1)) == ["listed"] and automation.tick(now + timedelta(seconds=2)) == []
    )
    assert world.run("listed").success
    world.store.compact("orders")
    world.store.collect_garbage("orders")
    assert automation.tick(hour + timedelta(hours=1, seconds=1)) == [], "upkeep is no block"


@pytest.mark.core
def test_its_sensor_and_what_is_refused(deploy: Deploy) -> None:
    world = deploy(writer(nova.condition.has_unread() & ~dg.AutomationCondition.in_latest_time_window()))
    [sensor] = [s for s in world.defs.sensors or () if s.name == "nova_automation"]
    assert isinstance(sensor, dg.AutomationConditionSensorDefinition)
    for wrong in ({"min_rows": 0}, {"older_than": "soon"}):
        with pytest.raises(DefinitionError):
            nova.condition.has_unread(**wrong)  # type: ignore[arg-type]
    partitioned = reader(nova.condition.has_unread(), partitions_def=dg.StaticPartitionsDefinition(["a"]))
    from nova_assets.dagster_bridge import build_definitions

    with pytest.raises(DefinitionError, match="has partitions"):
        build_definitions(nova.Project([], channels=[ORDERS, LISTED]), assets=[partitioned])
