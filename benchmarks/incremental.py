"""What a change costs a maintained query, beside computing the query again: a star join, with and without a group-by.

    python -m benchmarks.incremental [--quick] [--json FILE] [--rows N]

Both read the same channels with the same Spark, and both write a channel. A change updates orders: the latest ones, or
some of every day.
"""

from __future__ import annotations

import tempfile
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import nova_assets as nova
from benchmarks import measure
from nova_assets.engine.session.spark_session import LazySparkSession

ROWS = 2_000_000
USERS = 50_000
SHOPS = 200
START = date(2022, 1, 1)
SHARES = (0.0001, 0.001, 0.01, 0.1)
ROUNDS = 3

orders = nova.Channel(
    "orders",
    merge=nova.Upsert(key="id"),
    schema="id bigint, day date, user bigint, shop bigint, amount decimal(12,2)",
)
users = nova.Channel("users", merge=nova.Upsert(key="uid"), schema="uid bigint, country string")
shops = nova.Channel("shops", merge=nova.Upsert(key="sid"), schema="sid bigint, city string")

QUERIES = {
    "join": (
        "SELECT o.id, o.day, u.country, s.city, o.amount FROM orders o "
        "JOIN users u ON o.user = u.uid JOIN shops s ON o.shop = s.sid WHERE o.amount > 1",
        "id bigint, day date, country string, city string, amount decimal(12,2)",
        ["id"],
    ),
    "group": (
        "SELECT o.day, s.city, COUNT(*) AS orders, SUM(o.amount) AS total FROM orders o "
        "JOIN users u ON o.user = u.uid JOIN shops s ON o.shop = s.sid WHERE u.country <> 'c7' GROUP BY o.day, s.city",
        "day date, city string, orders bigint, total decimal(22,2)",
        ["day", "city"],
    ),
}


def build_project() -> nova.Project:
    bindings = []
    for name, (sql, schema, key) in QUERIES.items():
        kept, again = (
            nova.Channel(f"{name}_{c}", merge=nova.Upsert(key=key), schema=schema) for c in ("kept", "again")
        )
        inputs = {"orders": orders, "users": users, "shops": shops}
        maintained = nova.incremental(f"keep_{name}", sql, produces=nova.delta(kept), refresh="auto")
        recomputed = nova.sql_task(f"make_{name}", sql, produces=nova.base(again))
        bindings += [
            nova.bind(nova.Workflowette(f"{name}_kept", [maintained]), channels=inputs),
            nova.bind(nova.Workflowette(f"{name}_again", [recomputed]), channels=inputs),
        ]
    return nova.Project(bindings, channels=[orders, users, shops])


class Deployment:
    """A store with filled inputs."""

    def __init__(self, root: Path, rows: int, spark: Any) -> None:
        project = build_project()
        self.spark, self.rows = spark, rows
        self.store = nova.open(project, f"sqlite:///{root}/catalog.db", root / "warehouse", spark)
        self.rng = np.random.default_rng(27)
        self.store.insert(users, spark.range(USERS).selectExpr("id uid", "concat('c', id % 20) country"), kind="base")
        self.store.insert(shops, spark.range(SHOPS).selectExpr("id sid", "concat('city ', id % 50) city"), kind="base")
        self.store.insert(orders, self._orders(spark.range(rows), 1), kind="base")

    def _orders(self, ids: Any, salt: int) -> Any:
        day = f"date_add(date'{START}', cast(id div {max(1, self.rows // 365)} as int)) day"
        amount = f"cast((id * {salt}) % 10000 / 100 as decimal(12,2)) amount"
        return ids.selectExpr("id", day, f"id % {USERS} user", f"id % {SHOPS} shop", amount)

    def change(self, share: float, latest: bool) -> None:
        """Update a share of the orders: the newest ones, or some of every day."""
        count, salt = max(1, int(self.rows * share)), int(self.rng.integers(2, 1000))
        step = max(1, int(1 / share))
        ids = self.spark.range(self.rows - count, self.rows) if latest else self.spark.range(0, self.rows, step)
        self.store.insert(orders, self._orders(ids, salt))


def main() -> None:
    given = measure.options("What a change costs a maintained query, beside computing the query again.", rows=ROWS)
    rows, rounds = (given.rows // 10, 1) if given.quick else (given.rows, ROUNDS)
    shares = SHARES[1:3] if given.quick else SHARES
    spark = LazySparkSession().get()
    shown, figures = [], {}
    with tempfile.TemporaryDirectory(prefix="incremental-") as root:
        deployment = Deployment(Path(root), rows, spark)
        for name in QUERIES:
            for binding in (f"{name}_kept", f"{name}_again"):
                deployment.store.run(binding)
        for latest in (True, False):
            for share in shares:
                for name, costs in measured(deployment, share, latest, rounds).items():
                    kept, again = (measure.median(c) for c in costs)
                    ratio = measure.ratio(costs[1], costs[0])
                    where = "latest" if latest else "everywhere"
                    shown.append(
                        (f"{name}, {share:.2%} {where}", kept.wall, again.wall, kept.cpu, again.cpu, ratio.cpu)
                    )
                    figures[f"{name} {share} {where}"] = {"cpu_ratio": ratio.cpu, "wall_ratio": ratio.wall}
    columns = ("change", "kept s", "again s", "kept CPU s", "again CPU s", "CPU again / kept")
    measure.show(f"A change of {rows:,} orders, medians of {rounds} rounds", columns, shown)
    measure.keep(given.json, figures)
    print("incremental: " + ", ".join(f"{s[0]} {s[5]:.1f} x" for s in shown))


def measured(
    deployment: Deployment, share: float, latest: bool, rounds: int
) -> dict[str, tuple[list[measure.Cost], list[measure.Cost]]]:
    costs: dict[str, tuple[list[measure.Cost], list[measure.Cost]]] = {name: ([], []) for name in QUERIES}
    for n in range(rounds):
        deployment.change(share, latest)
        for name in QUERIES:
            pair = [(0, f"{name}_kept"), (1, f"{name}_again")]
            for at, binding in pair if n % 2 else pair[::-1]:
                costs[name][at].append(measure.cost_of(partial(deployment.store.run, binding)))
        deployment.store.compact("orders")
    return costs


if __name__ == "__main__":
    main()
