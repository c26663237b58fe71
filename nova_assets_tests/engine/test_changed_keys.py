"""R10, R14, R18: a consumer that is told of a changed key has the rows of the channel afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.settings import Settings
from nova_assets.store.store import Store

pytestmark = pytest.mark.spark

DDL = "k int, j int"
Row = tuple[int, int]


class Shop:
    """A channel ``table`` and a consumer that keeps the rows of which it was told."""

    def __init__(self, root: Path, spark: Any) -> None:
        self.root = root
        self.spark = spark
        self.told: list[Row] = []

    def opened(self, merge: Any) -> Store:
        table = nova.Channel("table", merge, DDL)

        @nova.task(consumes=nova.new(table), produces=nova.delta(nova.Channel("counts", schema="n bigint")))
        def watch(table: Any) -> Any:
            changes = [(r["k"], r["j"], r.asDict().get("_deleted", False)) for r in table.collect()]
            self.told = applied(self.told, changes, merge.key)
            return table.groupBy().count().withColumnRenamed("count", "n")

        settings = Settings(f"sqlite:///{self.root}/c.db", str(self.root / "wh"), root=self.root, gc_grace=1e-6)
        project = nova.Project([nova.bind(nova.Workflowette("w", [watch]), name="w")])
        store = nova.open(project, spark=self.spark, settings=settings)
        store.register(project, replace=True)
        return store


def applied(rows: list[Row], changes: list[tuple[int, int, bool]], key: tuple[str, ...]) -> list[Row]:
    """Rows after changes, as R11 says: of each key first the deletion, then the live row."""

    def key_of(row: Any) -> Any:
        return tuple(row["kj".index(c)] for c in key) or None

    for change in sorted(changes, key=lambda c: not c[2]):
        if key:
            rows = [r for r in rows if key_of(r) != key_of(change)]
        rows = rows if change[2] else [*rows, change[:2]]
    return rows


def in_channel(store: Store) -> list[Row]:
    return sorted((r["k"], r["j"]) for r in store.read("table").to_arrow().to_pylist())


def test_a_consumer_that_lags_behind_a_changed_key(spark: Any, tmp_path: Path) -> None:
    """Deltas by the old key and the change of the base by the new key form no chain."""
    shop = Shop(tmp_path, spark)
    with shop.opened(nova.Upsert(key="k")) as store:
        store.insert("table", [{"k": 1, "j": 5}, {"k": 2, "j": 7}])
        store.run("w")
        store.insert("table", [{"k": 1, "j": 6}])
    with shop.opened(nova.Upsert(key="j")) as store:
        store.insert("table", [{"k": 1, "j": 6}, {"k": 2, "j": 8}], kind="base")
        store.run("w")
        assert sorted(shop.told) == in_channel(store) == [(1, 6), (2, 8)]


@pytest.mark.parametrize("before", [nova.Append(), nova.Upsert(key="k")], ids=["append", "upsert"])
def test_several_earlier_rows_of_a_new_key(before: Any, spark: Any, tmp_path: Path) -> None:
    """Each key that had several rows is told, also if one of them is as the new row is."""
    shop = Shop(tmp_path, spark)
    with shop.opened(before) as store:
        store.insert("table", [{"k": k, "j": j} for k, j in ((1, 5), (2, 5), (3, 5), (4, 6), (5, 7), (6, 7))])
        store.run("w")
    with shop.opened(nova.Upsert(key="j")) as store:
        store.insert("table", [{"k": 1, "j": 5}, {"k": 4, "j": 6}], kind="base")
        store.run("w")
        assert sorted(shop.told) == in_channel(store) == [(1, 5), (4, 6)]
