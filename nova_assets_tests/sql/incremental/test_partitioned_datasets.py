"""Datasets with partitions that are maintained from changes. Spark's own recompute of each partition decides what is
right."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import SqlError
from nova_assets.model.schema import parse_ddl
from nova_assets.sql.types import query_schema
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.incremental.partitioned_deployment import (
    DAY,
    DAYS,
    QUERIES,
    Deployment,
    click,
    listing,
    order,
)

pytestmark = pytest.mark.spark

Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy(spark: Any, tmp_path: Path) -> Iterator[Deploy]:
    opened: list[Deployment] = []

    def make(refresh: Any, *names: str, replace: bool = False) -> Deployment:
        opened.append(Deployment(spark, tmp_path, refresh, list(names), replace=replace))
        return opened[-1]

    yield make
    for one in opened:
        one.store.close()


def test_a_late_row_changes_its_partition_only(deploy: Deploy) -> None:
    one = deploy("incremental", "daily", "best")
    one.store.insert("orders", [order(n, n % 3 or None, day, n) for n in range(9) for day in DAYS[:3]])
    one.tick()
    one.check()
    one.store.insert("orders", [order(99, 1, DAYS[1], 50), order(3, None, DAYS[1], deleted=True)])
    assert one.tick() == [("daily 02", "changes"), ("best 02", "changes")]
    one.check()
    assert one.blocks("daily", DAYS[1]) == [("base", "task"), ("delta", "task")]
    assert one.blocks("daily", DAYS[0]) == [("base", "task")]


def test_a_change_of_nothing_ends_the_tick(deploy: Deploy) -> None:
    one = deploy("incremental", "daily")
    one.store.insert("orders", [order(1, 1, DAYS[0], 5)])
    one.tick()
    one.store.insert("orders", [order(1, 1, DAYS[0], 5)])
    assert one.tick() == [("daily 01", "changes")]
    assert one.blocks("daily", DAYS[0]) == [("base", "task")], "nothing is written"
    one.store.insert("orders", [order(1, 2, DAYS[0], 5)])
    assert one.tick() == [("daily 01", "changes")]
    one.check()


@pytest.mark.long
@pytest.mark.exhaustive
def test_partitions_without_rows_exist(deploy: Deploy) -> None:
    one = deploy("incremental", "best", "daily")
    one.store.insert("orders", [order(1, 1, day, 1) for day in DAYS])
    assert len(one.tick()) == 8
    assert len(one.store.partitions("best")) == 4
    assert not one.store.read("best").to_arrow().num_rows
    one.store.insert("orders", [order(1, 1, DAYS[0], 100)])
    assert one.tick() == [("daily 01", "changes"), ("best 01", "changes")]
    one.store.insert("orders", [order(1, 1, DAYS[0], deleted=True)])
    assert one.tick() == [("daily 01", "changes"), ("best 01", "changes")]
    one.check()


def test_a_change_whose_blocks_were_collected_replaces_the_partition(deploy: Deploy) -> None:
    one = deploy("incremental", "daily")
    one.store.insert("orders", [order(n, 1, DAYS[0], n) for n in range(5)])
    one.tick()
    one.store.insert("orders", [order(2, 2, DAYS[0], 7)])
    one.store.compact("orders", force=True)
    one.store.collect_garbage("orders")
    one.store.insert("orders", [order(3, 2, DAYS[0], 9)])
    [(_, strategy)] = one.tick()
    assert strategy == "replacement"
    one.check()
    one.store.compact("orders", force=True)
    one.store.collect_garbage("orders")
    one.store.insert("orders", [order(4, 2, DAYS[0], 9)])
    assert one.tick() == [("daily 01", "changes")], "the compacted base is at the version that was read"
    one.check()


def test_a_dropped_partition_of_an_input_replaces_the_result(deploy: Deploy) -> None:
    one = deploy("incremental", "recent")
    one.store.insert("clicks", [click(n, n % 2, day) for n, day in enumerate(DAYS)])
    one.tick()
    one.check()
    one.store.drop("clicks", f"day={DAYS[0]}")
    one.store.insert("clicks", [click(9, 1, DAYS[1])])
    assert dict(one.tick()) == {"recent 02": "replacement", "recent 03": "changes"}
    one.check(*DAYS[1:])
    assert one.blocks("recent", DAYS[0]) == [("base", "task")], "a drop by retention is no deletion (R19)"


@pytest.mark.long
@pytest.mark.exhaustive
def test_an_input_that_gets_a_base(deploy: Deploy) -> None:
    """An ``Append`` channel cannot give the rows that a base removes as a change."""
    one = deploy("incremental", "recent", "daily")
    one.store.insert("clicks", [click(n, n % 2, day) for n, day in enumerate(DAYS)])
    one.store.insert("orders", [order(n, n % 2, day) for n, day in enumerate(DAYS)])
    one.tick()
    one.store.insert("clicks", [click(9, 1, DAYS[0])], kind="base", partition={"day": DAYS[0]})
    one.store.insert("orders", [order(9, 1, DAYS[0])], kind="base", partition={"day": DAYS[0]})
    assert dict(one.tick()) == {"recent 01": "replacement", "recent 02": "replacement", "daily 01": "changes"}
    one.check()


def test_a_backfill_computes_the_partition_again(deploy: Deploy) -> None:
    one = deploy("incremental", "daily")
    one.store.insert("orders", [order(n, 1, day) for n, day in enumerate(DAYS)])
    one.tick()
    one.store.backfill("daily", f"day={DAYS[2]}")
    assert one.tick() == [("daily 03", "replacement")]
    one.check()


@pytest.mark.long
@pytest.mark.exhaustive
def test_the_rows_of_a_calendar_decide_which_days_are_read(deploy: Deploy) -> None:
    one = deploy("incremental", "listed")
    one.store.insert("clicks", [click(n, n % 3, day, n) for n, day in enumerate([*DAYS, *DAYS])])
    one.store.insert("calendar", [listing(day, day) for day in DAYS])
    one.tick()
    one.check()
    one.store.insert("calendar", [listing(DAYS[0], DAYS[3], is_open=None)])
    assert {strategy for _, strategy in one.tick()} == {"changes"}, "no task reads other days"
    one.store.insert("clicks", [click(20, 1, DAYS[0]), click(21, 1, DAYS[2])])
    assert sorted(one.tick()) == [("listed 01", "changes"), ("listed 03", "changes")]
    one.check()
    one.store.insert("calendar", [listing(DAYS[0], DAYS[1]), listing(DAYS[2], DAYS[2], is_open=False)])
    strategies = dict(one.tick())
    assert strategies["listed 01"] == strategies["listed 03"] == "replacement", "they read other days"
    assert strategies["listed 02"] == strategies["listed 04"] == "changes"
    one.check()


def test_a_partition_that_was_dropped_is_made_again(deploy: Deploy) -> None:
    one = deploy("incremental", "daily")
    one.store.insert("orders", [order(n, 1, day) for n, day in enumerate(DAYS)])
    one.tick()
    one.store.drop("daily", f"day={DAYS[2]}")
    assert one.tick() == [("daily 03", "replacement")]
    one.check()


def test_another_writer_of_the_result(deploy: Deploy) -> None:
    one = deploy("incremental", "daily")
    one.store.insert("orders", [order(n, 1, day) for n, day in enumerate(DAYS)])
    one.tick()
    one.store.insert("daily", [{"user": 7, "n": 7, "total": 7, "day": DAYS[0], "_deleted": False}])
    assert not one.tick(), "rows that a person has written stay until the partition is computed again"
    one.store.insert("orders", [order(9, 1, DAYS[0])])
    execution = one.store.run("daily", DAYS[0])
    assert execution.tasks[0].facts["maintenance"]["reason"] == "another writer has changed channel daily"
    one.check()


def test_values_of_which_the_declared_type_is_another(spark: Any, tmp_path: Path) -> None:
    """nova declares one type for all values of a variable. Spark confirms each value."""
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "big.sql").write_text(
        "FOR r IN (0.5, 0.25, 1.0) INSERT OVERWRITE big PARTITION (tier = CAST(r AS STRING)) "
        "SELECT id FROM items WHERE discount >= :r"
    )
    items = nova.Channel("items", merge=nova.Upsert(key="id"), schema="id int, discount decimal(4,2)")
    datasets = nova.datasets(folder, channels=[items], refresh="incremental")
    project = nova.Project(bindings=datasets, channels=[items])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        for step, discounts in enumerate(([0.1, 0.3, 0.9], [0.27, 0.26, 0.5], [0.24, 0.25, 1.5])):
            rows = [{"id": 10 * step + n, "discount": discount} for n, discount in enumerate(discounts)]
            store.insert("items", rows)
            for tier in ("0.5", "0.25", "1.0"):
                store.run("big", {"tier": tier})
                expected = [
                    r["id"] for r in store.read("items").to_arrow().to_pylist() if r["discount"] >= Decimal(tier)
                ]
                found = store.read("big", partition={"tier": tier}).to_arrow().column("id").to_pylist()
                assert sorted(found) == sorted(expected), (step, tier)


def test_a_variable_that_stands_for_a_time_of_the_current_day(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "early.sql").write_text(
        "FOR slot IN ('06:00', '12:00') INSERT OVERWRITE early PARTITION (slot) SELECT id FROM seen WHERE at < :slot"
    )
    seen = nova.Channel("seen", merge=nova.Upsert(key="id"), schema="id int, at timestamp")
    datasets = nova.datasets(folder, channels=[seen], refresh="auto")
    project = nova.Project(bindings=datasets, channels=[seen])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        for n in range(2):
            store.insert("seen", [{"id": n, "at": datetime(2024, 1, 1, 5)}])
            execution = store.run("early", {"slot": "06:00"})
        reason = "'06:00' can stand for the current day or time"
        assert execution.tasks[0].facts["maintenance"]["reason"] == reason


def test_columns_that_spark_has_otherwise_are_noticed_at_the_run(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: nova derives another type."""
    right = query_schema.schema_of_query

    def wrong(*arguments: Any) -> Any:
        return parse_ddl(str(right(*arguments)).replace("bigint", "int"))

    monkeypatch.setattr("nova_assets.sql.datasets.graph_builder.schema_of_query", wrong)
    one = deploy("incremental", "daily")
    one.store.insert("orders", [order(1, 1, DAYS[0])])
    with pytest.raises(SqlError, match="nova derives type int for column 'n', and Spark derives bigint"):
        one.store.run("daily", DAYS[0])


def test_changes_of_partitions_under_two_merge_models(spark: Any, tmp_path: Path) -> None:
    """A base of one partition is enough for a ``Multiset``. ``_deleted`` is never null (R11)."""
    bag = nova.Channel("bag", schema="id int, day string", partitions=[DAY])
    with nova.open(None, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(bag)
        store.insert("bag", [{"id": 1, "day": day} for day in DAYS[:2]])
        store.insert("bag", [{"id": 2, "day": DAYS[1]}])
        store.register(replace(bag, merge=nova.Multiset()), replace=True)
        store.insert("bag", [{"id": 3, "day": DAYS[0]}], kind="base", partition={"day": DAYS[0]})
        expected = [(1, True), (2, False), (3, False)]
        changes = store.read("bag", since=1)
        for rows in (changes.to_arrow().to_pylist(), [r.asDict() for r in changes.to_spark().collect()]):
            assert sorted((r["id"], r["_deleted"]) for r in rows) == expected


def test_a_changed_query_replaces_the_partition(deploy: Deploy) -> None:
    one = deploy("incremental", "daily")
    one.store.insert("orders", [order(n, 1, day) for n, day in enumerate(DAYS)])
    one.tick()
    before = QUERIES["daily"]
    try:
        QUERIES["daily"] = before.replace("COUNT(*)", "COUNT(*) + 1")
        two = deploy("incremental", "daily", replace=True)
        two.store.insert("orders", [order(n, 1, day) for n, day in enumerate(DAYS, 10)])
        assert {strategy for _, strategy in two.tick()} == {"replacement"}
        two.check()
    finally:
        QUERIES["daily"] = before


@pytest.mark.long
@pytest.mark.exhaustive
def test_full_datasets_become_maintained(deploy: Deploy) -> None:
    full = deploy("full", "daily", "best")
    full.store.insert("orders", [order(n, n % 3, day, n) for n in range(8) for day in DAYS])
    full.tick()
    one = deploy("incremental", "daily", "best", replace=True)
    assert not one.tick(), "nothing is stale"
    one.check()
    one.store.insert("orders", [order(1, 5, DAYS[0], 40)])
    assert one.tick() == [("daily 01", "replacement"), ("best 01", "replacement")], "the merge model is another one"
    one.check()
    one.store.insert("orders", [order(2, 5, DAYS[0], 41), order(2, 5, DAYS[1], 3)])
    assert one.tick() == [
        ("daily 01", "changes"),
        ("daily 02", "replacement"),
        ("best 01", "changes"),
        ("best 02", "replacement"),
    ]
    one.check()


def random_rows(rng: random.Random, channel: str) -> list[dict[str, Any]]:
    """A few rows of a channel, some of them deletions."""
    if channel == "users":
        keys = rng.sample(range(4), rng.randrange(1, 3))
        return [{"uid": k, "name": rng.choice(["a", "b", None]), "_deleted": rng.random() < 0.3} for k in keys]
    user = lambda: rng.choice([None, 0, 1, 2])  # noqa: E731
    if channel == "calendar":
        pairs = rng.sample([(d, day) for d in DAYS for day in DAYS], rng.randrange(1, 5))
        return [listing(d, day, is_open=rng.choice([True, False, None])) for d, day in pairs]
    if channel == "clicks":
        return [click(rng.randrange(9), user(), rng.choice(DAYS), rng.randrange(4)) for _ in range(rng.randrange(1, 5))]
    keys = rng.sample([(d, n) for d in DAYS for n in range(6)], rng.randrange(1, 5))
    return [order(n, user(), d, rng.randrange(12), deleted=rng.random() < 0.3) for d, n in keys]


def test_the_partition_of_few_rows_is_replaced(deploy: Deploy) -> None:
    """With ``auto``, the cheaper strategy is chosen for each partition."""
    one = deploy("auto", "daily")
    one.store.insert("orders", [order(n, n % 3, day, n) for n in range(9) for day in DAYS])
    one.tick()
    one.store.insert("orders", [order(1, 1, DAYS[0], 50)])
    assert one.tick() == [("daily 01", "replacement")]
    one.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(1, 1)))
def test_random_histories(deploy: Deploy, seed: int) -> None:
    rng = random.Random(seed)
    one = deploy("incremental", "daily", *rng.sample(sorted(QUERIES.keys() - {"daily"}), 3))
    one.store.insert("users", [{"uid": 1, "name": "a"}])
    strategies: list[str] = []
    for _ in range(examples(4, 6)):
        for channel in rng.sample(["clicks", "orders", "users", "calendar"], rng.randrange(1, 5)):
            one.store.insert(channel, random_rows(rng, channel))
        if rng.random() < 0.3:
            one.store.compact(rng.choice([*one.names, "clicks", "orders", "users"]), force=True)
        if rng.random() < 0.3:
            one.store.collect_garbage(rng.choice([*one.names, "clicks", "orders", "users"]))
        if rng.random() < 0.15:
            one.store.backfill("daily", f"day={rng.choice(DAYS)}")
        strategies += [strategy for _, strategy in one.tick()]
        one.check()
    assert strategies.count("changes") > 2, strategies
