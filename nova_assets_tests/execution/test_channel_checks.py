"""Checks that a project gives to channels: whoever writes the channel has to pass them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import CheckFailed, DefinitionError

orders = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id bigint, shop string, amount double")
shops = nova.Channel("shops", merge=nova.Upsert(key="name"), schema="name string")
totals = nova.Channel("totals", merge=nova.Upsert(key="shop"), schema="shop string, total double")


@nova.task(consumes=nova.all("input"), produces=nova.base("output"))
def add_up(input: Any) -> Any:
    return input.groupBy("shop").sum("amount").toDF("shop", "total")


ADD_UP = nova.bind(nova.Workflowette("add_up", [add_up]), channels={"input": orders, "output": totals})
POSITIVE = nova.checks.expression(orders, "amount > 0", name="positive")
KNOWN = nova.checks.relationships("orders", "shop", "shops", "name", name="known_shop")
ONE_PER_SHOP = nova.checks.unique(orders, "shop")
NO_DEBTS = nova.checks.expression("totals", "total >= 10", name="no_debts")
MANY = nova.checks.row_count_between(orders, 5, blocking=False)


@pytest.fixture
def store(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Iterator[nova.Store]:
    """A store whose project gives the checks of the test to its channels."""
    project = nova.Project([ADD_UP], channels=[shops], checks=request.param)
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.register(project)
        store.insert("shops", [{"name": "a"}, {"name": "b"}])
        yield store


def order(number: int, shop: str = "a", amount: float = 20.0) -> dict[str, Any]:
    return {"id": number, "shop": shop, "amount": amount}


def numbers(store: nova.Store) -> list[int]:
    return sorted(store.read("orders").to_pandas()["id"])


@pytest.mark.spark
@pytest.mark.parametrize("store", [[POSITIVE, KNOWN, ONE_PER_SHOP, NO_DEBTS, MANY]], indirect=True)
def test_inserts_pass_the_checks_or_change_nothing(store: nova.Store) -> None:
    first = store.insert("orders", [order(1), order(2, "b")])
    results = {r["check"]: r for r in first.details["checks"]}
    assert results["positive"]["passed"] and not results["row_count"]["passed"]  # reported only
    for wrong, check in (
        (order(1, amount=-1.0), "positive"),
        (order(3, "x"), "known_shop"),
        (order(3, "b"), "unique_shop"),
    ):
        with pytest.raises(CheckFailed, match=f"channel 'orders': the check '{check}' failed") as error:
            store.insert("orders", [wrong])
        assert error.value.fields["checks"] == [check] and numbers(store) == [1, 2]
    with pytest.raises(CheckFailed, match="positive"):
        store.insert("orders", [order(9, amount=-2.0)], kind="base")
    assert numbers(store) == [1, 2]
    assert store.insert("orders", [order(1, amount=30.0)]).seq == 2  # the row that it replaces does not count
    with pytest.raises(CheckFailed, match="no_debts"):
        store.insert("orders", [order(2, "b", 1.0)])
        store.run("add_up")  # its port has another name
    [rows] = store.failing_rows("totals")
    assert rows.binding == "add_up" and rows.rows is not None
    assert [r["shop"] for r in rows.rows.collect()] == ["b"]
    assert {f.check: f.binding for f in store.failing_rows("orders")}["positive"] == ""


@pytest.mark.core
@pytest.mark.spark
@pytest.mark.parametrize("store", [[ONE_PER_SHOP]], indirect=True)
def test_rows_that_another_insert_adds_meanwhile_are_checked(
    store: nova.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, raced = store.engine.writer.write, []

    def write_after_another_insert(*args: Any, **kwargs: Any) -> Any:
        manifest = write(*args, **kwargs)
        if not raced:
            raced.append(True)
            store.insert("orders", [order(1)])
        return manifest

    monkeypatch.setattr(store.engine.writer, "write", write_after_another_insert)
    with pytest.raises(CheckFailed, match="unique_shop"):
        store.insert("orders", [order(2)])
    assert numbers(store) == [1]


@pytest.mark.core
@pytest.mark.spark
def test_arrived_files_and_partitions_pass_the_checks(spark: Any, tmp_path: Path) -> None:
    days = nova.Channel(
        "days",
        schema="day date, amount double",
        partitions=[nova.daily("day", start="2026-01-01")],
        source=nova.files(str(tmp_path / "inbox"), format="json", min_age="1s"),
    )
    checks = [nova.checks.expression(days, "amount > 0"), nova.checks.row_count_between(days, 1, 3)]
    project = nova.Project(channels=[days], checks=checks)
    (tmp_path / "inbox").mkdir()

    def deliver(name: str, *rows: dict[str, Any]) -> None:
        """Write a file that is an hour old."""
        file = tmp_path / "inbox" / name
        file.write_text("\n".join(map(json.dumps, rows)))
        os.utime(file, (time.time() - 3600,) * 2)

    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.register(project)
        rows = [{"day": "2026-01-01", "amount": 1.0}, {"day": "2026-01-02", "amount": 2.0}]
        deliver("1.json", *rows)
        assert store.receive("days").rows == 2
        deliver("2.json", {"day": "2026-01-02", "amount": -2.0})
        with pytest.raises(CheckFailed, match="expression"):
            store.receive("days")
        assert store.read("days").to_arrow().num_rows == 2


def test_checks_that_no_channel_can_pass_are_refused_with_the_project() -> None:
    with pytest.raises(DefinitionError, match=r"names 'order', which is no channel.*did you mean 'orders'"):
        nova.Project(channels=[orders], checks=[nova.checks.not_null("order", "id")])
    lake = nova.Channel("lake", schema="id bigint", external=nova.external("/data/lake"))
    with pytest.raises(DefinitionError, match=r"tests channel 'lake', which is external"):
        nova.Project(channels=[lake], checks=[nova.checks.not_null(lake, "id")])
    with pytest.raises(DefinitionError, match="two checks are called 'no_debts'"):
        own = nova.checks.expression("output", "total > 0", name="no_debts")
        bound = nova.bind(nova.Workflowette("w", [add_up], [own]), channels={"input": orders, "output": totals})
        nova.Project([bound], checks=[NO_DEBTS])
