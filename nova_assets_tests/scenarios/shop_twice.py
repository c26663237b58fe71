"""A shop whose pipeline stands here twice: as bindings, and as plain Dagster assets with the same channels' twins.

Orders can be corrected and deleted, and come late. ``large`` has the orders from 10 on, day by day. ``totals`` adds up
the changes of ``large``.
"""

from __future__ import annotations

from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions, nova_asset

FROM = 10
day = nova.daily("day", start="2026-01-01")
days = dg.DailyPartitionsDefinition("2026-01-01", end_offset=1)
ROW = "day date, id bigint, shop string, amount bigint"
orders = nova.Channel("orders", schema=ROW, merge=nova.Upsert(key=["day", "id"]), partitions=day)


def large_channel(name: str) -> nova.Channel:
    return nova.Channel(name, schema=ROW, merge=nova.Upsert(key=["day", "id"]), partitions=day)


def totals_channel(name: str) -> nova.Channel:
    return nova.Channel(
        name,
        schema="shop string, total bigint, orders bigint",
        merge=nova.Keyed("shop", combine={"total": "sum", "orders": "sum"}),
    )


large, totals = large_channel("large"), totals_channel("totals")
large_twin, totals_twin = large_channel("large_twin"), totals_channel("totals_twin")


def changes_of_totals(large: nova.View) -> Any:
    """What came, less what went."""
    came = large.after.select("shop", F.col("amount").alias("total"), F.lit(1).alias("orders"))
    went = large.before.select("shop", (-F.col("amount")).alias("total"), F.lit(-1).alias("orders"))
    sums = came.unionByName(went).groupBy("shop").agg(F.sum("total").alias("total"), F.sum("orders").alias("orders"))
    return sums.withColumn("_deleted", F.lit(False))


@nova.task(consumes=nova.new(orders), produces=nova.delta(large))
def keep_large(orders):  # type: ignore[no-untyped-def]
    return orders.withColumn("_deleted", F.col("_deleted") | (F.col("amount") < FROM))


@nova.task(consumes=nova.changes(large), produces=nova.delta(totals))
def add_up(large: nova.View) -> Any:
    return changes_of_totals(large)


@nova_asset(
    reads={"orders": "new"},
    writes=nova.delta(large_twin),
    partitions_def=days,
    automation_condition=nova.condition.has_unread(),
)
def keep_large_twin(orders: pa.Table) -> pa.Table:
    is_deleted = pc.or_(orders["_deleted"], pc.fill_null(pc.less(orders["amount"], FROM), False))
    return orders.drop_columns("_deleted").append_column("_deleted", is_deleted)


@nova_asset(
    reads={"large_twin": "changes"},
    writes=nova.delta(totals_twin),
    automation_condition=nova.condition.has_unread(),
)
def add_up_twin(large_twin: nova.View):  # type: ignore[no-untyped-def]
    return changes_of_totals(large_twin)


project = nova.Project(
    [
        nova.bind(nova.Workflowette("keeping", [keep_large]), when=nova.on_data("orders")),
        nova.bind(nova.Workflowette("adding", [add_up]), when=nova.on_data("large")),
    ]
)
defs = build_definitions(project, assets=[keep_large_twin, add_up_twin])
