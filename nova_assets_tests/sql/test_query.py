"""What a query reads, and errors a person sees."""

from __future__ import annotations

import pytest
from sqlglot import exp

from nova_assets.errors import SqlError
from nova_assets.sql import spark_functions
from nova_assets.sql.dialect import parsed
from nova_assets.sql.text import Text
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
        ("", "holds no statement"),
        ("SELECT 1; SELECT 2", "holds 2 statements"),
        ("SELECT a FROM", "Expected table name"),
        ("SELECT 'abc", "' is not closed"),
        ("FROM sales |> LIMIT 3 |> WHERE day = 'x'", "pipes are not understood"),
        ("SELECT a FROM x WHERE (b = 1", "Expecting )"),
        ("FOR x SELECT 1", "Expected IN after the name of a variable"),
        ("FOR x IN stores SELECT 1", "Expected (values) or TIMESERIES(...) after IN"),
    ],
)
def test_what_cannot_be_read_is_refused(sql: str, what: str) -> None:
    with pytest.raises(SqlError) as caught:
        parsed(Text("query.sql", sql))
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
    tree = parsed(Text("query.sql", f"SELECT {name}({arguments}) AS c FROM t"))
    assert tree.find(exp.AggFunc) is not None


_OF_TWO = {
    n for n in spark_functions.AGGREGATES if n.startswith(("regr_", "covar_", "max_by", "min_by", "percentile"))
} | {
    "approx_percentile",
    "corr",
}


def test_a_call_keeps_its_name_and_arguments() -> None:
    tree = parsed(
        Text("query.sql", "SELECT TRUNC(day, 'Q') AS a, CONCAT_WS('/', x, y) AS b, DATE_ADD(day, 1) AS c FROM t")
    )
    calls = [(c.name, [e.sql("spark") for e in c.expressions]) for c in tree.find_all(exp.Anonymous)]
    assert sorted(calls) == [("CONCAT_WS", ["'/'", "x", "y"]), ("DATE_ADD", ["day", "1"]), ("TRUNC", ["day", "'Q'"])]
