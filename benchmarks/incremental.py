"""What a change costs a maintained query, beside computing the query again: a star join, with and without a group-by.

    python -m benchmarks.incremental [--quick] [--json FILE] [--rows N] [--shares 0.01] [--rounds 3]
                                     [--beside delta,iceberg,duckdb]

Both read the same channels with the same Spark, and both write a channel. A change updates orders: the latest ones, or
some of every day.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import measure, merge_into
from nova_assets.engine.rows.spark_versions import collect_to_arrow
from nova_assets.engine.session.lazy_session import LazySparkSession

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
        self.salt = 1
        self.store.insert(users, self.all_users(), kind="base")
        self.store.insert(shops, self.all_shops(), kind="base")
        self.store.insert(orders, self.orders_of(spark.range(rows), 1), kind="base")

    def all_users(self) -> Any:
        return self.spark.range(USERS).selectExpr("id uid", "concat('c', id % 20) country")

    def all_shops(self) -> Any:
        return self.spark.range(SHOPS).selectExpr("id sid", "concat('city ', id % 50) city")

    def orders_of(self, ids: Any, salt: int) -> Any:
        """Orders with these ids. The salt decides their amounts."""
        day = f"date_add(date'{START}', cast(id div {max(1, self.rows // 365)} as int)) day"
        amount = f"cast((id * 31 + {salt} * 7919) % 10000 / 100 as decimal(12,2)) amount"
        return ids.selectExpr("id", day, f"id % {USERS} user", f"id % {SHOPS} shop", amount)

    def changed_orders(self, share: float, latest: bool) -> Any:
        """New versions of a share of the orders: the newest ones, or some of every day."""
        self.salt += 1
        count, salt = max(1, int(self.rows * share)), self.salt
        step = max(1, int(1 / share))
        ids = self.spark.range(self.rows - count, self.rows) if latest else self.spark.range(0, self.rows, step)
        return self.orders_of(ids, salt)


def main() -> None:
    given = measure.options(
        "What a change costs a maintained query, beside computing the query again.",
        rows=ROWS,
        shares="shares of the orders that change, such as 0.001,0.01; 0.0001 to 0.1 by default",
        rounds=f"rounds of each change; {ROUNDS} by default",
        beside="other ways to measure: delta, iceberg (by MERGE, in the environment of make peers) and duckdb",
    )
    rows, rounds = (given.rows // 10, 1) if given.quick else (given.rows, int(given.rounds or ROUNDS))
    shares = [float(s) for s in given.shares.split(",")] if given.shares else SHARES[1:3] if given.quick else SHARES
    beside = given.beside.split(",") if given.beside else []
    shown, figures = [], {}
    with tempfile.TemporaryDirectory(prefix="incremental-") as root:
        ways = Ways(Path(root), rows, beside)
        for latest in (True, False):
            for share in shares:
                for name, costs in measured(ways, share, latest, rounds).items():
                    change = f"{name}, {share:.2%} {'latest' if latest else 'everywhere'}"
                    cpu = {way: measure.median(costs[way]).cpu for way in ("kept", "again", *beside)}
                    ratio = measure.ratio(costs["again"], costs["kept"])
                    shown.append((change, *cpu.values(), ratio.cpu))
                    wall = {way: measure.median(c).wall for way, c in costs.items()}
                    figures[change] = {"cpu": cpu, "wall": wall, "cpu_ratio": ratio.cpu, "wall_ratio": ratio.wall}
        ways.check()
    columns = ("CPU seconds", "kept", "again", *beside, "again / kept")
    measure.show(f"A change of {rows:,} orders, medians of {rounds} rounds", columns, shown)
    measure.keep(given.json, figures)
    print("incremental: " + ", ".join(f"{s[0]} {s[-1]:.1f} x" for s in shown))


class Ways:
    """All ways to keep the results up to date: nova's maintenance, computing again, and others that are asked for.

    Args:
        root: empty folder.
        rows: number of orders.
        beside: names of other ways.
    """

    def __init__(self, root: Path, rows: int, beside: Sequence[str]) -> None:
        merging = [name for name in beside if name != "duckdb"]
        self.spark = merge_into.session_of_systems(root) if merging else LazySparkSession().get()
        self.deployment = Deployment(root, rows, self.spark)
        self.others: dict[str, Any] = {}
        all_orders = self.deployment.orders_of(self.spark.range(rows), 1)
        for name in QUERIES:
            for binding in (f"{name}_kept", f"{name}_again"):
                self.deployment.store.run(binding)
        tables = {"users": self.deployment.all_users(), "shops": self.deployment.all_shops()}
        for name, frame in tables.items():
            frame.cache().createOrReplaceTempView(name)
        for name in beside:
            if name == "duckdb":
                filled = {**tables, "orders": all_orders}
                self.others[name] = merge_into.DuckDBResults({n: collect_to_arrow(f) for n, f in filled.items()})
            else:
                self.others[name] = merge_into.SYSTEMS[name](self.spark, root)
                self.others[name].fill(all_orders, {query: sql for query, (sql, _, _) in QUERIES.items()})

    def change(self, share: float, latest: bool) -> None:
        """Update a share of the orders, in each system."""
        changed = self.deployment.changed_orders(share, latest)
        self.deployment.store.insert(orders, changed)
        for name, other in self.others.items():
            other.change(collect_to_arrow(changed) if name == "duckdb" else changed)

    def of(self, query: str) -> dict[str, Callable[[], object]]:
        """Way -> function that brings the result of a query up to date."""
        ways: dict[str, Callable[[], object]] = {
            way: partial(self.deployment.store.run, f"{query}_{way}") for way in ("kept", "again")
        }
        for name, other in self.others.items():
            ways[name] = partial(other.refresh, QUERIES[query][0] if name == "duckdb" else query)
        return ways

    def check(self) -> None:
        """Compare the results of all ways."""
        for query in QUERIES:
            kept = self.deployment.store.read(f"{query}_kept").to_spark()
            others = {"again": self.deployment.store.read(f"{query}_again").to_spark()}
            others |= {n: self.spark.table(o.table(query)) for n, o in self.others.items() if n != "duckdb"}
            for name, frame in others.items():
                differing = kept.exceptAll(frame).count() + frame.exceptAll(kept).count()
                assert not differing, f"{query}: {differing} rows of {name} differ"


def measured(ways: Ways, share: float, latest: bool, rounds: int) -> dict[str, dict[str, list[measure.Cost]]]:
    """Query -> way -> costs. The ways take turns, and each other round goes backwards."""
    costs: dict[str, dict[str, list[measure.Cost]]] = {query: {} for query in QUERIES}
    for n in range(rounds):
        ways.change(share, latest)
        for query in QUERIES:
            works = list(ways.of(query).items())
            for way, work in works if n % 2 else works[::-1]:
                costs[query].setdefault(way, []).append(measure.cost_of(work))
        ways.deployment.store.compact("orders")
    return costs


if __name__ == "__main__":
    main()
