"""The partitions that a query is found to read, against what a database makes of it (DuckDB).

Exactly: a condition on partition columns alone keeps just the partitions on which it is true. And never too few: a
query over what it is found to read gives what it gives over everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, TypeAlias

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_assets.sql.pruning.prune import PartitionPruner, PartitionsByScan
from nova_assets.sql.query.scans import mark_scans
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.rig import DAYS, PARTITIONS, STORES, query, reads

pytestmark = pytest.mark.slow

Database: TypeAlias = duckdb.DuckDBPyConnection

TEXTS = st.sampled_from([f"'{d}'" for d in DAYS] + ["'2022-03-01'", "'2022-12-31'"])
MOMENTS = TEXTS.map(lambda t: f"CAST({t} AS DATE)")
NAMES = st.sampled_from([*(f"'{s}'" for s in STORES), "'Oslo'", "''"])
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
STEPS = st.integers(-3, 3)


def _dates(column: str) -> st.SearchStrategy[str]:
    """Expressions of a date, given one of a date or text."""
    shifted = st.tuples(st.just(column), STEPS).map(lambda p: f"DATE_ADD(CAST({p[0]} AS DATE), {p[1]})")
    return st.one_of(st.just(f"CAST({column} AS DATE)"), shifted)


def _conditions(days: Sequence[str], stores: Sequence[str], dates: Sequence[str]) -> st.SearchStrategy[str]:
    """Conditions on columns of texts of days, of names of stores, and of dates."""
    of_day, of_store = st.sampled_from(days), st.sampled_from(stores or ["'Paris'"])
    simple = [
        st.tuples(of_day, SIGNS, TEXTS).map(" ".join),
        st.tuples(TEXTS, SIGNS, of_day).map(" ".join),
        st.tuples(of_day, st.lists(TEXTS, min_size=1, max_size=3)).map(lambda p: f"{p[0]} IN ({', '.join(p[1])})"),
        st.tuples(of_day, TEXTS, TEXTS).map(lambda p: f"{p[0]} BETWEEN {p[1]} AND {p[2]}"),
        st.tuples(of_day.flatmap(_dates), SIGNS, MOMENTS).map(" ".join),
        st.tuples(of_store, SIGNS, NAMES).map(" ".join),
        st.tuples(of_store, st.sampled_from(["'%a%'", "'P_ris'", "'%'", "'Det'"])).map(lambda p: f"{p[0]} LIKE {p[1]}"),
        of_day.map(lambda c: f"{c} IS NULL"),
        of_day.map(lambda c: f"SUBSTRING({c}, 6, 2) = '04'"),
        of_day.map(lambda c: f"MONTH(CAST({c} AS DATE)) = 3"),
    ]
    simple += [st.tuples(st.sampled_from(dates), SIGNS, MOMENTS).map(" ".join)] if dates else []
    return st.recursive(
        st.one_of(*simple),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda p: f"({p[0]} AND {p[1]})"),
            st.tuples(inner, inner).map(lambda p: f"({p[0]} OR {p[1]})"),
            inner.map(lambda c: f"NOT ({c})"),
            st.tuples(inner, inner, inner).map(lambda p: f"CASE WHEN {p[0]} THEN {p[1]} ELSE {p[2]} END"),
        ),
        max_leaves=6,
    )


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """Three rows in each partition, and not the same ones."""
    con = duckdb.connect()
    columns = (
        "day VARCHAR, store VARCHAR, product VARCHAR, pieces INTEGER, price DOUBLE, sold_at TIMESTAMP, part INTEGER"
    )
    con.execute(f"CREATE TABLE sales ({columns})")
    con.execute("CREATE TABLE visits (day DATE, visitors INTEGER, source VARCHAR, part INTEGER)")
    for n, p in enumerate(PARTITIONS["sales"]):
        con.executemany(
            "INSERT INTO sales VALUES (?, ?, ?, ?, NULL, NULL, ?)",
            [(p["day"], p["store"], "abc"[m], (n + m) % 4, n) for m in range(3)],
        )
    for n, p in enumerate(PARTITIONS["visits"]):
        if n != 2:  # of a day without any
            con.executemany(
                "INSERT INTO visits VALUES (?, ?, ?, ?)", [(p["day"], n + m, "xyz"[m], n) for m in range(3)]
            )
    con.execute("CREATE TABLE stores (store VARCHAR, city VARCHAR, opened DATE, part INTEGER)")
    stores = [("Detroit", "x", date(2022, 3, 29)), ("Paris", "y", date(2022, 3, 31)), ("Oslo", None, None)]
    con.executemany("INSERT INTO stores VALUES (?, ?, ?, 0)", stores)
    yield con
    con.close()


def _duck(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


@given(_conditions(["day"], ["store"], []))
@settings(deadline=None, max_examples=examples(60, 300))
def test_a_condition_on_partitions_keeps_just_those_where_it_is_true(database: Database, condition: str) -> None:
    true = database.execute(_duck(f"SELECT DISTINCT day, store FROM sales WHERE {condition}")).fetchall()
    assert reads(f"SELECT product FROM sales WHERE {condition}") == [{f"{d}/{s}" for d, s in true}]


JOINS = st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
COMPARED = st.sampled_from(
    [
        "v.day = CAST(s.day AS DATE)",
        "v.day = DATE_ADD(CAST(s.day AS DATE), 1)",
        "v.visitors = s.pieces",
        "v.day < CAST(s.day AS DATE)",
    ]
)
SALES = st.sampled_from(
    [
        "sales",
        "(SELECT * FROM sales WHERE pieces > 1)",
        "(SELECT day, store, product, MAX(pieces) AS pieces FROM sales GROUP BY day, store, product)",
        "(SELECT DISTINCT day, store, product, pieces FROM sales)",
        "(SELECT day, store, product, pieces FROM sales WHERE store = 'Paris' UNION ALL "
        "SELECT CAST(day AS STRING), 'web', source, visitors FROM visits)",
        "(SELECT MIN(day) AS day, store, product, pieces FROM sales GROUP BY store, product, pieces)",
        "(SELECT day, store, product, RANK() OVER (PARTITION BY day ORDER BY store, product) AS pieces FROM sales)",
        "(SELECT day, store, product, pieces FROM sales EXCEPT SELECT day, store, product, 2 FROM sales)",
    ]
)
ALSO = st.sampled_from(
    [
        "TRUE",
        "v.day IS NULL",
        "COALESCE(v.visitors, 0) < 3",
        "EXISTS (SELECT 1 FROM visits w WHERE w.day = CAST(s.day AS DATE) AND w.visitors > 2)",
        "NOT EXISTS (SELECT 1 FROM visits w WHERE w.day > CAST(s.day AS DATE))",
        "CAST(s.day AS DATE) IN (SELECT w.day FROM visits w WHERE w.day > DATE '2022-03-29')",
        "s.pieces = (SELECT MAX(t.pieces) FROM sales t WHERE t.day = s.day)",
    ]
)
ON = _conditions(["s.day"], ["s.store"], ["v.day"])


@given(SALES, JOINS, COMPARED, ON, ON, ALSO)
@settings(deadline=None, max_examples=examples(80, 400))
def test_a_query_over_what_it_reads_gives_what_it_gives_over_everything(
    database: Database, sales: str, join: str, compared: str, on: str, where: str, also: str
) -> None:
    sql = (
        f"SELECT s.day, s.store, s.product, s.pieces, v.day AS other, v.visitors FROM {sales} s "
        f"{join} visits v ON {compared} AND {on} WHERE {where} AND {also}"
    )
    assert _rows(database, sql) == _rows(database, _restricted(sql))


WITH_STORES = st.sampled_from(["t.store = s.store", "t.store = s.store AND t.opened < v.day", "t.city = v.source"])


@given(SALES, JOINS, JOINS, COMPARED, ON, ON, WITH_STORES, st.sampled_from(["", "t.city IS NULL AND "]))
@settings(deadline=None, max_examples=examples(40, 200))
def test_joins_in_parentheses_read_what_they_give(
    database: Database, sales: str, outer: str, inner: str, compared: str, on: str, where: str, stores: str, also: str
) -> None:
    for read in (
        f"stores t {outer} ({sales} s {inner} visits v ON {compared} AND {on}) ON {stores}",
        f"({sales} s {inner} visits v ON {compared} AND {on}) {outer} stores t ON {stores}",
    ):
        sql = f"SELECT s.day, s.store, v.day AS other, t.city FROM {read} WHERE {also}{where}"
        assert _rows(database, sql) == _rows(database, _restricted(sql))


BY_NAME = st.sampled_from(["USING (store)", "USING (day, store)"])


@given(st.lists(JOINS, min_size=1, max_size=3), BY_NAME, SALES, ON, ON, st.booleans())
@settings(deadline=None, max_examples=examples(40, 200))
def test_joins_by_name_read_what_they_give(
    database: Database, joins: list[str], by: str, sales: str, on: str, where: str, nested: bool
) -> None:
    """The column that both have is of the one or the other, or of either, as the joins before it say."""
    first = f"(SELECT day, store, product FROM {sales} s WHERE {_of_sales(on)}) s"
    others = [f"{join} sales s{n} {by}" for n, join in enumerate(joins)]
    read = f"({first} {others[0]}) {' '.join(others[1:])}" if nested else f"{first} {' '.join(others)}"
    given = ", ".join(f"s{n}.day AS d{n}, s{n}.product AS p{n}" for n in range(len(joins)))
    sql = f"SELECT s.product AS product, {given} FROM {read} WHERE {_of_sales(where)}"
    assert _rows(database, sql) == _rows(database, _restricted_as_written(sql))


def _of_sales(condition: str) -> str:
    return condition.replace("v.day", "CAST(s.day AS DATE)")


def _restricted_as_written(sql: str) -> str:
    """The query before its columns are told, each place of which reads just what it is found to read."""
    found = PartitionPruner(query(sql)).required_partitions(PARTITIONS, {})
    tree: Any = sqlglot.parse_one(sql, read="spark")
    mark_scans(SqlText("query.sql", sql), tree)
    return _with_parts(tree, found)


def _restricted(sql: str) -> str:
    """The query, each place of which reads just what it is found to read."""
    asked = query(sql)
    return _with_parts(asked.tree.copy(), PartitionPruner(asked).required_partitions(PARTITIONS, {}))


def _with_parts(tree: Any, found: PartitionsByScan) -> str:
    for table in list(tree.find_all(sqlglot.exp.Table)):
        number = table.meta.get("nova_scan")
        if number is not None:
            parts = ", ".join(map(str, found[number])) or "-1"
            some = sqlglot.select("*").from_(table.name).where(f"part IN ({parts})")
            read = some.subquery(table.alias)
            read.set("joins", table.args.get("joins"))
            table.replace(read)
    return tree.sql("spark")


def _rows(database: Database, sql: str) -> list[tuple[Any, ...]]:
    return sorted(database.execute(_duck(sql)).fetchall(), key=repr)


HELD = st.sampled_from(
    [
        "s.day = :d",
        "CAST(s.day AS DATE) = DATE_ADD(CAST(:d AS DATE), -1)",
        "s.day BETWEEN CAST(DATE_SUB(CAST(:d AS DATE), 1) AS STRING) AND :d",
        "v.day = CAST(:d AS DATE)",
        "s.day <= :d",
        ":d > '2022-03-29'",
        "TRUE",
    ]
)
INSIDE = st.sampled_from(
    [
        "sales",
        "(SELECT * FROM sales WHERE day = :d)",
        "(SELECT * FROM sales WHERE day = :d UNION ALL SELECT * FROM sales WHERE store = 'Paris')",
        "(SELECT * FROM sales ORDER BY pieces, day, store, product LIMIT 7)",
        "(SELECT day, store, product, RANK() OVER (ORDER BY store, day, product) AS pieces FROM sales)",
        "(SELECT day, store, product, SUM(pieces) AS pieces FROM sales WHERE day <> :d GROUP BY day, store, product)",
        "(SELECT day, store, product, pieces FROM sales EXCEPT "
        "SELECT day, store, product, 2 FROM sales WHERE day = :d)",
        "(SELECT * FROM sales t WHERE EXISTS (SELECT 1 FROM sales u WHERE u.day = :d AND u.pieces = t.pieces))",
    ]
)


@given(INSIDE, JOINS, COMPARED, HELD, HELD, ON, ALSO, st.integers(0, len(PARTITIONS["sales"]) - 1))
@settings(deadline=None, max_examples=examples(60, 300))
def test_whose_rows_change_with_a_partition_is_among_its_readers(
    database: Database, sales: str, join: str, compared: str, on: str, where: str, also: str, more: str, part: int
) -> None:
    """In a scope that is not told to read a partition, the query gives the same without it."""
    sql = (
        f"SELECT s.day, s.store, s.product, s.pieces, v.day AS other, v.visitors FROM {sales} s "
        f"{join} visits v ON {compared} AND {on} WHERE {where} AND {also} AND {more}"
    )
    asked = query(sql, d=str(DAYS[0]))
    pruning, scopes = PartitionPruner(asked), [{"d": str(d)} for d in DAYS]
    numbers = [s.number for s in asked.scans if s.dataset == "sales"]
    readers = {n for scan in numbers for n in pruning.reading_scopes(PARTITIONS, scopes, scan, [part])}
    database.execute(f"CREATE OR REPLACE TEMP VIEW without AS SELECT * FROM sales WHERE part <> {part}")
    for n, scope in enumerate(scopes):
        in_scope = sql.replace(":d", f"'{scope['d']}'")
        if n not in readers:
            assert _rows(database, in_scope) == _rows(database, in_scope.replace("FROM sales", "FROM without"))
        again = pruning.required_partitions(PARTITIONS, scope)
        assert again == PartitionPruner(asked).required_partitions(PARTITIONS, scope), (
            "what was asked before changes no answer"
        )


@pytest.mark.core
def test_a_question_about_one_partition_changes_no_later_answer() -> None:
    """The last condition drops nulls of ``v`` beside sales of one day only. Sales of other days are still read."""
    asked = query(
        "SELECT s.product, v.visitors FROM sales s LEFT JOIN visits v ON v.day = CAST(s.day AS DATE) AND s.day = :d "
        "WHERE NOT (s.day = '2022-03-28' AND v.day = CAST('2022-03-28' AS DATE))",
        d=str(DAYS[0]),
    )
    pruner, scope = PartitionPruner(asked), {"d": str(DAYS[1])}
    [sales, _] = (s.number for s in asked.scans)
    first_day = [n for n, p in enumerate(PARTITIONS["sales"]) if p["day"] == "2022-03-28"]
    pruner.reading_scopes(PARTITIONS, [{"d": str(d)} for d in DAYS], sales, first_day)
    assert pruner.required_partitions(PARTITIONS, scope) == PartitionPruner(asked).required_partitions(
        PARTITIONS, scope
    )
    assert pruner.required_partitions(PARTITIONS, scope)[sales] == tuple(range(len(PARTITIONS["sales"])))


@pytest.mark.core
def test_readers_of_a_partition_are_few_where_conditions_say_so() -> None:
    for sql, expected in (
        ("SELECT product FROM sales WHERE day = :d", [2]),
        ("SELECT product FROM sales WHERE CAST(day AS DATE) = DATE_ADD(CAST(:d AS DATE), -1)", [3]),
        ("SELECT product FROM sales WHERE day <= :d", [2, 3, 4]),
        ("SELECT product FROM (SELECT * FROM sales WHERE pieces > 1) s WHERE s.day = :d", [2]),
        ("WITH s AS (SELECT * FROM sales) SELECT product FROM s WHERE s.day = :d", [2]),
        ("SELECT s.product FROM visits v JOIN sales s ON CAST(s.day AS DATE) = v.day WHERE v.day = :d", [2]),
        ("SELECT day, COUNT(*) AS n FROM sales WHERE day = :d GROUP BY day UNION ALL SELECT '', 1 FROM visits", [2]),
        ("SELECT product FROM (SELECT * FROM sales LIMIT 3) s WHERE s.day = :d", [0, 1, 2, 3, 4]),
        ("SELECT product FROM sales TABLESAMPLE (10 PERCENT) WHERE day = :d", [0, 1, 2, 3, 4]),
        ("SELECT product FROM WHOLE(sales) WHERE day = :d", [0, 1, 2, 3, 4]),
        ("SELECT product FROM sales WHERE day = '2022-03-30'", [0, 1, 2, 3, 4]),
        ("SELECT product FROM sales WHERE day = '2022-03-28'", []),
    ):
        asked = query(sql, d=str(DAYS[0]))
        [scan] = [s.number for s in asked.scans if s.dataset == "sales"]
        found = PartitionPruner(asked).reading_scopes(PARTITIONS, [{"d": str(d)} for d in DAYS], scan, [4, 5])
        assert sorted(found) == expected, sql
