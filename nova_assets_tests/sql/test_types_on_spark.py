"""The types that follow from queries without Spark are Spark's: every function, on arguments of every type.

``NOVA_FUZZ_STEPS`` is the number of calls of each function, ``NOVA_FUZZ_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from nova_assets.errors import SqlError
from nova_assets.model.schema import parse_ddl
from nova_assets.sql.parse import spark_functions
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText
from nova_assets.sql.types.query_schema import schema_of_query
from nova_assets_tests.effort import examples

pytestmark = pytest.mark.spark

EACH = examples(1, 5)
PARTS = 4
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "25"))

DDL = (
    "b boolean, y tinyint, h smallint, i int, l bigint, f float, d double, p decimal(10,2), q decimal(38,10), "
    "r decimal(20,18), s string, x binary, t date, m timestamp, n timestamp_ntz, ai array<int>, al array<string>, "
    "ad array<decimal(10,2)>, aa array<array<int>>, mi map<string,int>, st struct<a:int,b:string>, "
    "ast array<struct<a:int,b:string>>"
)
SCHEMA = parse_ddl(DDL)
LITERALS = (
    "1",
    "-3",
    "3000000000",
    "1.50",
    "1e3",
    "'a'",
    "'1'",
    "NULL",
    "true",
    "'yyyy-MM-dd'",
    "array(1)",
    "array(0.5)",
)
SHAPES = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "{0} / {1}",
    "{0} % {1}",
    "{0} DIV {1}",
    "-{0}",
    "{0} || {1}",
    "{0}[{1}]",
    "COALESCE({0}, {1})",
    "CASE WHEN b THEN {0} ELSE {1} END",
    "IF(b, {0}, {1})",
    "GREATEST({0}, {1})",
    "ARRAY({0}, {1})",
    "NULLIF({0}, {1})",
    "NVL2({0}, {1}, {0})",
    "{0} = {1}",
    "{0} IN ({1})",
    "{0} BETWEEN {1} AND {1}",
    "CEIL({0})",
    "SUM({0})",
    "AVG({0})",
    "MIN({0})",
    "COUNT({0})",
    "COLLECT_LIST({0})",
    "FIRST({0}, true)",
    "MAX_BY({0}, {1})",
    "SUM({0}) OVER (ORDER BY {1})",
    "LAG({0}) OVER (ORDER BY i)",
    "LAG({0}, 1, {1}) OVER (ORDER BY i)",
    "EXTRACT(DAY FROM {0})",
    "PERCENTILE({0}, 0.5)",
    "PERCENTILE({0}, array(0.5))",
    "PERCENTILE_APPROX({0}, 0.5)",
    "CAST({0} AS DECIMAL(5,1))",
    "TRANSFORM({0}, v -> v)",
    "TRANSFORM({0}, (v, k) -> k)",
    "FILTER({0}, v -> v IS NULL)",
    "STRUCT({0}, {1} AS w)",
    "NAMED_STRUCT('a', {0}, 'b', {1})",
    "MAP({0}, {1})",
    "SUBSTRING({0} FROM 2)",
    "TRIM({0})",
    "ROUND({0}, 1)",
    "ROUND({0})",
    "AGGREGATE({0}, 0, (a, v) -> a + 1)",
    "TRANSFORM_VALUES({0}, (k, v) -> v + 1)",
    "{0} + INTERVAL 1 DAY",
    "{0} - INTERVAL 1 HOUR",
    "{0} + INTERVAL 1 MONTH",
    "ZIP_WITH({0}, {1}, (v, w) -> v)",
    "{0}.a",
    "{0}.b",
    "STDDEV({0})",
    "SUM(DISTINCT {0})",
    "SUM({0}) FILTER (WHERE b)",
    "COUNT(DISTINCT {0}, {1})",
    "DATEDIFF(HOUR, {0}, {1})",
    "DATEADD(DAY, 1, {0})",
    "CONCAT({0}, {1})",
    "ELEMENT_AT({0}, {1})",
    "FROM_JSON(s, 'a INT, b STRING')",
    "{0} LIKE {1}",
)


def calls(rng: random.Random) -> list[str]:
    """Expressions over the whole of Spark's catalog."""
    columns = SCHEMA.names
    found = []
    for name in sorted(spark_functions.SCALAR_FUNCTIONS | spark_functions.AGGREGATES):
        for _ in range(EACH):
            arguments = [
                rng.choice(columns) if rng.random() < 0.7 else rng.choice(LITERALS)
                for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))
            ]
            found.append(f"{name}({', '.join(arguments)})")
    for shape in SHAPES:
        for _ in range(3 * EACH):
            pair = [rng.choice(columns) if rng.random() < 0.8 else rng.choice(LITERALS) for _ in range(2)]
            found.append(shape.format(*pair))
    return found


def ours(expression: str) -> str | None:
    """The type that follows without Spark; None where none does."""
    text = SqlText("query.sql", f"SELECT {expression} AS c FROM t")
    try:
        tree: Any = parse_statement(text)
        return str(schema_of_query(resolve_query(text, tree, {"t": SCHEMA}), {"t": SCHEMA}).fields[0].type)
    except SqlError:
        return None


def sparks(spark: Any, expression: str) -> str | None:
    """The type that Spark's analyser gives; None where it refuses."""
    try:
        frame = spark._jsparkSession.sql(f"SELECT {expression} AS c FROM typed")
        return str(frame.schema().apply(0).dataType().catalogString())
    except Exception:  # of Spark's analyser, which has bugs of its own for a few functions
        return None


@pytest.mark.timeout(max(300, 60 * EACH))
@pytest.mark.parametrize("part", range(PARTS))
def test_types_are_sparks(spark: Any, part: int) -> None:
    spark.createDataFrame([], DDL).createOrReplaceTempView("typed")
    expressions = list(dict.fromkeys(calls(random.Random(SEED))))[part::PARTS]
    different, accepted, known = [], 0, 0
    for expression in expressions:
        theirs = sparks(spark, expression)
        if theirs is None or theirs == "void":
            continue
        accepted += 1
        mine = ours(expression)
        known += mine is not None
        if mine is not None and mine.lower().replace("`", "") != theirs.lower():
            different.append(f"{expression}: {mine}, and Spark's {theirs}")
    print(f"{len(expressions)} expressions, {accepted} taken by Spark, the types of {known} known without it")
    assert different == [], f"{len(different)}:\n" + "\n".join(different)
    assert known > accepted * 0.6


TABLE_FUNCTIONS = (
    "SELECT id FROM RANGE(10)",
    "SELECT r.id, t.s FROM RANGE(1, 3) r JOIN typed t ON t.l = r.id",
    "SELECT x FROM RANGE(3) AS r(x)",
    "SELECT i FROM typed WHERE l IN (SELECT id FROM RANGE(5))",
    "SELECT * FROM EXPLODE(array(1, 2)) AS g(e)",
    "SELECT g.pos, g.col FROM POSEXPLODE(array('a')) g",
    "SELECT * FROM EXPLODE(map('a', 1.5)) AS g(k, v)",
    "SELECT * FROM INLINE(array(struct(1 AS a, 'x' AS b))) AS g(q, r)",
    "SELECT * FROM STACK(2, 1, 'a', 2, NULL)",
    "SELECT * FROM JSON_TUPLE('{}', 'a', 'b')",
    "SELECT t.i, g.e FROM typed t, LATERAL EXPLODE(t.ad) AS g(e)",
    "SELECT * FROM VALUES (1, 'x'), (2.5, NULL)",
    "SELECT v.col2 FROM VALUES (1, 'x') v",
    "SELECT * FROM (VALUES (1, 2)) AS v(a, b)",
    "SELECT i, POSEXPLODE(ai) AS (p, e) FROM typed",
    "SELECT p FROM (SELECT POSEXPLODE(al) AS (p, e), i FROM typed)",
    "SELECT EXPLODE(mi) AS (k, v), i FROM typed",
    "SELECT INLINE(ast) AS (q, r) FROM typed",
    "SELECT STACK(2, i, s, i, 'x') AS (a, b) FROM typed",
    "SELECT i, JSON_TUPLE(s, 'a', 'b') AS (q, r) FROM typed",
)


@pytest.mark.core
@pytest.mark.parametrize("sql", TABLE_FUNCTIONS)
def test_table_functions_give_sparks_columns(spark: Any, sql: str) -> None:
    spark.createDataFrame([], DDL).createOrReplaceTempView("typed")
    text = SqlText("query.sql", sql)
    tree: Any = parse_statement(text)
    fields = schema_of_query(resolve_query(text, tree, {"typed": SCHEMA}), {"typed": SCHEMA}).fields
    assert [(f.name, str(f.type)) for f in fields] == [
        (f.name, f.dataType.simpleString()) for f in spark.sql(sql).schema.fields
    ]
