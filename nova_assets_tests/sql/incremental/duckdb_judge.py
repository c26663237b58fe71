"""DuckDB computes a query over the same rows as Spark. It shares no code with Spark, nor with the maintenance.

Where both engines give a value but differ in it by design, :func:`translate` writes what Spark means, or excludes the
query by name. A division by zero does not occur: the only divisor is a COUNT(*), and where it is 0, the dividend is
null in both engines.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from nova_assets.model.schema import Schema
from nova_assets_tests.sql.incremental.random_queries import TABLES, Row, Table

TYPES = {
    "int": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "array<int>": "INTEGER[]",
    "decimal(10,2)": "DECIMAL(10,2)",
}
"""Type of a column of the tables -> its type in DuckDB."""

EXCLUDED: dict[type[exp.Expr], str] = {exp.JSONFormat: "TO_JSON: Spark leaves out fields that are null"}
"""Kind of expression -> how the engines differ in it."""

USUAL_SHARE = 0.94
"""The share of random queries that DuckDB computes."""


class Excluded(Exception):
    """The engines differ in the meaning of a query."""


REFUSALS = (
    Excluded,
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.NotImplementedException,
)


class DuckdbJudge:
    """Compares the results of queries with those that DuckDB computes.

    Attributes:
        judged: query -> how many of its results were compared.
        skipped: query -> why DuckDB does not compute it.
    """

    def __init__(self) -> None:
        self.judged = Counter[str]()
        self.skipped: dict[str, str] = {}
        self.connection = connect()

    def differences(self, sql: str, tables: Mapping[str, list[Row]], rows: Iterable[Any], schema: Schema) -> list[str]:
        """The rows that only one engine gives. A query that DuckDB does not compute has none.

        Args:
            rows: the rows that Spark gives.
        """
        try:
            translated = translate(sql)
            self.fill(tables)
            result = self.connection.execute(translated)
        except REFUSALS as error:
            self.skipped[sql] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return []
        self.judged[sql] += 1
        types = [str(column[1]) for column in result.description]
        return compare(rows, result.fetchall(), tolerances(schema, types))

    def fill(self, tables: Mapping[str, list[Row]]) -> None:
        for table in TABLES:
            self.connection.execute(f"DELETE FROM {table.name}")
            values = [[row[f.name] for f in table.schema.fields] for row in tables[table.name]]
            if values:
                marks = ", ".join("?" for _ in table.schema.fields)
                self.connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", values)

    def check_share(self) -> None:
        """Check that DuckDB computes about as many queries as usual: at most four standard deviations less."""
        count = len(self.judged) + len(self.skipped)
        if count:
            least = USUAL_SHARE - 4 * math.sqrt(USUAL_SHARE * (1 - USUAL_SHARE) / count)
            assert len(self.judged) / count >= least, self.summary()

    def summary(self) -> str:
        reasons = dict(Counter(self.skipped.values()))
        return f"DuckDB judged {self.judged.total()} results of {len(self.judged)} queries, and skipped {reasons}"


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    for table in TABLES:
        connection.execute(create_table(table))
    return connection


def create_table(table: Table) -> str:
    columns = ", ".join(f"{f.name} {TYPES[str(f.type)]}" for f in table.schema.fields)
    return f"CREATE TABLE {table.name} ({columns})"


def translate(sql: str) -> str:
    """The query in the dialect of DuckDB."""
    tree = sqlglot.parse_one(sql, read="spark")
    for kind, difference in EXCLUDED.items():
        if tree.find(kind):
            raise Excluded(difference)
    for group in list(tree.find_all(exp.Group)):
        leave_out_groups_without_rows(group)
    for qualify in list(tree.find_all(exp.Qualify)):
        leave_out_aliases(qualify)
    for rewrite in (count_true, size_of_set, explode_outer):
        tree = tree.transform(rewrite, copy=False)
    return tree.sql("duckdb", copy=False)


def leave_out_groups_without_rows(group: exp.Group) -> None:
    """Over no rows, ROLLUP, CUBE and GROUPING SETS give no row in Spark. In DuckDB, they give the group of all rows."""
    select = group.parent
    if isinstance(select, exp.Select) and group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        select.having("COUNT(*) > 0", copy=False)


def leave_out_aliases(qualify: exp.Qualify) -> None:
    """Write expressions in place of their aliases. If another source of the query around it has a column of the same
    name, DuckDB 2.0.1 compares that column instead.
    """
    select = qualify.parent
    assert isinstance(select, exp.Select)
    sources = {t.name: t for t in TABLES}
    tables = {f.name for t in select.find_all(exp.Table) if t.name in sources for f in sources[t.name].schema.fields}
    of_queries = {name for q in select.find_all(exp.Query) if q is not select for name in q.named_selects}
    outputs = {e.alias: e.this for e in select.expressions if isinstance(e, exp.Alias)}
    for column in list(qualify.find_all(exp.Column)):
        if not column.table and column.name in outputs and column.name not in tables | of_queries:
            column.replace(exp.Paren(this=outputs[column.name].copy()))


def count_true(node: exp.Expr) -> exp.Expr:
    """COUNT_IF without a value that is not null is 0 in Spark, and null in DuckDB."""
    if not isinstance(node, exp.CountIf):
        return node
    return exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=node.this))


def size_of_set(node: exp.Expr) -> exp.Expr:
    """COLLECT_SET without a value that is not null is an empty array in Spark, and null in DuckDB."""
    if not isinstance(node, exp.ArraySize) or not isinstance(node.this, exp.ArrayUniqueAgg):
        return node
    return exp.Count(this=exp.Distinct(expressions=[node.this.this]))


def explode_outer(node: exp.Expr) -> exp.Expr:
    """EXPLODE_OUTER of null or of no elements gives a null. UNNEST gives no row."""
    if not isinstance(node, exp.ExplodeOuter):
        return node
    array = node.this.sql("spark")
    return sqlglot.parse_one(f"EXPLODE(IF(SIZE({array}) > 0, {array}, ARRAY(CAST(NULL AS INT))))", read="spark")


def tolerances(schema: Schema, types: Sequence[str]) -> list[float | None]:
    """How much the values of each column may differ. Values of a column without a tolerance are equal.

    A double depends on the order of its operands. For averages of decimals, Spark gives a decimal, which is rounded,
    and DuckDB gives a double.

    Args:
        types: types of the columns in DuckDB.
    """
    return [tolerance(str(field.type), other) for field, other in zip(schema.fields, types, strict=True)]


def tolerance(spark_type: str, duckdb_type: str) -> float | None:
    if spark_type.startswith("decimal") and duckdb_type == "DOUBLE":
        scale = int(spark_type.rstrip(")").split(",")[1])
        return 0.5 * 10.0**-scale
    return 1e-9 if spark_type == "double" else None


def compare(rows: Iterable[Any], others: Iterable[Any], within: Sequence[float | None]) -> list[str]:
    """The rows that only one side has, as multisets."""
    unmatched = defaultdict[Any, list[Any]](list)
    for other in others:
        unmatched[exact(other, within)].append(other)
    missing = []
    for row in rows:
        candidates = unmatched[exact(row, within)]
        match = next((n for n, other in enumerate(candidates) if is_close(row, other, within)), None)
        if match is None:
            missing.append(f"only Spark: {row}")
        else:
            del candidates[match]
    return missing + [f"only DuckDB: {other}" for left in unmatched.values() for other in left]


def exact(row: Sequence[Any], within: Sequence[float | None]) -> tuple[Any, ...]:
    """The values of a row that have no tolerance. A boolean is not a number."""
    values = (value for value, most in zip(row, within, strict=True) if most is None)
    return tuple(str(value) if isinstance(value, bool) else value for value in values)


def is_close(row: Sequence[Any], other: Sequence[Any], within: Sequence[float | None]) -> bool:
    """Whether the values of two rows that have a tolerance differ by no more than it."""
    pairs = zip(row, other, within, strict=True)
    return all(differ_at_most(a, b, most) for a, b, most in pairs if most is not None)


def differ_at_most(a: Any, b: Any, most: float) -> bool:
    if a is None or b is None:
        return a is b
    return abs(float(a) - float(b)) <= most + 1e-9 * abs(float(a))
