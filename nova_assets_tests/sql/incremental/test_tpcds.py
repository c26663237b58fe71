"""The 99 queries of TPC-DS as they are written: which of them have operators, and what their datasets hold after
changes of all tables. Spark decides what is right. (No results of TPC are claimed.)
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.model.schema import parse_ddl
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.operators import NotMaintainable
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText
from nova_assets.testing.world import for_tiny_queries
from nova_assets_tests.sql.incremental.forced_strategy import force_strategy
from nova_assets_tests.tpc import benchmarks, generate_tables
from nova_assets_tests.tpch.comparison import difference

pytestmark = pytest.mark.slow

WITHOUT_A_RULE = {
    "ROLLUP": {70, 86},
    "subquery": {6, 14, 41, 44, 54, 58},
    "rounded": {22, 27, 32, 85, 92},
    "order of rows": {39, 51},
}
"""Part of the reason -> queries. The first part that the reason contains counts."""


def test_queries_as_they_are_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    tpcds = benchmarks(tmp_path_factory.mktemp("duckdb"))["tpcds"]
    sources = {name: SourceTable(parse_ddl(ddl)) for name, ddl in tpcds.tables.items()}
    found: dict[str, set[int]] = {part: set() for part in WITHOUT_A_RULE}
    for number, sql in enumerate(tpcds.queries, start=1):
        text = SqlText(f"q{number}", sql)
        tree: Any = parse_statement(text)
        try:
            build_operators(resolve_query(text, tree, {n: s.schema for n, s in sources.items()}), sources)
        except NotMaintainable as error:
            found[next(part for part in WITHOUT_A_RULE if part in error.reason)].add(number)
    assert found == WITHOUT_A_RULE


SCALE = float(os.environ.get("NOVA_TPCDS_SCALE", "0.01"))
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "48"))
CHANGED_ROWS = 12
KEYS: Mapping[str, tuple[str, ...]] = {
    "catalog_returns": ("cr_item_sk", "cr_order_number"),
    "catalog_sales": ("cs_item_sk", "cs_order_number"),
    "inventory": ("inv_date_sk", "inv_item_sk", "inv_warehouse_sk"),
    "store_returns": ("sr_item_sk", "sr_ticket_number"),
    "store_sales": ("ss_item_sk", "ss_ticket_number"),
    "web_returns": ("wr_item_sk", "wr_order_number"),
    "web_sales": ("ws_item_sk", "ws_order_number"),
}
"""Primary key of each table of facts. The first column of the other tables is theirs."""


class Deployment:
    """A store with a dataset for each query.

    Attributes:
        strategies: dataset -> how each of its executions made its rows.
        differences: dataset -> what Spark gave otherwise.
    """

    def __init__(self, spark: Any, root: Path, tables: Mapping[str, str], queries: Mapping[str, str]) -> None:
        self.spark, self.root, self.queries, self.rng = spark, root, queries, random.Random(SEED)
        self.channels = {}
        for name, ddl in tables.items():
            key = KEYS.get(name, (ddl.split()[0],))
            self.channels[name] = nova.Channel(name, merge=nova.Upsert(key=list(key)), schema=ddl)
        (root / "sql").mkdir()
        for name, sql in queries.items():
            (root / "sql" / f"{name}.sql").write_text(f"INSERT OVERWRITE {name}\n{sql}\n")
        self.datasets = nova.datasets(root / "sql", channels=list(self.channels.values()), refresh="auto")
        project = nova.Project(self.datasets, channels=list(self.channels.values()))
        self.store = nova.open(project, f"sqlite:///{root}/catalog.db", root / "warehouse", spark)
        self.store.register(project)
        self.strategies: dict[str, list[str]] = {name: [] for name in queries}
        self.differences: dict[str, str] = {}

    def load(self) -> None:
        for name in self.channels:
            table = pq.read_table(self.root / "tables" / f"{name}.parquet")
            times = [n for n, field in enumerate(table.schema) if pa.types.is_time(field.type)]
            for n in times:
                table = table.set_column(n, table.column_names[n], table.column(n).cast(pa.string()))
            self.store.insert(name, table, kind="base")

    def change(self) -> None:
        """Delete rows of all tables, and give other rows the values of their neighbours."""
        for name in self.channels:
            rows = self.store.read(name).to_arrow().to_pylist()
            changed = self.rng.sample(range(len(rows)), min(CHANGED_ROWS, len(rows) // 2))
            key = KEYS.get(name, (next(iter(rows[0])),))
            delta = []
            for position in changed[::2]:
                delta.append(rows[position] | {"_deleted": True})
            for position in changed[1::2]:
                kept = {column: rows[position][column] for column in key}
                delta.append(rows[position - 1] | kept | {"_deleted": False})
            if delta:
                self.store.insert(name, delta)

    def refresh(self) -> None:
        """Run all datasets, note their strategies, and compare them with Spark."""
        while (tick := self.store.next_tick()).run:
            for outcome in self.store.tick(tick):
                assert outcome.error is None and outcome.execution is not None, outcome
                made = outcome.execution.tasks[0].facts.get("maintenance")
                self.strategies[outcome.dataset].append(made["strategy"] if made else "whole")
                print(outcome.dataset, self.strategies[outcome.dataset][-1], flush=True)
        for name in self.channels:
            self.store.read(name).to_spark().createOrReplaceTempView(name)
        for name, sql in self.queries.items():
            if wrong := different_rows(self.spark, self.store.read(name).to_arrow(), sql):
                self.differences[name] = self.differences.get(name, "") + wrong
                print(name, wrong[:2000], flush=True)
        for name in self.channels:
            self.spark.catalog.dropTempView(name)


def different_rows(spark: Any, actual: pa.Table, sql: str) -> str:
    """Difference between rows and those of a query. Among rows that are equal in ORDER BY, LIMIT may keep any."""
    expected = spark.sql(sql).toArrow()
    wrong = difference(actual, expected)
    if not wrong or actual.num_rows != expected.num_rows or not (limited := re.search(r"\s+LIMIT \d+\s*$", sql)):
        return wrong
    extra = Counter(map(str, actual.to_pylist())) - Counter(
        map(str, spark.sql(sql[: limited.start()]).toArrow().to_pylist())
    )
    return f"not in the whole result: {list(extra)[:3]}" if extra else ""


@pytest.fixture(scope="module")
def deployment(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The deployment after two changes, whose strategy is ``changes`` wherever the cost would decide."""
    root, duckdb = tmp_path_factory.mktemp("tpcds"), tmp_path_factory.mktemp("duckdb")
    (root / "tables").mkdir()
    tpcds = benchmarks(duckdb)["tpcds"]
    generate_tables("dsdgen", duckdb, root / "tables", SCALE)
    queries = {f"q{number:02}": sql for number, sql in enumerate(tpcds.queries, start=1)}
    one = Deployment(spark, root, tpcds.tables, queries)
    with one.store, for_tiny_queries(one.store), pytest.MonkeyPatch.context() as patch:
        force_strategy(patch, "changes")
        one.load()
        one.refresh()
        for _ in range(2):
            one.change()
            one.refresh()
        yield one


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.timeout(3 * 3600)
def test_each_dataset_holds_the_rows_of_spark(deployment: Deployment) -> None:
    assert deployment.differences == {}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.exhaustive
def test_each_dataset_is_made_as_it_was_promised(deployment: Deployment) -> None:
    promised = {name: decision.is_incremental for name, decision in deployment.datasets.refresh_decisions.items()}
    without = {f"q{number:02}" for numbers in WITHOUT_A_RULE.values() for number in numbers}
    assert {name for name, is_incremental in promised.items() if not is_incremental} == without
    made = {name: set(strategies[1:]) for name, strategies in deployment.strategies.items()}
    assert {name: found for name, found in made.items() if found - {"changes" if promised[name] else "whole"}} == {}
