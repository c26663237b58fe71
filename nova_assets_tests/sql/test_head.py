"""The head of a dataset: its scopes, and what partitions they write."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from nova_assets.errors import DefinitionError, SqlError
from nova_assets.model.partitions import Dimension
from nova_assets.sql.statement.dataset_statement import DatasetStatement, parse_dataset_statement
from nova_assets.sql.statement.header import format_scope, partition_dimensions
from nova_assets.sql.text import SqlText
from nova_assets_tests.sql.rig import NOW


def read(head: str) -> DatasetStatement:
    return parse_dataset_statement(SqlText("some.sql", f"{head} SELECT 1 AS a"))


def test_each_combination_is_a_scope_a_task_and_a_partition() -> None:
    found = read(
        "FOR t IN TIMESERIES(last => 2), store IN ('Detroit', 'Paris') LET day = DATE_FORMAT(t, 'yyyy-MM-dd') "
        "INSERT OVERWRITE store_sales PARTITION (day, store)"
    )
    assert {p: format_scope(s) for p, s in found.header.scopes_by_partition(NOW).items()} == {
        "day=2022-03-31/store=Detroit": "t = 2022-03-31T00:00:00Z, store = Detroit, day = 2022-03-31",
        "day=2022-03-31/store=Paris": "t = 2022-03-31T00:00:00Z, store = Paris, day = 2022-03-31",
        "day=2022-04-01/store=Detroit": "t = 2022-04-01T00:00:00Z, store = Detroit, day = 2022-04-01",
        "day=2022-04-01/store=Paris": "t = 2022-04-01T00:00:00Z, store = Paris, day = 2022-04-01",
    }
    assert found.header.variable_types == {"t": "timestamp", "store": "string", "day": "string"}
    assert partition_dimensions(found.header) == (
        Dimension("day", "daily", "2000-01-01", "UTC", keep="1d"),
        Dimension("store", "static", values=("Detroit", "Paris")),
    )


def test_a_query_without_scopes_is_one_task() -> None:
    found = parse_dataset_statement(
        SqlText("sql/totals.sql", "-- All there is.\n-- owner: me@example.org\nSELECT 1 AS a")
    )
    assert (found.name, found.description, found.owner) == ("totals", "All there is.", "me@example.org")
    assert found.header.scopes_by_partition(NOW) == {"": {}}


@pytest.mark.parametrize(
    ("series", "partitions"),
    [
        ("'2022-03-31'", ["2022-03-31", "2022-04-01"]),
        ("start => '2022-03-31', lag => 1", ["2022-03-31"]),
        ("'2022-03-29', '2022-03-30'", ["2022-03-29", "2022-03-30"]),
        ("last => 1", ["2022-04-01"]),
        ("start => '2022-03-31', last => 9", ["2022-03-31", "2022-04-01"]),
        ("start => '2023-01-01'", []),
        ("last => 2, tz => 'Pacific/Auckland'", ["2022-04-01", "2022-04-02"]),
    ],
)
def test_a_series_of_days(series: str, partitions: list[str]) -> None:
    found = read(f"FOR t IN TIMESERIES({series}) INSERT OVERWRITE x PARTITION (day = DATE(t))")
    assert list(found.header.scopes_by_partition(NOW)) == [f"day={p}" for p in partitions]


def test_days_and_hours_when_the_clocks_change() -> None:
    hours = read("FOR h IN TIMESERIES(last => 26, every => '1 hour', tz => 'Europe/Paris') INSERT INTO x PARTITION (h)")
    names = list(hours.header.scopes_by_partition(datetime(2022, 10, 30, 23, tzinfo=ZoneInfo("Europe/Paris"))))
    assert len(names) == 26  # the day has 25 hours
    assert [n for n in names if "T02" in n] == ["h=2022-10-30T02:00", "h=2022-10-30T02:00+0100"]
    days = read("FOR t IN TIMESERIES('2022-10-29', tz => 'Europe/Paris') INSERT INTO x PARTITION (day = DATE(t))")
    now = datetime(2022, 10, 31, 0, 30, tzinfo=ZoneInfo("Europe/Paris"))
    assert list(days.header.scopes_by_partition(now)) == ["day=2022-10-29", "day=2022-10-30", "day=2022-10-31"]
    assert (hours.kind, partition_dimensions(hours.header)[0].kind) == ("delta", "hourly")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("HOUR(TIMESTAMP '2022-03-27 02:30:00')", 3),  # the clock skips this time
        ("CAST(TIMESTAMP '2022-03-27 02:30:00' AS STRING)", "2022-03-27 03:30:00"),
        ("TIMESTAMP '2022-10-30 02:00:00' = TIMESTAMP '2022-10-30 01:00:00Z'", False),  # it shows this time twice
        (
            "DATE_TRUNC('HOUR', TIMESTAMP '2022-10-30 01:30:00Z') + INTERVAL 0 DAYS",
            datetime(2022, 10, 30, 1, tzinfo=UTC),
        ),
        ("TIMESTAMP '2022-03-26 12:00:00' + INTERVAL 24 HOURS", datetime(2022, 3, 27, 10, tzinfo=UTC)),
    ],
)
def test_r22_variables_follow_instants(expression: str, value: object) -> None:
    head = read(
        f"FOR t IN TIMESERIES('2022-03-01', tz => 'Europe/Paris') LET x = {expression} INSERT INTO y PARTITION (x)"
    )
    found = head.header.sample_scope["x"]
    assert found.astimezone(UTC) == value if isinstance(found, datetime) else found == value
    assert not isinstance(found, datetime) or found.tzinfo == ZoneInfo("Europe/Paris")


def test_what_is_no_calendar_is_discovered() -> None:
    head = read(
        "FOR t IN TIMESERIES(last => 3) INSERT INTO x PARTITION (month = DATE_FORMAT(t, 'yyyy-MM'), d = DAY(t))"
    ).header
    assert [d.kind for d in partition_dimensions(head)] == ["dynamic", "dynamic"]
    listed = read("FOR n IN (1, 2), s IN ('a', 'b') INSERT INTO x PARTITION (n, s = CONCAT(s, '-', 'x'))").header
    assert [d.values for d in partition_dimensions(listed)] == [("1", "2"), ("a-x", "b-x")]


def test_two_scopes_of_one_partition_are_refused() -> None:
    head = read("FOR t IN TIMESERIES(last => 9) INSERT INTO x PARTITION (month = DATE_FORMAT(t, 'yyyy-MM'))").header
    with pytest.raises(DefinitionError, match="two scopes write partition month=2022-03"):
        head.scopes_by_partition(datetime(2022, 3, 31, tzinfo=UTC))


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ("FOR t IN TIMESERIES()", "TIMESERIES has no start"),
        ("FOR t IN TIMESERIES(last => 0)", "TIMESERIES counts in whole numbers"),
        ("FOR t IN TIMESERIES(last => n)", "TIMESERIES takes constants"),
        ("FOR t IN TIMESERIES(since => '2022-01-01')", "TIMESERIES has no such argument"),
        ("FOR t IN TIMESERIES('2022-01-33')", "a bound of TIMESERIES is not a date or timestamp"),
        ("FOR t IN TIMESERIES('2022-01-01 10:00')", "a bound of TIMESERIES is in the middle of a day"),
        ("FOR t IN TIMESERIES('2022-01-03', '2022-01-01')", "TIMESERIES ends before it starts"),
        ("FOR t IN TIMESERIES('2022-01-03', every => '5 minutes')", "TIMESERIES does not support the step 5 minutes"),
        ("FOR t IN TIMESERIES('2022-01-03', tz => 'Mars')", "there is no time zone 'Mars'"),
        ("FOR t IN all_stores()", "the values of a variable are neither a list nor TIMESERIES(...)"),
        ("FOR t IN ('a', 'a')", "'a' is listed twice"),
        ("FOR t IN ('a', 1)", "the values of a variable have different types"),
        ("FOR t IN ('a', NULL)", "NULL has no type"),
        ("FOR t IN ('a'), t IN ('b')", "two variables are called 't'"),
        ("FOR t IN ('a') LET u = v", "there is no variable 'v'"),
        (
            "FOR t IN ('a') LET u = RAND()",
            "RAND(...) is not evaluated on partitions, and its value is needed",
        ),
    ],
)
def test_a_head_that_cannot_be_is_refused_with_its_place(head: str, what: str) -> None:
    with pytest.raises(SqlError) as caught:
        read(f"{head} INSERT OVERWRITE x PARTITION (t)")
    assert what in caught.value.what
    assert caught.value.line == 1
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("FOR t IN ('a') SELECT 1 AS a", "FOR is followed by a query without INSERT"),
        ("FOR t IN ('a') INSERT OVERWRITE x SELECT 1 AS a", "all scopes write the same partition"),
        ("FOR t IN ('a') INSERT OVERWRITE db.x PARTITION (t) SELECT 1 AS a", "INSERT does not name a dataset"),
        ("CREATE TABLE x (a INT)", "is not a query"),
        ("INSERT INTO x VALUES (1)", "is not a query"),
    ],
)
def test_what_is_no_dataset_is_refused(sql: str, what: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_dataset_statement(SqlText("x.sql", sql))
    assert what in caught.value.what
