"""A filter that equates a key with a constant leaves at most one row. Spark decides which comparisons do that."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

import nova_assets as nova
from nova_assets.model.schema import parse_type
from nova_assets.sql.incremental.operators import Operator
from nova_assets.sql.incremental.unique_keys import of_filter
from nova_assets_tests.sql.incremental.forced_strategy import force_strategy
from nova_assets_tests.sql.incremental.test_datasets import Deployment, order

VALUES = {
    "string": ["'1'", "'01'", "'1.0'", "'1 '", "'true'", "'TRUE'", "'2024-01-01'", "'2024-1-1'"],
    "int": ["1", "2", "2147483647"],
    "bigint": ["1", "9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775806"],
    "decimal(38,0)": ["1", "9007199254740992", "9007199254740993", "99999999999999999999999999999999999999"],
    "decimal(38,18)": ["1", "1.000000000000000001", "0.999999999999999999"],
    "decimal(12,4)": ["1", "1.0001"],
    "double": ["1", "0.1", "0.0", "-0.0", "9007199254740992"],
    "float": ["1", "0.1", "16777216", "16777217"],
    "boolean": ["true", "false"],
    "date": ["DATE'2024-01-01'", "DATE'2024-01-02'"],
    "timestamp": ["TIMESTAMP'2024-01-01 00:00:00Z'", "TIMESTAMP'2024-01-01 12:00:00Z'"],
}
"""Type -> values, among them such as Spark takes for one when it converts them."""

LITERALS = [
    *("1", "1.0", "0.1", "9007199254740992", "9007199254740992.0", "9.007199254740992e15", "16777216"),
    *("99999999999999999999999999999999999999", "1.00000000000000000000000000000000000"),
    *("'1'", "'01'", "'true'", "'2024-01-01'", "'9007199254740992'", "'99999999999999999999999999999999999999'"),
]


def leaves_one_row(type_: str, literal: str) -> bool:
    condition = exp.condition(f"c = {literal}", dialect="spark")
    table = Operator({"c": parse_type(type_)}, unique_keys=frozenset({frozenset({"c"})}))
    return frozenset[str]() in of_filter(table, condition)


@pytest.mark.spark
@pytest.mark.parametrize("ansi", [True, False])
def test_values_that_equal_a_constant_are_one_value(spark: Any, ansi: bool) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", ansi)
    comparisons = [(t, x) for t, x in product(VALUES, LITERALS) if leaves_one_row(t, x)]
    assert ("int", "1") in comparisons and ("string", "'01'") in comparisons
    queries = []
    for type_, literal in comparisons:
        rows = ", ".join(f"(CAST({v} AS {type_}))" for v in VALUES[type_])
        condition = f"c = {literal}"
        try:
            session.sql(f"SELECT c FROM VALUES {rows} AS t (c) WHERE {condition}").schema  # noqa: B018
        except Exception as error:
            if type(error).__name__ != "AnalysisException":
                raise
            continue  # Spark refuses to compare them
        condition = f"try_cast({literal} AS {type_}) IS NOT NULL AND {condition}"
        found = f"SELECT COUNT(DISTINCT c) AS n FROM VALUES {rows} AS t (c) WHERE {condition}"
        queries.append(f'SELECT "{type_} = {literal}" AS comparison, n FROM ({found})')
    counts = {row.comparison: row.n for row in session.sql(" UNION ALL ".join(queries)).collect()}
    assert {name: n for name, n in counts.items() if n > 1} == {}
    assert sum(n == 1 for n in counts.values()) >= 10


@pytest.mark.parametrize(
    ("type_", "literal"),
    [
        *(("string", "1"), ("bigint", "9.007199254740992e15"), ("decimal(38,0)", "'1'"), ("decimal(38,0)", "0.5")),
        *(("timestamp", "'2024-01-01'"), ("double", "0.0"), ("int", "x")),
    ],
)
def test_a_comparison_that_may_convert_the_column_is_no_key(type_: str, literal: str) -> None:
    assert not leaves_one_row(type_, literal)


def test_the_constant_may_stand_on_either_side() -> None:
    table = Operator({"c": parse_type("int")}, unique_keys=frozenset({frozenset({"c"})}))
    for condition in (exp.condition("1 = c"), exp.condition("(c = 1) AND c > 0")):
        assert of_filter(table, condition) == {frozenset[str]()}
    assert of_filter(table, exp.condition("c = 1 OR c = 2")) == {frozenset({"c"})}


# datasets: the strategy that is promised is the one that runs

CASES = """SELECT CASE WHEN (SELECT COUNT(*) FROM orders WHERE user = 1) > 2
  THEN (SELECT AVG(CAST(amount AS DOUBLE)) FROM orders WHERE user = 1) ELSE 0D END AS bucket
FROM orders WHERE id = 1"""
WITHOUT_KEY = "SELECT SUM(CAST(amount AS DOUBLE)) AS total FROM orders GROUP BY user"


@pytest.mark.spark
def test_rounded_numbers_in_the_one_row_of_a_key_are_maintained(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Query 9 of TPC-DS has this form."""
    force_strategy(monkeypatch, "changes")
    one = Deployment(spark, tmp_path, "auto", True, cases=CASES)
    with one.store:
        one.store.insert("orders", [order(n, n % 2, n) for n in range(20)])
        one.tick()
        one.check()
        for changed in (order(101, 1, 5), order(1, 1, deleted=True), order(1, 1, 7)):
            one.store.insert("orders", [changed])
            (outcome,) = one.store.tick(one.store.next_tick())
            assert outcome.execution is not None
            assert outcome.execution.tasks[0].facts["maintenance"]["strategy"] == "changes"
            one.check()


def test_rounded_numbers_without_a_key_are_computed_again(tmp_path: Path) -> None:
    (tmp_path / "t.sql").write_text(f"INSERT OVERWRITE t\n{WITHOUT_KEY}")
    channels = [nova.Channel("orders", merge=nova.Upsert(key=["id"]), schema="id int, user int, amount int")]
    decision = nova.datasets(tmp_path, channels=channels, refresh="auto").refresh_decisions["t"]
    assert not decision.is_incremental
    assert decision.reason.endswith("total is rounded, and no key without rounded numbers follows from the query")
    with pytest.raises(nova.errors.SqlError, match="total is rounded"):
        nova.datasets(tmp_path, channels=channels, refresh="incremental").refresh_decisions  # noqa: B018
