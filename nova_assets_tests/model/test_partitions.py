"""Names of partitions, and what a dimension accepts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.model.partition_values import starts_of_clock_hours
from nova_assets.model.partitions import (
    is_in_scope,
    parse_partition,
    partition_name,
    partition_values,
    scope_for_columns,
)
from nova_assets.sql.statement.timeseries import TimeSeries

texts = st.one_of(
    st.none(), st.text(max_size=40), st.sampled_from(["/", "..", "a=b", "__null__", "", "%2F", "é 🚀", "\n"])
)


@given(texts, texts)
def test_any_values_are_told_apart_and_given_back(a: str | None, b: str | None) -> None:
    name = partition_name(("a/b", "c"), {"a/b": a, "c": b})
    assert partition_values(name) == {"a/b": a, "c": b}
    assert name.count("/") == 1 and name.count("=") == 2 and name.isprintable()
    assert (partition_name(("c",), {"c": a}) == partition_name(("c",), {"c": b})) == (a == b)


@pytest.mark.parametrize("value", [None, "__null__", "_null__", "%5Fnull__", "", "_"])
def test_a_text_that_reads_like_a_null_is_given_back(value: str | None) -> None:
    assert partition_values(partition_name(("c",), {"c": value})) == {"c": value}


def test_scopes() -> None:
    name = "dt=2024-01-01/action=login"
    assert scope_for_columns(["dt"], name) == "dt=2024-01-01" and scope_for_columns([], name) == ""
    assert all(is_in_scope(name, s) for s in ("", "dt=2024-01-01", "action=login", name))
    assert not is_in_scope(name, "action=log") and not is_in_scope(name, "dt=2024-01-02")


def test_people_may_write_a_partition_in_several_ways() -> None:
    dims = [nova.daily("dt", start="2024-01-01"), nova.dynamic("action")]
    name = "dt=2024-01-05/action=a%2Fb"
    assert parse_partition(dims, "action=a%2Fb/dt=2024-01-05") == name
    assert parse_partition(dims, {"dt": "2024-01-05", "action": "a/b"}) == name
    assert parse_partition(dims[:1], "2024-01-05") == "dt=2024-01-05"
    assert parse_partition(dims, "action=x", allow_scope=True) == "action=x"
    for wrong in ("dt=2024-01-05", "dt=2024-01-05/action=x/more=1", "what"):
        with pytest.raises(nova.PartitionError, match="names no partition") as met:
            parse_partition(dims, wrong)
        assert "dt=.../action=..." in str(met.value)
    assert parse_partition(dims[1:], {"action": "a=b"}) == "action=a%3Db"
    with pytest.raises(nova.PartitionError, match="did you mean 'action'"):
        parse_partition(dims[1:], "actoin=a")


@pytest.mark.parametrize(
    ("dimension", "wrong", "expected"),
    [
        (nova.daily("d", start="2024-01-01"), "2023-12-31", "from 2024-01-01 on"),
        (nova.daily("d", start="2024-01-01"), "2024-01-05T03:00", "YYYY-MM-DD"),
        (nova.daily("d", start="2024-01-01"), "yesterday", "YYYY-MM-DD"),
        (nova.hourly("d", start="2024-01-01"), "2024-01-05T03:30", "YYYY-MM-DDTHH:00"),
        (nova.static("d", ["x", "y"]), "z", "one of x, y"),
    ],
)
def test_values_that_a_dimension_does_not_have(dimension: object, wrong: str, expected: str) -> None:
    with pytest.raises(nova.PartitionError, match="have no") as met:
        parse_partition([dimension], wrong)  # type: ignore[list-item]
    assert expected in str(met.value)


def test_hours_follow_the_zone_and_a_repeated_hour_is_two() -> None:
    berlin = nova.hourly("h", start="2024-01-01", tz="Europe/Berlin")
    assert berlin.partition_starting_at(datetime(2024, 6, 1, 10, tzinfo=UTC)) == "2024-06-01T12:00"
    twice = [berlin.partition_starting_at(datetime(2024, 10, 27, h, tzinfo=UTC)) for h in (0, 1)]
    assert twice == ["2024-10-27T02:00", "2024-10-27T02:00+0100"]
    assert [berlin.parse(t) for t in twice] == twice


def test_a_name_too_long_for_a_catalog_is_refused() -> None:
    assert partition_name(("a",), {"a": "🚀" * 300}).endswith("🚀")
    with pytest.raises(nova.PartitionError, match="2403 bytes long"):
        partition_name(("a",), {"a": "🚀" * 600 + "x"})


def test_a_binding_is_partitioned_as_its_outputs_where_an_input_shares_the_dimension() -> None:
    day, by = nova.daily("dt", start="2024-01-01"), nova.dynamic("action")
    ddl = "dt date, action string, n bigint"
    events = nova.Channel("events", schema=ddl, partitions=day)
    plain = nova.Channel("plain", schema=ddl)
    out = nova.Channel("out", schema=ddl, partitions=[day, by])

    def bound(*inputs: nova.Channel, how: str = "delta", **more: object) -> nova.Channel:
        produces = nova.base(out) if how == "base" else nova.delta(out)

        def work(**frames: object) -> object:
            return frames

        task = nova.task(consumes=[nova.new(c) for c in inputs], produces=produces)(work)
        return nova.bind(nova.Workflowette("w", [task]), **more)  # type: ignore[arg-type, return-value]

    def columns(binding: object) -> list[str]:
        return [d.column for d in binding.dimensions]  # type: ignore[attr-defined]

    assert columns(bound(events)) == columns(bound(events, plain)) == ["dt"]
    assert columns(bound(plain)) == [] and columns(bound(plain, partitions=["action"])) == ["action"]
    assert columns(bound(events, partitions=[])) == []


LORD_HOWE = ZoneInfo("Australia/Lord_Howe")


@pytest.mark.parametrize(
    ("change", "hours"),
    [
        (datetime(2024, 4, 6, 14, tzinfo=UTC), ["2024-04-07T01:00", "2024-04-07T02:00", "2024-04-07T03:00"]),
        (datetime(2024, 10, 5, 14, 30, tzinfo=UTC), ["2024-10-06T01:00", "2024-10-06T03:00", "2024-10-06T04:00"]),
    ],
)
def test_hours_where_clocks_change_by_half_an_hour(change: datetime, hours: list[str]) -> None:
    """The hour before the change lasts 90 minutes; each hour ends where the next begins, and none is refused."""
    dimension = nova.hourly("hr", start="2024-01-01", tz="Australia/Lord_Howe")
    begins = [
        dimension.partition_starting_at(h)
        for h in starts_of_clock_hours(change, change + timedelta(hours=3), LORD_HOWE)
    ]
    assert begins == hours
    assert dimension.partition_end(hours[0]) == change + timedelta(minutes=90)
    assert dimension.partition_end(hours[1]) == change + timedelta(minutes=150)
    series = TimeSeries("h", "hour", start=change.astimezone(LORD_HOWE), tz=LORD_HOWE.key)
    assert [dimension.partition_starting_at(m) for m in series.moments(change + timedelta(hours=3))] == hours
