"""Maintained results that must not be replaced, and keys whose bounds are passed to Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova

pytestmark = pytest.mark.spark

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")


@pytest.mark.long
def test_a_result_that_another_task_reads_in_the_same_execution_is_not_replaced(spark: Any, tmp_path: Path) -> None:
    totals = nova.Channel("totals", merge=nova.Upsert(key="user"), schema="user int, n bigint")
    copied = nova.Channel("copied", merge=nova.Upsert(key="user"), schema="user int, n bigint")
    sql = "SELECT user, COUNT(*) AS n FROM orders WHERE user >= 0 GROUP BY user"
    keep = nova.incremental("keep", sql, produces=nova.delta(totals), refresh="auto")

    @nova.task(consumes=nova.new(totals), produces=nova.delta(copied))
    def copy(totals: Any) -> Any:
        return totals

    project = nova.Project(
        [nova.bind(nova.Workflowette("both", [keep, copy]), channels={"orders": ORDERS})], channels=[ORDERS]
    )
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        store.insert("orders", [{"id": n, "user": 1000 + n % 3, "amount": n} for n in range(9)])
        store.run("both")
        store.insert("orders", spark.range(400_000).selectExpr("int(id)", "int(id % 7) user", "int(id) amount"))
        store.run("both")
        maintenance = store.timeline("totals")[-1].details["tasks"][0]["facts"]["maintenance"]
        assert maintenance["strategy"] == "changes" and "effects beyond its rows" in maintenance["reason"]
        expected = [(n, 400_000 // 7 + (n < 400_000 % 7)) for n in range(7)]
        for name in ("totals", "copied"):
            assert sorted((r["user"], r["n"]) for r in store.read(name).to_arrow().to_pylist()) == expected, name


def test_days_long_ago_and_texts_like_parameters(spark: Any, tmp_path: Path) -> None:
    events = nova.Channel("events", merge=nova.Upsert(key="id"), schema="id int, d date, note string")
    last = nova.Channel("last", merge=nova.Upsert(key="d"), schema="d date, id int")
    sql = "SELECT d, MAX(id) AS id FROM events WHERE note <> ':nova_value_0' GROUP BY d"
    keep = nova.incremental("keep", sql, produces=nova.delta(last))
    project = nova.Project([nova.bind(nova.Workflowette("keep", [keep]), channels={"events": events})])
    days = [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1899, 12, 31), dt.date(9999, 12, 31)]
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        store.insert("events", [{"id": n, "d": days[n % 4], "note": "x"} for n in range(8)])
        store.run("keep")
        for n, day in enumerate(days):
            store.insert("events", [{"id": 10 + n, "d": day, "note": "x"}])
            store.run("keep")
        found = {r["d"]: r["id"] for r in store.read("last").to_arrow().to_pylist()}
    assert found == {day: 10 + n for n, day in enumerate(days)}


@pytest.mark.long
def test_a_result_of_which_partitions_were_dropped_is_not_replaced(spark: Any, tmp_path: Path) -> None:
    kept = nova.Channel(
        "kept",
        merge=nova.Upsert(key=["day", "user"]),
        schema="day date, user int, n bigint",
        partitions=[nova.daily("day", start="2024-01-01")],
    )
    visits = nova.Channel("visits", merge=nova.Append(), schema="day date, user int")
    sql = "SELECT day, user, COUNT(*) AS n FROM visits GROUP BY day, user"
    keep = nova.incremental("keep", sql, produces=nova.delta(kept), refresh="auto")
    project = nova.Project([nova.bind(nova.Workflowette("keep", [keep]), channels={"visits": visits})])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        store.insert("visits", [{"day": dt.date(2024, 1, d), "user": 1} for d in (1, 2)])
        store.run("keep")
        store.drop("kept", "day=2024-01-01")
        store.insert("visits", spark.range(400_000).selectExpr("date'2024-01-03' day", "int(id % 5) user"))
        store.run("keep")
        rows = store.read("kept").to_arrow().to_pylist()
    assert {r["day"] for r in rows} == {dt.date(2024, 1, 2), dt.date(2024, 1, 3)}


def test_spark_confirms_windows_whatever_the_order_of_their_columns(spark: Any, tmp_path: Path) -> None:
    queries = {
        "by_id": "SELECT id, user, ROW_NUMBER() OVER (PARTITION BY user ORDER BY id) AS rn FROM orders",
        "by_amount": "SELECT id, user, ROW_NUMBER() OVER (PARTITION BY user ORDER BY amount, id) AS rn FROM orders",
    }
    schema = "id int, user int, rn int"
    targets = {name: nova.Channel(name, merge=nova.Upsert(key="id"), schema=schema) for name in queries}
    keeps = [nova.incremental(f"keep_{n}", sql, produces=nova.delta(targets[n])) for n, sql in queries.items()]
    project = nova.Project([nova.bind(nova.Workflowette("keep", keeps), channels={"orders": ORDERS})])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        store.insert("orders", [{"id": n, "user": n % 2, "amount": -n} for n in range(6)])
        store.run("keep")
        store.insert("orders", [{"id": 9, "user": 1, "amount": -9}])
        store.run("keep")
        tasks = store.timeline("by_id")[-1].details["tasks"]
        assert [t["facts"]["maintenance"]["strategy"] for t in tasks] == ["changes", "changes"]
        store.read("orders").to_spark().createOrReplaceTempView("orders")
        for name, sql in queries.items():
            rows = store.read(name).to_spark().collect()
            assert sorted(map(tuple, rows)) == sorted(map(tuple, spark.sql(sql).collect())), name
