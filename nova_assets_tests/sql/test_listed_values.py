"""Conditions on partition columns whose values are the rows of a small dataset: ``day IN (SELECT day FROM ...)``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.partition_rule import FewRows, InputState
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.rig import NOW

DAYS = [*(f"2022-03-{day:02}" for day in range(26, 32)), "2022-04-01"]
STORES = ["Oslo", "Paris"]
TICKETS = nova.Channel(
    "tickets",
    schema="price int, day string, store string",
    partitions=[nova.daily("day", start=DAYS[0]), nova.static("store", STORES)],
)
CALENDAR = nova.Channel("calendar", schema="day string, store string, open boolean, n int, weight double")

CONDITIONS = [
    "t.day IN (SELECT day FROM calendar WHERE open)",
    "t.day NOT IN (SELECT day FROM calendar WHERE open)",
    "NOT (t.day IN (SELECT day FROM calendar WHERE n > 1))",
    "t.day IN (SELECT c.day FROM calendar c WHERE c.open OR c.n = 2) AND t.store = 'Paris'",
    "t.day IN (SELECT day FROM calendar WHERE weight > 0.5) OR t.store = 'Oslo'",
    "t.day IN (SELECT c.day FROM calendar c WHERE c.store = t.store AND c.open)",
    "t.day IN (SELECT DISTINCT day FROM calendar WHERE open AND n >= 1)",
    "t.day IN (SELECT day FROM calendar WHERE open UNION SELECT day FROM calendar WHERE n = 0)",
    "t.day IN (SELECT day FROM calendar WHERE open EXCEPT SELECT day FROM calendar WHERE n = 0)",
    "t.day IN (SELECT MAX(day) FROM calendar WHERE open)",
    "t.day IN (SELECT day FROM calendar GROUP BY day HAVING COUNT(*) > 1)",
    "t.day IN (SELECT day FROM calendar WHERE n IN (SELECT n FROM calendar WHERE open))",
    "t.day IN (SELECT a.day FROM calendar a JOIN calendar b ON a.n = b.n WHERE b.open)",
    "t.day IN (SELECT a.day FROM calendar a LEFT JOIN calendar b ON a.day = b.day AND b.n = 9 WHERE b.day IS NULL)",
    "CONCAT(t.day, '') IN (SELECT day FROM calendar WHERE open)",
    "t.store IN (SELECT store FROM calendar WHERE open IS NULL) AND t.day > '2022-03-27'",
    "(t.day IN (SELECT day FROM calendar WHERE open)) IS NULL",
]
QUERIES = [
    "SELECT price, t.day, t.store FROM tickets t WHERE {condition}",
    "SELECT COUNT(*) AS n, SUM(price) AS total FROM tickets t WHERE {condition}",
    "SELECT t.price, c.n FROM calendar c LEFT JOIN tickets t ON c.day = t.day AND {condition}",
    "SELECT t.price, c.n FROM tickets t FULL JOIN calendar c ON c.day = t.day AND c.store = t.store WHERE {condition}",
    "WITH x AS (SELECT * FROM tickets t WHERE {condition}) SELECT a.price, b.day FROM x a JOIN x b ON a.day = b.day",
]


def random_calendar(rng: random.Random) -> FewRows:
    return [
        {
            "day": rng.choice([*DAYS, "2022-04-09", None]),
            "store": rng.choice([*STORES, None]),
            "open": rng.choice([True, False, None]),
            "n": rng.choice([0, 1, 2, None]),
            "weight": rng.choice([0.0, 0.75, float("nan"), None]),
        }
        for _ in range(rng.randrange(6))
    ]


def partitions_read(sql: str, calendar: FewRows | None) -> frozenset[str]:
    graph = build_graph([SqlText("result.sql", sql)], [TICKETS, CALENDAR])
    reads = graph.required_reads("result", "", NOW, InputState(few_rows=lambda channel: calendar))
    assert all(read.partitions == ("",) for read in reads if read.dataset == "calendar")
    return frozenset(p for read in reads if read.dataset == "tickets" for p in read.partitions)


def compute(sql: str, rows_by_table: Mapping[str, FewRows]) -> list[Any]:
    with duckdb.connect(config={"threads": 1}) as connection:
        for channel in (TICKETS, CALENDAR):
            schema = to_arrow_schema(channel.schema)
            connection.register(channel.name, pa.Table.from_pylist(list(rows_by_table[channel.name]), schema=schema))
        return sorted(connection.execute(sql).fetchall(), key=repr)


TICKET_ROWS = [
    {"price": 10 * n + m, "day": day, "store": store} for n, day in enumerate(DAYS) for m, store in enumerate(STORES)
]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("query", QUERIES)
def test_the_partitions_that_are_read_give_the_whole_result(query: str, condition: str) -> None:
    sql, rng = query.format(condition=condition), random.Random(condition + query)
    for _ in range(examples(1, 10)):
        calendar = random_calendar(rng)
        read = partitions_read(sql, calendar)
        tickets = [row for row in TICKET_ROWS if f"day={row['day']}/store={row['store']}" in read]
        expected = compute(sql, {"tickets": TICKET_ROWS, "calendar": calendar})
        assert compute(sql, {"tickets": tickets, "calendar": calendar}) == expected, (read, calendar)


@pytest.mark.parametrize(
    ("condition", "days"),
    [
        ("day IN (SELECT day FROM calendar WHERE open)", {"2022-03-26", "2022-03-28"}),
        ("day IN (SELECT day FROM calendar WHERE NOT open)", {"2022-03-27"}),
        ("day IN (SELECT day FROM calendar WHERE n > 4)", set()),
        ("day IN (SELECT a.day FROM calendar a JOIN calendar b ON a.n = b.n WHERE NOT b.open)", {"2022-03-27"}),
        ("day IN (SELECT day FROM calendar WHERE weight > 1)", {"2022-03-26", "2022-03-27", "2022-03-28"}),
        ("day IN (SELECT MAX(day) FROM calendar)", set(DAYS)),
    ],
)
def test_days_that_a_calendar_lists(condition: str, days: set[str]) -> None:
    calendar = [
        {"day": "2022-03-26", "store": None, "open": True, "n": 1, "weight": 1.0},
        {"day": "2022-03-27", "store": None, "open": False, "n": 2, "weight": 1.0},
        {"day": "2022-03-28", "store": None, "open": True, "n": 3, "weight": 1.0},
    ]
    sql = f"SELECT price FROM tickets WHERE {condition}"
    assert {p.split("/")[0].removeprefix("day=") for p in partitions_read(sql, calendar)} == days


@pytest.mark.parametrize("calendar", [None, []])
def test_rows_that_are_not_known_limit_nothing(calendar: FewRows | None) -> None:
    sql = "SELECT price FROM tickets WHERE day IN (SELECT day FROM calendar WHERE open)"
    assert len(partitions_read(sql, calendar)) == len(DAYS) * len(STORES)


def test_values_of_another_type_than_declared_limit_nothing() -> None:
    sql = "SELECT price FROM tickets WHERE day IN (SELECT day FROM calendar)"
    for day in (date(2022, 3, 26), datetime(2022, 3, 26), 20220326):
        rows = [{"day": day, "store": None, "open": True, "n": 1, "weight": 1.0}]
        assert len(partitions_read(sql, rows)) == len(DAYS) * len(STORES)
    assert len(partitions_read(sql, [{"n": 1}])) == len(DAYS) * len(STORES), "the column is not there yet"
    assert len(partitions_read(sql, [{"Day": "2022-03-26"}])) == len(STORES), "spelled in another way"


def test_another_version_of_the_rows_is_another_question() -> None:
    graph = build_graph(
        [SqlText("result.sql", "SELECT price FROM tickets WHERE day IN (SELECT day FROM calendar)")],
        [TICKETS, CALENDAR],
    )
    for day in ("2022-03-26", "2022-03-27"):
        rows = [{"day": day, "store": None, "open": True, "n": 1, "weight": 1.0}]
        reads = graph.required_reads("result", "", NOW, InputState(few_rows=lambda c, rows=rows: rows))
        assert [{p.split("/")[0] for p in r.partitions} for r in reads if r.dataset == "tickets"] == [{f"day={day}"}]
