"""The change of a query's result, computed by DuckDB, adds up to the result that DuckDB recomputes (R12, R20).

This judges the rules for operators alone, without Spark, over many more queries and changes than Spark can in the same
time. ``NOVA_FUZZ_STEPS`` is the number of queries, ``NOVA_FUZZ_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.delta_sql import RESULT
from nova_assets.sql.incremental.maintenance_sql import DatasetChange, MaintenanceSql
from nova_assets.sql.incremental.operators import NotMaintainable, Operator
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.incremental.duckdb_judge import REFUSALS, translate
from nova_assets_tests.sql.incremental.random_queries import TABLES, QueryWriter, Row, Table, random_change
from nova_assets_tests.sql.incremental.random_subqueries import SubqueryWriter
from nova_assets_tests.sql.incremental.test_equality import comparable, rows_with_keys

QUERIES = examples(40, 150)
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "27"))
STEPS = 6

WRITERS: list[Callable[[random.Random], str]] = [
    lambda rng: QueryWriter(rng).query(),
    lambda rng: SubqueryWriter(rng).query(),
    lambda rng: QueryWriter(rng).accumulation(),
]

FOUND = [
    "SELECT n, COALESCE(n, 7) AS c, COUNT(*) AS k FROM d GROUP BY GROUPING SETS ((n, COALESCE(n, 7)), COALESCE(n, 7))",
]

Rows = Mapping[str, list[Row]]


@pytest.fixture(scope="module")
def judged() -> Iterator[Counter[str]]:
    """How many queries had which outcome. Most queries are judged."""
    counts = Counter[str]()
    yield counts
    print(dict(counts))
    if counts.total() >= 30:
        assert counts["judged"] >= 0.75 * counts.total(), counts


@pytest.mark.parametrize("number", range(QUERIES))
def test_changes_add_up_to_the_recomputed_result(judged: Counter[str], number: int) -> None:
    rng = random.Random(SEED * 1_000_003 + number)
    sql = WRITERS[number % len(WRITERS)](rng)
    try:
        operators = operators_of(sql)
        translated = in_duckdb(sql)
        check_changes(sql, operators, translated, rng)
    except NotMaintainable:
        judged["no rule"] += 1
        pytest.skip("no rule")
    except REFUSALS as error:
        judged["refused by DuckDB"] += 1
        pytest.skip(str(error))
    judged["judged"] += 1


@pytest.mark.parametrize("sql", FOUND)
def test_queries_that_once_differed(sql: str) -> None:
    for number in range(10):
        check_changes(sql, operators_of(sql), in_duckdb(sql), random.Random(number))


def check_changes(sql: str, operators: Operator, translated: str, rng: random.Random) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        before = random_rows(rng)
        result = recompute(connection, translated, before)
        for _ in range(STEPS):
            after, changes = random_step(rng, before)
            statement = change_statement(connection, operators, before, after, changes)
            for *row, weight in connection.execute(statement).fetchall():
                result[comparable(row)] += weight
            recomputed = recompute(connection, translated, after)
            assert +result == recomputed, f"{sql}\nbefore {before}\nchanged {changes}"
            assert min(result.values(), default=0) >= 0, f"{sql}\nbefore {before}\nchanged {changes}"
            before = after


def operators_of(sql: str) -> Operator:
    sources = {t.name: SourceTable(t.schema, t.key) for t in TABLES}
    text = SqlText("query", sql)
    tree: Any = parse_statement(text)
    return build_operators(resolve_query(text, tree, {n: s.schema for n, s in sources.items()}), sources)


@cache
def in_duckdb(sql: str) -> str:
    return translate(sql)


def recompute(connection: Any, translated: str, rows: Rows) -> Counter[Any]:
    for table in TABLES:
        connection.register(table.name, arrow_table(table, rows[table.name]))
    return Counter(comparable(r) for r in connection.execute(translated).fetchall())


def change_statement(connection: Any, operators: Operator, before: Rows, after: Rows, changes: Rows) -> str:
    """The statement of the change, whose frames are registered."""
    dataset_changes = {}
    for table in TABLES:
        name, keys = table.name, {tuple(r[k] for k in table.key) for r in changes[table.name]}
        frames = {
            "all": after[name],
            "old": before[name],
            "removed": rows_with_keys(before[name], table, keys),
            "added": rows_with_keys(after[name], table, keys) if table.key else changes[name],
        }
        for kind, rows in frames.items():
            connection.register(f"{name}_{kind}", arrow_table(table, rows))
        removed = f"{name}_removed" if table.key else None
        is_changed = bool(changes[name])
        dataset_changes[name] = DatasetChange(f"{name}_all", f"{name}_old", removed, f"{name}_added", is_changed)
    maintenance = MaintenanceSql(operators, dataset_changes)
    return in_duckdb(re.sub(r"\{(\w+)\}", r"\1", maintenance.statement(f"SELECT * FROM {RESULT}")))


def arrow_table(table: Table, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(table.schema))


def random_rows(rng: random.Random) -> Rows:
    rows: dict[str, list[Row]] = {t.name: [] for t in TABLES}
    for t in TABLES:
        for _ in range(rng.randrange(5)):
            rows[t.name], _ = random_change(rng, t, rows[t.name])
    return rows


def random_step(rng: random.Random, rows: Rows) -> tuple[Rows, Rows]:
    """The rows after a change of some tables, and the change."""
    moved = {t.name: random_change(rng, t, rows[t.name]) for t in TABLES}
    changed = {name for name in moved if rng.random() < 0.6}
    after = {name: moved[name][0] if name in changed else rows[name] for name in moved}
    return after, {name: moved[name][1] if name in changed else [] for name in moved}
