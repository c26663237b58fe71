"""Plain Dagster assets that write channels: real Dagster, real SQLite, real files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions, nova_asset
from nova_assets.dagster_bridge.asset_steps import AssetStep
from nova_assets.errors import CommitConflict, DefinitionError

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

ORDERS = nova.Channel("orders", schema="shop string, amount bigint")
LISTED = nova.Channel("listed", schema="shop string, amount bigint")
LATEST = nova.Channel("latest", schema="shop string, amount bigint", merge=nova.Upsert("shop"))
NEW = {"orders": dg.AssetIn("orders", metadata={"nova/mode": "new"})}
DELTA, BASE = {"nova/produces": "delta"}, {"nova/produces": "base"}


class Deployment:
    """A project whose only writers are plain assets."""

    def __init__(self, root: Path, assets: Sequence[Any], channels: Sequence[nova.Channel]) -> None:
        project = nova.Project([], channels=channels)
        self.defs = build_definitions(
            project, assets=list(assets), catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh")
        )
        self.store: nova.Store = self.defs.resources["nova"].store()  # type: ignore[index,union-attr]
        self.store.register(self.store.project)
        (root / "home").mkdir()
        self.instance = dg.DagsterInstance.local_temp(str(root / "home"))

    def run(self, selection: str, **how: Any) -> Any:
        job = self.defs.resolve_implicit_global_asset_job_def()
        keys = [dg.AssetKey(s) for s in selection.split(",")]
        return job.execute_in_process(instance=self.instance, asset_selection=keys, raise_on_error=False, **how)

    def insert(self, *amounts: int, shop: str = "a") -> None:
        self.store.insert("orders", [{"shop": shop, "amount": n} for n in amounts])

    def amounts(self, channel: str = "listed") -> list[int]:
        return sorted(r["amount"] for r in self.store.read(channel).to_arrow().to_pylist())

    def cursors(self) -> dict[str, int]:
        return {c.binding: c.seq for c in self.store.cursors()}

    def close(self) -> None:
        self.store.close()
        self.instance.dispose()


Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    made: list[Deployment] = []

    def build(*assets: Any, channels: Sequence[nova.Channel] = (ORDERS, LISTED, LATEST)) -> Deployment:
        made.append(Deployment(tmp_path, assets, channels))
        return made[-1]

    yield build
    for deployment in made:
        deployment.close()


def materializations(result: Any) -> list[dict[str, Any]]:
    events = [e for e in result.all_events if e.event_type_value == "ASSET_MATERIALIZATION"]
    return [{k: v.value for k, v in e.materialization.metadata.items()} for e in events]


def failure(result: Any) -> str:
    return "\n".join(e.step_failure_data.error.to_string() for e in result.all_events if e.is_step_failure)


@dg.asset(key="listed", io_manager_key="nova", metadata=DELTA, ins=NEW)
def list_orders(orders: pa.Table) -> pa.Table:
    return orders


def test_each_run_appends_what_is_new_and_moves_the_cursor(deploy: Deploy) -> None:
    world = deploy(list_orders)
    for n in (1, 2):
        world.insert(n, n)
        [shown] = materializations(world.run("listed"))
        assert (shown["nova/range"], shown["dagster/row_count"]) == (f"Δ({n - 1}→{n})", 2)
        assert shown["nova/consumed"] == {"orders": {"cursor": n - 1, "head": n}}
    assert world.amounts() == [1, 1, 2, 2] and world.cursors() == {"listed": 2}
    again = world.run("listed")
    assert again.success and materializations(again) == [], "without new rows, there is no block"
    assert len(world.store.timeline("listed")) == 2


def test_a_base_replaces_the_channel(deploy: Deploy) -> None:
    @dg.asset(key="listed", metadata=BASE, ins={"orders": dg.AssetIn("orders")})
    def copy(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.nlargest(2, "amount")

    world = deploy(copy)
    world.insert(1, 2, 3)
    assert world.run("listed").success and world.amounts() == [2, 3]
    world.insert(9)
    assert materializations(world.run("listed"))[0]["nova/kind"] == "base" and world.amounts() == [3, 9]


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars", "dicts", "batches", "reader", "output", "result"])
def test_forms_of_rows(deploy: Deploy, form: str) -> None:
    table = pa.table({"shop": ["a", "b"], "amount": [1, 2]})

    @dg.asset(key="listed", metadata=DELTA)
    def made() -> Any:
        if form == "batches":
            return (b for b in table.to_batches(max_chunksize=1))
        if form == "reader":
            return table.to_reader(max_chunksize=1)
        if form == "output":
            return dg.Output(table, metadata={"mine": 7})
        if form == "result":
            return dg.MaterializeResult(value=table, metadata={"mine": 7}, tags={"own": "tag"})
        forms = {
            "arrow": table,
            "pandas": table.to_pandas(),
            "polars": pl.from_arrow(table),
            "dicts": table.to_pylist(),
        }
        return forms[form]

    world = deploy(made)
    result = world.run("listed")
    assert result.success, failure(result)
    assert world.amounts() == [1, 2]
    [shown] = materializations(result)
    assert shown["nova/seq"] == 1 and shown.get("mine") == (7 if form in ("output", "result") else None)


@pytest.mark.spark
def test_a_spark_frame_needs_no_io_manager_key(deploy: Deploy) -> None:
    """Dagster's own IO manager would pickle the frame, and fail."""

    @dg.asset(key="listed", metadata=DELTA, ins=NEW)
    def doubled(orders):  # type: ignore[no-untyped-def]
        return orders.selectExpr("shop", "amount * 2 AS amount")

    world = deploy(doubled)
    world.insert(1, 2)
    assert world.run("listed").success and world.amounts() == [2, 4]


def test_a_failed_step_publishes_nothing_and_a_retry_reads_the_same_rows(deploy: Deploy) -> None:
    got: list[int] = []

    @dg.asset(key="listed", metadata=DELTA, ins=NEW, retry_policy=dg.RetryPolicy(max_retries=1))
    def flaky(orders: pa.Table) -> pa.Table:
        got.append(orders.num_rows)
        if len(got) in (1, 2, 3):
            world.insert(5)
            raise ValueError("not yet")
        return orders

    world = deploy(flaky)
    world.insert(1)
    assert "not yet" in failure(world.run("listed"))
    assert (world.store.timeline("listed"), world.cursors().get("flaky", 0)) == ([], 0)
    assert world.run("listed").success
    # The first run pins one row for both of its attempts, and the second run pins three.
    assert got == [1, 1, 3, 3] and world.amounts() == [1, 5, 5]
    assert world.run("listed").success and world.amounts() == [1, 5, 5, 5]


def test_several_outputs_are_one_commit(deploy: Deploy) -> None:
    fails = [True]

    @dg.multi_asset(outs={"listed": dg.AssetOut(metadata=DELTA), "latest": dg.AssetOut(metadata=DELTA)}, ins=NEW)
    def both(orders: pa.Table) -> Iterator[Any]:
        yield dg.Output(orders, "listed")
        if fails:
            raise ValueError(fails.pop())
        yield dg.Output(orders, "latest")

    world = deploy(both)
    world.insert(7)
    assert not world.run("listed,latest").success
    assert world.store.timeline("listed") == [], "the first output was not published alone"
    assert world.run("listed,latest").success
    [commit], [other] = world.store.timeline("listed"), world.store.timeline("latest")
    assert commit.commit_id == other.commit_id and world.amounts("latest") == [7]


@pytest.mark.parametrize("blocking", [True, False])
def test_a_blocking_check_comes_before_publication(deploy: Deploy, blocking: bool) -> None:
    passes = [False, True]

    @dg.asset(
        key="listed",
        metadata=DELTA,
        ins=NEW,
        check_specs=[dg.AssetCheckSpec("small", asset="listed", blocking=blocking)],
    )
    def checked(orders: pa.Table):  # type: ignore[no-untyped-def]
        return dg.MaterializeResult(value=orders, check_results=[dg.AssetCheckResult(passed=passes.pop(0))])

    world = deploy(checked)
    world.insert(1)
    result = world.run("listed")
    assert result.success is not blocking and (world.store.timeline("listed") == []) is blocking
    assert not blocking or "small" in failure(result)
    assert world.run("listed").success and world.amounts() == [1]


def test_after_a_conflict_the_step_runs_again(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    conflicts, commit, got = [1], AssetStep.commit, list[int]()

    def commit_or_conflict(step: AssetStep) -> Any:
        if conflicts:
            conflicts.pop()
            world.insert(2)
            world.store.catalog.abort(step.execution.id, "a conflict")
            raise CommitConflict("another commit came first", reason="head")
        return commit(step)

    @dg.asset(key="listed", metadata=DELTA, ins=NEW)
    def seen(orders: pa.Table) -> pa.Table:
        got.append(orders.num_rows)
        return orders

    world = deploy(seen)
    monkeypatch.setattr(AssetStep, "commit", commit_or_conflict)
    world.insert(1)
    assert world.run("listed").success and got == [1, 2] and world.amounts() == [1, 2]


def test_a_step_that_fails_after_its_commit_does_not_write_twice(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nova_assets.dagster_bridge import asset_steps

    fails, report = [True], asset_steps.timeline_metadata_by_channel

    def report_or_fail(*args: Any) -> Any:
        if fails:
            raise OSError(fails.pop())
        return report(*args)

    @dg.asset(key="listed", metadata=DELTA, retry_policy=dg.RetryPolicy(max_retries=1))
    def once() -> pa.Table:
        return pa.table({"shop": ["a"], "amount": [1]})

    world = deploy(once)
    monkeypatch.setattr(asset_steps, "timeline_metadata_by_channel", report_or_fail)
    result = world.run("listed")
    assert result.success and world.amounts() == [1], failure(result)
    assert [m["nova/seq"] for m in materializations(result)] == [1]


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
    tags = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-02"}
    assert "several of its partitions" in failure(world.run("counts", tags=tags))


def test_others_treat_the_asset_like_a_binding(deploy: Deploy) -> None:
    world = deploy(list_orders)
    world.insert(1)
    plan = world.store.plan("listed")
    assert [(i.channel, i.mode) for s in plan.steps for i in s.inputs] == [("orders", "new")]
    world.run("listed")
    assert world.store.timeline("listed")[0].binding == "listed"
    writer = world.store.project.writer("listed")
    assert writer is not None and writer.name == "listed"


def test_the_short_form_brings_its_channel_along(deploy: Deploy) -> None:
    totals = nova.Channel("totals", schema="shop string, total bigint", merge=nova.Upsert("shop"))

    @nova_asset(reads={"orders": "all"}, writes=nova.base(totals, columns={"total": "orders.amount"}))
    def sum_up(orders: pa.Table) -> pa.Table:
        return orders.group_by("shop").aggregate([("amount", "sum")]).rename_columns(["shop", "total"])

    assert isinstance(sum_up, dg.AssetsDefinition)
    world = deploy(sum_up, channels=[ORDERS])
    world.insert(1, 2)
    result = world.run("totals")
    assert result.success, failure(result)
    assert world.store.read("totals").to_arrow().to_pylist() == [{"shop": "a", "total": 3}]
    assert list(materializations(result)[0]["dagster/column_lineage"].deps_by_column) == ["total"]
    [spec] = [s for s in world.defs.resolve_all_asset_specs() if s.key == dg.AssetKey("totals")]
    assert spec.kinds == {"spark", "parquet"} and spec.metadata["nova/key"] == "shop"


def test_definitions_that_do_not_fit_are_refused(deploy: Deploy) -> None:
    @dg.asset(key="lisetd", metadata=DELTA)
    def misspelt() -> None: ...

    @dg.asset(key="listed", metadata={"nova/produces": "append"})
    def unknown_kind() -> None: ...

    @dg.asset(key="listed", metadata=DELTA, ins={"orders": dg.AssetIn("orders", metadata={"nova/mode": "old"})})
    def only_old(orders: Any) -> None: ...

    @dg.asset(ins={"orders": dg.AssetIn("orders", metadata={"nova/mode": "old"})})
    def reads_old(orders: Any) -> None: ...

    @dg.asset(key="listed", metadata=DELTA, partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def partitioned() -> None: ...

    for asset, text in [
        (misspelt, "listed"),
        (unknown_kind, "delta or base"),
        (only_old, "R8"),
        (reads_old, "R8"),
        (partitioned, "partitioned otherwise"),
    ]:
        with pytest.raises(DefinitionError, match=text):
            build_definitions(nova.Project([], channels=[ORDERS, LISTED]), assets=[asset])


def test_an_asset_that_was_not_handed_over_says_so(deploy: Deploy) -> None:
    world = deploy()
    defs = dg.Definitions.merge(world.defs, dg.Definitions(assets=[list_orders]))
    del defs
    other = dg.asset(key="other", io_manager_key="nova")(lambda: pa.table({"a": [1]}))
    merged = dg.Definitions.merge(world.defs, dg.Definitions(assets=[other]))
    job = merged.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(
        instance=world.instance, asset_selection=[dg.AssetKey("other")], raise_on_error=False
    )
    assert "build_definitions(project, assets=[...])" in failure(result)


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


def test_an_input_without_data_and_an_asset_that_only_waits(deploy: Deploy) -> None:
    @dg.asset(key="listed", metadata=DELTA, deps=["orders"])
    def made() -> pa.Table:
        return pa.table({"shop": ["a"], "amount": [1]})

    world = deploy(made)
    assert world.run("listed").success and world.amounts() == [1] and world.cursors() == {}
