"""What is computed of partitions here is what Spark would compute of them: expression by expression, value by value."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import product
from typing import Any

import pytest
from sqlglot import exp

from nova_assets.errors import SqlError
from nova_assets.sql.calculator import Calculator
from nova_assets.sql.dialect import parsed
from nova_assets.sql.text import Text

pytestmark = pytest.mark.spark

DATES = [date(2022, 3, 31), date(2024, 2, 29), date(2021, 1, 1), date(2020, 12, 31), None]
TEXTS = ["Paris", "", "a%b_c", "  x ", "2022-03-31", None]
NUMBERS = [0, 7, -7, 3, None]
MOMENTS = [datetime(2022, 3, 31, 23, 59, 58, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC), None]

OF_A_DATE = """
    :d = '2022-03-31' | :d < DATE '2022-04-01' | :d >= '2021' | :d IS NULL | :d <=> NULL | :d + 1 | :d - 3
    DATE_ADD(:d, 31) | DATE_SUB(:d, 366) | ADD_MONTHS(:d, 1) | ADD_MONTHS(:d, -13) | LAST_DAY(:d)
    :d - INTERVAL 1 DAY | :d + INTERVAL 1 MONTH | :d - INTERVAL 1 YEAR | :d + INTERVAL 1 WEEK
    DATEDIFF(:d, DATE '2022-01-01') | DATEDIFF('2022-01-01', :d)
    YEAR(:d) | QUARTER(:d) | MONTH(:d) | DAY(:d) | DAYOFMONTH(:d) | DAYOFWEEK(:d) | DAYOFYEAR(:d) | WEEKOFYEAR(:d)
    TRUNC(:d, 'YEAR') | TRUNC(:d, 'MM') | TRUNC(:d, 'QUARTER') | TRUNC(:d, 'WEEK')
    DATE_FORMAT(:d, 'yyyy-MM-dd') | DATE_FORMAT(:d, 'yyyyMMdd') | DATE_FORMAT(:d, 'yyyy/MM') | CAST(:d AS STRING)
    :d BETWEEN '2021-01-01' AND '2022-12-31' | :d NOT IN ('2022-03-31', '2021-01-01') | :d IN ('2022-03-31', NULL)
    CASE WHEN :d > '2022-01-01' THEN 'late' WHEN :d > '2021-01-01' THEN 'mid' END | IF(:d > '2022', 1, 2)
    COALESCE(:d, DATE '2000-01-01') | GREATEST(:d, DATE '2022-01-01') | LEAST(:d, DATE '2022-01-01')
    NOT (:d = '2022-03-31') | :d = '2022-03-31' AND :d > '2023-01-01' | :d = '2022-03-31' OR NULL
    CONCAT('d=', :d) | SUBSTRING(:d, 1, 7) | SUBSTR(:d, 6) | LEFT(:d, 4) | RIGHT(:d, 2)
"""

OF_A_TEXT = """
    :s = 'Paris' | :s <> 'paris' | :s < 'b' | UPPER(:s) | LOWER(:s) | TRIM(:s) | LENGTH(:s) | :s || '!'
    CONCAT(:s, 'x', :s)
    :s LIKE 'P%' | :s LIKE '%' | :s LIKE 'a\\\\%b\\\\_c' | :s LIKE '_____' | SUBSTRING(:s, 2, 3) | SUBSTRING(:s, -3, 2)
    SUBSTRING(:s, 0, 2) | LEFT(:s, 2) | RIGHT(:s, 2) | LPAD(:s, 7, '*') | RPAD(:s, 3, '*') | STARTSWITH(:s, 'P')
    ENDSWITH(:s, 's') | CONTAINS(:s, 'ar') | :s IN ('Paris', 'x') | COALESCE(:s, 'none') | :s IS NOT NULL
"""

OF_A_NUMBER = """
    :n = 7 | :n = '7' | :n > 2.5 | :n + 1 | :n - 10 | :n * 3 | :n % 3 | :n DIV 2 | -:n | CAST(:n AS STRING)
    :n BETWEEN 0 AND 5 | :n IN (3, 7) | CAST(:n AS BOOLEAN) IS NULL | GREATEST(:n, 2) | LEAST(:n, 2, 1)
    LPAD(:n, 3, '0') | CASE :n WHEN 7 THEN 'seven' ELSE 'other' END
"""

OF_A_MOMENT = """
    DATE(:t) | CAST(:t AS DATE) = '2022-03-31' | DATE_FORMAT(:t, 'yyyy-MM-dd HH:mm:ss') | HOUR(:t) | :t > '2023-01-01'
    :t >= DATE '2024-02-29' | DATE_TRUNC('DAY', :t) | DATE_TRUNC('HOUR', :t) | DATE_TRUNC('MONTH', :t)
    :t - INTERVAL 1 HOUR | :t + INTERVAL 1 DAY | :t - INTERVAL 1 MONTH | CAST(:t AS STRING) | YEAR(:t)
    DATE_FORMAT(:t, "yyyy-MM-dd'T'HH:00") | DATE_FORMAT(:t, "HH 'o''nn'") | DATE_FORMAT(:t, "HH''mm")
"""

CASES = [
    (expression.strip(), name, value)
    for name, values, of in (
        ("d", DATES, OF_A_DATE),
        ("s", TEXTS, OF_A_TEXT),
        ("n", NUMBERS, OF_A_NUMBER),
        ("t", MOMENTS, OF_A_MOMENT),
    )
    for line in of.strip().splitlines()
    for expression, value in product(line.split(" | "), values)
]


def computed(expression: str, name: str, value: Any) -> Any:
    text = Text("expression", f"SELECT {expression} AS c")
    node = parsed(text)
    assert isinstance(node, exp.Select)
    return Calculator(text, lambda column: ("", column.name)).computed(node.selects[0]).of({("", name): value})


TYPES = {"d": "DATE", "s": "STRING", "n": "INT", "t": "TIMESTAMP"}


def test_every_value_is_sparks(spark: Any) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    different = []
    for name, type_ in TYPES.items():
        cases = [(e, v) for e, n, v in CASES if n == name]
        for value in dict.fromkeys(v for _, v in cases):
            asked = [e for e, v in cases if v == value]
            typed = [e.replace(f":{name}", f"CAST(:{name} AS {type_})") for e in asked]
            columns = ", ".join(f"{e} AS c{n}" for n, e in enumerate(typed))
            [row] = spark.sql(f"SELECT {columns}", args={name: value}).collect()
            for expression, theirs in zip(asked, row, strict=True):
                ours = computed(expression, name, value)
                if _plain(ours) != _plain(theirs):
                    different.append((expression, value, ours, theirs))
    assert different == []


def _plain(value: Any) -> Any:
    """Moments as Spark hands them over: by the clock of this process, without a zone."""
    if isinstance(value, datetime):
        return value.timestamp()
    return value


def test_what_has_no_value_is_refused_as_by_spark() -> None:
    for expression in ("CAST('soon' AS DATE) = '2022-01-01'", "'x' + 1", "1 % 0", "DATE '2022-01-01' > 'soon'"):
        with pytest.raises(SqlError, match="has no value"):
            computed(expression, "d", None)
