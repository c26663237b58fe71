"""Types of values in maintained queries: what nova derives is what Spark derives."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlglot import exp

from nova_assets.engine.rows.spark_types import from_struct
from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.sql.incremental.value_types import value_type
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.text import SqlText

COLUMNS: Schema = parse_ddl(
    "a int, b bigint, s smallint, d decimal(15,2), e decimal(38,10), x double, f float, t string, day date, "
    "bytes binary"
)
NUMBERS = ["a", "b", "s", "d", "e", "x", "f", "1", "0.25", "12345678901", "CAST(b AS DECIMAL(12,3))"]
EXAMPLES = [
    ("SUM(d * (1 - d))", "decimal(38,4)"),
    ("SUM(CASE WHEN t = 'x' THEN 1 ELSE 0 END)", "bigint"),
    ("AVG(d)", "decimal(19,6)"),
    ("COUNT(DISTINCT t)", "bigint"),
    ("MAX(day)", "date"),
    ("CASE WHEN a > 1 THEN t END", "string"),
    ("COALESCE(d, 0)", "decimal(15,2)"),
    ("t + 1", None),
    ("SUM(t)", None),
    ("a + '1'", None),
    ("ROUND(d, 1)", None),
    ("CASE a WHEN 1 THEN 2 END", None),
    ("CAST(t AS INT)", "int"),
    ("ABS(t)", None),
    ("COALESCE(t, 1)", None),
    ("CASE WHEN a > 1 THEN t ELSE b END", None),
    ("IF(t = 'x', d, a)", "decimal(15,2)"),
    ("f + f", "float"),
    ("COUNT(*) > 0", "boolean"),
    ("CONCAT('x', t, CASE WHEN a > 1 THEN t END)", "string"),
    ("'x' || t || 'y'", "string"),
    ("CONCAT(t, a)", None),
    ("'x' || bytes", None),
    ("CONCAT()", None),
]


def derive(sql: str) -> str | None:
    tree = parse_statement(SqlText("query", f"SELECT {sql} AS value FROM t"))
    assert isinstance(tree, exp.Query)
    type_ = value_type(tree.selects[0].unalias(), {f.name: f.type for f in COLUMNS.fields})
    return None if type_ is None else str(type_)


def number(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(NUMBERS)
    a, b = number(rng, depth - 1), number(rng, depth - 1)
    forms = [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"(-{a})", f"ABS({a})"]
    forms += [f"CASE WHEN t = 'x' THEN {a} ELSE {b} END", f"IF(a > 1, {a}, NULL)", f"COALESCE({a}, {b})"]
    return rng.choice(forms)


@pytest.mark.parametrize(("sql", "type_"), EXAMPLES)
def test_examples(sql: str, type_: str | None) -> None:
    assert derive(sql) == type_


@pytest.mark.spark
def test_spark_derives_the_same_types(spark: Any) -> None:
    rng = random.Random(12)
    plain = [number(rng, 3) for _ in range(150)]
    aggregates = [f"{rng.choice(['SUM', 'AVG', 'MIN', 'MAX'])}({number(rng, 2)})" for _ in range(60)]
    examples = [sql for sql, type_ in EXAMPLES if type_ is not None and sql.startswith(("SUM", "AVG", "MAX", "COUNT"))]
    spark.createDataFrame([], ", ".join(f"{f.name} {f.type}" for f in COLUMNS.fields)).createOrReplaceTempView(
        "values_t"
    )
    for group in (plain, [*aggregates, *examples]):
        selects = ", ".join(f"{sql} AS c{n}" for n, sql in enumerate(group))
        fields = from_struct(spark.sql(f"SELECT {selects} FROM values_t").schema).fields
        wrong = [
            (sql, derive(sql), str(f.type)) for sql, f in zip(group, fields, strict=True) if derive(sql) != str(f.type)
        ]
        assert wrong == []
