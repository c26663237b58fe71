"""Maintained queries over blocks with formats and merge models of their own. DuckDB computes each query from the rows
that a dictionary keeps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.testing import World
from nova_assets_tests.effort import examples

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

FORMATS: list[Any] = [None, "orc", "avro", "csv", "json", "parquet"]
STEPS = 4

QUERIES = {
    "totals": "SELECT s.city, COUNT(*) AS n, CAST(SUM(o.amount) AS BIGINT) AS total "
    "FROM orders o JOIN shops s ON o.shop = s.shop GROUP BY s.city",
    "big": "SELECT o.id, o.amount, s.city FROM orders o LEFT JOIN shops s ON o.shop = s.shop WHERE o.amount > 5",
    "largest": "SELECT shop, MAX(amount) AS largest FROM orders GROUP BY shop HAVING COUNT(*) > 1",
}
REPLACES = nova.Upsert(key="id")
SCHEMAS = {
    "orders": pa.schema([("id", pa.int64()), ("shop", pa.string()), ("amount", pa.int64())]),
    "shops": pa.schema([("shop", pa.string()), ("city", pa.string())]),
}


class History:
    """A store with maintained queries, and the rows that its channels should have.

    Args:
        adds: whether rows of an order add up, unless their block replaces.
    """

    def __init__(self, folder: Path, spark: Any, rng: random.Random, *, adds: bool) -> None:
        self.rng, self.adds = rng, adds
        merge = nova.Keyed(key="id", combine={"shop": "max", "amount": "sum"}) if adds else REPLACES
        channels = [
            nova.Channel("orders", merge, "id bigint, shop string, amount bigint"),
            nova.Channel("shops", nova.Upsert(key="shop"), "shop string, city string"),
        ]
        for name, query in QUERIES.items():
            (folder / f"{name}.sql").write_text(query)
        bindings = nova.datasets(folder, channels=channels, refresh="incremental")
        self.world = World(nova.Project(bindings, channels=channels), spark=spark)
        self.store = self.world.store
        self.rows: dict[str, dict[Any, dict[str, Any]]] = {"orders": {}, "shops": {}}

    def insert_orders(self) -> None:
        replaces = not self.adds or self.rng.random() < 0.4
        block = [self.order(key) for key in self.rng.sample(range(12), self.rng.randint(1, 5))]
        kept = self.rows["orders"]
        for row in block:
            before = kept.pop(row["id"], None)
            if row["_deleted"]:
                continue
            kept[row["id"]] = row if replaces or before is None else added(before, row)
        merge = REPLACES if self.adds and replaces else None
        self.store.insert("orders", block, format=self.rng.choice(FORMATS), merge=merge)

    def order(self, key: int) -> dict[str, Any]:
        shop, amount = self.rng.choice(["a", "b", "c", ""]), self.rng.randint(0, 12)
        return {"id": key, "shop": shop, "amount": amount, "_deleted": self.rng.random() < 0.2}

    def insert_shops(self) -> None:
        block = [
            {"shop": s, "city": self.rng.choice(["X", "Y", None])} for s in self.rng.sample(["a", "b", "c", ""], 2)
        ]
        self.rows["shops"] |= {r["shop"]: r for r in block}
        self.store.insert("shops", block, format=self.rng.choice(FORMATS))

    def step(self) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self.insert_orders() if self.rng.random() < 0.7 else self.insert_shops()
        if self.rng.random() < 0.3:
            self.store.compact(self.rng.choice(["orders", "shops"]), force=True)
        for name in QUERIES:
            self.store.run(name)

    def expected(self, query: str) -> list[str]:
        with duckdb.connect() as judge:
            for name, rows in self.rows.items():
                values = [{c: row[c] for c in SCHEMAS[name].names} for row in rows.values()]
                judge.register(name, pa.Table.from_pylist(values, SCHEMAS[name]))
            return sorted(map(repr, judge.sql(query).fetchall()))

    def found(self, name: str) -> list[str]:
        return sorted(repr(tuple(row.values())) for row in self.store.read(name).to_arrow().to_pylist())


def added(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "shop": max(before["shop"], row["shop"]), "amount": before["amount"] + row["amount"]}


@pytest.mark.parametrize("adds", [False, True], ids=["upsert", "sums"])
@pytest.mark.long
@pytest.mark.exhaustive
def test_results_are_those_of_duckdb(spark: Any, tmp_path: Path, adds: bool) -> None:
    for seed in range(examples(1, 4)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        history = History(folder, spark, random.Random(seed), adds=adds)
        with history.world:
            for step in range(STEPS):
                history.step()
                for name, query in QUERIES.items():
                    assert history.found(name) == history.expected(query), (seed, step, name)
