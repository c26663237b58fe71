"""The 22 queries of TPC-H as maintained datasets, under the refresh streams of the benchmark and random updates. After
every refresh, DuckDB decides what is right.

``NOVA_TPCH_SCALE`` is the scale factor, ``NOVA_TPCH_REFRESHES`` is the number of refreshes, and ``NOVA_FUZZ_SEED``
begins elsewhere. Each refresh computes the changes by the operators. With ``NOVA_TPCH_STRATEGY=auto``, the cost
decides, which replaces most results at a small scale. With more than two refreshes, Spark recomputes the queries after
the last one, as a second judge.
``pytest -s`` shows the strategy of each refresh.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets_tests.sql.incremental.forced_strategy import force_strategy
from nova_assets_tests.tpc import benchmarks, generate_tpch
from nova_assets_tests.tpch.comparison import difference
from nova_assets_tests.tpch.queries import KEYS, input_channels, maintained_queries
from nova_assets_tests.tpch.tables import TpchTables

SCALE = float(os.environ.get("NOVA_TPCH_SCALE", "0.01"))
REFRESHES = int(os.environ.get("NOVA_TPCH_REFRESHES", "2"))
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "28"))
QUERIES = [f"q{number:02}" for number in range(1, 23)]
STRATEGY = os.environ.get("NOVA_TPCH_STRATEGY", "changes")
UPDATED_TABLES = ("customer", "part", "partsupp", "supplier", "lineitem", "orders")


@dataclass(frozen=True)
class Refresh:
    """How one dataset was brought up to date.

    Args:
        label: what changed before.
        changed_rows: rows of the result that DuckDB did not compute before this refresh.
    """

    label: str
    strategy: str
    reason: str
    seconds: float
    changed_rows: int


class Deployment:
    """A store with the 22 datasets, and the same tables in DuckDB."""

    def __init__(self, spark: Any, root: Path, tables: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self.spark, self.texts = spark, texts
        self.tables = TpchTables(root / "tables", SEED)
        channels = input_channels(tables)
        (root / "sql").mkdir()
        for name, sql in texts.items():
            (root / "sql" / f"{name}.sql").write_text(sql)
        self.datasets = nova.datasets(root / "sql", channels=channels, refresh="auto")
        project = nova.Project(self.datasets, channels=channels)
        self.store = nova.open(project, f"sqlite:///{root}/catalog.db", root / "warehouse", spark)
        self.store.register(project)
        self.results: dict[str, pa.Table] = {}
        self.refreshes: dict[str, list[Refresh]] = {name: [] for name in texts}
        self.differences: dict[str, list[str]] = {name: [] for name in texts}

    def load(self) -> None:
        for table in KEYS:
            self.store.insert(table, self.tables.select(f"FROM {table}"), kind="base")
        self.refresh("load")

    def change(self, number: int) -> None:
        """Change the tables and refresh: streams RF1 and RF2 in turn, each with random changes of half of the tables.

        The third and the fourth change consist of a stream only, and so on.
        """
        count = max(1, round(1500 * SCALE))
        (self.tables.insert_orders if number % 2 == 0 else self.tables.delete_orders)(count)
        updated = UPDATED_TABLES[number % 2 :: 2] if number % 4 < 2 else ()
        for table in updated:
            self.tables.change_rows(table, 24)
        for table, rows in self.tables.take_changes().items():
            self.store.insert(table, rows)
        self.refresh(" ".join(("RF1" if number % 2 == 0 else "RF2", *updated)))

    def refresh(self, label: str) -> None:
        """Run the datasets that are due, and compare each result with DuckDB's."""
        reports = {}
        while (tick := self.store.next_tick()).run:
            for outcome in self.store.tick(tick):
                assert outcome.error is None and outcome.execution is not None, outcome
                reports[outcome.dataset] = outcome.execution.tasks[0]
        for name, sql in self.texts.items():
            expected = self.tables.select(sql)
            if wrong := difference(self.store.read(name).to_arrow(), expected):
                self.differences[name].append(f"{label}, by DuckDB:\n{wrong}")
            if name in reports:
                report = reports[name]
                made = report.facts.get("maintenance") or {"strategy": "full", "reason": self._reason(name)}
                changed = _new_rows(expected, self.results.get(name))
                refresh = Refresh(label, made["strategy"], made["reason"], report.seconds, changed)
                self.refreshes[name].append(refresh)
            self.results[name] = expected

    def compare_with_spark(self) -> None:
        for table in KEYS:
            self.store.read(table).to_spark().createOrReplaceTempView(table)
        for name, sql in self.texts.items():
            if wrong := difference(self.store.read(name).to_arrow(), self.spark.sql(sql).toArrow()):
                self.differences[name].append(f"by Spark:\n{wrong}")
        for table in KEYS:
            self.spark.catalog.dropTempView(table)

    def _reason(self, name: str) -> str:
        """Why the dataset is computed in full, without the position in its file."""
        return self.datasets.refresh_decisions[name].reason.rpartition(": ")[2]

    def print_refreshes(self) -> None:
        print(f"\nscale factor {SCALE}, seed {SEED}")
        for name, refreshes in self.refreshes.items():
            print(f"{name}: {self.results[name].num_rows} rows")
            for r in refreshes:
                print(f"  {r.seconds:6.2f} s  {r.changed_rows:5} new rows  {r.strategy:12} {r.label}: {r.reason}")


def _new_rows(rows: pa.Table, before: pa.Table | None) -> int:
    earlier = set() if before is None else set(map(str, before.to_pylist()))
    return sum(str(row) not in earlier for row in rows.to_pylist())


@pytest.fixture(scope="module")
def deployment(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The deployment after all refreshes."""
    root, duckdb = tmp_path_factory.mktemp("tpch"), tmp_path_factory.mktemp("duckdb")
    (root / "tables").mkdir()
    benchmark = benchmarks(duckdb)["tpch"]
    generate_tpch(duckdb, root / "tables", SCALE)
    one = Deployment(spark, root, benchmark.tables, maintained_queries(benchmark.queries))
    with one.store, pytest.MonkeyPatch.context() as patch:
        if STRATEGY == "changes":
            force_strategy(patch, "changes")
        begin = time.perf_counter()
        one.load()
        for number in range(REFRESHES):
            one.change(number)
        if REFRESHES > 2:
            one.compare_with_spark()
        one.print_refreshes()
        print(f"{time.perf_counter() - begin:.0f} s")
        yield one


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.timeout(600 + 600 * REFRESHES)
@pytest.mark.parametrize("name", QUERIES)
def test_a_maintained_result_is_that_of_duckdb(deployment: Deployment, name: str) -> None:
    assert deployment.differences[name] == [], "\n\n".join(deployment.differences[name])
    assert len(deployment.refreshes[name]) > 1, "the result was refreshed"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.skipif(STRATEGY != "changes", reason="the cost decides")
def test_each_query_is_maintained_by_its_operators(deployment: Deployment) -> None:
    strategies = {name: {r.strategy for r in refreshes} for name, refreshes in deployment.refreshes.items()}
    assert {name: s for name, s in strategies.items() if not s <= {"first rows", "changes"}} == {}


def test_a_difference_is_detected() -> None:
    decimals = pa.array(["1.25", "2.50"]).cast(pa.decimal128(10, 2))
    rows = pa.table({"n": [1, 2], "x": decimals})
    assert difference(rows, rows) == ""
    assert difference(rows, rows.take([1, 0])) == ""
    assert difference(rows, pa.table({"n": [1, 2], "x": [1.2549, 2.4951]})) == "", "half of the last digit"
    assert difference(rows, pa.table({"n": [1, 2], "x": [1.2551, 2.5]})) != ""
    assert difference(rows, pa.table({"n": [1, 2], "x": pa.array(["1.250", "2.501"]).cast(pa.decimal128(10, 3))})) != ""
    assert difference(rows.take([0, 0]), rows.take([0])) != "", "a row that is there twice"
    assert difference(rows, rows.take([0])) != ""
