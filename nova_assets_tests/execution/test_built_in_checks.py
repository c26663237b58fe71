"""The checks of ``nova.checks`` on Spark: what they find, what they leave alone, and how their rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import CheckFailed, DefinitionError

pytestmark = pytest.mark.spark

DDL = "id bigint, shop string, amount double, at timestamp"
source = nova.Channel("source", schema=f"{DDL}, is_removed boolean")
orders = nova.Channel("orders", merge=nova.Upsert(key="id"), schema=DDL)
shops = nova.Channel("shops", merge=nova.Upsert(key="name"), schema="name string")

Open = Callable[..., nova.Store]


@nova.task(consumes=nova.new(source), produces=nova.delta(orders))
def keep(source: Any) -> Any:
    return source.withColumnRenamed("is_removed", "_deleted")


@pytest.fixture
def opened(spark: Any, tmp_path: Path) -> Iterator[Open]:
    stores: list[nova.Store] = []

    def opener(*checks: nova.Check) -> nova.Store:
        bound = nova.bind(nova.Workflowette("w", [keep], checks=checks))
        project = nova.Project([bound], channels=[shops])
        stores.append(nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark))
        stores[-1].register(project)
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


def order(
    number: int, shop: str | None = "a", amount: float | None = 1.0, *, age: float = 0, is_removed: bool = False
) -> dict[str, Any]:
    """A row of ``source``. Its age is in hours."""
    at = (datetime.now(UTC) - timedelta(hours=age)).replace(tzinfo=None)
    return {"id": number, "shop": shop, "amount": amount, "at": at, "is_removed": is_removed}


NULLS = nova.checks.not_null(orders, "shop", "amount")
OTHERS = nova.checks.accepted_values(orders, "shop", ["a", "b"])
NEGATIVE = nova.checks.expression(orders, "amount >= 0 -- euros")
REPEATED = nova.checks.unique(orders, "shop")
UNMATCHED = nova.checks.relationships(orders, "shop", shops, "name")


def failing(store: nova.Store) -> list[int]:
    """Keys of the rows of the only check."""
    [found] = store.failing_rows("orders")
    assert found.rows is not None, found.reason
    return sorted(r["id"] for r in found.rows.collect())


@pytest.mark.parametrize(
    ("check", "right", "wrong", "keys"),
    [
        (NULLS, [order(1)], [order(2, None), order(3, amount=None)], [2, 3]),
        (OTHERS, [order(1), order(2, None)], [order(3, "c")], [3]),
        (NEGATIVE, [order(1), order(2, amount=None)], [order(3, amount=-1)], [3]),
        (REPEATED, [order(1), order(2, None), order(3, None)], [order(4, "b"), order(5)], [1, 5]),
        (UNMATCHED, [order(1), order(2, None)], [order(3, "x")], [3]),
    ],
    ids=lambda value: value.name if isinstance(value, nova.Check) else "",
)
def test_wrong_rows_are_found_before_they_are_published(
    opened: Open, check: nova.Check, right: list[Any], wrong: list[Any], keys: list[int]
) -> None:
    store = opened(check)
    store.insert("shops", [{"name": "a"}])
    store.insert("source", right)
    [report] = store.run("w").checks
    assert report.passed and report.metadata == {"rows": 0, "checked": "changed rows"}
    assert failing(store) == []
    store.insert("source", wrong)
    with pytest.raises(CheckFailed, match=check.name):
        store.run("w")
    assert store.catalog.definitions.channel("orders").head == 1
    assert failing(store) == keys
    [found] = store.failing_rows(orders, check.name)
    assert found.execution == store.executions("w")[0].id and found.binding == "w"


def test_rows_that_are_removed_or_were_checked_before_are_left_alone(opened: Open) -> None:
    store = opened()
    store.insert("source", [order(1, None), order(2)])
    store.run("w")
    store = opened(nova.checks.not_null(orders, "shop"), nova.checks.unique(orders, "shop"))
    store.insert("source", [order(2, None, is_removed=True), order(3)])
    assert all(c.passed for c in store.run("w").checks), "row 1 has not changed, and row 2 is no longer there"
    [nulls, _] = store.failing_rows("orders")
    assert nulls.execution is None and nulls.rows is not None
    assert [r["id"] for r in nulls.rows.collect()] == [1], "the rows that the channel has now"


def test_counts_and_ages(opened: Open) -> None:
    checks = nova.checks.row_count_between(orders, 1, 2), nova.checks.freshness(orders, "at", "2 hours", blocking=False)
    store = opened(*checks)
    store.insert("source", [order(1, age=1)])
    assert [c.passed for c in store.run("w").checks] == [True, True]
    store.insert("source", [order(1, age=3), order(2, age=50)])
    count, age = store.run("w").checks
    assert count.passed and count.found == "2 rows; expected 1 to 2" and not age.passed
    assert age.found is not None and age.found.startswith("the newest at is 20") and "within 2 hours" in age.found
    store.insert("source", [order(3)])
    with pytest.raises(CheckFailed, match="3 rows; expected 1 to 2"):
        store.run("w")
    assert [f.reason for f in store.failing_rows("orders")] == ["it returns no rows, but whether they are right"] * 2


@pytest.mark.core
def test_checks_without_rows_say_why(opened: Open) -> None:
    @nova.check([nova.changes(orders)])
    def compare(orders: nova.View) -> bool:
        return True

    [found] = opened(compare).failing_rows("orders")
    assert found.rows is None and found.reason == "it reads changes, which only an execution has"
    with pytest.raises(DefinitionError, match=r"no check 'compair'.*did you mean"):
        opened(compare).failing_rows("orders", "compair")


@pytest.mark.core
@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda: nova.checks.not_null(orders), "got no column"),
        (lambda: nova.checks.unique(orders, "sop"), "no such column.*sop"),
        (lambda: nova.checks.accepted_values(orders, "shop", []), "no usable values"),
        (lambda: nova.checks.relationships(orders, "shop", shops, "id"), "channel 'shops' has no such column"),
        (lambda: nova.checks.relationships(orders, "shop", shops), "channel 'shops' has no such column"),
        (lambda: nova.checks.expression(orders, " "), "an empty condition"),
        (lambda: nova.checks.row_count_between(orders, 3, 2), "no count can meet"),
        (lambda: nova.checks.freshness(orders, "at", "a while"), "unusable period"),
    ],
)
def test_checks_that_cannot_be_meant(define: Callable[[], object], said: str) -> None:
    with pytest.raises(DefinitionError, match=f"(?s){said}"):
        define()
