"""Expressions on generated values: what is evaluated of them, and what Spark makes of the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import UNKNOWN
from nova_assets.sql.evaluation.rule_registry import argument_counts_by_function
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.text import SqlText

VALUES: dict[str, Sequence[Any]] = {
    "string": (
        "Paris",
        "",
        "a%b_c",
        "  x ",
        "2022-03-31",
        "2022-3-1",
        "7",
        "-3",
        "2.5",
        "true",
        "MO",
        "month",
        "Q",
        "yyyy-MM-dd",
        "2022-03-31 23:59:58",
        "é",
        "aXbXc",
        "X",
        "\\",
        "YEAR",
        "soon",
    ),
    "date": (
        date(2022, 3, 31),
        date(2024, 2, 29),
        date(2021, 1, 1),
        date(2020, 12, 31),
        date(1900, 1, 1),
        date(9999, 12, 31),
    ),
    "timestamp": (
        datetime(2022, 3, 31, 23, 59, 58, tzinfo=UTC),
        datetime(2024, 2, 29, tzinfo=UTC),
        datetime(2022, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    ),
    "timestamp_ntz": (datetime(2022, 3, 31, 23, 59, 58), datetime(2024, 2, 29)),
    "int": (0, 7, -7, 3, 2**31 - 1, -(2**31), 1, 12),
    "smallint": (0, -5, 2**15 - 1),
    "tinyint": (1, 127, -128),
    "bigint": (0, 2**63 - 1, -(2**63), 20220331),
    "boolean": (True, False),
    "decimal(10,2)": (Decimal("1.50"), Decimal("-0.01"), Decimal("12345678.99"), Decimal("0.00")),
    "decimal(38,10)": (Decimal("1.5000000000"), Decimal("-2.0000000000")),
    "double": (0.5, -1.0, 1e300),
    "void": (None,),
}

TYPES = tuple(VALUES)

_UNITS = "YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND".split()
_PARTS = "YEAR QUARTER MONTH WEEK DAY DAYOFWEEK DOW DOY HOUR MINUTE SECOND YEAROFWEEK".split()
_CASTS = (
    "STRING DATE TIMESTAMP TIMESTAMP_NTZ INT SMALLINT TINYINT BIGINT BOOLEAN DOUBLE FLOAT DECIMAL(10,2) DECIMAL(38,10) "
    "DECIMAL(3,0) BINARY VARCHAR(3)"
).split()

TEMPLATES = (
    *(f"{{0}} {sign} {{1}}" for sign in ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "IS DISTINCT FROM")),
    *(
        f"{{0}} {sign} {{1}}"
        for sign in ("+", "-", "*", "/", "%", "DIV", "||", "AND", "OR", "LIKE", "NOT LIKE", "ILIKE")
    ),
    *(f"{{0}} {sign} {{1}}" for sign in ("NOT ILIKE", "RLIKE", "&", "|", "^")),
    "{0} LIKE {1} ESCAPE '/'",
    "{0} NOT LIKE {1} ESCAPE 'X'",
    "{0} LIKE ANY ({1}, {2})",
    "{0} LIKE ALL ({1}, {2})",
    "{0} LIKE '%a%'",
    "{0} LIKE '_aris'",
    "{0} LIKE 'a\\\\%b\\\\_c'",
    "{0} NOT LIKE 'P%'",
    "{0} LIKE 'P%s'",
    "NOT {0}",
    "-{0}",
    "+{0}",
    "~{0}",
    "({0})",
    "{0} IS NULL",
    "{0} IS NOT NULL",
    "{0} IS TRUE",
    "{0} IS NOT FALSE",
    "{0} BETWEEN {1} AND {2}",
    "{0} NOT BETWEEN {1} AND {2}",
    "{0} IN ({1}, {2})",
    "{0} NOT IN ({1}, {2})",
    "{0} IN ({1})",
    "{0} IN ('2022-03-31', '7')",
    "{0} IN (7, 2.5)",
    "{0} = '2022-03-31'",
    "{0} > '2022'",
    "{0} = 7",
    "{0} < 2.5",
    "{0} = DATE '2022-03-31'",
    "{0} >= TIMESTAMP '2022-03-31 00:00:00'",
    "{0} = 1e0",
    "{0} = true",
    "{0} = 3000000000",
    "CASE WHEN {0} = {1} THEN {2} END",
    "CASE {0} WHEN {1} THEN {2} ELSE {0} END",
    "CASE WHEN {0} THEN {1} ELSE {2} END",
    "{0} + INTERVAL 1 DAY > '2022-04-01'",
    "CAST({0} + INTERVAL 24 HOURS AS STRING)",
    "INTERVAL 2 DAYS + {0}",
    *(f"{{0}} {sign} INTERVAL {n} {unit}" for sign, n, unit in product("+-", (1, -13), _UNITS)),
    "{0} + INTERVAL '1' MONTH",
    "{0} + INTERVAL '1 2' DAY TO HOUR",
    "{0} + INTERVAL 1 DAY 2 HOURS",
    "{0} + 1",
    "{0} - 3",
    *(f"EXTRACT({part} FROM {{0}})" for part in _PARTS),
    *(f"CAST({{0}} AS {type_})" for type_ in _CASTS),
    *(f"TRY_CAST({{0}} AS {type_})" for type_ in _CASTS),
    "{0} :: DATE",
    "TRIM({0})",
    "TRIM(BOTH FROM {0})",
    "TRIM(BOTH {1} FROM {0})",
    "TRIM(LEADING {1} FROM {0})",
    "TRIM(TRAILING 's' FROM {0})",
    "TRIM('P', {0})",
    "SUBSTRING({0} FROM 2 FOR 3)",
    "SUBSTRING({0} FROM 2)",
    "SUBSTRING({0}, {1}, {2})",
    "SUBSTRING({0}, 2)",
    "SUBSTR({0}, -3, 2)",
    "POSITION({0} IN {1})",
    "POSITION({0}, {1}, 2)",
    "CEIL({0})",
    "FLOOR({0})",
    "CEIL({0}, 1)",
    "CEILING({0})",
    "OVERLAY({0} PLACING 'x' FROM 2)",
    *(f"DATE_ADD({unit}, 1, {{0}})" for unit in _UNITS),
    *(f"DATEDIFF({unit}, {{0}}, {{1}})" for unit in _UNITS),
    *(f"TRUNC({{0}}, '{u}')" for u in ("YEAR", "yy", "Q", "QUARTER", "MM", "mon", "WEEK", "DAY", "DD", "HOUR", "")),
    *(
        f"DATE_TRUNC('{u}', {{0}})"
        for u in ("YEAR", "yy", "Q", "QUARTER", "MM", "WEEK", "DAY", "DD", "HOUR", "MINUTE", "")
    ),
    *(
        f"DATE_FORMAT({{0}}, '{p}')"
        for p in ("yyyy-MM-dd", "yyyyMMdd", "yyyy/MM", "E", "yyyy-MM-dd HH:mm:ss", "d.M.yyyy")
    ),
    """DATE_FORMAT({0}, "yyyy-MM-dd'T'HH:00")""",
    """DATE_FORMAT({0}, "HH 'o''nn'")""",
    """DATE_FORMAT({0}, "HH''mm")""",
    *(f"TO_DATE({{0}}, '{p}')" for p in ("yyyy-MM-dd", "yyyyMMdd", "yyyy", "dd/MM/yyyy", "E")),
    "COALESCE({0}, {1}, {2})",
    "COALESCE({0}, 'none')",
    "GREATEST({0}, {1}, {2})",
    "LEAST({0}, 2)",
    "IF({0} = {1}, 1, 2)",
    "CONCAT('d=', {0})",
    "CONCAT_WS('/', {0}, {1})",
    "LPAD({0}, 7, '*')",
    "RPAD({0}, 3)",
    "LPAD({0}, 2000000000, 'x')",
    "'it''s' = {0}",
    "'\\x41' = {0}",
    "r'a\\nb' = {0}",
    "1L + {0}",
    "1.5D * {0}",
    "1.50 + {0}",
    "1e3 > {0}",
    "2BD * {0}",
)


@dataclass(frozen=True)
class Case:
    """An expression of columns ``a``, ``b`` and ``c``, and their types and values."""

    template: str
    types: tuple[str, ...]
    values: tuple[Any, ...]

    def sql(self, prefix: str = "") -> str:
        names = [f"{prefix}{'abc'[n]}" for n in range(len(self.types))]
        return self.template.format(*names, *["NULL"] * 3)

    def evaluated(self) -> Any:
        """What is evaluated; UNKNOWN where it is not."""
        text = SqlText("expression", f"SELECT {self.sql()} AS x")
        types = {"abc"[n]: parse_type(t) if t != "void" else DataType("void") for n, t in enumerate(self.types)}
        node: Any = parse_statement(text)
        found = Evaluator(lambda c: (("t", c.name), types[c.name]) if c.name in types else None).compile_expression(
            node.selects[0]
        )
        return found.value({("t", "abc"[n]): v for n, v in enumerate(self.values)})


def functions() -> Iterator[str]:
    """A call of each function that is evaluated, with each number of arguments."""
    for name, (least, most) in argument_counts_by_function().items():
        for count in range(least, (3 if most is None else most) + 1):
            yield f"{name}({', '.join(f'{{{n}}}' for n in range(count))})"


def cases(rng: random.Random, templates: Sequence[str], each: int) -> Iterator[Case]:
    """Some cases of each template. Types that are not understood together are drawn again, a few times."""
    for template in templates:
        used = [n for n in range(3) if f"{{{n}}}" in template]
        for _ in range(each):
            drawn = (_drawn(rng, template, len(used)) for _ in range(6))
            yield next((c for c in drawn if c.evaluated() is not UNKNOWN), _drawn(rng, template, len(used)))


def _drawn(rng: random.Random, template: str, count: int) -> Case:
    one = rng.choice(TYPES)
    types = [one if rng.random() < 0.4 else rng.choice(TYPES) for _ in range(count)]
    values = [None if rng.random() < 0.1 else rng.choice(VALUES[t]) for t in types]
    return Case(template, tuple(types), tuple(values))


def differences(spark: Any, all_cases: Sequence[Case]) -> tuple[list[str], int]:
    """Cases of which something else is evaluated than Spark makes of them; and how many were decided."""
    decided = [(c, v) for c in dict.fromkeys(all_cases) if (v := c.evaluated()) is not UNKNOWN]
    found: list[str] = []
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            for start in range(0, len(decided), 40):
                found += _compared(spark, decided[start : start + 40], f"ANSI {ansi}")
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
    return found, len(decided)


def _compared(spark: Any, some: Sequence[tuple[Case, Any]], mode: str) -> list[str]:
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    inner = [
        f"CAST({_literal(value)} AS {type_}) AS c{n}{'abc'[m]}"
        for n, (case, _) in enumerate(some)
        for m, (type_, value) in enumerate(zip(case.types, case.values, strict=True))
    ]
    outer = [f"{c.sql(f'c{n}')} AS r{n}" for n, (c, _) in enumerate(some)]
    try:
        frame = spark.sql(f"SELECT {', '.join(outer)} FROM (SELECT {', '.join([*inner, '1 AS one'])})")
        row = [column[0].as_py() for column in frame.toArrow().columns]
    except PySparkException as error:
        if len(some) > 1:
            half = len(some) // 2
            return _compared(spark, some[:half], mode) + _compared(spark, some[half:], mode)
        if isinstance(error, AnalysisException | ParseException) or "UNSUPPORTED_DATA_TYPE" in str(error):
            return []  # Spark does not run such a query, or gives an interval
        if any(word in some[0][0].template for word in (" AND ", " OR ", " IN (")):
            return []  # what decides these is enough, in whatever order Spark looks at their parts
        return [f"{mode}: {some[0][0]}: {some[0][1]!r}, and Spark raises {str(error)[:80]}"]
    return [
        f"{mode}: {case}: {ours!r}, and Spark {theirs!r}"
        for (case, ours), theirs in zip(some, row, strict=True)
        if not _same(ours, theirs)
    ]


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, datetime):
        return f"'{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, float):
        return f"{value!r}D" if "e" not in repr(value) else repr(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**31:
        return f"'{value}'"
    return f"'{value}'" if isinstance(value, date) else str(value)


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, datetime) and isinstance(theirs, datetime):
        return (ours.tzinfo is None) == (theirs.tzinfo is None) and ours == theirs
    return type(ours) is type(theirs) and bool(ours == theirs)
