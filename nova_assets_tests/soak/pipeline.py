"""What a soak runs: the news pipeline, and two tables with their changes, a join of them and a count over the join.

Loaded by ``dagster dev``. Its upkeep is as busy in ten minutes as that of others in a day.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from pyspark.sql import functions as F

import nova_assets as nova
from examples.joins import join_changes
from examples.news import pipeline as news
from nova_assets.dagster_bridge import build_definitions, maintenance, sensor_job, unreported_commits
from nova_assets.plan import silence_timeouts

SOON = nova.Compaction(deltas=4)
CHAINED = nova.Compaction(deltas=4, share=2.0, small=1)
"""As of a large channel: deltas are chained, until they hold more than its base."""

customers = nova.Channel(
    "customers", merge=nova.Upsert(key="customer"), schema="customer int, city string", compaction=SOON
)
orders = nova.Channel(
    "orders", merge=nova.Upsert(key="order"), schema="order int, customer int, amount int", compaction=CHAINED
)
placed = nova.Channel(
    "placed",
    merge=nova.Upsert(key=["order", "customer"]),
    schema="order int, customer int, amount int, city string",
    compaction=CHAINED,
)
per_city = nova.Channel(
    "per_city", merge=nova.Upsert(key="city"), schema="city string, orders bigint, amount bigint", compaction=SOON
)


@nova.task(consumes=[nova.changes(orders), nova.changes(customers)], produces=nova.delta(placed))
def join_customers(orders: nova.View, customers: nova.View) -> Any:
    """Each order with the city of its customer, while there is such a customer."""
    return join_changes(orders, customers, on=["customer"], left_key=["order"], right_key=["customer"])


@nova.task(consumes=nova.changes(placed), produces=nova.delta(per_city), retries=1)
def count_cities(placed: nova.View) -> Any:
    """Orders and their amount in each city, counted again where something has changed."""
    changed = placed.new.select("order", "customer").distinct()
    before = placed.old.join(changed, ["order", "customer"], "left_semi").select("city")
    touched = before.union(placed.new.where("not _deleted").select("city")).distinct()
    now = placed.all.join(touched, "city", "left_semi").groupBy("city")
    counts = now.agg(F.count("order").alias("orders"), F.sum("amount").alias("amount"))
    kept = touched.join(counts, "city", "left")
    return kept.withColumn("_deleted", F.col("orders").isNull())


def soon_compacted(workflowette: nova.Workflowette) -> dict[str, nova.Channel]:
    """The channels of a workflowette as they are, but for their upkeep."""
    return {port: replace(channel, compaction=SOON) for port, channel in workflowette.declared_channels_by_port.items()}


detect = nova.bind(
    news.detect.workflowette,
    channels=soon_compacted(news.detect.workflowette),
    when=nova.on_data("articles", blocks=4, older_than="20s"),
    attempts=4,
    backoff="2s",
)
dedup = nova.bind(
    news.dedup.workflowette,
    channels=soon_compacted(news.dedup.workflowette),
    when=nova.on_data("articles"),
    attempts=4,
    backoff="2s",
)
join = nova.bind(
    nova.Workflowette("join", [join_customers]),
    when=nova.on_data("orders", rows=8, older_than="10s") | nova.on_data("customers"),
    attempts=4,
    backoff="2s",
)
count = nova.bind(
    nova.Workflowette("count", [count_cities]),
    when=nova.on_data("placed"),
    attempts=2,  # so that some firings are abandoned, and the next reads what they were about
    backoff="2s",
)
project = nova.Project([detect, dedup, join, count])


def hurry() -> None:
    """Let what waits for minutes wait for seconds: the soak has no more."""
    maintenance.SENSOR_INTERVAL = 10
    maintenance.PAUSE_AFTER_FAILURE = 20
    sensor_job.LIFE_SIGN_INTERVAL = 10
    silence_timeouts.SILENCE_LIMIT = timedelta(seconds=60)
    unreported_commits.LEAVE_TO_RUN = timedelta(seconds=20)


hurry()
defs = build_definitions(project)
