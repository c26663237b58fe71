"""A changed query drops or renames columns of a dataset with data: a base brings them, and readers get the change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import InputsMissing
from nova_assets_tests.effort import long_except
from nova_assets_tests.sql.incremental.test_datasets import ORDERS, TOTALS, Deployment, order

pytestmark = pytest.mark.spark

LARGE = "SELECT user, total FROM totals WHERE total > 5"
RENAMED = TOTALS.replace("AS total", "AS revenue")
LARGE_OF_RENAMED = LARGE.replace("total >", "revenue >").replace("total FROM", "revenue FROM")


@pytest.fixture
def deploy(spark: Any, tmp_path: Path) -> Iterator[Any]:
    opened: list[Deployment] = []

    def make(refresh: Any = "auto", replace: bool = True, **texts: str) -> Deployment:
        opened.append(Deployment(spark, tmp_path, refresh, replace, **texts))
        if len(opened) == 1:
            opened[0].store.insert("orders", [order(n, n % 3, n) for n in range(9)])
            assert opened[0].tick()
        return opened[-1]

    yield make
    for one in opened:
        one.store.close()


def by_hand(orders: Any) -> Any:
    return orders


def apply(rows: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows after changes of a channel without a key, as a reader keeps a copy of it by hand."""
    kept = list(rows)
    for change in sorted(changes, key=lambda c: not c["_deleted"]):
        row = {name: value for name, value in change.items() if name != "_deleted"}
        if change["_deleted"]:
            kept.remove(row)
        else:
            kept.append(row)
    return sorted(kept, key=repr)


@pytest.mark.core
def test_a_renamed_column_comes_with_a_base(deploy: Any) -> None:
    one = deploy(totals=TOTALS, large=LARGE)
    before, copy = one.head("totals"), one.store.read("totals").to_arrow().to_pylist()
    two = deploy(totals=RENAMED, large=LARGE_OF_RENAMED)
    assert two.store.read("totals").to_arrow().column_names == ["user", "n", "total"], (
        "until a base brings the new ones"
    )
    assert two.store.read("totals").to_arrow().to_pylist() == copy
    assert two.tick() == ["totals", "large"]
    two.check()
    assert two.tick() == []
    assert two.store.read("totals", at=before).to_arrow().to_pylist() == copy, "an earlier version keeps its columns"
    changes = two.store.read("totals", since=before).to_arrow().to_pylist()
    in_new_columns = [{"user": r["user"], "n": r["n"], "revenue": None} for r in copy]
    assert apply(in_new_columns, changes) == apply(
        [], [{**r, "_deleted": False} for r in two.store.read("totals").to_arrow().to_pylist()]
    )
    two.store.insert("orders", [order(0, 1, 50), order(5, 2, deleted=True)])
    assert two.tick() == ["totals", "large"]
    two.check()


@pytest.mark.long
@pytest.mark.exhaustive
def test_dropped_columns_and_several_changes_at_once(deploy: Any) -> None:
    deploy(totals=TOTALS, large=LARGE)
    changed = "SELECT user, MAX(amount) AS most, SUM(amount) * 2 AS total FROM orders WHERE amount > 1 GROUP BY user"
    two = deploy(totals=changed, large=LARGE)
    assert two.tick() == ["totals", "large"]
    two.check()
    grouped = "SELECT amount, COUNT(*) AS n FROM orders GROUP BY amount"
    three = deploy(totals=grouped, large="SELECT * FROM totals")
    three.store.insert("orders", [order(3, 1, 8)])
    assert three.tick() == ["totals", "large"]
    three.check()
    again = deploy(totals=TOTALS, large=LARGE)
    assert again.tick() == ["totals", "large"]
    again.check()


@pytest.mark.parametrize("refresh", long_except(["auto", "full"], "auto"))
def test_a_reader_that_runs_before_the_base_is_told_so(deploy: Any, refresh: str) -> None:
    deploy(refresh, totals=TOTALS, large=LARGE)
    two = deploy(refresh, totals=RENAMED, large=LARGE_OF_RENAMED)
    with pytest.raises(InputsMissing) as refused:
        two.store.run("large")
    assert "reads totals, whose changed columns come with its next execution" in str(refused.value)
    assert two.tick() == ["totals"], "a tick tries the failed dataset again later"
    two.store.run("large")
    two.check()


def test_a_definition_that_goes_back_before_the_base(deploy: Any) -> None:
    deploy(totals=TOTALS)
    deploy(totals=RENAMED)
    three = deploy(totals=TOTALS)
    three.store.insert("orders", [order(3, 1, 8)])
    assert three.tick() == ["totals"]
    three.check()


def test_a_writer_that_makes_no_base_is_refused_until_the_base(deploy: Any) -> None:
    deploy("full", totals=TOTALS)
    deploy("full", totals=RENAMED)
    with pytest.raises(nova.DefinitionError, match="'totals' waits for a base that brings other columns") as refused:
        deploy("full", totals="INSERT INTO totals " + RENAMED)
    assert "INSERT OVERWRITE" in str(refused.value)
    again = deploy("full", totals=RENAMED)
    totals = next(c.channel for c in again.store.channels() if c.channel.name == "totals")
    task = nova.task(name="by_hand", consumes=nova.all(ORDERS), produces=nova.base(totals))(by_hand)
    again.store.catalog.definitions.register([], [nova.bind(nova.Workflowette("by_hand", [task]))])  # it makes a base
    assert again.tick() == ["totals"]
    again.check()
    deploy("full", totals="INSERT INTO totals " + RENAMED)


def test_until_the_base_nothing_else_changes_the_rows(deploy: Any) -> None:
    one = deploy(totals=TOTALS)
    head, rows = one.head("totals"), one.store.read("totals").to_arrow().to_pylist()
    two = deploy(totals=RENAMED)
    with pytest.raises(nova.ModelChanged, match="columns of channel 'totals' were changed after version 1") as refused:
        two.store.insert("totals", [{"user": 7, "n": 1, "total": 1}])
    assert refused.value.next == "nova tick, which computes the dataset with its new columns"
    two.store.compact("totals")
    two.store.restore("totals", head)
    assert sorted(two.store.read("totals").to_arrow().to_pylist(), key=repr) == sorted(rows, key=repr)
    assert two.tick() == ["totals"]
    two.check()


def test_checks_see_the_new_rows_only(deploy: Any) -> None:
    one = deploy(totals="INSERT OVERWRITE totals CHECK unique(user), not_null(total) " + TOTALS)
    two = deploy(totals="INSERT OVERWRITE totals CHECK unique(user), not_null(revenue) " + RENAMED)
    assert one.head("totals") == 1 and two.tick() == ["totals"]
    rows = two.store.read("totals").to_arrow()
    assert rows.column_names == ["user", "n", "revenue"] and rows.num_rows == 3
    bad = RENAMED.replace("revenue", "income").replace("user,", "NULLIF(user, 1) AS user,", 1)
    three = deploy(totals="INSERT OVERWRITE totals CHECK not_null(user) " + bad)
    [outcome] = three.store.tick()
    assert isinstance(outcome.error, nova.CheckFailed)
    assert three.store.read("totals").to_arrow().column_names == ["user", "n", "revenue"]


@pytest.mark.parametrize("frozen", [True, False])
def test_what_no_base_can_bring_is_refused(deploy: Any, frozen: bool) -> None:
    header = "INSERT OVERWRITE totals FROZEN WHERE user < 1 " if frozen else ""
    deploy(totals=header + TOTALS)
    changed = RENAMED if frozen else TOTALS.replace("SUM(amount)", "CAST(SUM(amount) AS int)")
    with pytest.raises(nova.DefinitionError) as refused:
        deploy(totals=header + changed)
    assert ("takes part in the merge model" if frozen else "column total is bigint and cannot become int") in str(
        refused.value
    )
    assert ("with another name" if frozen else "another name: a base then brings it") in str(refused.value.next)


def test_rows_of_a_dropped_partition_are_deleted_with_a_warning(deploy: Any, caplog: Any) -> None:
    """A base has to bring the new column, and nobody knows it for these rows (R19)."""
    visits = "SELECT user, COUNT(*) AS n FROM visits GROUP BY user"
    one = deploy(totals=TOTALS)
    one = deploy(totals=TOTALS, seen=visits)
    one.store.insert("visits", [{"day": dt.date(2024, 1, d), "user": d} for d in (1, 2)])
    assert one.tick() == ["seen"]
    one.store.drop("visits", {"day": "2024-01-01"})
    two = deploy(totals=TOTALS, seen=visits.replace("AS n", "AS visits"))
    assert sorted(r["user"] for r in two.store.read("seen").to_arrow().to_pylist()) == [1, 2]
    assert two.tick() == ["seen"]
    assert two.store.read("seen").to_arrow().to_pylist() == [{"user": 2, "visits": 1}]
    assert "rows of seen that came from dropped partitions are deleted (R19)" in caplog.text


def test_a_consumer_whose_snapshot_was_collected_gets_the_difference(deploy: Any) -> None:
    """Nobody knew that the dataset would get a base, so the base brings its difference along (R15)."""
    one = deploy(totals=TOTALS)
    read: list[list[dict[str, Any]]] = []

    @nova.task(consumes=nova.new("totals"))
    def look(totals: Any) -> None:
        read.append([row.asDict() for row in totals.collect()])

    def run_look(deployment: Deployment) -> None:
        channels = {"totals": deployment.datasets.channel("totals")}
        project = nova.Project([*deployment.datasets, nova.bind(nova.Workflowette("look", [look]), channels=channels)])
        with nova.open(project, deployment.store.settings.catalog, deployment.store.settings.warehouse) as store:
            store.run("look")

    run_look(one)
    for n in range(3):
        one.store.insert("orders", [order(n, 7, n)])
        one.tick()
    one.store.compact("totals")
    one.store.collect_garbage("totals")
    two = deploy(totals=RENAMED)
    assert two.tick() == ["totals"]
    run_look(two)
    copy = apply([], [{"_deleted": False, **row, "revenue": None} for row in without_total(read[0])])
    rows = two.store.read("totals").to_arrow().to_pylist()
    assert apply(copy, read[1]) == sorted(rows, key=repr)


def without_total(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("total", "_deleted")} for row in rows]


def test_columns_beside_a_key(spark: Any, tmp_path: Path) -> None:
    def open_with(sql: str, key: str = "user") -> nova.Store:
        keyed = nova.Channel("totals", merge=nova.Upsert(key=key))
        (tmp_path / "sql").mkdir(exist_ok=True)
        (tmp_path / "sql" / "totals.sql").write_text(sql)
        project = nova.Project(bindings=nova.datasets(tmp_path / "sql", channels=[ORDERS, keyed]), channels=[ORDERS])
        store = nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark)
        store.register(project, replace=True)
        return store

    with open_with(TOTALS) as store:
        store.insert("orders", [order(n, n % 3, n) for n in range(9)])
        [outcome] = store.tick()
        assert outcome.error is None
    with open_with(RENAMED) as store:
        assert store.read("totals").to_arrow().column_names == ["user", "n", "total"]
        [outcome] = store.tick()
        assert outcome.error is None
        totals = [
            {"user": 0, "n": 3, "revenue": 9},
            {"user": 1, "n": 3, "revenue": 12},
            {"user": 2, "n": 3, "revenue": 15},
        ]
        assert sorted(store.read("totals").to_arrow().to_pylist(), key=repr) == totals
        changes = store.read("totals", since=1).to_arrow().to_pylist()
        assert {r["user"]: r["revenue"] for r in changes if not r["_deleted"]} == {0: 9, 1: 12, 2: 15}
    with pytest.raises(nova.DefinitionError, match="user takes part in the merge model"):
        open_with(RENAMED.replace("SELECT user", "SELECT user AS person"), key="person")
