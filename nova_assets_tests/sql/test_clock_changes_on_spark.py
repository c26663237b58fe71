"""Timestamps are instants: around the changes of a clock, what is evaluated without Spark is what Spark computes.

A wall clock that a change skips is later by the length of the gap, and one that occurs twice is the earlier of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nova_assets.model.schema import parse_type
from nova_assets.sql.evaluation.evaluator import Evaluator
from nova_assets.sql.evaluation.operand import UNKNOWN, Evaluable
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.text import SqlText

CHANGES = {
    "Europe/Berlin": ("2022-03-27 01:00", "2022-10-30 01:00"),
    "America/New_York": ("2022-03-13 07:00", "2022-11-06 06:00"),
    "America/Havana": ("2022-03-13 05:00", "2022-11-06 05:00"),  # midnight is skipped, and occurs twice
    "Australia/Lord_Howe": ("2022-10-01 15:30", "2022-04-02 15:00"),  # by half an hour
    "Pacific/Apia": ("2011-12-30 10:00", "2012-03-31 14:00"),  # a whole day is skipped
    "Asia/Kathmandu": ("1985-12-31 18:30",),  # by a quarter of an hour, once
    "UTC": ("2022-03-27 01:00",),
}
"""Zone -> instants at which its clock changes."""

TYPES = {"a": "timestamp", "b": "timestamp", "s": "string", "d": "date", "n": "timestamp_ntz"}

OF_ONE_INSTANT = (
    *(f"{field}({{0}})" for field in ("HOUR", "MINUTE", "DAY", "WEEKDAY")),
    *(f"CAST({{0}} AS {type_})" for type_ in ("STRING", "DATE", "TIMESTAMP_NTZ")),
    *(f"DATE_TRUNC('{unit}', {{0}})" for unit in ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR")),
    *(
        f"{{0}} {sign} INTERVAL {length}"
        for sign in "+-"
        for length in ("45 MINUTES", "1 HOUR", "24 HOURS", "25 HOURS", "1 DAY", "1 WEEK", "1 MONTH")
    ),
    "CAST(CAST({0} AS TIMESTAMP_NTZ) AS TIMESTAMP)",
    "CAST(CAST({0} AS STRING) AS TIMESTAMP)",
    "DATE_FORMAT({0}, 'yyyy-MM-dd HH:mm:ss')",
    "CONCAT({0}, '')",
    "{0} + INTERVAL 1 DAY - INTERVAL 1 DAY",
    "DATE_TRUNC('HOUR', {0}) = {0}",
    "TO_DATE({0}) = {0}",
)
OF_TWO_INSTANTS = (
    *(f"a {sign} b" for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
    "a IN (b, b + INTERVAL 1 HOUR)",
    "a BETWEEN b AND b + INTERVAL 30 MINUTES",
    "GREATEST(a, b)",
    "LEAST(a, b)",
    "NULLIF(a, b)",
    "CASE a WHEN b THEN 1 ELSE 2 END",
    "DATEDIFF(a, b)",
    "CAST(a AS STRING) = CAST(b AS STRING)",
    "CAST(a AS TIMESTAMP_NTZ) < CAST(b AS TIMESTAMP_NTZ)",
)
EXPRESSIONS = (
    *(template.format("a") for template in OF_ONE_INSTANT),
    *(template.format("CAST(s AS TIMESTAMP)") for template in OF_ONE_INSTANT),
    *(template.format("CAST(d AS TIMESTAMP)") for template in OF_ONE_INSTANT),
    *(template.format("CAST(n AS TIMESTAMP)") for template in OF_ONE_INSTANT),
    *OF_TWO_INSTANTS,
    *("HOUR(s)", "HOUR(n)", "a = s", "s < b", "a = d", "d <= b", "n = CAST(n AS TIMESTAMP_NTZ)", "a IN (s)"),
    *("DATE_TRUNC('HOUR', s)", "s + INTERVAL 1 HOUR", "n + INTERVAL 1 DAY", "d + INTERVAL 1 HOUR", "TO_TIMESTAMP(s)"),
)


def rows_around(zone: ZoneInfo, change: datetime) -> Iterator[dict[str, Any]]:
    """Instants and wall clocks around a change."""
    minutes = (-1500, -75, -60, -30, -15, 0, 15, 29, 30, 45, 60, 90, 1500)
    instants = [change + timedelta(minutes=m) for m in minutes]
    before = change.replace(tzinfo=None) + (change - timedelta(days=2)).astimezone(zone).utcoffset()
    clocks = [before + timedelta(minutes=m) for m in minutes]
    for n, (instant, clock) in enumerate(zip(instants, clocks, strict=True)):
        for other in instants[max(0, n - 2) : n + 5]:
            text = f"{clock:%Y-%m-%d %H:%M:%S}"
            yield {"a": instant, "b": other.astimezone(zone), "s": text, "d": clock.date(), "n": clock}


@cache
def compile_in_zone(expression: str, zone: ZoneInfo) -> Evaluable:
    tree: Any = parse_statement(SqlText("expression", f"SELECT {expression} AS x"))
    evaluator = Evaluator(lambda column: (("t", column.name), parse_type(TYPES[column.name])), zone)
    return evaluator.compile_expression(tree.selects[0])


def evaluate(expression: str, row: dict[str, Any], zone: ZoneInfo) -> Any:
    return compile_in_zone(expression, zone).value({("t", name): value for name, value in row.items()})


def compute_on_spark(
    spark: Any, rows: Sequence[dict[str, Any]], expressions: Sequence[str] = EXPRESSIONS
) -> list[list[Any]]:
    """The values of the expressions for each row, in one statement."""
    values = ", ".join(
        f"({n}, {int(r['a'].timestamp())}, {int(r['b'].timestamp())}, '{r['s']}', DATE '{r['d']}', "
        f"TIMESTAMP_NTZ '{r['n']}')"
        for n, r in enumerate(rows)
    )
    inner = f"SELECT r, TIMESTAMP_SECONDS(x) AS a, TIMESTAMP_SECONDS(y) AS b, s, d, n FROM VALUES {values}"
    outer = ", ".join(f"{expression} AS e{n}" for n, expression in enumerate(expressions))
    table = spark.sql(f"SELECT {outer} FROM ({inner} AS t(r, x, y, s, d, n)) ORDER BY r").toArrow()
    return [list(row.values()) for row in table.to_pylist()]


def comparable(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


@pytest.mark.core
@pytest.mark.spark
@pytest.mark.parametrize("zone_name", CHANGES)
def test_r22_evaluated_timestamps_are_instants(spark: Any, zone_name: str) -> None:
    zone = ZoneInfo(zone_name)
    changes = [datetime.fromisoformat(at).replace(tzinfo=UTC) for at in CHANGES[zone_name]]
    rows = [row for change in changes for row in rows_around(zone, change)]
    set_before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone_name)
    try:
        computed = compute_on_spark(spark, rows)
    finally:
        spark.conf.set("spark.sql.session.timeZone", set_before)
    different: dict[str, str] = {}
    undecided: set[str] = set()
    for row, spark_values in zip(rows, computed, strict=True):
        for expression, expected in zip(EXPRESSIONS, spark_values, strict=True):
            value = evaluate(expression, row, zone)
            if value is UNKNOWN:
                undecided.add(expression)
            elif comparable(value) != comparable(expected) or type(value) is not type(expected):
                different.setdefault(expression, f"{expression} of {row}: {value!r}, and Spark {expected!r}")
    assert not different, f"{len(different)} expressions:\n" + "\n".join(different.values())
    assert undecided <= {"a IN (s)"}  # compared as texts without ANSI


@pytest.mark.spark
def test_r22_texts_in_a_list_are_decided_where_spark_agrees_without_ansi(spark: Any) -> None:
    zone = ZoneInfo("Europe/Berlin")
    rows = list(rows_around(zone, datetime(2022, 10, 30, 1, tzinfo=UTC)))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    set_before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone.key)
    try:
        computed = compute_on_spark(spark, rows, ["a IN (s)"])
    finally:
        spark.conf.set("spark.sql.session.timeZone", set_before)
        spark.conf.unset("spark.sql.ansi.enabled")
    decided = [(v, expected) for row, [expected] in zip(rows, computed, strict=True)
               if (v := evaluate("a IN (s)", row, zone)) is not UNKNOWN]  # fmt: skip
    assert decided
    assert all(value == expected for value, expected in decided)


def test_a_timestamp_before_year_1_or_after_9999_is_undecided() -> None:
    first = datetime(1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    row = {"a": first, "b": first, "s": "0001-01-01 00:00:00", "d": date(1, 1, 1), "n": datetime(1, 1, 1)}
    for expression in (
        "a = b",
        "HOUR(a)",
        "HOUR(CAST(s AS TIMESTAMP))",
        "CAST(d AS TIMESTAMP)",
        "CAST(n AS TIMESTAMP)",
    ):
        assert evaluate(expression, row, ZoneInfo("Europe/Berlin")) is UNKNOWN
