"""A maintained query trusts the stored rows only if they are the result of the same query, and nobody else wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova

pytestmark = pytest.mark.spark

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")
OTHER_ORDERS = nova.Channel("other_orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")
TOTALS = nova.Channel("totals", merge=nova.Upsert(key="user"), schema="user int, n bigint, total bigint")
TOTALS_SQL = "SELECT user, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY user"


class Shop:
    """A store in which the query can be changed."""

    def __init__(self, spark: Any, root: Path) -> None:
        self.spark, self.root = spark, root
        self.store = self._open(TOTALS_SQL, TOTALS, "keep")
        self.store.insert("orders", [{"id": n, "user": n % 2, "amount": n} for n in range(4)])

    def _open(self, sql: str, target: nova.Channel, task: str, orders: nova.Channel = ORDERS) -> nova.Store:
        keep = nova.incremental(task, sql, produces=nova.delta(nova.Channel("result", merge=target.merge)))
        binding = nova.bind(nova.Workflowette("keep", [keep]), channels={"result": target, "orders": orders})
        project = nova.Project([binding], channels=[ORDERS, OTHER_ORDERS])
        store = nova.open(project, f"sqlite:///{self.root}/catalog.db", self.root / "warehouse", self.spark)
        store.register(project, replace=True)
        return store

    def change(
        self,
        sql: str = TOTALS_SQL,
        target: nova.Channel = TOTALS,
        task: str = "keep",
        orders: nova.Channel = ORDERS,
    ) -> None:
        self.store.close()
        self.store = self._open(sql, target, task, orders)

    def run(self, channel: str = "totals") -> tuple[list[tuple[Any, ...]], str, str]:
        """The rows after an execution, and its strategy with the reason."""
        execution = self.store.run("keep")
        rows = self.store.read(channel).to_arrow().to_pylist()
        choice = execution.tasks[0].facts["maintenance"]
        return sorted(tuple(r.values()) for r in rows), choice["strategy"], choice["reason"]


@pytest.fixture
def shop(spark: Any, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(spark, tmp_path)
    yield opened
    opened.store.close()


@pytest.mark.core
def test_rows_of_another_writer_are_corrected(shop: Shop) -> None:
    shop.run()
    shop.store.insert("totals", [{"user": 0, "n": 2, "total": 999}, {"user": 7, "n": 1, "total": 1}])
    assert shop.run() == ([(0, 2, 2), (1, 2, 4)], "comparison", "another writer has changed channel totals")
    assert shop.run()[1] == "no change"
    shop.store.insert("orders", [{"id": 9, "user": 0, "amount": 5}])
    assert shop.run()[:2] == ([(0, 3, 7), (1, 2, 4)], "changes")


def test_a_restored_version_is_corrected(shop: Shop) -> None:
    first = shop.store.timeline("totals")[-1].seq if shop.run() else None
    shop.store.insert("orders", [{"id": 9, "user": 0, "amount": 5}])
    shop.run()
    shop.store.restore("totals", at=first)
    shop.store.insert("orders", [{"id": 9, "user": 0, "amount": 6}])
    rows, strategy, _ = shop.run()
    assert (rows, strategy) == ([(0, 3, 8), (1, 2, 4)], "comparison")


def test_compaction_is_no_other_writer(shop: Shop) -> None:
    shop.run()
    shop.store.insert("orders", [{"id": 9, "user": 0, "amount": 5}])
    shop.run()
    shop.store.compact("totals")
    shop.store.insert("orders", [{"id": 9, "user": 0, "amount": 6}])
    assert shop.run()[1] == "changes"


def test_a_changed_query_is_computed_as_a_whole(shop: Shop) -> None:
    shop.run()
    shop.change(TOTALS_SQL.replace("amount", "amount * 10"))
    shop.store.insert("orders", [{"id": 0, "user": 0, "amount": 1}])
    rows, strategy, reason = shop.run()
    assert (rows, strategy) == ([(0, 2, 30), (1, 2, 40)], "comparison")
    assert reason == "the query has changed"


def test_another_spelling_is_the_same_query(shop: Shop) -> None:
    shop.run()
    shop.change("select user, count(*) as n, -- orders\n sum(Amount) total\nfrom orders group by USER")
    assert shop.run()[1] == "no change"


def test_a_changed_setting_of_the_session(shop: Shop) -> None:
    ansi = shop.spark.conf.get("spark.sql.ansi.enabled")
    shop.run()
    shop.spark.conf.set("spark.sql.ansi.enabled", "false" if ansi == "true" else "true")
    try:
        assert shop.run()[1] == "comparison"
    finally:
        shop.spark.conf.set("spark.sql.ansi.enabled", ansi)


def test_another_channel_for_the_result(shop: Shop) -> None:
    """The inputs were read before, and the new channel is empty."""
    shop.run()
    shop.change(target=nova.Channel("sums", merge=TOTALS.merge, schema=TOTALS.schema))
    shop.store.insert("orders", [{"id": 9, "user": 0, "amount": 5}])
    assert shop.run("sums")[:2] == ([(0, 3, 7), (1, 2, 4)], "comparison")


def test_a_renamed_task_keeps_the_record(shop: Shop) -> None:
    shop.run()
    shop.change(task="keep_totals")
    assert shop.run()[1] == "no change"
    shop.change(TOTALS_SQL.replace("amount", "amount * 10"), task="keep")
    assert shop.run()[:2] == ([(0, 2, 20), (1, 2, 40)], "comparison")


def test_an_input_that_comes_back(shop: Shop) -> None:
    """The cursor of the first channel is where it was, and the stored rows are those of the second channel."""
    shop.store.insert("other_orders", [{"id": 1, "user": 0, "amount": 100}])
    shop.run()
    shop.change(orders=OTHER_ORDERS)
    assert shop.run()[:2] == ([(0, 1, 100)], "comparison")
    shop.change()
    rows, strategy, reason = shop.run()
    assert (rows, strategy) == ([(0, 2, 2), (1, 2, 4)], "comparison")
    assert reason == "the last execution did not read orders from channel orders up to the cursor"


@pytest.mark.core
def test_a_column_of_the_result_that_was_dropped_and_declared_again(shop: Shop) -> None:
    """The stored rows have no value in the new column, whether or not a change of an input concerns them."""
    shop.run()
    shop.store.register(nova.Channel("totals", merge=TOTALS.merge, schema="user int, n bigint"), replace=True)
    shop.store.register(TOTALS, replace=True)
    shop.store.insert("orders", [{"id": 9, "user": 0, "amount": 5}])
    rows, strategy, reason = shop.run()
    assert (rows, strategy) == ([(0, 3, 7), (1, 2, 4)], "comparison")
    assert reason == "columns of totals were declared again"
    shop.store.insert("orders", [{"id": 8, "user": 0, "amount": 1}])
    assert shop.run()[:2] == ([(0, 4, 8), (1, 2, 4)], "changes")


def test_columns_of_an_input_that_exchange_their_names_and_back(shop: Shop) -> None:
    """Twice, so that the newest block has the columns that the input has at last, but not those that were read."""
    swapped = replace(ORDERS, renamed={"user": "amount", "amount": "user"})
    for number in range(4):
        if number:
            shop.store.register(swapped, replace=True)
            shop.store.register(ORDERS, replace=True)
        if number < 2:
            shop.store.insert("orders", [{"id": 9 + number, "user": 1, "amount": 7}])
        rows = shop.run()[0]
        now = shop.store.read("orders").to_arrow().to_pylist()
        users = sorted({r["user"] for r in now})
        of_user = {u: [r["amount"] for r in now if r["user"] == u] for u in users}
        assert rows == [(u, len(of_user[u]), sum(of_user[u])) for u in users]


@pytest.mark.core
def test_a_changed_query_on_an_append_channel_is_refused(shop: Shop) -> None:
    clicks = nova.Channel("clicks", schema="id int, page string")
    pages = nova.Channel("pages", merge=nova.Append())

    def open_with(sql: str, task: str) -> nova.Store:
        keep = nova.incremental(task, sql, produces=nova.delta(pages))
        binding = nova.bind(nova.Workflowette("pages", [keep]), channels={"clicks": clicks})
        project = nova.Project([binding], channels=[clicks])
        store = nova.open(project, f"sqlite:///{shop.root}/c2.db", shop.root / "warehouse2", shop.spark)
        store.register(project, replace=True)
        return store

    with open_with("SELECT page FROM clicks", "a") as store:
        store.insert("clicks", [{"id": 1, "page": "x"}])
        store.run("pages")
    with open_with("SELECT CONCAT(page, '!') AS page FROM clicks", "b") as store:
        store.insert("clicks", [{"id": 2, "page": "y"}])
        with pytest.raises(nova.NotSupported, match="no key by which they can be compared"):
            store.run("pages")


def test_a_failed_execution_is_not_the_last(shop: Shop, monkeypatch: Any) -> None:
    """Rows of another writer are noticed although an execution after them failed."""
    shop.run()
    shop.store.insert("totals", [{"user": 0, "n": 2, "total": 999}])
    with monkeypatch.context() as patch:
        patch.setattr("nova_assets.execution.staging.Staging.write", lambda *_: 1 / 0)
        with pytest.raises(nova.NovaError):
            shop.run()
    assert shop.run()[:2] == ([(0, 2, 2), (1, 2, 4)], "comparison")
