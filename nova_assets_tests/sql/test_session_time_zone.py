"""Conditions on partitions are evaluated in UTC, so a session in another time zone is refused where this matters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import SettingsError
from nova_assets.model.partition_rule import InputState
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets_tests.sql.rig import NOW

TICKETS = nova.Channel("tickets", schema="price int, at timestamp, day string", partitions=[nova.dynamic("day")])
HOURS = nova.Channel("hours", schema="n int, hour timestamp", partitions=[nova.hourly("hour", start="2022-03-01")])
OPENINGS = nova.Channel("openings", schema="at timestamp, text string, day string")


def check(folder: Path, condition: str, table: str, zone: str) -> None:
    """Evaluate a condition on partitions, and check the time zone of a session."""
    (folder / "result.sql").write_text(f"SELECT COUNT(*) AS n FROM {table} t WHERE {condition}")
    datasets = nova.datasets(folder, channels=[TICKETS, HOURS, OPENINGS], refresh="full")
    query = dataset_queries_by_name(nova.Project(bindings=datasets))["result"]
    rows = [{"at": NOW, "text": "2022-03-30 23:30:00", "day": "2022-03-30"}]
    query.required_reads("", NOW, InputState(lambda channel: ["day=2022-03-30"], lambda channel: rows))
    context: Any = SimpleNamespace(spark=SimpleNamespace(conf={"spark.sql.session.timeZone": zone}))
    query.check_session_timezone_is_utc(context)


@pytest.mark.parametrize(
    ("condition", "table"),
    [
        ("t.day IN (SELECT CAST(CAST(at AS DATE) AS STRING) FROM openings)", "tickets"),
        ("t.day IN (SELECT day FROM openings WHERE at > TIMESTAMP '2022-03-30 22:00:00')", "tickets"),
        ("t.day IN (SELECT DATE_FORMAT(text, 'yyyy-MM-dd') FROM openings)", "tickets"),
        ("CAST(t.hour AS DATE) = DATE '2022-03-30'", "hours"),
        ("t.hour >= '2022-03-30'", "hours"),
        ("t.day = '2022-03-30 12:00:00' + INTERVAL 1 DAY", "tickets"),
        ("t.day = CAST(CAST(TIMESTAMP '2022-03-30 23:30:00Z' AS DATE) AS STRING)", "tickets"),
    ],
)
def test_a_condition_that_depends_on_the_zone(tmp_path: Path, condition: str, table: str) -> None:
    check(tmp_path, condition, table, "UTC")
    with pytest.raises(SettingsError, match="the time zone of the Spark session is not UTC"):
        check(tmp_path, condition, table, "Europe/Paris")


@pytest.mark.parametrize(
    ("condition", "table"),
    [
        ("t.day IN (SELECT day FROM openings)", "tickets"),
        ("t.day = '2022-03-30' AND t.at > TIMESTAMP '2022-03-30 22:00:00'", "tickets"),
        ("t.day = '2022-03-30' OR t.at > TIMESTAMP '2022-03-30 22:00:00'", "tickets"),
        ("t.day = CAST(DATE '2022-03-31' - INTERVAL 1 DAY AS STRING)", "tickets"),
        ("t.day = CAST(DATE_SUB(DATE '2022-03-31', 1) AS STRING)", "tickets"),
    ],
)
def test_a_condition_that_does_not(tmp_path: Path, condition: str, table: str) -> None:
    check(tmp_path, condition, table, "Europe/Paris")
