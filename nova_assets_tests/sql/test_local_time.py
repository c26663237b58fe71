"""Variables of local days mean the same in the query as in the header, or the query is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

import nova_assets as nova
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name

EVENTS = nova.Channel("events", schema="at timestamp, day date, local timestamp_ntz, text string, n int")
HEADER = "FOR t IN TIMESERIES('2024-03-30', tz => '{zone}', every => '1 {period}') LET until = t + INTERVAL 1 DAY"


def define(folder: Path, condition: str, zone: str = "Europe/Paris", period: str = "day") -> nova.Project:
    header = HEADER.format(zone=zone, period=period) + " LET d = CAST(t AS DATE) LET s = DATE_FORMAT(t, 'yyyy-MM-dd')"
    (folder / "counts.sql").write_text(
        f"{header}\nINSERT OVERWRITE counts PARTITION (p = s)\n"
        f"SELECT COUNT(*) AS n, MIN(:t) AS t FROM events WHERE {condition}"
    )
    return nova.Project(nova.datasets(folder, channels=[EVENTS]), channels=[EVENTS])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("at >= :t AND at < :t + INTERVAL 1 DAY", ":t + INTERVAL '1' DAY depends on the time zone"),
        ("at >= :t AND at < (:t + INTERVAL '1' MONTH)", "INTERVAL '1' MONTH depends"),
        ("at >= :t AND at < :t + INTERVAL 24 HOURS", "depends on the time zone"),
        ("at >= :t AND at < :t + INTERVAL '1440' MINUTE", "depends on the time zone"),
        ("day = CAST(:t AS DATE)", "CAST(:t AS DATE) depends"),
        ("text = DATE_FORMAT(:t, 'yyyy-MM-dd')", "DATE_FORMAT(:t, 'yyyy-MM-dd') depends"),
        ("at >= DATE_TRUNC('day', :t)", "DATE_TRUNC"),
        ("day = :t", ":t depends on the time zone where it is compared with events.day (date)"),
        ("local >= :t", "(timestamp_ntz)"),
        ("at BETWEEN :d AND :until", ":d depends on the time zone where it is compared with events.at (timestamp)"),
        ("at >= CAST(:d AS TIMESTAMP)", "CAST"),
        ("CAST(at AS DATE) = :d", "CAST(events.at AS DATE) depends"),
        (":d IN (SELECT DATE(at) FROM events)", "depends"),
        ("DATE_FORMAT(at, 'yyyy-MM-dd') = :s", "DATE_FORMAT"),
    ],
)
def test_what_spark_would_compute_in_utc_is_refused(tmp_path: Path, condition: str, message: str) -> None:
    define(tmp_path, condition, zone="UTC")
    with pytest.raises(nova.SqlError, match=re.escape(message)) as caught:
        define(tmp_path, condition)
    assert "tz => 'Europe/Paris'" in str(caught.value) and "LET until = t + INTERVAL 1 DAY" in str(caught.value)


@pytest.mark.parametrize(
    "condition",
    [
        "at >= :t AND at < :until",
        "at BETWEEN :t AND :until - INTERVAL 1 SECOND",
        "at < COALESCE(:t, at) + INTERVAL 1 HOUR",
        "at - :t > INTERVAL 3 HOURS",
        "day >= :d AND day < :d + INTERVAL 1 DAY AND DATE_ADD(:d, 7) > day",
        "text = :s AND n > HOUR(at)",
        "day IN (SELECT day FROM events e WHERE e.at >= :t)",
    ],
)
def test_moments_and_local_days_are_compared(tmp_path: Path, condition: str) -> None:
    define(tmp_path, condition)
    define(tmp_path, condition, period="hour")


def test_the_header_computes_the_end_of_a_day_that_has_23_or_25_hours(tmp_path: Path) -> None:
    query = dataset_queries_by_name(define(tmp_path, "at >= :t AND at < :until"))["counts"]
    hours = {}
    for day in ("2024-03-30", "2024-03-31", "2024-10-27"):
        scope: Any = query.scope(f"p={day}", datetime(2024, 11, 1, tzinfo=UTC))
        hours[day] = (scope["until"].astimezone(UTC) - scope["t"].astimezone(UTC)) / timedelta(hours=1)
    assert hours == {"2024-03-30": 24, "2024-03-31": 23, "2024-10-27": 25}


class NoState:
    """Partitions that exist, and rows of small datasets: none. All partitions follow from calendars."""

    def existing_partitions(self, name: str) -> list[str]:
        return []

    def few_rows(self, *_: Any) -> None:
        return None


@pytest.mark.core
@pytest.mark.parametrize(
    ("condition", "reads"),
    [
        ("hour = :h", lambda hour, h: hour == h),
        ("hour <= :h AND hour >= :since", lambda hour, h: h - timedelta(hours=1) <= hour <= h),
        ("hour > :h", lambda hour, h: hour > h),
        ("hour >= :since AND hour < :h", lambda hour, h: h - timedelta(hours=1) <= hour < h),
    ],
)
@pytest.mark.parametrize("start", ["2022-10-29", "2022-03-26"])
def test_hours_at_a_clock_change_are_pruned_by_their_instants(
    tmp_path: Path, condition: str, reads: Any, start: str
) -> None:
    """In autumn, two hours have one local time, which Python takes for equal."""
    events = nova.Channel(
        "events", schema="hour timestamp, n int", partitions=[nova.hourly("hour", start=start, tz="Europe/Berlin")]
    )
    (tmp_path / "counts.sql").write_text(
        f"FOR h IN TIMESERIES('{start}', tz => 'Europe/Berlin', every => '1 hour') LET since = h - INTERVAL 1 HOUR\n"
        f"INSERT OVERWRITE counts PARTITION (p = h)\nSELECT COUNT(*) AS n FROM events WHERE {condition}"
    )
    query = dataset_queries_by_name(nova.Project(nova.datasets(tmp_path, channels=[events]), channels=[events]))
    counts, first = query["counts"], datetime.fromisoformat(start).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    moments = [first.astimezone(UTC) + timedelta(hours=n) for n in range(40)]
    now, calendar = moments[-1] + timedelta(minutes=30), events.partitions[0]
    hours = {calendar.partition_starting_at(moment): moment for moment in moments}
    assert len(hours) == len(moments)
    found = 0
    for partition, scope in counts.graph.scopes_by_partition("counts", now).items():
        read = counts.input_partitions(partition, now, cast(Any, NoState())).get("events", frozenset())
        at = scope["h"].astimezone(UTC)
        expected = {name for name, hour in hours.items() if reads(hour, at)}
        assert {name.removeprefix("hour=") for name in read} & hours.keys() == expected, partition
        found += len(expected)
    assert found > 30
