"""The maintained result of a query is what recomputing the query gives, after every change (R12, R20). Spark is the
judge, and DuckDB is a second one of what both compute.

``NOVA_FUZZ_STEPS`` is the number of queries, ``NOVA_FUZZ_SEED`` begins elsewhere.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from sqlglot import exp

from nova_assets.engine.rows.spark_types import from_struct, to_struct
from nova_assets.engine.tasks.sql_query import analyze_query
from nova_assets.errors import QueryRefused
from nova_assets.model.schema import Field, Schema
from nova_assets.sql.incremental.accumulated_delta import accumulated_rows, add_changed_groups, select_accumulated_delta
from nova_assets.sql.incremental.accumulation import Accumulation, StoredAccumulation, accumulation_of
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.dataset_change import (
    ComputedRelation,
    ComputeRelation,
    DatasetChange,
    column_bounds,
    columns_with_true,
)
from nova_assets.sql.incremental.maintenance_sql import RESULT, MaintenanceSql
from nova_assets.sql.incremental.operator_sql import StatementTooLarge, used_values
from nova_assets.sql.incremental.operators import NotMaintainable, Operator, Scan, walk
from nova_assets.sql.incremental.result_delta import add_result
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import Query, resolve_query
from nova_assets.sql.query.scans import mark_scans
from nova_assets.sql.query.spark_query import make_runnable_without_schemas
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.incremental.duckdb_judge import DuckdbJudge
from nova_assets_tests.sql.incremental.random_queries import TABLES, QueryWriter, Row, Table, arrow_table, random_change
from nova_assets_tests.sql.incremental.random_subqueries import SubqueryWriter

pytestmark = pytest.mark.spark

QUERIES, ACCUMULATIONS, SUBQUERIES = examples(3, 24), examples(2, 12), examples(2, 36)
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "27"))
CHANGES_PER_QUERY = 2


Rows = Mapping[str, list[Row]]


def comparable(row: Mapping[str, Any] | Any) -> tuple[Any, ...]:
    """The values of a row: NaN equals NaN, and -0.0 equals 0.0."""
    return tuple(
        "NaN" if isinstance(v, float) and math.isnan(v) else round(v, 9) + 0.0 if isinstance(v, float) else v
        for v in (tuple(v) if isinstance(v, list) else v for v in row)
    )


def rows_with_keys(rows: list[Row], table: Table, keys: set[tuple[Any, ...]]) -> list[Row]:
    return [r for r in rows if tuple(r[k] for k in table.key) in keys]


def scanned_tables(operators: Operator) -> list[Table]:
    """The tables that the operators read. Frames of other tables would cost time for nothing."""
    scanned = {o.dataset for o in walk(operators) if isinstance(o, Scan)}
    return [t for t in TABLES if t.name in scanned]


class Judge:
    """Frames of the tables in Spark, before and after a change."""

    def __init__(self, spark: Any, sql: str, rng: random.Random) -> None:
        self.spark = spark
        self.rng = rng
        self.sql = sql
        sources = {t.name: SourceTable(t.schema, t.key) for t in TABLES}
        text = SqlText("query", sql)
        tree = parse_statement(text)
        assert isinstance(tree, exp.Query)
        self.scans = mark_scans(text, tree)
        self.runnable = make_runnable_without_schemas(text, tree, self.scans)
        tree = parse_statement(text)
        assert isinstance(tree, exp.Query)
        self.query: Query = resolve_query(text, tree, {n: s.schema for n, s in sources.items()})
        self.operators: Operator = build_operators(self.query, sources)
        if self.operators.unstable is not None:  # test_order_of_rows.py
            raise NotMaintainable("the order of rows", self.operators.unstable)
        self.tables = scanned_tables(self.operators)
        self.accumulation: Accumulation | None = accumulation_of(self.operators)
        self.schema = Schema(())
        self.is_accepted = False

    def frame(self, rows: list[Row], schema: Schema) -> Any:
        return self.spark.createDataFrame(arrow_table(rows, schema))

    def recompute(self, rows: Rows) -> Counter[Any]:
        """The rows that Spark gives for the query as it was written."""
        schemas = {t.name: t.schema for t in TABLES}
        frames = {
            self.runnable.frame_by_scan[s.number]: self.frame(rows[s.dataset], schemas[s.dataset]) for s in self.scans
        }
        frame = analyze_query(self.spark, self.runnable.sql, {}, frames)
        self.is_accepted = True
        self.schema = from_struct(frame.schema)
        return Counter(comparable(r) for r in frame.collect())

    def changed(
        self,
        before: Rows,
        after: Rows,
        changes: Rows,
        *,
        accumulates: bool = False,
        removes_by_value: bool = False,
    ) -> list[Any]:
        """The change of the result, added up; or the delta of an accumulation, without its hidden columns."""
        frames: dict[str, Any] = {}
        dataset_changes = {}
        for t in self.tables:
            keys = {tuple(r[k] for k in t.key) for r in changes[t.name]}
            frames |= {
                f"{t.name}_all": self.frame(after[t.name], t.schema),
                f"{t.name}_old": self.frame(before[t.name], t.schema),
                f"{t.name}_removed": self.frame(rows_with_keys(before[t.name], t, keys), t.schema),
                f"{t.name}_added": self.frame(
                    rows_with_keys(after[t.name], t, keys) if t.key else changes[t.name], t.schema
                ),
            }
            dataset_changes[t.name] = DatasetChange(
                f"{t.name}_all",
                f"{t.name}_old",
                f"{t.name}_removed" if t.key else None,
                f"{t.name}_added",
                bool(changes[t.name]),
            )
        maintenance = MaintenanceSql(self.operators, dataset_changes, self.compute_function(frames))
        if not accumulates:
            add_result(maintenance)
            sql = maintenance.with_relations(f"SELECT * FROM {RESULT}")
            return list(self.analyze(sql, maintenance.values, frames).collect())
        assert self.accumulation is not None
        frames["stored"], hidden = self.stored_groups(before)
        fields = dict(zip(self.operators.columns, self.schema.fields, strict=True))
        stored = StoredAccumulation(self.accumulation, fields, hidden)
        groups = add_changed_groups(maintenance, stored, "stored")
        computed = maintenance.computed(groups)
        if computed is not None and "nova_again" not in computed.columns_with_true:
            table = accumulated_rows(stored, frames[computed.frame].toArrow(), removes_by_value=removes_by_value)
            rows = [tuple(row.values()) for row in table.to_pylist()]
        else:
            sql = select_accumulated_delta(maintenance, stored, groups, removes_by_value=removes_by_value)
            rows = self.analyze(sql, maintenance.values, frames).collect()
        return [(*row[: len(fields)], row[-1]) for row in rows]

    def stored_groups(self, rows: Rows) -> tuple[Any, dict[int, Field]]:
        """The result with its hidden columns, which some rows have lost. Other results have none."""
        assert self.accumulation is not None
        has_hidden = self.accumulation.needs_hidden or self.rng.random() < 0.5
        names = {n: f"hidden_{n}" for n in self.accumulation.hidden if has_hidden}
        frames = {t.name: self.frame(rows[t.name], t.schema) for t in self.tables}
        changes = {t.name: DatasetChange(t.name, t.name, None, t.name, is_changed=False) for t in self.tables}
        maintenance = MaintenanceSql(self.accumulation.operator_with_hidden(names), changes)
        frame = self.analyze(maintenance.rows_statement(), maintenance.values, frames)
        groups = frame.collect()
        if names and self.rng.random() < 0.3:
            groups = [
                row if self.rng.random() < 0.5 else (*row[: -len(names)], *(None for _ in names)) for row in groups
            ]
        types = {f.name: f.type for f in from_struct(frame.schema).fields}
        hidden = {n: Field(name, types[name]) for n, name in names.items()}
        return self.spark.createDataFrame(groups, to_struct(from_struct(frame.schema).with_all_nullable())), hidden

    def analyze(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any]) -> Any:
        used_frames = {n: f for n, f in frames.items() if f"{{{n}}}" in sql}
        return analyze_query(self.spark, sql, used_values(sql, values), used_frames)

    def compute_function(self, frames: dict[str, Any]) -> ComputeRelation | None:
        """Computes most relations first, in most maintenances."""
        if self.rng.random() < 0.2:
            return None

        def compute(sql: str, values: Mapping[str, Any]) -> ComputedRelation | None:
            if self.rng.random() < 0.2:
                return None
            frame = self.analyze(sql, values, frames)
            rows = frame.toArrow()
            name = f"computed_{len(frames)}"
            frames[name] = self.spark.createDataFrame(rows, frame.schema)
            return ComputedRelation(name, column_bounds(rows), columns_with_true(rows))

        return compute


def random_history(rng: random.Random, steps: int = CHANGES_PER_QUERY) -> Any:
    """The rows of the tables, then the rows and the change of each step."""
    rows: dict[str, list[Row]] = {t.name: [] for t in TABLES}
    for t in TABLES:
        for _ in range(rng.randrange(5)):
            rows[t.name], _ = random_change(rng, t, rows[t.name])
    yield rows, {}
    for _ in range(steps):
        moved = {t.name: random_change(rng, t, rows[t.name]) for t in TABLES}
        yes = {n: rng.random() < 0.6 for n in moved}
        changes = {n: change if yes[n] else [] for n, (_, change) in moved.items()}
        rows = {n: after if yes[n] else rows[n] for n, (after, _) in moved.items()}
        yield rows, changes


@pytest.fixture(scope="module")
def duckdb_judge() -> Iterator[DuckdbJudge]:
    """The second judge. It does not silently judge fewer queries than usual."""
    judge = DuckdbJudge()
    yield judge
    print(judge.summary())
    judge.check_share()


@pytest.mark.parametrize("number", range(QUERIES))
def test_changes_add_up_to_the_recomputed_result(spark: Any, duckdb_judge: DuckdbJudge, number: int) -> None:
    rng = random.Random(SEED * 100_003 + number)
    writer = QueryWriter(rng)
    try:
        judge = Judge(spark, writer.query(), random.Random(number))
    except NotMaintainable as error:
        pytest.skip(f"computed in full: {error.reason}")
    check_changes(judge, duckdb_judge, rng)


@pytest.mark.parametrize("number", range(ACCUMULATIONS))
def test_changes_are_added_to_stored_groups(spark: Any, duckdb_judge: DuckdbJudge, number: int) -> None:
    rng = random.Random(SEED * 100_003 + number)
    sql = QueryWriter(rng).accumulation()
    try:
        judge = Judge(spark, sql, random.Random(number))
    except NotMaintainable as error:
        pytest.skip(f"computed in full: {error.reason}")
    if judge.accumulation is None:  # for example, a number has an unknown type
        pytest.skip("groups that changed are computed again")
    check_changes(judge, duckdb_judge, rng)


@pytest.mark.parametrize("number", range(SUBQUERIES))
def test_changes_pass_through_subqueries(spark: Any, duckdb_judge: DuckdbJudge, number: int) -> None:
    rng = random.Random(SEED * 100_003 + number)
    judge = Judge(spark, SubqueryWriter(rng).query(), random.Random(number))
    try:
        check_changes(judge, duckdb_judge, rng)
    except StatementTooLarge:
        pytest.skip(f"the whole query is computed: {judge.sql}")
    except QueryRefused as error:
        if judge.is_accepted:
            raise
        pytest.skip(f"Spark refuses this query: {judge.sql}\n{error}")


def check_changes(judge: Judge, duckdb_judge: DuckdbJudge, rng: random.Random) -> None:
    """Check that the changes of a query's result add up to the recomputed result, for a random history."""
    sql, history = judge.sql, random_history(rng)
    rows, _ = next(history)
    result = judge.recompute(rows)
    assert duckdb_judge.differences(sql, rows, result.elements(), judge.schema) == [], sql
    names = list(judge.operators.columns)
    positions = [[names.index(c) for c in key] for key in judge.operators.unique_keys]
    keyed = [{tuple(row[i] for i in at): row for row in result} for at in positions]
    by_group = dict(keyed[0]) if judge.accumulation else {}
    for after, changes in history:
        delta = judge.changed(rows, after, changes, accumulates=True) if judge.accumulation else []
        accumulated = [(*row[:-1], -1 if row[-1] else 1) for row in delta]
        multiset = Counter(result)
        if judge.accumulation:
            by_value = judge.changed(rows, after, changes, accumulates=True, removes_by_value=True)
            for row in by_value:
                multiset[comparable(row[:-1])] += -1 if row[-1] else 1
        change = judge.changed(rows, after, changes)
        for row in change:
            result[comparable(row[:-1])] += row[-1]
        recomputed, rows = judge.recompute(after), after
        assert +result == +recomputed, f"{sql}\nchanged {changes}"
        assert min(result.values(), default=0) >= 0
        differences = duckdb_judge.differences(sql, after, result.elements(), judge.schema)
        assert differences == [], f"{sql}\nover {after}"
        for at, by_key in zip(positions, keyed, strict=True):
            upsert(by_key, at, change)
            assert Counter(by_key.values()) == recomputed, f"by the key {[names[i] for i in at]}: {sql}"
        if judge.accumulation:
            upsert(by_group, positions[0], accumulated)
            assert Counter(by_group.values()) == recomputed, f"accumulated: {sql}\nchanged {changes}\n{delta}"
            assert +multiset == recomputed and not -multiset, f"by value: {sql}\nchanged {changes}\n{by_value}"


def upsert(by_key: dict[Any, Any], at: list[int], change: list[Any]) -> None:
    """Apply a change as a keyed channel does: deletions first, then live rows."""
    rows = [(comparable(row[:-1]), row[-1]) for row in change]
    for is_added in (False, True):
        for row, weight in rows:
            key = tuple(row[i] for i in at)
            if is_added and weight > 0:
                by_key[key] = row
            elif not is_added and weight < 0:
                by_key.pop(key, None)
