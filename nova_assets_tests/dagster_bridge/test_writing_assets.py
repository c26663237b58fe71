"""Plain Dagster assets that write channels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
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
from nova_assets.errors import CommitConflict, NotSupported
from nova_assets_tests.dagster_bridge.asset_deployment import (
    BASE,
    DELTA,
    LATEST,
    LISTED,
    NEW,
    ORDERS,
    Deploy,
    failure,
    materializations,
)

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


class Sizes(dg.Config):
    size: int = 2


@dg.asset(key="listed", io_manager_key="nova", metadata=DELTA, ins=NEW)
def list_orders(orders: pa.Table) -> pa.Table:
    return orders


def test_each_run_appends_what_is_new_and_moves_the_cursor(deploy: Deploy) -> None:
    world = deploy(list_orders)
    for n in (1, 2):
        world.insert(n, n)
        [shown] = materializations(world.run("listed"))
        assert (shown["nova/range"], shown["nova/rows"], shown["dagster/row_count"]) == (f"Δ({n - 1}→{n})", 2, 2 * n)
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
    world.insert(2**53 + 1, None)
    assert materializations(world.run("listed"))[0]["nova/kind"] == "base" and world.amounts() == [3, 2**53 + 1]


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


def test_an_async_function_and_a_config_and_a_resource(deploy: Deploy) -> None:
    async def rows(context, config):  # type: ignore[no-untyped-def]
        return pa.table({"shop": ["a"] * config.size, "amount": range(config.size)})

    rows.__annotations__["config"] = Sizes  # Dagster does not resolve an annotation that is a text
    made = dg.asset(key="listed", metadata=DELTA, required_resource_keys={"nova"})(rows)
    world = deploy(made)
    result = world.run("listed")
    assert result.success, failure(result)
    result = world.run("listed", run_config={"ops": {"listed": {"config": {"size": 1}}}})
    assert result.success and world.amounts() == [0, 0, 1]


def test_after_a_conflict_the_step_runs_again(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    conflicts, publish, got = [1], AssetStep.publish, list[int]()

    def publish_or_conflict(step: AssetStep) -> None:
        if conflicts:
            conflicts.pop()
            world.insert(2)
            world.store.catalog.executions.abort(step.execution.id, "a conflict")
            raise CommitConflict("another commit came first", reason="head")
        publish(step)

    @dg.asset(key="listed", metadata=DELTA, ins=NEW)
    def seen(orders: pa.Table) -> pa.Table:
        got.append(orders.num_rows)
        return orders

    world = deploy(seen)
    monkeypatch.setattr(AssetStep, "publish", publish_or_conflict)
    world.insert(1)
    assert world.run("listed").success and got == [1, 2] and world.amounts() == [1, 2]


def test_a_step_that_fails_after_its_commit_does_not_write_twice(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nova_assets.dagster_bridge import commit_outputs

    fails, report = [True], commit_outputs.timeline_metadata_by_channel

    def report_or_fail(*args: Any) -> Any:
        if fails:
            raise OSError(fails.pop())
        return report(*args)

    @dg.asset(key="listed", metadata=DELTA, retry_policy=dg.RetryPolicy(max_retries=1))
    def once() -> pa.Table:
        return pa.table({"shop": ["a"], "amount": [1]})

    world = deploy(once)
    monkeypatch.setattr(commit_outputs, "timeline_metadata_by_channel", report_or_fail)
    result = world.run("listed")
    assert result.success and world.amounts() == [1], failure(result)
    assert [m["nova/seq"] for m in materializations(result)] == [1]


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
    described: Any = {"owners": ["sales@example.com"], "tags": {"tier": "gold"}, "group": "shops"}
    totals = nova.Channel("totals", schema="shop string, total bigint", merge=nova.Upsert("shop"), **described)

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
    assert spec.owners == ["sales@example.com"] and spec.tags["tier"] == "gold" and spec.group_name == "shops"
    [link] = spec.metadata["dagster/code_references"].code_references
    line = Path(link.file_path).read_text().splitlines()[link.line_number - 1]
    assert line.strip().startswith('@nova_asset(reads={"orders": "all"}') or "def sum_up" in line


def test_dagsters_test_helpers(deploy: Deploy) -> None:
    world = deploy(list_orders)
    world.insert(1)
    table = pa.table({"shop": ["a"], "amount": [1]})
    assert list_orders(table) == table, "the asset is still its function"
    resources: Any = world.defs.resources
    ran = dg.materialize(list(world.defs.assets or ()), selection=["listed"], resources=resources)  # type: ignore[arg-type]
    assert ran.success and world.amounts() == [1]
    with pytest.raises(NotSupported, match="writes no channel"):
        resources["nova"].handle_output(dg.build_output_context(asset_key=dg.AssetKey("listed")), table)
    world.insert(2)
    context = dg.build_input_context(asset_key=dg.AssetKey("orders"), dagster_type=dg.PythonObjectDagsterType(pa.Table))
    assert resources["nova"].load_input(context).num_rows == 2


@pytest.mark.core
def test_definitions_load_without_a_warning(tmp_path: Path) -> None:
    """Dagster warns of beta parts and of multi-asset sensors, about which the author of a project can do nothing."""

    @nova.task(consumes=[nova.new(ORDERS), nova.new(LATEST)], produces=nova.delta("both"))
    def join(orders: Any, latest: Any) -> Any: ...

    when = nova.on_data("orders") & nova.on_data("latest")
    both = nova.bind(nova.Workflowette("b", [join]), channels={"both": nova.Channel("both")}, when=when)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        project = nova.Project([both], channels=[ORDERS, LISTED, LATEST])
        build_definitions(project, assets=[list_orders], catalog=f"sqlite:///{tmp_path}/c.db")
    assert [str(w.message) for w in caught] == []


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["all", "new", "changes"])
def test_materialize_runs_an_asset_without_a_server(deploy: Deploy, mode: str) -> None:
    """``dg.materialize`` of the definitions' assets, in an instance of its own for each call."""

    @dg.asset(key="listed", metadata=DELTA, ins={"orders": dg.AssetIn("orders", metadata={"nova/mode": mode})})
    def list_table(orders: pa.Table) -> pa.Table:
        return orders

    @dg.asset(key="listed", metadata=DELTA, ins={"orders": dg.AssetIn("orders")})
    def list_view(orders: nova.View) -> Any:
        return orders.new.exceptAll(orders.old)

    world = deploy(list_view if mode == "changes" else list_table)
    for n in (1, 2):
        world.insert(n)
        assert dg.materialize(
            list(world.defs.assets or ()), selection=["listed"], resources=dict(world.defs.resources or {})
        ).success
    assert world.amounts() == ([1, 1, 2] if mode == "all" else [1, 2])


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


def test_an_input_without_data_and_an_asset_that_only_waits(deploy: Deploy) -> None:
    @dg.asset(key="listed", metadata=DELTA, deps=["orders"])
    def made() -> pa.Table:
        return pa.table({"shop": ["a"], "amount": [1]})

    world = deploy(made)
    assert world.run("listed").success and world.amounts() == [1] and world.cursors() == {}
