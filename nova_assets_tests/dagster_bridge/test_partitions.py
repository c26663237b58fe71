"""Partitions under Dagster: definitions, keys, runs of a partition, backfills, sensors, users' assets (R13)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources, unreported_commits
from nova_assets.dagster_bridge.partitions import build_partitions_definition, parse_dagster_key, to_dagster_key
from nova_assets.dagster_bridge.triggers import evaluate_trigger
from nova_assets.model.partitions import partition_name
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

DDL = "day string, shop string, v bigint"
DAY, SHOP = nova.daily("day", start="2024-01-01"), nova.dynamic("shop")
sales = nova.Channel("sales", schema=DDL, partitions=[DAY, SHOP])
days = nova.Channel("days", schema=DDL, partitions=DAY)
found = nova.Channel("found", schema=DDL, partitions=[DAY, SHOP])


@nova.task(consumes=nova.new(sales), produces=nova.delta(days))
def by_day(sales: list[Row]) -> list[Row]:
    return sales


@nova.task(consumes=nova.new(days), produces=nova.delta(found))
def find(days: list[Row]) -> list[Row]:
    return days


daily = nova.bind(nova.Workflowette("daily", [by_day]), when=nova.on_data("sales"))
whole = nova.bind(nova.Workflowette("whole", [find]), partitions=[])
project = nova.Project([daily, whole])


def rows(*which: tuple[int, str]) -> list[Row]:
    return [{"day": f"2024-01-{d:02}", "shop": s, "v": 1} for d, s in which]


class World:
    def __init__(self, root: Path, monkeypatch: Any, **options: Any) -> None:
        def opener(project: Any = None, spark: Any = None, settings: Any = None) -> Store:
            return Store(settings, project, open_catalog(settings.catalog), StubEngine(settings.warehouse, DDL))

        monkeypatch.setattr(resources, "open_store", opener)
        self.defs = build_definitions(project, catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"), **options)
        self.store = self.defs.resources["nova"].store()
        self.store.register(project)
        self.instance = dg.DagsterInstance.ephemeral()

    def run(self, job: str, key: Any = None, assets: Any = (), tags: Any = None) -> Any:
        defs = dg.Definitions.merge(self.defs, dg.Definitions(assets=list(assets))) if assets else self.defs
        made = defs.resolve_implicit_global_asset_job_def() if assets else defs.resolve_job_def(job)
        selection = [dg.AssetKey(job)] if assets else None
        return made.execute_in_process(
            instance=self.instance, partition_key=key, asset_selection=selection, raise_on_error=False, tags=tags
        )

    def events(self, channel: str) -> list[Any]:
        records = self.instance.fetch_materializations(dg.AssetKey(channel), limit=100).records
        return [r.asset_materialization for r in reversed(records)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, monkeypatch)
    yield made
    made.store.close()


def test_channels_are_partitioned_as_dagster_can_show_them(world: World) -> None:
    graph = world.defs.resolve_asset_graph()
    shown = {c: graph.get(dg.AssetKey(c)).partitions_def for c in ("sales", "days", "found")}
    assert isinstance(shown["sales"], dg.MultiPartitionsDefinition)
    assert isinstance(shown["days"], dg.TimeWindowPartitionsDefinition) and shown["found"] is None
    assert graph.get(dg.AssetKey("found")).metadata["nova/partitions"] == "day (daily), shop (dynamic)"


def test_a_run_of_a_partition_reads_and_writes_that_partition(world: World) -> None:
    world.store.insert("sales", rows((1, "a"), (1, "b"), (2, "a")))
    assert world.run("daily", "2024-01-01").success
    (event,) = world.events("days")
    assert event.partition == "2024-01-01" and event.metadata["dagster/row_count"].value == 2
    assert [r["day"] for r in world.store.read("days").to_spark()] == ["2024-01-01"] * 2  # type: ignore[attr-defined]
    assert [(c.partition, c.channel_partition, c.seq) for c in world.store.cursors("daily")] == [
        ("day=2024-01-01", "day=2024-01-01", 1)
    ]


def test_what_an_execution_finds_is_one_materialization_that_lists_its_partitions(world: World) -> None:
    world.store.insert("days", rows((1, "a"), (1, "b"), (2, "a"), (2, "a")))
    assert world.run("whole").success
    (event,) = world.events("found")
    assert event.metadata["nova/partition_count"].value == 3 and event.metadata["nova/rows"].value == 4
    first = event.metadata["nova/partitions"].value.records[0].data
    assert first["partition"] == "day=2024-01-02/shop=a" and first["rows"] == 2
    assert set(world.instance.get_dynamic_partitions("shop")) == {"a", "b"}


def test_r17_inserts_reach_dagster_partition_by_partition_and_once(world: World) -> None:
    world.store.insert("sales", rows((1, "a"), (2, "x/y | z...")))
    events = unreported_commits.collect_missing_events(world.store, world.instance)
    assert len(events) == 2
    world.instance.report_runless_asset_event(events[0])  # cut off after the first of two
    (again,) = unreported_commits.collect_missing_events(world.store, world.instance)
    assert again == events[1]
    world.instance.report_runless_asset_event(again)
    assert unreported_commits.collect_missing_events(world.store, world.instance) == []
    assert world.store.catalog.commits.unreported() == []
    materialized = world.instance.get_materialized_partitions(dg.AssetKey("sales"))
    assert materialized == {"2024-01-01|a", "2024-01-02|x%2Fy %7C z%2E%2E%2E"}


def test_a_data_trigger_fires_for_each_partition_with_something_unread(world: World) -> None:
    def tick() -> Any:
        return evaluate_trigger(daily, world.store, world.instance)

    assert isinstance(tick(), dg.SkipReason)
    world.store.insert("sales", rows((1, "a"), (3, "b")))
    requests = tick()
    assert [r.partition_key for r in requests] == ["2024-01-01", "2024-01-03"]
    assert requests[0].run_key == "daily[day=2024-01-01]#1#1"
    job = world.defs.resolve_job_def("daily")
    for r in requests:
        tags = {**r.tags, "dagster/run_key": r.run_key}
        assert job.execute_in_process(instance=world.instance, partition_key=r.partition_key, tags=tags).success
    assert isinstance(tick(), dg.SkipReason)
    world.store.insert("sales", rows((3, "c")))
    assert [r.run_key for r in tick()] == ["daily[day=2024-01-03]#2#1"]


def test_a_binding_that_was_executed_whole_is_not_triggered_by_partition(world: World) -> None:
    world.store.insert("sales", rows((1, "a")))
    world.store.run("daily", whole=True)
    world.store.insert("sales", rows((2, "a")))
    answer = evaluate_trigger(daily, world.store, world.instance)
    assert isinstance(answer, dg.SkipReason) and "nova switch daily --to partitions" in str(answer.skip_message)
    world.store.switch("daily", "partitions")
    requests = evaluate_trigger(daily, world.store, world.instance)
    assert isinstance(requests, list) and [r.partition_key for r in requests] == ["2024-01-02"]


def test_a_run_without_a_partition_is_refused_unless_its_tag_says_whole(world: World) -> None:
    world.store.insert("sales", rows((1, "a"), (2, "a")))
    job = world.defs.resolve_job_def("daily")
    refused = job.execute_in_process(instance=world.instance, raise_on_error=False)
    assert not refused.success and world.store.cursors() == []
    failures = [e.step_failure_data.error for e in refused.all_events if e.is_step_failure]
    assert any(f is not None and "triggered per partition" in f.to_string() for f in failures)
    assert job.execute_in_process(instance=world.instance, tags={"nova/whole": "true"}).success
    assert [(c.partition, c.seq) for c in world.store.cursors()] == [("", 1)]


def test_a_key_that_is_no_partition_changes_nothing(world: World) -> None:
    world.store.insert("sales", rows((1, "a")))
    job = world.defs.resolve_job_def("daily")
    with pytest.raises(dg.DagsterError, match="2023-01-01"):
        job.execute_in_process(instance=world.instance, partition_key="2023-01-01")
    assert world.store.executions("daily") == []


def test_a_users_asset_reads_its_own_partition_with_its_own_cursor(world: World) -> None:
    got: list[Any] = []

    @dg.asset(
        ins={"x": dg.AssetIn("days", metadata={"nova/mode": "new"})}, partitions_def=build_partitions_definition([DAY])
    )
    def report(x: list) -> None:  # type: ignore[type-arg]
        got.append([(r["day"], r["shop"]) for r in x])

    @dg.asset(ins={"x": dg.AssetIn("days", metadata={"nova/mode": "new"})})
    def everything(x: list) -> None:  # type: ignore[type-arg]
        got.append(len(x))

    world.store.insert("days", rows((1, "a"), (2, "b")))
    for key in ("2024-01-01", "2024-01-01", "2024-01-02"):
        assert world.run("report", key, [report]).success
    assert got == [[("2024-01-01", "a")], [], [("2024-01-02", "b")]]
    assert world.run("everything", None, [everything]).success and got[-1] == 2


texts = st.one_of(
    st.none(), st.text(max_size=12), st.sampled_from(["", "a|b", "...", "\n", "\x00", "%7C", "%NUL", "__null__"])
)


@given(texts, texts, st.integers(1, 3))
@example("\x00", "", 2)
@example("%NUL", "%00", 2)
def test_keys_and_partitions_are_told_from_each_other_both_ways(a: Any, b: Any, count: int) -> None:
    dims = [nova.dynamic("p"), nova.dynamic("q"), nova.dynamic("r")][:count]
    name = partition_name([d.column for d in dims], {"p": a, "q": b, "r": "x"})
    key = to_dagster_key(dims, name)
    assert parse_dagster_key(dims, key) == parse_dagster_key(dims, str(key)) == name
    assert "..." not in key and key.isprintable() and key.count("|") == (count == 2)


def test_hours_have_dagsters_own_keys() -> None:
    hour = [nova.hourly("h", start="2024-10-26", tz="Europe/Berlin")]
    known = build_partitions_definition(hour).get_partition_keys()  # type: ignore[union-attr]
    for name in ("h=2024-10-27T01:00", "h=2024-10-27T02:00", "h=2024-10-27T02:00+0100"):
        assert to_dagster_key(hour, name) in known and parse_dagster_key(hour, to_dagster_key(hour, name)) == name


def test_one_run_for_several_partitions_commits_each_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, steps="one", backfill_policy=dg.BackfillPolicy.single_run())
    world.store.insert("sales", rows((1, "a"), (2, "a"), (2, "b"), (4, "a")))
    spans = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-03"}
    assert world.run("daily", tags=spans).success
    shown = {e.partition: e.metadata for e in world.events("days")}
    assert {k: m["nova/seq"].value for k, m in shown.items()} == {"2024-01-01": 1, "2024-01-02": 2, "2024-01-03": 0}
    assert {k: m["nova/rows"].value for k, m in shown.items() if "nova/rows" in m} == {"2024-01-01": 1, "2024-01-02": 2}
    assert shown["2024-01-03"]["nova/unchanged"].value
    assert {c.partition for c in world.store.cursors("daily")} == {f"day=2024-01-0{n}" for n in (1, 2, 3)}
    assert world.run("daily", "2024-01-04").success and world.events("days")[-1].metadata["nova/seq"].value == 3
    world.store.close()


def test_a_run_for_several_partitions_needs_one_step() -> None:
    with pytest.raises(nova.DefinitionError, match="a run for several partitions of a binding is one step"):
        build_definitions(project, backfill_policy=dg.BackfillPolicy.single_run())
