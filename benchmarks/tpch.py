"""What a change of orders costs the maintained queries of TPC-H, beside computing each query again.

    python -m benchmarks.tpch [--quick] [--json FILE] [--scale 0.1] [--queries 1,3,6] [--shares 0.001,0.01]
                              [--where latest,everywhere] [--rounds 3] [--refresh incremental]

Each query is two datasets, which read the same channels with the same Spark: one with ``refresh="auto"``, one with
``refresh="full"``. With ``--refresh incremental``, the first one has ``refresh="incremental"`` if nova has rules for
the query. DuckDB computes the same query over the same rows in memory, as a limit. A change updates a share of
the orders and all their lineitems: the orders of the latest days, or some of every day.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import nova_assets as nova
from benchmarks import measure
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets_tests.tpc import benchmarks, generate_tpch
from nova_assets_tests.tpch.comparison import difference
from nova_assets_tests.tpch.queries import KEYS, input_channels, maintained_queries
from nova_assets_tests.tpch.tables import TpchTables

SCALE = 0.1
SHARES = (0.0001, 0.001, 0.01, 0.1)
WHERE = ("latest", "everywhere")
ROUNDS = 3

CHANGED_ORDERS: Mapping[str, str] = {
    "latest": "SELECT o_orderkey FROM orders ORDER BY o_orderdate DESC, o_orderkey LIMIT {count}",
    "everywhere": "SELECT o_orderkey FROM orders ORDER BY hash(o_orderkey + {salt}), o_orderkey LIMIT {count}",
}
UPDATES: Mapping[str, tuple[str, str]] = {
    "orders": (
        "o_orderkey",
        "o_totalprice = o_totalprice + {salt}, o_orderpriority = CASE hash(o_orderkey + {salt}) % 3 "
        "WHEN 0 THEN '1-URGENT' WHEN 1 THEN '2-HIGH' ELSE '5-LOW' END",
    ),
    "lineitem": (
        "l_orderkey",
        "l_quantity = 1 + hash(l_orderkey, l_linenumber, {salt}) % 50, "
        "l_extendedprice = l_extendedprice + {salt}, l_discount = (hash(l_linenumber, l_orderkey, {salt}) % 11) / 100",
    ),
}


@dataclass(frozen=True)
class Change:
    """A kind of change: an order is chosen from ``where``."""

    share: float
    where: str

    def __str__(self) -> str:
        return f"{self.share:.2%} {self.where}"


@dataclass
class Costs:
    """Costs of one query after one kind of change, in the order of the rounds: of the maintained dataset (``kept``), of
    the dataset that is computed again (``full``), and of DuckDB.
    """

    kept: list[measure.Cost] = field(default_factory=list)
    full: list[measure.Cost] = field(default_factory=list)
    duckdb: list[measure.Cost] = field(default_factory=list)
    strategies: list[str] = field(default_factory=list)


class Deployment:
    """A store with the tables of TPC-H and two datasets per query, and the same tables in DuckDB."""

    def __init__(self, root: Path, scale: float, names: Sequence[str], refresh: str) -> None:
        for folder in ("tables", "sql"):
            (root / folder).mkdir()
        benchmark = benchmarks(root / "duckdb")["tpch"]
        generate_tpch(root / "duckdb", root / "tables", scale)
        texts = maintained_queries(benchmark.queries)
        self.texts = {name: texts[name] for name in names}
        for name, sql in self.texts.items():
            for dataset in (name, f"{name}_full"):
                (root / "sql" / f"{dataset}.sql").write_text(sql)
        channels = input_channels(benchmark.tables)
        full: dict[str, Any] = {f"{name}_full": "full" for name in self.texts}
        policies: Any = full | dict.fromkeys(self.texts, "auto")
        datasets = nova.datasets(root / "sql", channels=channels, refresh=policies)
        policies = full | {n: refresh if datasets.refresh_decisions[n].operators else "auto" for n in self.texts}
        datasets = nova.datasets(root / "sql", channels=channels, refresh=policies)
        project = nova.Project(datasets, channels=channels)
        self.tables = TpchTables(root / "tables", seed=27)
        self.store = nova.open(project, f"sqlite:///{root}/catalog.db", root / "warehouse", LazySparkSession().get())
        self.store.register(project)
        for table in KEYS:
            self.store.insert(table, self.tables.select(f"FROM {table}"), kind="base")
        self.orders = self.tables.select("SELECT COUNT(*) AS n FROM orders").to_pylist()[0]["n"]
        self.salt = 0

    def change(self, change: Change) -> None:
        """Update orders and their lineitems, in DuckDB and in the store."""
        self.salt += 1
        count = max(1, round(self.orders * change.share))
        orders = CHANGED_ORDERS[change.where].format(count=count, salt=self.salt)
        self.tables.connection.execute(f"CREATE OR REPLACE TABLE changed_orders AS {orders}")
        for table, (key, assignments) in UPDATES.items():
            is_changed = f"{key} IN (SELECT o_orderkey FROM changed_orders)"
            self.tables.connection.execute(
                f"UPDATE {table} SET {assignments.format(salt=self.salt)} WHERE {is_changed}"
            )
            self.store.insert(table, self.tables.select(f"FROM {table} WHERE {is_changed}"))

    def refresh(self, name: str) -> str:
        """Bring the maintained dataset of a query up to date. Returns the strategy."""
        report = self.store.run(name).tasks[0]
        maintenance = report.facts.get("maintenance")
        return "full" if maintenance is None else str(maintenance["strategy"])

    def compute_again(self, name: str) -> None:
        """Bring the other dataset of a query up to date, by the whole query."""
        report = self.store.run(f"{name}_full").tasks[0]
        assert "maintenance" not in report.facts, "the whole query is computed"

    def check(self) -> None:
        """Compare both datasets of each query with DuckDB's result."""
        for name, sql in self.texts.items():
            expected = self.tables.select(sql)
            for dataset in (name, f"{name}_full"):
                wrong = difference(self.store.read(dataset).to_arrow(), expected)
                assert not wrong, f"{dataset}:\n{wrong}"


def main() -> None:
    given = _options()
    names = [f"q{int(n):02}" for n in given.queries.split(",")]
    changes = [Change(float(s), w) for w in given.where.split(",") for s in given.shares.split(",")]
    shown: list[Sequence[Any]] = []
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="tpch-") as root:
        deployment = Deployment(Path(root), float(given.scale), names, given.refresh)
        with deployment.store:
            measured(deployment, changes[0], 2)  # the first executions compute all rows, the second ones warm Spark up
            for change in changes:
                for name, costs in measured(deployment, change, int(given.rounds)).items():
                    shown.append(_line(f"{name}, {change}", costs))
                    figures[f"{name} {change.share} {change.where}"] = _figures(costs)
                deployment.check()
    columns = (
        "change",
        "strategy",
        "kept s",
        "full s",
        "DuckDB s",
        "kept CPU",
        "full CPU",
        "DuckDB CPU",
        "full / kept",
    )
    title = f"TPC-H at scale factor {given.scale}, {deployment.orders:,} orders, medians of {given.rounds} rounds"
    measure.show(title, columns, shown)
    measure.keep(given.json, figures)
    print("tpch: CPU full / kept " + ", ".join(f"{line[0]} {line[-1]:.1f} x" for line in shown))


def measured(deployment: Deployment, change: Change, rounds: int) -> dict[str, Costs]:
    """Costs of each query. The datasets of a query and DuckDB take turns, and each other round goes backwards."""
    costs = {name: Costs() for name in deployment.texts}
    for n in range(rounds):
        deployment.change(change)
        for name, sql in deployment.texts.items():
            of = costs[name]
            works: list[tuple[list[measure.Cost], Callable[[], object]]] = [
                (of.kept, partial(_refresh, deployment, name, of.strategies)),
                (of.full, partial(deployment.compute_again, name)),
                (of.duckdb, partial(deployment.tables.select, sql)),
            ]
            for spent, work in works if n % 2 else works[::-1]:
                spent.append(measure.cost_of(work))
        for table in UPDATES:
            deployment.store.compact(table)
    return costs


def _refresh(deployment: Deployment, name: str, strategies: list[str]) -> None:
    strategies.append(deployment.refresh(name))


def _line(label: str, costs: Costs) -> Sequence[Any]:
    kept, full, duckdb = map(measure.median, (costs.kept, costs.full, costs.duckdb))
    strategies = "/".join(dict.fromkeys(costs.strategies))
    ratio = measure.ratio(costs.full, costs.kept)
    return label, strategies, kept.wall, full.wall, duckdb.wall, kept.cpu, full.cpu, duckdb.cpu, ratio.cpu


def _figures(costs: Costs) -> dict[str, Any]:
    medians = {"kept": costs.kept, "full": costs.full, "duckdb": costs.duckdb}
    return {
        "strategies": costs.strategies,
        "wall": {name: measure.median(c).wall for name, c in medians.items()},
        "cpu": {name: measure.median(c).cpu for name, c in medians.items()},
        "cpu_ratio": measure.ratio(costs.full, costs.kept).cpu,
    }


def _options() -> argparse.Namespace:
    given = measure.options(
        "What a change of orders costs the maintained queries of TPC-H, beside computing each query again.",
        scale=f"scale factor; {SCALE} by default",
        queries="numbers of the queries, such as 1,3,6; all by default",
        shares="shares of the orders that change, such as 0.001,0.01; 0.0001 to 0.1 by default",
        where="which orders change: latest, everywhere, or both (default)",
        rounds=f"rounds of each change; {ROUNDS} by default",
        refresh="policy of the maintained datasets: auto (default) or incremental",
    )
    usual = {
        "scale": (0.01, SCALE),
        "queries": ("1,6,13", ",".join(str(n) for n in range(1, 23))),
        "shares": ("0.01", ",".join(map(str, SHARES))),
        "where": ("everywhere", ",".join(WHERE)),
        "rounds": (1, ROUNDS),
        "refresh": ("auto", "auto"),
    }
    return measure.fill_in(given, usual)


if __name__ == "__main__":
    main()
