"""Schemas that follow from queries."""

from __future__ import annotations

import pytest
from sqlglot import exp
from sqlglot.errors import ParseError

from nova_assets.errors import SqlError
from nova_assets.model.schema import parse_ddl
from nova_assets.sql.parse.dialect import DIALECT, parse_statement
from nova_assets.sql.query.resolved_query import resolve_query
from nova_assets.sql.text import SqlText
from nova_assets.sql.types.argument_dependent_types import RULES_BY_FUNCTION
from nova_assets.sql.types.query_schema import schema_of_query

SCHEMAS = {
    "t": parse_ddl(
        "Id bigint, n int, s string, d date, at timestamp, price decimal(10,2), rate double, ok boolean, "
        "tags array<string>, points map<string,int>, place struct<x:int,y:double>, parts array<struct<a:int,b:string>>"
    )
}


def typed(columns: str, rest: str = "FROM t") -> str:
    text = SqlText("query.sql", f"SELECT {columns} {rest}")
    tree = parse_statement(text)
    asked = resolve_query(text, tree, SCHEMAS, {"day": "date"})  # type: ignore[arg-type]
    return str(schema_of_query(asked, SCHEMAS, {"grade": "smallint"}))


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("1", "int"),
        ("3000000000", "bigint"),
        ("1.50", "decimal(3,2)"),
        ("0.02", "decimal(2,2)"),
        ("1e3", "double"),
        ("'a'", "string"),
        (":day", "date"),
        ("price + price", "decimal(11,2)"),
        ("price * price", "decimal(21,4)"),
        ("price / 3", "decimal(14,6)"),
        ("price / price", "decimal(23,13)"),
        ("1 - price", "decimal(11,2)"),
        ("0.2 * price", "decimal(12,3)"),
        ("price + n", "decimal(13,2)"),
        ("price * rate", "double"),
        ("n / 2", "double"),
        ("n % 2", "int"),
        ("n DIV 2", "bigint"),
        ("n + id", "bigint"),
        ("d + 3", "date"),
        ("d - INTERVAL 1 DAY", "date"),
        ("d + INTERVAL 1 HOUR", "timestamp"),
        ("at - INTERVAL 1 HOUR", "timestamp"),
        ("DATE_SUB(d, 1)", "date"),
        ("DATE_TRUNC('month', at)", "timestamp"),
        ("TRUNC(d, 'MM')", "date"),
        ("YEAR(d)", "int"),
        ("EXTRACT(YEAR FROM d)", "int"),
        ("DATEDIFF(d, d)", "int"),
        ("DATE_FORMAT(d, 'yyyy')", "string"),
        ("SUM(n)", "bigint"),
        ("SUM(price)", "decimal(20,2)"),
        ("SUM(rate)", "double"),
        ("AVG(price)", "decimal(14,6)"),
        ("AVG(n)", "double"),
        ("COUNT(*)", "bigint"),
        ("COUNT(DISTINCT n)", "bigint"),
        ("MAX(d)", "date"),
        ("COLLECT_LIST(n)", "array<int>"),
        ("COUNT(*) OVER (PARTITION BY s)", "bigint"),
        ("ROW_NUMBER() OVER (ORDER BY n)", "int"),
        ("LAG(price) OVER (ORDER BY n)", "decimal(10,2)"),
        ("SUM(price) OVER ()", "decimal(20,2)"),
        ("CASE WHEN ok THEN price ELSE 0 END", "decimal(12,2)"),
        ("IF(ok, 'a', NULL)", "string"),
        ("COALESCE(n, id)", "bigint"),
        ("COALESCE(price, 0.125)", "decimal(11,3)"),
        ("NULLIF(n, 1)", "int"),
        ("GREATEST(n, id)", "bigint"),
        ("ROUND(price, 1)", "decimal(10,1)"),
        ("ROUND(price, -9)", "decimal(10,0)"),
        ("ROUND(rate)", "double"),
        ("CEIL(price)", "decimal(9,0)"),
        ("FLOOR(rate)", "bigint"),
        ("ABS(n)", "int"),
        ("-price", "decimal(10,2)"),
        ("CONCAT(s, n)", "string"),
        ("s || 'x'", "string"),
        ("SUBSTRING(s, 1, 2)", "string"),
        ("LENGTH(s)", "int"),
        ("UPPER(s)", "string"),
        ("s LIKE 'a%'", "boolean"),
        ("n > 3 AND ok", "boolean"),
        ("n IN (1, 2)", "boolean"),
        ("CAST(s AS DECIMAL(5,1))", "decimal(5,1)"),
        ("BIGINT(n)", "bigint"),
        ("tags[0]", "string"),
        ("points['a']", "int"),
        ("place.y", "double"),
        ("parts[0].b", "string"),
        ("SPLIT(s, ',')", "array<string>"),
        ("SIZE(tags)", "int"),
        ("ARRAY(1, 2)", "array<int>"),
        ("EXISTS (SELECT 1 FROM t)", "boolean"),
        ("(SELECT MAX(price) FROM t)", "decimal(10,2)"),
        ("grade(s)", "smallint"),
        ("TRANSFORM(tags, t -> LENGTH(t))", "array<int>"),
        ("TRANSFORM(parts, (p, i) -> p.b)", "array<string>"),
        ("FILTER(tags, t -> t = s)", "array<string>"),
        ("AGGREGATE(tags, 0, (total, t) -> total + n, total -> total * 1.5)", "decimal(13,1)"),
        ("TRANSFORM_VALUES(points, (k, v) -> v + id)", "map<string,bigint>"),
        ("ZIP_WITH(tags, tags, (a, b) -> a = b)", "array<boolean>"),
        ("COALESCE(CAST(price AS DECIMAL(38,10)), CAST(price AS DECIMAL(20,18)))", "decimal(38,10)"),
        ("ARRAY_POSITION(tags, s)", "bigint"),
        ("DATEDIFF(HOUR, at, at)", "bigint"),
        ("CONCAT(CAST(s AS BINARY), CAST(s AS BINARY))", "binary"),
        ("SUBSTRING(CAST(s AS BINARY), 1)", "binary"),
        ("PERCENTILE(n, ARRAY(0.5, 0.9))", "array<double>"),
        ("LAG(d, 1, d) OVER (ORDER BY n)", "date"),
        ("FROM_JSON(s, 'a INT, b STRING')", "struct<a:int,b:string>"),
        ("MAP_KEYS(points)", "array<string>"),
        ("NVL2(n, price, 0)", "decimal(12,2)"),
        ("ARRAY(0.5)[0]", "decimal(1,1)"),
    ],
)
def test_the_type_of_an_expression(expression: str, type_: str) -> None:
    assert typed(f"{expression} AS c") == f"c {type_}"


@pytest.mark.parametrize(
    ("columns", "generator", "expected"),
    [
        ("x", "EXPLODE(tags) e AS x", "x string"),
        ("k, v", "EXPLODE(points) e AS k, v", "k string, v int"),
        ("p, x", "POSEXPLODE(tags) e AS p, x", "p int, x string"),
        ("x.b", "OUTER EXPLODE(parts) e AS x", "b string"),
        ("b", "INLINE(parts) e AS a, b", "b string"),
    ],
)
def test_what_generators_give(columns: str, generator: str, expected: str) -> None:
    assert typed(columns, f"FROM t LATERAL VIEW {generator}") == expected


def test_names_are_as_written() -> None:
    assert typed("id, N AS Number, t.S") == "id bigint, Number int, S string"
    assert typed("*", "FROM (SELECT Id, price * 2 AS Twice FROM t) q") == "Id bigint, Twice decimal(12,2)"


def test_both_sides_of_a_union_become_one_type() -> None:
    assert typed("n AS a, d AS b, price AS c FROM t UNION ALL SELECT id, at, 1") == (
        "a bigint, b timestamp, c decimal(12,2)"
    )


@pytest.mark.parametrize("name", sorted(RULES_BY_FUNCTION.keys() - {"array", "substring"}))
def test_each_function_with_a_type_rule_is_parsed_as_a_call(name: str) -> None:
    """The parser turns other functions into nodes of their own, for which ``node_types`` has the rules. It uses the
    rules of ``array`` and ``substring`` for such nodes.
    """
    arguments = ("", "a", "a, b", "a, b, c", "'a', 'b'", "DAY, a, b")
    assert any(name in _names_of_calls(f"SELECT {name}({some})") for some in arguments)


def _names_of_calls(sql: str) -> set[str]:
    try:
        tree = DIALECT.parser().parse(DIALECT.tokenize(sql), sql)[0]
    except ParseError:
        return set()
    assert tree is not None
    return {node.name.lower() for node in tree.find_all(exp.Anonymous, exp.AnonymousAggFunc)}


def test_through_subqueries() -> None:
    sql = "FROM (SELECT s, SUM(price) AS total FROM t GROUP BY s) q JOIN t ON t.s = q.s"
    assert typed("q.total / 2 AS half, t.n", sql) == "half decimal(24,6), n int"


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ("unheard_of(n) AS c", "the type of column 'c' cannot be derived from the query"),
        ("n, n", "the output has two columns called 'n'"),
        ("NULL AS c", "column 'c' contains only nulls, and has no type"),
    ],
)
def test_what_does_not_follow_is_said(columns: str, what: str) -> None:
    with pytest.raises(SqlError) as caught:
        typed(columns)
    assert what in str(caught.value)
