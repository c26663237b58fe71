"""Plain Dagster assets that write partitions of channels."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.errors import NotSupported
from nova_assets_tests.dagster_bridge.asset_deployment import BASE, DELTA, Deploy, failure

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

NEW_CLICKS = {"clicks": dg.AssetIn("clicks", metadata={"nova/mode": "new"})}


def test_an_asset_of_a_partition(deploy: Deploy) -> None:
    day = nova.daily("day", start="2026-01-01")
    clicks = nova.Channel("clicks", schema="day date, n int", partitions=day)
    counts = nova.Channel("counts", schema="day date, n int", partitions=day)
    daily = dg.DailyPartitionsDefinition("2026-01-01", end_offset=1)

    @dg.asset(
        key="counts",
        metadata=BASE,
        partitions_def=daily,
        ins={"clicks": dg.AssetIn("clicks", metadata={"nova/mode": "all"})},
    )
    def count(context, clicks: pa.Table) -> pa.Table:  # type: ignore[no-untyped-def]
        assert context.partition_key == "2026-01-02"
        return pa.table({"n": pa.array([clicks.num_rows], pa.int32())})

    world = deploy(count, channels=[clicks, counts])
    rows: list[Any] = [{"day": d, "n": n} for d in ("2026-01-01", "2026-01-02") for n in range(2)]
    world.store.insert("clicks", rows)
    result = world.run("counts", partition_key="2026-01-02")
    assert result.success, failure(result)
    assert [(str(r["day"]), r["n"]) for r in world.store.read("counts").to_arrow().to_pylist()] == [("2026-01-02", 2)]


def test_assets_without_partitions_in_the_run_of_a_partition(deploy: Deploy) -> None:
    """They read all partitions, with one cursor: a run for the next partition gives them only what is new."""
    day = nova.daily("day", start="2026-01-01")
    clicks = nova.Channel("clicks", schema="day date, n int", partitions=day)
    counts = nova.Channel("counts", schema="day date, n int", partitions=day)
    total, got = nova.Channel("total", schema="n int"), dict[str, list[list[int]]](total=[], mail=[])

    @dg.asset(key="counts", metadata=DELTA, ins=NEW_CLICKS, partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    def count(clicks: pa.Table) -> pa.Table:
        return clicks

    @dg.asset(key="total", metadata=DELTA, ins={"counts": dg.AssetIn("counts", metadata={"nova/mode": "new"})})
    def add_up(counts: pa.Table) -> pa.Table:
        got["total"].append(counts["n"].to_pylist())
        return counts.select(["n"])

    @dg.asset(ins={"counts": dg.AssetIn("counts", metadata={"nova/mode": "new"})})
    def mail(counts: pa.Table) -> None:
        got["mail"].append(counts["n"].to_pylist())

    world = deploy(count, add_up, mail, channels=[clicks, counts, total])
    for n, of_day in enumerate(("2026-01-02", "2026-01-01"), start=1):
        world.store.insert("clicks", [{"day": of_day, "n": n}])
        result = world.run("counts,total,mail", partition_key=of_day)
        assert result.success, failure(result)
    assert got == {"total": [[1], [2]], "mail": [[1], [2]]}


def test_two_dimensions_and_dynamic_partitions(deploy: Deploy) -> None:
    day, shop = nova.daily("day", start="2026-01-01"), nova.dynamic("shop")
    both = nova.Channel("both", schema="day date, shop string, n int", partitions=[day, shop])
    by_shop = nova.Channel("by_shop", schema="shop string, n int", partitions=shop)
    shops = dg.DynamicPartitionsDefinition(name="shop")
    grid = dg.MultiPartitionsDefinition(
        {"day": dg.DailyPartitionsDefinition("2026-01-01", end_offset=1), "shop": shops}
    )

    @dg.asset(key="both", metadata=DELTA, partitions_def=grid)
    def cell() -> pa.Table:
        return pa.table({"n": pa.array([1], pa.int32())})

    @dg.asset(key="by_shop", metadata=DELTA, partitions_def=shops)
    def one_shop() -> pa.Table:
        return pa.table({"n": pa.array([2], pa.int32())})

    world = deploy(cell, one_shop, channels=[both, by_shop])
    world.instance.add_dynamic_partitions("shop", ["x|y"])
    key = dg.MultiPartitionKey({"day": "2026-01-02", "shop": "x%7Cy"})
    world.instance.add_dynamic_partitions("shop", ["x%7Cy"])
    result = world.run("both", partition_key=key)
    assert result.success, failure(result)
    [row] = world.store.read("both").to_arrow().to_pylist()
    assert (str(row["day"]), row["shop"], row["n"]) == ("2026-01-02", "x|y", 1)
    result = world.run("by_shop", partition_key="x%7Cy")
    assert result.success, failure(result)
    assert world.store.read("by_shop").to_arrow().to_pylist() == [{"shop": "x|y", "n": 2}]


DAYS = [f"2026-01-0{n}" for n in range(1, 5)]
RANGE = {"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[2]}


@pytest.mark.parametrize("form", ["arrow", pytest.param("spark", marks=pytest.mark.spark)])
def test_one_run_for_several_partitions(deploy: Deploy, form: str) -> None:
    day = nova.daily("day", start=DAYS[0])
    clicks = nova.Channel("clicks", schema="day date, n int", partitions=day)
    users = nova.Channel("users", schema="id int")
    counts = nova.Channel("counts", schema="day date, n bigint", partitions=day)
    calls: list[tuple[int, int]] = []
    extra: list[Any] = []

    @dg.asset(
        key="counts",
        metadata=DELTA,
        partitions_def=dg.DailyPartitionsDefinition(DAYS[0], end_offset=1),
        backfill_policy=dg.BackfillPolicy.single_run(),
        ins={"clicks": dg.AssetIn("clicks", metadata={"nova/mode": "new"}), "users": dg.AssetIn("users")},
    )
    def count(clicks: pa.Table, users: pa.Table) -> Any:
        calls.append((clicks.num_rows, users.num_rows))
        found = clicks.group_by("day").aggregate([("n", "count")]).rename_columns(["day", "n"])
        rows = pa.concat_tables([found, *extra])
        if form == "arrow":
            return rows
        frame = world.store.engine.frames.to_frame(rows)
        return frame

    world = deploy(count, channels=[clicks, users, counts])
    world.store.insert("users", [{"id": 1}])
    rows: list[Any] = [{"day": d, "n": n} for d in DAYS for n in range(2)]
    world.store.insert("clicks", rows)
    result = world.run("counts", tags=RANGE)
    assert result.success, failure(result)
    shown = {
        m.partition: m.metadata for m in (e.materialization for e in result.all_events if e.is_step_materialization)
    }
    assert sorted(shown) == DAYS[:3] and shown[DAYS[1]]["dagster/row_count"].value == 1
    found = {str(r["day"]): r["n"] for r in world.store.read("counts").to_arrow().to_pylist()}
    assert calls == [(6, 1)] and found == dict.fromkeys(DAYS[:3], 2), "each partition has its own cursor"
    origin = world.store.provenance("counts", partition=f"day={DAYS[0]}")[0].commit
    assert sorted(r.scope for r in origin.reads if r.channel == "clicks") == [f"day={d}" for d in DAYS[:3]]
    world.store.insert("clicks", [{"day": DAYS[2], "n": 9}])
    assert world.run("counts", partition_key=DAYS[2]).success and calls[-1] == (1, 1)
    extra.append(pa.table({"day": pa.array([20_000], pa.date32()), "n": [1]}))
    assert "belong to none of the partitions" in failure(world.run("counts", tags=RANGE))


@pytest.mark.spark
def test_values_are_loaded_outside_a_run(deploy: Deploy) -> None:
    day = nova.daily("day", start=DAYS[0])
    clicks = nova.Channel("clicks", schema="day date, n int", partitions=day)
    world = deploy(channels=[clicks])
    rows: list[Any] = [{"day": d, "n": n} for n, d in enumerate(DAYS)]
    world.store.insert("clicks", rows)
    key = dg.AssetKey("clicks")
    assert world.defs.load_asset_value(key, instance=world.instance).count() == 4
    table = world.defs.load_asset_value(key, python_type=pa.Table, instance=world.instance, partition_key=DAYS[1])
    assert [r["n"] for r in table.to_pylist()] == [1]
    io_manager: Any = world.defs.resources["nova"]  # type: ignore[index]
    assert io_manager.load_input(dg.build_input_context(asset_key=key)).count() == 4
    for mode in ("new", "old", "changes"):
        context = dg.build_input_context(asset_key=key, definition_metadata={"nova/mode": mode}, name="clicks")
        with pytest.raises(NotSupported, match=f"{mode}.clicks. outside a run"):
            io_manager.load_input(context)


@pytest.mark.core
def test_values_are_stored_outside_a_run(deploy: Deploy) -> None:
    day = nova.daily("day", start=DAYS[0])
    clicks = nova.Channel("clicks", schema="day date, n int", partitions=day)
    world = deploy(channels=[clicks])
    io_manager: Any = world.defs.resources["nova"]  # type: ignore[index]

    def store(rows: Any, metadata: Any, **options: Any) -> None:
        context = dg.build_output_context(asset_key=dg.AssetKey("clicks"), definition_metadata=metadata, **options)
        io_manager.handle_output(context, rows)

    def amounts() -> list[int]:
        return sorted(r["n"] for r in world.store.read("clicks").to_arrow().to_pylist())

    rows = pa.table({"day": pa.array([20_454, 20_455], pa.date32()), "n": pa.array([1, 2], pa.int32())})
    store(rows, DELTA)
    store(rows, DELTA)
    assert amounts() == [1, 1, 2, 2]
    store([{"n": 7}], BASE, partition_key="2026-01-01")
    assert amounts() == [2, 2, 7], "a base of its partition only"
    store(None, DELTA)
    with pytest.raises(NotSupported, match="writes no channel"):
        store(rows, {})
    assert amounts() == [2, 2, 7]


@pytest.mark.core
@pytest.mark.spark
def test_rows_of_several_partitions_are_computed_once(deploy: Deploy) -> None:
    day = nova.daily("day", start=DAYS[0])
    drawn = nova.Channel("drawn", schema="day date, n bigint", partitions=day)

    @dg.asset(
        key="drawn",
        metadata=DELTA,
        partitions_def=dg.DailyPartitionsDefinition(DAYS[0], end_offset=1),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def draw() -> Any:
        def another_day_each_time(batches: Any) -> Any:
            import random
            from datetime import date

            for batch in batches:
                days = [date(2026, 1, random.randint(1, 3)) for _ in range(batch.num_rows)]
                yield pa.RecordBatch.from_arrays([pa.array(days), batch.column(0)], ["day", "n"])

        return world.store.engine.session.range(200).mapInArrow(another_day_each_time, "day date, n bigint")

    world = deploy(draw, channels=[drawn])
    result = world.run("drawn", tags=RANGE)
    assert result.success, failure(result)
    assert sorted(r["n"] for r in world.store.read("drawn").to_arrow().to_pylist()) == list(range(200))
