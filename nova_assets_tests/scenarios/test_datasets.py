"""Datasets written in SQL, run by Spark over real channels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import InputsMissing, PartitionError, TaskFailed
from nova_assets.store.store import Store
from nova_assets.testing import World

pytestmark = pytest.mark.spark

TICKETS = nova.Channel(
    "tickets",
    schema="product string, price decimal(10,2), day string, store string",
    partitions=[nova.daily("day", start="2022-03-01"), nova.static("store", ["Detroit", "Oslo", "Paris"])],
)

STORE_SALES = """
-- What each store sells of what, day by day; {braces} mean nothing here.
FOR t IN TIMESERIES('2022-03-30', '2022-03-31'), store IN ('Detroit', 'Paris')
LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE store_sales PARTITION (day = partition_day, store)
SELECT product, COUNT(*) AS nb_sales, SUM(price) AS Revenue, CONCAT('{', product, '}') AS shown
FROM tickets WHERE tickets.day = partition_day AND tickets.store = :store
GROUP BY product;  -- done
"""

PRODUCTS_SALES = """
FOR t IN TIMESERIES('2022-03-30', '2022-03-31')
LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE products_sales PARTITION (day = partition_day)
WITH of_day AS (SELECT * FROM store_sales s WHERE s.day = :partition_day)
SELECT product, SUM(nb_sales) AS nb_sales, SUM(revenue) AS revenue FROM of_day GROUP BY product
"""

SOLD = [
    ("pen", "2.50", "2022-03-30", "Detroit"),
    ("pen", "2.50", "2022-03-31", "Detroit"),
    ("pen", "3.00", "2022-03-31", "Paris"),
    ("ink", "9.00", "2022-03-31", "Paris"),
    ("ink", "1.00", "2022-03-31", "Oslo"),
]


def rows(sold: list[tuple[str, str, str, str]]) -> list[dict[str, Any]]:
    from decimal import Decimal

    return [{"product": p, "price": Decimal(c), "day": d, "store": s} for p, c, d, s in sold]


@pytest.fixture
def project(tmp_path: Path) -> nova.Project:
    for name, sql in {"store_sales": STORE_SALES, "products_sales": PRODUCTS_SALES}.items():
        (tmp_path / f"{name}.sql").write_text(sql)
    return nova.Project(bindings=nova.datasets(tmp_path, channels=[TICKETS]))


@pytest.fixture
def store(project: nova.Project, spark: Any) -> Iterator[Store]:
    with World(project, spark) as store:
        store.insert("tickets", rows(SOLD))
        yield store


def read(store: Store, channel: str, **where: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read(channel, **where).to_arrow().to_pylist()
    return sorted(found, key=str)


def test_each_scope_is_a_partition_and_reads_just_what_its_query_says(store: Store) -> None:
    for day in ("2022-03-30", "2022-03-31"):
        for shop in ("Detroit", "Paris"):
            store.run("store_sales", f"day={day}/store={shop}")
    assert [(r["product"], r["nb_sales"], str(r["Revenue"]), r["shown"]) for r in read(store, "store_sales")] == [
        ("ink", 1, "9.00", "{ink}"),
        ("pen", 1, "2.50", "{pen}"),
        ("pen", 1, "2.50", "{pen}"),
        ("pen", 1, "3.00", "{pen}"),
    ]
    execution = store.run("products_sales", "2022-03-31")
    assert read(store, "products_sales") == [
        {"product": "ink", "nb_sales": 1, "revenue": rows(SOLD)[3]["price"], "day": "2022-03-31"},
        {"product": "pen", "nb_sales": 2, "revenue": rows([("", "5.50", "", "")])[0]["price"], "day": "2022-03-31"},
    ]
    assert execution.pins["store_sales"].partition == "day=2022-03-31"
    assert [p.partition for p in store.partitions("products_sales")] == ["day=2022-03-31"]


def test_a_scope_that_runs_again_replaces_its_partition(store: Store) -> None:
    store.run("store_sales", "day=2022-03-31/store=Paris")
    store.insert("tickets", rows([("cap", "4.00", "2022-03-31", "Paris")]))
    store.run("store_sales", "day=2022-03-31/store=Paris")
    assert [r["product"] for r in read(store, "store_sales")] == ["cap", "ink", "pen"]


def test_the_plan_says_which_partitions_are_read(store: Store) -> None:
    store.run("store_sales", "day=2022-03-31/store=Paris")
    store.run("store_sales", "day=2022-03-31/store=Detroit")
    store.run("store_sales", "day=2022-03-30/store=Detroit")
    plan = store.plan("products_sales", "day=2022-03-31").as_json()
    given, stored = plan["steps"][0]["reads"]
    assert (given["channel"], stored["channel"]) == ("store_sales", "products_sales")
    assert given["by"]["all"]["as"] == "day=2022-03-31/store=Paris: B1; day=2022-03-31/store=Detroit: B2"


def test_a_partition_of_no_scope_is_refused(store: Store) -> None:
    for day in ("2022-04-01", "2099-04-01"):
        with pytest.raises(PartitionError, match=f"no task of 'store_sales' writes day={day}/store=Paris"):
            store.run("store_sales", f"day={day}/store=Paris")


def test_ticks_make_what_is_missing_then_what_is_stale_and_then_nothing(store: Store) -> None:
    made = [(r.dataset, r.partition) for r in store.tick()]
    assert made == [("store_sales", f"day=2022-03-{d}/store={s}") for d in (30, 31) for s in ("Detroit", "Paris")]
    assert [r.dataset for r in store.tick()] == ["products_sales"] * 2
    assert store.tick() == []
    assert [r["nb_sales"] for r in read(store, "products_sales")] == [1, 1, 2]
    store.insert("tickets", rows([("pen", "1.00", "2022-03-31", "Paris")]))
    waiting = store.next_tick()
    assert [(b.dataset, b.partitions, b.why) for b in waiting.run] == [
        ("store_sales", ("day=2022-03-31/store=Paris",), ("late data",))
    ]
    while store.tick():
        pass
    assert [r["nb_sales"] for r in read(store, "products_sales")] == [1, 1, 3]
    store.catalog.scheduler.mark_dirty("store_sales", ["day=2022-03-30/store=Detroit"], "me")
    assert [(r.dataset, r.partition) for r in store.tick()] == [("store_sales", "day=2022-03-30/store=Detroit")]
    assert store.catalog.scheduler.dirty_partitions() == []
    assert [(r.dataset, r.partition) for r in store.tick()] == [("products_sales", "day=2022-03-30")]
    assert store.tick() == []


def test_late_data_may_be_left_out(project: nova.Project, tmp_path: Path, spark: Any) -> None:
    found = nova.datasets(tmp_path, channels=[TICKETS], late={"store_sales": "ignore"})
    with World(nova.Project(bindings=found), spark) as store:
        store.insert("tickets", rows(SOLD))
        while store.tick():
            pass
        store.insert("tickets", rows([("pen", "1.00", "2022-03-31", "Paris")]))
        assert store.tick() == []


def test_what_reads_what_is_not_made_yet_is_refused_and_nothing_is_made_of_a_part(store: Store) -> None:
    store.run("store_sales", "day=2022-03-31/store=Paris")
    with pytest.raises(InputsMissing, match="no store_sales/day=2022-03-31/store=Detroit") as caught:
        store.run("products_sales", "2022-03-31")
    assert "nova tick --all" in str(caught.value)
    assert store.partitions("products_sales") == []


def test_a_task_that_fails_says_which_file_and_what_to_type(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "odd.sql").write_text(
        "FOR s IN ('Paris') INSERT OVERWRITE odd PARTITION (store = s) "
        "SELECT CAST(product AS INT) AS n FROM tickets WHERE tickets.store = :s"
    )
    with World(nova.Project(bindings=nova.datasets(tmp_path, channels=[TICKETS])), spark) as store:
        store.insert("tickets", rows(SOLD))
        with pytest.raises(TaskFailed) as caught:
            store.run("odd", "store=Paris")
    assert caught.value.next == f"fix {tmp_path}/odd.sql; then nova run odd --partition store=Paris"


def test_a_query_in_a_workflowette_reads_what_is_new(spark: Any) -> None:
    by_store = nova.Keyed(key="store", combine={"n": "sum"})
    counted = nova.Channel("counted", merge=by_store, schema="store string, n bigint")
    count = nova.sql_task(
        "count",
        "SELECT store, COUNT(*) AS n FROM NEW(tickets) WHERE price >= :least GROUP BY store",
        produces=nova.delta(counted),
    )
    binding = nova.bind(nova.Workflowette("count_all", [count]), params={"least": 2})
    with World(nova.Project(bindings=[binding], channels=[TICKETS]), spark) as store:
        store.insert("tickets", rows(SOLD))
        store.run("count_all")
        store.insert("tickets", rows([("cap", "4.00", "2022-03-31", "Paris")]))
        store.run("count_all")
        assert read(store, "counted") == [{"store": "Detroit", "n": 2}, {"store": "Paris", "n": 3}]


def test_a_backfill_is_made_by_ticks_and_nothing_else_follows(store: Store) -> None:
    while store.tick():
        pass
    before = read(store, "products_sales")
    store.backfill("store_sales", "day=2022-03-31", "store=Paris", downstream="none", why="as before")
    assert [(r.dataset, r.partition) for r in store.tick()] == [("store_sales", "day=2022-03-31/store=Paris")]
    assert store.tick() == [] and read(store, "products_sales") == before
    [done] = store.backfills()
    assert (done.state, dict(done.partition_counts), done.downstream) == ("done", {"made": 1}, ())

    preview = store.preview_backfill("store_sales", "day=2022-03-30..")
    assert preview.seconds is not None and preview.seconds > 0
    assert preview.costs["store_sales", "day=2022-03-31/store=Paris"].rows == 2
    asked = store.backfill("store_sales", "day=2022-03-30..", preview=preview)
    assert len(store.tick()) == 4 and store.catalog.backfills.get(asked.id).partition_counts == {
        "made": 4,
        "waiting": 2,
    }
    assert len(store.tick()) == 2 and store.catalog.backfills.get(asked.id).state == "done"
    assert store.tick() == [] and read(store, "products_sales") == before
    store.insert("tickets", rows([("pen", "1.00", "2022-03-31", "Paris")]))
    while store.tick():
        pass
    assert [r["nb_sales"] for r in read(store, "products_sales")] == [1, 1, 3]
