"""``nova.incremental`` in a store: after every execution, the channel has the rows that Spark gives for the query."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import nova_assets as nova
from nova_assets.catalog.history import Histories
from nova_assets_tests.sql.incremental.spark_recompute import create_views, stored_rows

pytestmark = pytest.mark.spark

ORDERS = nova.Channel(
    "orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int", on_schema_change="evolve"
)
USERS = nova.Channel("users", merge=nova.Upsert(key="uid"), schema="uid int, name string")
CLICKS = nova.Channel("clicks", merge=nova.Append(), schema="user int, page string")
POINTS = nova.Channel("points", merge=nova.Keyed(key="user", combine={"n": "sum"}), schema="user int, n bigint")
USER_TOTALS = nova.Channel("totals", merge=nova.Upsert(key="user"), schema="user int, total bigint")
USER_COUNTS = nova.Channel("counts", merge=nova.Upsert(key="user"), schema="user int, n bigint")
PARCELS = nova.Channel("parcels", merge=nova.Multiset(), schema="user int, size string")
INPUTS = (ORDERS, USERS, CLICKS, POINTS, PARCELS)
BY_NAME = {c.name: c for c in INPUTS}


class Bench:
    """A store with one maintained query."""

    def __init__(self, spark: Any, root: Path, sql: str, target: nova.Channel, **params: Any) -> None:
        self.spark, self.sql, self.target, self.params = spark, sql, target, params
        task = nova.incremental("keep", sql, produces=nova.delta(target))
        reads = {e.port: BY_NAME[e.port] for e in task.consumes if e.port in BY_NAME}
        project = nova.Project(
            [nova.bind(nova.Workflowette("keep", [task]), channels=reads, params=params)], channels=list(INPUTS)
        )
        self.store = nova.open(project, f"sqlite:///{root}/catalog.db", root / "warehouse", spark)
        self.store.register(project)

    def run(self) -> list[str]:
        """Run the binding, compare the channel with Spark's result, and return the channel's rows as text."""
        self.store.run("keep")
        sql = self.sql
        create_views(self.spark, self.store, [channel.name for channel in INPUTS if channel.name in sql])
        recomputed = self.spark.sql(sql, args=self.params)
        expected = sorted(str(tuple(r)) for r in recomputed.collect())
        found = sorted(map(str, stored_rows(self.store, self.target.name, recomputed.columns)))
        assert found == expected
        return found

    def head(self) -> int:
        return next(c.head for c in self.store.channels() if c.channel.name == self.target.name)


def deletion(channel: nova.Channel, **key: Any) -> dict[str, Any]:
    assert channel.schema is not None
    return {**{f.name: None for f in channel.schema.fields}, **key, "_deleted": True}


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Iterator[Any]:
    opened: list[Bench] = []

    def make(sql: str, target: nova.Channel, **params: Any) -> Bench:
        opened.append(Bench(spark, tmp_path, sql, target, **params))
        return opened[-1]

    yield make
    for one in opened:
        one.store.close()


JOINED = (
    "SELECT u.name, COUNT(*) AS orders, SUM(o.amount) AS total FROM orders o JOIN users u ON o.user = u.uid "
    "WHERE u.name IS NOT NULL GROUP BY u.name"
)


def test_inserts_updates_deletions_and_bases_pass_through_a_join_and_a_group(bench: Any) -> None:
    kept = bench(JOINED, nova.Channel("totals", merge=nova.Upsert(key="name")))
    store = kept.store
    store.insert("orders", [{"id": n, "user": n % 3, "amount": n} for n in range(9)])
    store.insert("users", [{"uid": n, "name": name} for n, name in enumerate(["Ada", "Bo", None])])
    assert len(kept.run()) == 2
    store.insert("orders", [{"id": 3, "user": 1, "amount": 100}, deletion(ORDERS, id=1)])
    kept.run()
    store.insert("users", [{"uid": 2, "name": "Bo"}])
    kept.run()
    store.insert("users", [deletion(USERS, uid=0)])
    assert len(kept.run()) == 1, "an emptied group disappears"
    store.insert("users", [{"uid": 0, "name": "Ada"}])
    assert len(kept.run()) == 2, "and returns"
    store.insert("orders", [{"id": 50, "user": 0, "amount": None}], kind="base")
    store.compact("orders")
    kept.run()
    head = kept.head()
    kept.run()
    store.insert("orders", [{"id": 50, "user": 0, "amount": None}])
    kept.run()
    assert kept.head() == head, "a change that changes nothing takes no number"


DAYS = [nova.daily("day", start="2024-01-01")]
VISITS = nova.Channel("visits", merge=nova.Append(), schema="day date, user int", partitions=DAYS)


@pytest.mark.parametrize("has_days", [True, False])
def test_an_execution_of_a_partition_concerns_this_partition(spark: Any, tmp_path: Path, has_days: bool) -> None:
    counts = nova.Channel(
        "counts",
        merge=nova.Upsert(key=["day", "user"]),
        schema="day date, user int, n bigint",
        partitions=DAYS if has_days else [],
    )
    task = nova.incremental(
        "keep", "SELECT day, user, COUNT(*) AS n FROM visits GROUP BY day, user", produces=nova.delta(counts)
    )
    binding = nova.bind(nova.Workflowette("keep", [task]), channels={"visits": VISITS}, partitions=["day"])
    project = nova.Project([binding], channels=[VISITS])
    first, second = dt.date(2024, 1, 1), dt.date(2024, 1, 2)
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        store.register(project)
        store.insert("visits", [{"day": day, "user": 1} for day in (first, second, second)])
        if not has_days:
            with pytest.raises(nova.NotSupported, match="is not partitioned by day"):
                store.run("keep", partition="day=2024-01-01")
            return
        for _ in range(2):
            for day in ("2024-01-01", "2024-01-02"):
                store.run("keep", partition=f"day={day}")
            store.insert("visits", [{"day": second, "user": 2}])
        rows = store.read("counts").to_arrow().to_pylist()
    assert sorted((r["day"], r["user"], r["n"]) for r in rows) == [(first, 1, 1), (second, 1, 2), (second, 2, 1)]


def test_a_multiset_holds_null_keys_and_equal_rows(bench: Any) -> None:
    kept = bench("SELECT user, COUNT(*) AS n FROM orders GROUP BY user", nova.Channel("sizes", merge=nova.Multiset()))
    store = kept.store
    store.insert("orders", [{"id": n, "user": None if n % 2 else 1, "amount": n} for n in range(5)])
    assert kept.run() == ["(1, 3)", "(None, 2)"]
    store.insert("orders", [deletion(ORDERS, id=1), {"id": 2, "user": 2, "amount": 0}])
    assert kept.run() == ["(1, 2)", "(2, 1)", "(None, 1)"]
    store.insert("orders", [deletion(ORDERS, id=3)])
    assert kept.run() == ["(1, 2)", "(2, 1)"]


def test_a_chain_of_multisets(bench: Any) -> None:
    kept = bench(
        "SELECT u.name, p.size FROM parcels p LEFT JOIN users u ON p.user = u.uid",
        nova.Channel("named", merge=nova.Multiset()),
    )
    store = kept.store
    store.insert("parcels", [{"user": n % 2, "size": "big"} for n in range(4)] + [{"user": None, "size": None}] * 2)
    assert kept.run() == ["(None, 'big')"] * 4 + ["(None, None)"] * 2
    store.insert("users", [{"uid": 0, "name": "Ada"}])
    assert kept.run() == ["('Ada', 'big')"] * 2 + ["(None, 'big')"] * 2 + ["(None, None)"] * 2
    store.insert("parcels", [{"user": 0, "size": "big", "_deleted": True}, {"user": 9, "size": "x", "_deleted": True}])
    assert kept.run() == ["('Ada', 'big')", "(None, 'big')", "(None, 'big')", "(None, None)", "(None, None)"]
    head = kept.head()
    store.insert("parcels", [{"user": 7, "size": "x", "_deleted": True}, {"user": 1, "size": "big", "_deleted": False}])
    store.insert("parcels", [{"user": 1, "size": "big", "_deleted": True}])
    kept.run()
    assert kept.head() == head, "what was added was removed again"


UNNOTICED = mock.patch.object(Histories, "is_written_by_others", lambda *_: False)


@UNNOTICED
def test_a_multiset_that_lacks_rows_of_the_earlier_result_is_compared(bench: Any, caplog: Any) -> None:
    kept = bench("SELECT user, amount FROM orders", nova.Channel("amounts", merge=nova.Multiset()))
    store = kept.store
    store.insert("orders", [{"id": n, "user": 1, "amount": n} for n in range(3)])
    kept.run()
    store.insert("amounts", [{"user": 1, "amount": 2, "_deleted": True}, {"user": 8, "amount": 8, "_deleted": False}])
    store.insert("orders", [deletion(ORDERS, id=2)])
    with caplog.at_level(logging.WARNING):
        assert kept.run() == ["(1, 0)", "(1, 1)"]
    assert "lacks rows of the earlier result" in caplog.text


def test_rounded_numbers_of_a_multiset_without_a_key_are_compared(bench: Any, caplog: Any) -> None:
    kept = bench(
        "SELECT SUM(CAST(amount AS DOUBLE)) AS total FROM orders GROUP BY user",
        nova.Channel("sums", merge=nova.Multiset()),
    )
    kept.store.insert("orders", [{"id": n, "user": n % 2, "amount": n} for n in range(5)])
    kept.run()
    kept.store.insert("orders", [{"id": 1, "user": None, "amount": 1}])
    with caplog.at_level(logging.INFO):
        kept.run()
    assert "total is rounded" in caplog.text


@UNNOTICED
def test_counts_and_sums_follow_from_the_stored_rows_and_the_change(bench: Any) -> None:
    """The orders are not read again: this shows in a sum that was wrong before, and keeps its difference."""
    sql = "SELECT user, COUNT(*) AS n, COUNT(amount) AS c, SUM(amount) AS total FROM orders GROUP BY user"
    target = nova.Channel("sums", merge=nova.Upsert(key="user"))
    kept = bench(sql, target)
    store = kept.store
    store.insert("orders", [{"id": 1, "user": 1, "amount": 5}, {"id": 2, "user": 1, "amount": None}])
    assert kept.run() == ["(1, 2, 1, 5)"]
    store.insert("orders", [{"id": 1, "user": 1, "amount": None}])
    assert kept.run() == ["(1, 2, 0, None)"], "the last value is gone, so the group is computed again"
    store.insert("orders", [{"id": 2, "user": 1, "amount": 7}, {"id": 3, "user": 2, "amount": 1}])
    assert kept.run() == ["(1, 2, 1, 7)", "(2, 1, 1, 1)"]
    store.insert("orders", [deletion(ORDERS, id=3), {"id": 1, "user": 1, "amount": 1}])
    assert kept.run() == ["(1, 2, 2, 8)"]
    store.insert("sums", [{"user": 1, "n": 2, "c": 2, "total": 108}])
    store.insert("orders", [{"id": 1, "user": 1, "amount": 2}])
    store.run("keep")
    assert store.read("sums").to_arrow().to_pylist() == [{"user": 1, "n": 2, "c": 2, "total": 109}]


@UNNOTICED
def test_a_stored_count_below_what_is_removed_is_an_error(bench: Any) -> None:
    kept = bench("SELECT user, COUNT(*) AS n FROM orders GROUP BY user", USER_COUNTS)
    kept.store.insert("orders", [{"id": n, "user": 1, "amount": 5} for n in range(3)])
    kept.run()
    kept.store.insert("counts", [{"user": 1, "n": 1}])
    kept.store.insert("orders", [deletion(ORDERS, id=0), deletion(ORDERS, id=1)])
    with pytest.raises(nova.TaskFailed):
        kept.store.run("keep")


def test_a_key_with_more_than_the_group_keys_loses_no_row(bench: Any) -> None:
    sql = "SELECT user, COUNT(*) AS n FROM orders GROUP BY user"
    kept = bench(sql, nova.Channel("sizes", merge=nova.Upsert(key=["user", "n"])))
    kept.store.insert("orders", [{"id": n, "user": 1, "amount": 5} for n in range(3)])
    kept.run()
    kept.store.insert("orders", [{"id": 9, "user": 1, "amount": 5}])
    assert kept.run() == ["(1, 4)"]


def test_only_changed_groups_are_written(bench: Any) -> None:
    kept = bench(
        "SELECT user, SUM(amount) AS total FROM orders GROUP BY user",
        nova.Channel("totals", merge=nova.Upsert(key="user")),
    )
    kept.store.insert("orders", [{"id": n, "user": n, "amount": n} for n in range(50)])
    kept.run()
    before = kept.head()
    kept.store.insert("orders", [{"id": 7, "user": 7, "amount": 70}, {"id": 8, "user": 9, "amount": 8}])
    kept.run()
    change = kept.store.read("totals", since=before).to_arrow().to_pylist()
    assert sorted((r["user"], r["_deleted"]) for r in change) == [(7, False), (8, True), (9, False)]


def test_rows_that_combine_are_read_as_they_are_after_combining(bench: Any) -> None:
    sql = "SELECT n, COUNT(*) AS users FROM points GROUP BY n"
    kept = bench(sql, nova.Channel("sizes", merge=nova.Upsert(key="n")))
    kept.store.insert("points", [{"user": 1, "n": 2}, {"user": 2, "n": 2}])
    kept.run()
    kept.store.insert("points", [{"user": 1, "n": 3}])
    assert kept.run() == ["(2, 1)", "(5, 1)"]


def test_added_rows_of_append_channels_are_appended(bench: Any) -> None:
    sql = "SELECT a.page, b.page AS other FROM clicks a JOIN clicks b ON a.user = b.user WHERE a.page < b.page"
    kept = bench(sql, nova.Channel("pairs", merge=nova.Append()))
    for pages in (["x", "y", "y"], ["z"], ["x", "z"]):
        kept.store.insert("clicks", [{"user": 1, "page": p} for p in pages])
        kept.run()
    assert len(kept.run()) == 12


@pytest.mark.parametrize("name", ["pattern", "amount"])
def test_parameters_have_types_unless_they_are_called_like_columns(bench: Any, caplog: Any, name: str) -> None:
    sql = f"SELECT id, amount FROM orders WHERE user IN (SELECT uid FROM users WHERE name LIKE :{name})"
    kept = bench(sql, nova.Channel("chosen", merge=nova.Upsert(key="id")), **{name: "A%"})
    kept.store.insert("orders", [{"id": n, "user": n % 3, "amount": n} for n in range(9)])
    kept.store.insert("users", [{"uid": 0, "name": "Ada"}, {"uid": 1, "name": "Bo"}])
    kept.run()
    kept.store.insert("users", [{"uid": 0, "name": "Bo"}, {"uid": 1, "name": "Al"}])
    with caplog.at_level(logging.INFO, logger="nova_assets.task"):
        assert kept.run() == ["(1, 1)", "(4, 4)", "(7, 7)"]
    assert {"pattern": "strategy 'changes'", "amount": "'comparison': a parameter"}[name] in caplog.text


def test_the_first_rows_of_an_order(bench: Any) -> None:
    sql = "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 2"
    kept = bench(sql, nova.Channel("top", merge=nova.Upsert(key="id")))
    kept.store.insert("orders", [{"id": n, "user": 1, "amount": n} for n in range(5)])
    assert kept.run() == ["(3, 3)", "(4, 4)"]
    kept.store.insert("orders", [{"id": 9, "user": 1, "amount": 9}, deletion(ORDERS, id=3)])
    assert kept.run() == ["(4, 4)", "(9, 9)"]


def test_a_column_that_an_input_gains(bench: Any, caplog: Any) -> None:
    kept = bench("SELECT user, COUNT(*) AS n FROM orders WHERE amount > 1 GROUP BY user", USER_COUNTS)
    kept.store.insert("orders", [{"id": n, "user": n % 3, "amount": n} for n in range(9)])
    kept.run()
    kept.store.insert("orders", [{"id": 1, "user": 2, "amount": 5, "note": "x"}])
    with caplog.at_level(logging.INFO, logger="nova_assets.task"):
        kept.run()
        assert "the definition of an input has changed" in caplog.text
        caplog.clear()
        kept.store.insert("orders", [{"id": 1, "user": 1, "amount": 5, "note": "x"}])
        kept.run()
        assert "the whole query" not in caplog.text
    kept.store.insert("orders", [{"id": 2, "user": 2, "amount": 0, "note": "y"}, deletion(ORDERS, id=4)])
    kept.run()


@pytest.mark.parametrize("select", ["id, amount", "id, amount + 1 AS amount"])
def test_rows_that_change_are_not_appended(bench: Any, select: str) -> None:
    kept = bench(f"SELECT {select} FROM orders", nova.Channel("copies", merge=nova.Append()))
    kept.store.insert("orders", [{"id": 1, "user": 1, "amount": 1}])
    with pytest.raises(nova.DefinitionError, match="rows of the result change"):
        kept.store.run("keep")


def test_a_key_that_does_not_identify_the_rows_is_refused(bench: Any) -> None:
    kept = bench("SELECT id, user, amount FROM orders", nova.Channel("users_of", merge=nova.Upsert(key="user")))
    kept.store.insert("orders", [{"id": 1, "user": 1, "amount": 1}])
    with pytest.raises(nova.DefinitionError, match="does not identify the rows") as caught:
        kept.store.run("keep")
    assert "follows from the query: id" in str(caught.value)


def test_a_repeated_key_of_a_query_without_rules_is_refused(bench: Any) -> None:
    sql = "SELECT user, amount FROM orders WHERE user IN (SELECT uid FROM users LIMIT 9)"
    kept = bench(sql, nova.Channel("amounts", merge=nova.Upsert(key="user")))
    kept.store.insert("users", [{"uid": 1, "name": "Ada"}])
    kept.store.insert("orders", [{"id": 1, "user": 1, "amount": 1}])
    kept.run()
    kept.store.insert("orders", [{"id": 2, "user": 1, "amount": 2}])
    with pytest.raises(nova.DefinitionError, match="does not identify the rows"):
        kept.store.run("keep")
    assert kept.head() == 1


@pytest.mark.core
def test_identical_rows_of_one_key_are_refused(bench: Any) -> None:
    sql = "SELECT user, amount FROM orders WHERE user IN (SELECT uid FROM users LIMIT 9)"
    kept = bench(sql, nova.Channel("amounts", merge=nova.Upsert(key=["user", "amount"])))
    kept.store.insert("users", [{"uid": 1, "name": "Ada"}])
    kept.store.insert("orders", [{"id": 1, "user": 1, "amount": 1}, {"id": 2, "user": 1, "amount": 1}])
    with pytest.raises(nova.DefinitionError, match="does not identify the rows"):
        kept.store.run("keep")


def test_a_rounded_number_is_no_key(bench: Any) -> None:
    sql = "SELECT user, AVG(amount) AS a FROM orders GROUP BY user"
    kept = bench(sql, nova.Channel("averages", merge=nova.Upsert(key=["user", "a"])))
    kept.store.insert("orders", [{"id": 1, "user": 1, "amount": 1}])
    with pytest.raises(nova.DefinitionError, match="'a' of channel 'averages' is a rounded number"):
        kept.store.run("keep")


@pytest.mark.parametrize(
    "target",
    [
        nova.Channel("out", merge=nova.Append()),
        nova.Channel("out", merge=nova.Keyed(key="user", combine={"total": "sum"})),
        nova.Channel("out", merge=nova.Upsert(key="user", order_by="total")),
    ],
)
def test_a_channel_that_cannot_hold_changing_rows_is_refused(bench: Any, target: nova.Channel) -> None:
    kept = bench("SELECT user, SUM(amount) AS total FROM orders GROUP BY user", target)
    kept.store.insert("orders", [{"id": 1, "user": 1, "amount": 1}])
    with pytest.raises(nova.DefinitionError, match="cannot hold the result") as caught:
        kept.store.run("keep")
    assert "nova.Upsert(key=[...]) without order_by: user" in str(caught.value)


def test_the_first_execution_replaces_what_the_channel_holds(bench: Any) -> None:
    kept = bench("SELECT user, SUM(amount) AS total FROM orders GROUP BY user", USER_TOTALS)
    kept.store.insert("orders", [{"id": 1, "user": 1, "amount": 1}])
    kept.store.insert("totals", [{"user": 9, "total": 9}])
    assert kept.run() == ["(1, 1)"]


def test_views_give_the_changed_rows_as_they_were_and_as_they_are(spark: Any, tmp_path: Path) -> None:
    seen: list[tuple[list[Any], list[Any]]] = []
    out = nova.Channel("out", merge=nova.Append(), schema="n int")

    @nova.task(consumes=nova.changes(POINTS), produces=nova.delta(out))
    def look(ctx: nova.Context, points: nova.View) -> Any:
        seen.append(tuple(sorted(map(tuple, f.collect())) for f in (points.before, points.after)))  # type: ignore[arg-type]
        return ctx.spark.createDataFrame([], "n int")

    project = nova.Project([nova.bind(nova.Workflowette("look", [look]))])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as store:
        for rows in ([(1, 2), (2, 2), (3, 1)], [(1, 3)], [(4, 1)], []):
            if rows:
                store.insert("points", [{"user": u, "n": n} for u, n in rows])
            else:
                store.insert("points", [{"user": 2, "n": None, "_deleted": True}])
            store.run("look")
    assert seen == [([], [(1, 2), (2, 2), (3, 1)]), ([(1, 2)], [(1, 5)]), ([], [(4, 1)]), ([(2, 2)], [])]
