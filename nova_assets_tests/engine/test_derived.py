"""Partition columns that follow from a moment: the same in Arrow, in Spark, and by Python's own calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.engine.buckets.partitioning import add_derived_columns
from nova_assets.engine.rows.spark_versions import collect_to_arrow
from nova_assets.errors import PartitionError
from nova_assets.formats.derived_partitions import add_derived_partition_columns
from nova_assets.model.schema import parse_ddl

ZONES = ["UTC", "Europe/Paris", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "Australia/Lord_Howe"]


def moments() -> list[datetime | None]:
    """Around midnights and both changes of clocks."""
    found: list[datetime | None] = [None, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    for day in (
        datetime(2024, 3, 31, tzinfo=UTC),
        datetime(2024, 10, 27, tzinfo=UTC),
        datetime(2024, 11, 3, tzinfo=UTC),
        datetime(2024, 4, 6, 12, tzinfo=UTC),
        datetime(2024, 10, 5, 12, tzinfo=UTC),
    ):
        found += [day + timedelta(minutes=17 * n, microseconds=n) for n in range(-90, 180)]
    return found


def expected(zone: str, at: datetime | None) -> tuple[date | None, datetime | None]:
    if at is None:
        return None, None
    local = at.astimezone(ZoneInfo(zone))
    hour = at
    while (shown := hour.astimezone(ZoneInfo(zone))).time() != time(shown.hour):
        hour -= timedelta(minutes=shown.minute, seconds=shown.second, microseconds=shown.microsecond)
    return local.date(), hour


def check(table: pa.Table, zone: str) -> None:
    for row in table.to_pylist():
        assert (row["day"], row["hour"]) == expected(zone, row["at"]), row["at"]


@pytest.mark.parametrize("zone", ZONES)
def test_in_arrow(zone: str) -> None:
    table = pa.table({"at": pa.array(moments(), pa.timestamp("us", "UTC"))})
    check(add_derived_partition_columns(table, dimensions(zone), None), zone)


@pytest.mark.spark
@pytest.mark.parametrize("zone", ZONES)
def test_in_spark(zone: str, spark: Any) -> None:
    frame = spark.createDataFrame([(m,) for m in moments()], "at timestamp")
    check(collect_to_arrow(add_derived_columns(frame, dimensions(zone), None)), zone)


def dimensions(zone: str) -> list[Any]:
    return [nova.daily("day", "2024-01-01", zone, of="at"), nova.hourly("hour", "2024-01-01", zone, of="at")]


def test_it_is_as_declared_and_what_is_given_counts() -> None:
    day = [nova.daily("day", "2024-01-01", of="at")]
    table = pa.table({"at": pa.array([datetime(2024, 5, 6, 7, tzinfo=UTC)], pa.timestamp("us", "UTC"))})
    schema = parse_ddl("at timestamp, day string")
    assert add_derived_partition_columns(table, day, schema).column("day").to_pylist() == ["2024-05-06"]
    given = table.append_column("day", pa.array(["2020-01-01"]))
    assert add_derived_partition_columns(given, day, schema).column("day").to_pylist() == ["2020-01-01"]
    with pytest.raises(PartitionError, match="'day' is derived from 'at', which is missing or no timestamp"):
        add_derived_partition_columns(pa.table({"x": [1]}), day, None)
    with pytest.raises(PartitionError, match="at string"):
        add_derived_partition_columns(pa.table({"at": ["noon"]}), day, None)


def test_an_insert_needs_no_column_of_days(tmp_path: Path) -> None:
    channel = nova.Channel(
        "c", schema="at timestamp, day date", partitions=nova.daily("day", "2024-01-01", "Europe/Paris", of="at")
    )
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(channel)
        store.insert("c", [{"at": datetime(2024, 5, 6, 22, 30, tzinfo=UTC)}, {"at": datetime(2024, 5, 6, tzinfo=UTC)}])
        assert [p.partition for p in store.partitions("c")] == ["day=2024-05-06", "day=2024-05-07"]
    with pytest.raises(nova.DefinitionError, match="is derived from 'then', which is not in the schema"):
        nova.Channel("c", schema="day date", partitions=nova.daily("day", "2024-01-01", of="then"))
    with pytest.raises(nova.DefinitionError, match="column 'at' is string; expected timestamp"):
        nova.Channel("c", schema="at string, day date", partitions=nova.daily("day", "2024-01-01", of="at"))
