"""When a day, or an hour, is complete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.seal import Seal, Sealing
from nova_assets.plan.seal import SealableGroup, SealingState, candidate_groups, decide_sealing

DAY = nova.daily("dt", start="2024-01-01")
HOUR = nova.hourly("hr", start="2024-01-01")
MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def at(hours: float) -> datetime:
    return MONDAY + timedelta(hours=hours)


def situation(now: datetime, **facts: Any) -> SealingState:
    return SealingState(now, **{"registered_at": MONDAY, "groups": (), "seals": {}, **facts})


def sealed(group: str, version: int = 1, state: Any = "sealed") -> dict[str, Seal]:
    return {group: Seal("c", group, version, state, 1, MONDAY)}


def verdict(s: SealingState, lateness: str | None = "15m") -> tuple[list[str], list[str]]:
    due, still = decide_sealing(Sealing("dt", lateness), DAY, s)
    return [d.group for d in due], [f"{o.group}: {o.why}" for o in still]


def test_a_day_is_complete_when_it_is_over_and_nothing_is_late() -> None:
    assert verdict(situation(at(23))) == ([], ["2024-01-01: its period ends at 2024-01-02 00:00:00 UTC"])
    due, still = verdict(situation(at(24.1)))
    assert due == [] and still[0] == "2024-01-01: late data is accepted until 2024-01-02 00:15:00 UTC"
    assert verdict(situation(at(24.3)))[0] == ["2024-01-01"], "a day without data, too"
    assert verdict(situation(at(24.0)), lateness=None)[0] == ["2024-01-01"]


def test_of_a_channel_with_a_source_everything_has_to_be_in() -> None:
    closed = at(24.5)
    assert "never announced" in verdict(situation(closed, has_source=True))[1][0]
    assert "never announced" in verdict(situation(closed, has_source=True, last_listing_at=at(24.2)))[1][0]
    assert verdict(situation(closed, has_source=True, last_listing_at=at(24.3)))[0] == ["2024-01-01"]
    waits = situation(closed, has_source=True, last_listing_at=at(24.3), oldest_waiting_file_at=at(20))
    assert verdict(waits)[1][0] == "2024-01-01: files announced at 2024-01-01 20:00:00 UTC are still waiting"
    later = situation(closed, has_source=True, last_listing_at=at(24.3), oldest_waiting_file_at=at(24.4))
    assert verdict(later)[0] == ["2024-01-01"], "what came after the look is of another day, or late"


def test_it_is_sealed_once_and_anew_when_it_was_reopened() -> None:
    now = at(49)
    assert verdict(situation(now, seals=sealed("2024-01-01")))[0] == ["2024-01-02"]
    due, _ = decide_sealing(Sealing("dt"), DAY, situation(now, seals=sealed("2024-01-01", 3, "reopened")))
    assert due == [SealableGroup("2024-01-01", 4), SealableGroup("2024-01-02", 1)]


def test_days_from_before_the_channel_are_sealed_only_if_they_hold_anything() -> None:
    s = situation(
        datetime(2024, 3, 3, 1, tzinfo=UTC), registered_at=datetime(2024, 3, 1, 5, tzinfo=UTC), groups=["2024-02-03"]
    )
    assert candidate_groups(DAY, s) == ["2024-02-03", "2024-03-01", "2024-03-02", "2024-03-03"]
    assert verdict(s)[0] == ["2024-02-03", "2024-03-01", "2024-03-02"]


def test_hours_also_where_clocks_change() -> None:
    paris = nova.hourly("hr", start="2024-01-01", tz="Europe/Paris")
    autumn = datetime(2024, 10, 27, 3, 30, tzinfo=UTC)
    s = situation(autumn, registered_at=datetime(2024, 10, 26, 23, 10, tzinfo=UTC))
    due, still = decide_sealing(Sealing("hr"), paris, s)
    assert [d.group for d in due] == [
        "2024-10-27T01:00",
        "2024-10-27T02:00",
        "2024-10-27T02:00+0100",
        "2024-10-27T03:00",
    ]
    assert [o.group for o in still] == ["2024-10-27T04:00"]


@pytest.mark.parametrize("dimension", [DAY, HOUR])
def test_a_clock_that_goes_back_seals_nothing_twice(dimension: Any) -> None:
    before, _ = decide_sealing(Sealing("x"), dimension, situation(at(50)))
    seals = {d.group: Seal("c", d.group, 1, "sealed", 1, at(50)) for d in before}
    again, _ = decide_sealing(Sealing("x"), dimension, situation(at(20), seals=seals))
    assert before and again == []
