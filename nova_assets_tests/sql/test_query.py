"""What a query reads, and errors a person sees."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from sqlglot import exp

from nova_assets.errors import SqlError
from nova_assets.sql.parse import spark_functions
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.text import SqlText
from nova_assets_tests.sql.rig import query


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT prise\nFROM sales",
            "[NOVA-SQL] query.sql:1:8: there is no column 'prise'\n"
            "    1 | SELECT prise\n"
            "      |        ^^^^^\n"
            "  expected: price",
        ),
        (
            "SELECT s.prise FROM sales s",
            "[NOVA-SQL] query.sql:1:8: s has no column 'prise'\n"
            "    1 | SELECT s.prise FROM sales s\n"
            "      |        ^^^^^^^\n"
            "  expected: price",
        ),
        (
            "SELECT 1 AS x FROM sale",
            "[NOVA-SQL] query.sql:1:20: there is no dataset 'sale'\n"
            "    1 | SELECT 1 AS x FROM sale\n"
            "      |                    ^^^^\n"
            "  expected: a dataset of the project, such as sales",
        ),
        (
            "SELECT 1 AS x FROM shop.sales",
            "[NOVA-SQL] query.sql:1:20: shop.sales is not the name of a dataset\n"
            "    1 | SELECT 1 AS x FROM shop.sales\n"
            "      |                    ^^^^^^^^^^\n"
            "  expected: a name without a database",
        ),
        (
            "SELECT 1 AS x FROM NEWEST(sales)",
            "[NOVA-SQL] query.sql:1:20: there is no table function NEWEST(...)\n"
            "    1 | SELECT 1 AS x FROM NEWEST(sales)\n"
            "      |                    ^^^^^^^^^^^^\n"
            "  expected: a dataset, NEW(dataset), OLD(dataset) or WHOLE(dataset)\n"
            '  next:     nova.datasets(..., functions=[NEWEST]), of @nova.sql_function(returns="table(...)")',
        ),
        (
            "SELECT product FROM sales WHERE day = day",
            "[NOVA-SQL] query.sql:1:33: 'day' is a column and a variable of the scope\n"
            "    1 | SELECT product FROM sales WHERE day = day\n"
            "      |                                 ^^^\n"
            "  expected: :day for the variable, sales.day for the column",
        ),
        (
            "SELECT product FROM sales WHERE sales.day = :dai",
            "[NOVA-SQL] query.sql:1:45: there is no variable 'dai'\n"
            "    1 | SELECT product FROM sales WHERE sales.day = :dai\n"
            "      |                                             ^^^^\n"
            "  expected: day",
        ),
    ],
)
def test_errors_point_at_the_place(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        query(sql, day="2022-03-31")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("", "contains no statement"),
        ("SELECT 1; SELECT 2", "contains 2 statements"),
        ("SELECT a FROM", "Expected table name"),
        ("SELECT 'abc", "' is not closed"),
        ("FROM sales |> LIMIT 3 |> WHERE day = 'x'", "pipe syntax is not supported"),
        ("SELECT a FROM x WHERE (b = 1", "( is not closed"),
        ("FOR x SELECT 1", "Expected IN after the name of a variable"),
        ("FOR x IN stores SELECT 1", "Expected (values) or TIMESERIES(...) after IN"),
    ],
)
def test_what_cannot_be_read_is_refused(sql: str, what: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(SqlText("query.sql", sql))
    assert what in str(caught.value)
    assert "<Token" not in str(caught.value)


def test_what_it_reads_and_how() -> None:
    found = query(
        "WITH c AS (SELECT * FROM sales) SELECT 1 AS x FROM c JOIN NEW(visits) v ON TRUE "
        "JOIN OLD(visits) o ON TRUE JOIN stores ON EXISTS (SELECT 1 FROM WHOLE(sales) w)"
    )
    assert {(s.dataset, s.mode) for s in found.scans} == {
        ("sales", "all"),
        ("visits", "new"),
        ("visits", "old"),
        ("stores", "all"),
        ("sales", "whole"),
    }


def test_names_are_told_apart_as_spark_does() -> None:
    assert query("SELECT Sales.PRODUCT FROM sales WHERE DAY = '2022-03-31'").reads == ("sales",)


@pytest.mark.parametrize("name", sorted(spark_functions.AGGREGATES))
def test_every_aggregate_of_spark_is_known_for_one(name: str) -> None:
    """What it is not known for is pushed below it."""
    arguments = "a, b" if name in _OF_TWO else "a"
    tree = parse_statement(SqlText("query.sql", f"SELECT {name}({arguments}) AS c FROM t"))
    assert tree.find(exp.AggFunc) is not None


_OF_TWO = {
    n for n in spark_functions.AGGREGATES if n.startswith(("regr_", "covar_", "max_by", "min_by", "percentile"))
} | {
    "approx_percentile",
    "corr",
}


def test_a_call_keeps_its_name_and_arguments() -> None:
    tree = parse_statement(
        SqlText("query.sql", "SELECT TRUNC(day, 'Q') AS a, CONCAT_WS('/', x, y) AS b, DATE_ADD(day, 1) AS c FROM t")
    )
    calls = [(c.name, [e.sql("spark") for e in c.expressions]) for c in tree.find_all(exp.Anonymous)]
    assert sorted(calls) == [("CONCAT_WS", ["'/'", "x", "y"]), ("DATE_ADD", ["day", "1"]), ("TRUNC", ["day", "'Q'"])]


TAKEN_BY_SPARK = (
    "SELECT a FROM t WHERE a IS NOT NULL AND b IS NOT TRUE",
    "SELECT a FROM t WHERE NOT a IN (1, 2) AND NOT EXISTS (SELECT 1)",
    "SELECT a FROM t WHERE a = (b IN (1))",
    "SELECT a FROM t WHERE a = b = c",
    "SELECT a IN (1) AND b AS x FROM t",
    "SELECT a FROM t WHERE a <=> b AND a IS DISTINCT FROM b",
    "SELECT a FROM t WHERE a LIKE 'x' ESCAPE '/' AND a LIKE ANY ('a', 'b') AND a NOT RLIKE 'x' AND a NOT ILIKE 'b'",
    "SELECT a FROM t WHERE a NOT BETWEEN 1 AND 2 AND (a, b) IN ((1, 2))",
    "SELECT cast(a AS decimal(3)) AS x, cast(a AS array<int>) AS y, cast(a AS varchar(3)) AS z, "
    "a::decimal(3,1) AS w FROM t",
    "SELECT sum(a) OVER w AS x FROM t WINDOW w AS (PARTITION BY b)",
    "SELECT s.a.b, s.a[0].c AS d, t.* FROM t",
    "SELECT a FROM VALUES (1), (2) AS v(a)",
    "SELECT id FROM RANGE(10)",
    "SELECT CASE WHEN a IS NULL THEN 1 WHEN a NOT IN (1) THEN 2 END AS x FROM t",
    "SELECT a having, b AS where FROM t",
    "SELECT struct(a AS b, c) AS x, named_struct('a', 1) AS y FROM t",
    "SELECT -a AS x, NOT a AS y, ! a AS z, a || b AS w, a AND NOT b AS u FROM t",
    "SELECT count(*) FILTER (WHERE a IS NULL) AS x FROM t",
    "SELECT exists(a, x -> x IS NULL) AS x FROM t",
    "SELECT EXISTS (SELECT 1) AS x FROM t",
    "SELECT if(a IN (1), 2, 3) AS x FROM t",
    "SELECT DATE '2022-03-31' AS x, TIMESTAMP '2022-03-31 01:02:03' AS y, TIMESTAMP "
    "'2022-03-31T01:02:03Z' AS z, DATE '2022-3' AS w FROM t",
    "SELECT NOT NULL AS x, a IS NOT NULL AS y FROM t",
    "SELECT 1 AS from, 2 AS where FROM t",
    "SELECT TIMESTAMP '2022-03-31 01:02:03 Europe/Paris' AS y, DATE 'today' AS x",
    "SELECT f(a => NOT b) AS x FROM t",
    "SELECT transform(a, x -> x IS NULL) AS x FROM t",
    "SELECT a FROM t WHERE a IN (SELECT 1) AND NOT (a LIKE 'x')",
    "SELECT case when a is not null then 1 end AS x FROM t",
    "SELECT 'a' 'b' AS x FROM t",
    "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS x, sum(a) OVER (ORDER BY"
    " b ROWS UNBOUNDED PRECEDING) AS y, sum(a) OVER (ORDER BY b RANGE BETWEEN CURRENT ROW AND INTERVAL 3 "
    "DAYS FOLLOWING) AS z FROM t",
    "SELECT a * b AS x, t.*, * FROM t",
    "SELECT count(*) AS x, count(DISTINCT *) AS y FROM t",
    "SELECT a FROM t JOIN u ON (a = b) WHERE a IN ((SELECT 1), 2)",
    "SELECT a FROM t LIMIT 10 OFFSET 2",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS x FROM t",
    "SELECT sum(a) OVER w AS x FROM t WINDOW w AS (ORDER BY b)",
    "SELECT a AS `b c`, b AS `%` FROM t",
    "SELECT a FROM t TABLESAMPLE (10 PERCENT) LIMIT 5",
    "SELECT INTERVAL 5 days + a AS x, INTERVAL -5 seconds + a AS y FROM t",
    "SELECT a + INTERVAL '1-2' YEAR TO MONTH AS x FROM t",
    "SELECT a + INTERVAL 1 YEAR 2 MONTHS AS x FROM t",
    "SELECT a + INTERVAL '5 days' AS x FROM t",
    "SELECT interval FROM t",
    "SELECT a FROM t GROUP BY ALL",
    "SELECT a FROM t GROUP BY GROUPING SETS ((a), ())",
    "SELECT a FROM t GROUP BY a WITH ROLLUP",
    "SELECT a FROM t having, u",
    "SELECT sum(a) FILTER (WHERE b) OVER (PARTITION BY c) AS x FROM t",
    "SELECT a FROM t LATERAL VIEW explode(b) e AS x WHERE x > 1",
    "SELECT x FROM (SELECT a FROM t) PIVOT (sum(a) FOR b IN (1, 2))",
    "SELECT nth_value(a, 2) IGNORE NULLS OVER (ORDER BY b) AS x FROM t",
    "SELECT /*+ BROADCAST(t) */ a FROM t",
    "SELECT a FROM t a1 JOIN u ON a1.x = u.x LEFT JOIN w USING (q) WHERE w.z > 1 GROUP BY a HAVING max(b)"
    " > 1 ORDER BY a LIMIT 1",
)


@pytest.mark.parametrize("sql", TAKEN_BY_SPARK)
def test_what_spark_reads_is_read(sql: str) -> None:
    parse_statement(SqlText("query.sql", sql))


@pytest.mark.spark
def test_spark_parses_the_same(spark: Any) -> None:
    for sql in TAKEN_BY_SPARK:
        try:
            spark.sql(sql)
        except ParseException as error:
            raise AssertionError(sql) from error
        except AnalysisException:
            continue
