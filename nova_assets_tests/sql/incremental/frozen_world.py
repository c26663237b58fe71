"""A store with one maintained dataset that has frozen rows. Spark's own recompute decides what the other rows are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import nova_assets as nova
from nova_assets_tests.sql.incremental.spark_recompute import create_views

NOON = datetime(2024, 5, 20, 12, tzinfo=UTC)
ORDERS = nova.Channel(
    "orders", merge=nova.Upsert(key="id"), schema="id int, day date, user int, amount decimal(10,2), weight double"
)

Frozen = Callable[[dict[str, Any], date], bool]


def datasets_of(folder: Path, sql: str, **arguments: Any) -> Any:
    (folder / "sql").mkdir(exist_ok=True)
    (folder / "sql" / "totals.sql").write_text(sql)
    return nova.datasets(folder / "sql", channels=[ORDERS], **arguments)


QUERIES = {
    "rows": "SELECT id, day, user, amount FROM orders WHERE amount > 1",
    "sums": "SELECT day, user, COUNT(*) AS n, SUM(amount) AS s, MIN(amount) AS lo FROM orders GROUP BY day, user",
    "means": "SELECT day, AVG(weight) AS mean FROM orders GROUP BY day",
    "best": "SELECT day, id, amount FROM (SELECT *, RANK() OVER (PARTITION BY day ORDER BY amount) AS r FROM orders) "
    "WHERE r = 1",
    "pairs": "SELECT a.day, a.id, b.id AS other FROM orders a JOIN orders b ON a.day = b.day AND a.user = b.user",
}
CONDITIONS: dict[str, Frozen] = {
    "day < DATE '2024-05-20'": lambda row, today: row["day"] is not None and row["day"] < date(2024, 5, 20),
    "day < CURRENT_DATE - INTERVAL 2 DAYS": lambda row, today: (
        row["day"] is not None and row["day"] < today - timedelta(days=2)
    ),
    "DAY IS NULL OR day < CURRENT_DATE": lambda row, today: row["day"] is None or row["day"] < today,
}


class World:
    """A store with one maintained dataset, and what it must hold."""

    def __init__(self, folder: Path, spark: Any, query: str, condition: str, rng: random.Random) -> None:
        self.spark, self.query, self.rng = spark, query, rng
        self.is_frozen = CONDITIONS[condition]
        self.now = NOON
        datasets = datasets_of(folder, f"FROZEN WHERE {condition}\n{query}", refresh="incremental")
        project = nova.Project(datasets, channels=[ORDERS])
        self.store = nova.open(project, f"sqlite:///{folder}/catalog.db", folder / "warehouse", spark)
        self.store.catalog.database.clock = lambda: self.now  # type: ignore[attr-defined]
        self.store.register(project)
        self.ids: set[int] = set()

    def change(self, count: int) -> None:
        rng, changed = self.rng, []
        for number in rng.sample(range(40), count):
            is_deleted = number in self.ids and rng.random() < 0.3
            (self.ids.discard if is_deleted else self.ids.add)(number)
            changed.append(
                {
                    "id": number,
                    "day": rng.choice([None, *(date(2024, 5, d) for d in range(16, 24))]),
                    "user": rng.choice([1, 2, None]),
                    "amount": rng.choice([None, Decimal("1.00"), Decimal("2.50"), Decimal("7.25")]),
                    "weight": rng.choice([None, 0.1, 0.2, 0.7]),
                    "_deleted": is_deleted,
                }
            )
        self.store.insert("orders", changed)

    def stored(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.store.read("totals").to_arrow().to_pylist()
        return rows

    def computed(self) -> list[dict[str, Any]]:
        create_views(self.spark, self.store, ["orders"])
        return [row.asDict() for row in self.spark.sql(self.query).collect()]

    def run(self) -> None:
        """Run the dataset, and check which rows it has then."""
        before, today = self.stored() if self.store.catalog.definitions.channel("totals").head else [], self.now.date()
        self.store.run("totals")
        expected = self.computed()
        if before:
            kept = [row for row in before if self.is_frozen(row, today)]
            expected = [row for row in expected if not self.is_frozen(row, today)] + kept
        assert Counter(map(text_of, self.stored())) == Counter(map(text_of, expected)), self.query


def text_of(row: dict[str, Any]) -> str:
    return str(sorted((k, f"{v:.9g}" if isinstance(v, float) else str(v)) for k, v in row.items()))


def order(day: int, amount: int, *, id: int | None = None) -> dict[str, Any]:
    return {"id": id or day, "day": date(2024, 5, day), "user": 1, "amount": amount, "weight": 0.5}
