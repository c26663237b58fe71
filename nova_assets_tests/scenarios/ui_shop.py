"""A shop as a person meets it in Dagster's pages: partitions, a check that fails, a run that takes long."""

import time

from pyspark.sql import functions as F

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

day = nova.daily("day", start="2024-01-01")
orders = nova.Channel("orders", schema="day date, id bigint, amount double", partitions=day)
totals = nova.Channel("totals", merge=nova.Upsert(key="day"), partitions=day, fresh_within="25h")
report = nova.Channel("report", merge=nova.Upsert(key="name"))
slow = nova.Channel("slow")
returns = nova.Channel("returns", schema="id bigint")  # nothing comes here, so that the letter is never due
letter = nova.Channel("letter")


@nova.task(consumes=nova.all(orders), produces=nova.delta(totals, columns={"total": "orders.amount"}))
def sum_up(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("total"))


@nova.check(nova.new(totals))
def no_debts(totals):
    """No day's total is below zero."""
    return totals.where("total < 0")


@nova.task(consumes=nova.all(totals), produces=nova.base(report))
def write_report(totals):
    return totals.agg(F.lit("all").alias("name"), F.sum("total").alias("total"))


def wait(batches):
    for batch in batches:
        time.sleep(2)
        yield batch


@nova.task(consumes=nova.all(orders), produces=nova.delta(slow))
def take_long(orders):
    many = orders.select("id", F.explode(F.sequence(F.lit(1), F.lit(200))).alias("n")).repartition(200)
    return many.mapInArrow(wait, "id bigint, n int")


@nova.task(consumes=[nova.new(orders), nova.new(returns)], produces=nova.delta(letter))
def write_letter(orders, returns):
    return orders.join(returns, "id", "left_anti").select("id")


project = nova.Project(
    [
        nova.bind(nova.Workflowette("daily_totals", [sum_up], checks=[no_debts])),
        nova.bind(nova.Workflowette("reporting", [write_report])),
        nova.bind(nova.Workflowette("long_work", [take_long]), partitions=[]),
        nova.bind(
            nova.Workflowette("weekly_letter", [write_letter]),
            when=nova.on_data("orders") & nova.on_data("returns"),
            partitions=[],
        ),
    ]
)
defs = build_definitions(project)
