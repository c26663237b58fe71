"""Sealing decisions: whether a group of partitions, such as a day, is complete. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from nova_assets.errors import PartitionError
from nova_assets.model.partition_values import starts_of_clock_hours
from nova_assets.model.partitions import Dimension
from nova_assets.model.seal import Seal, Sealing

_NOT_LISTED_SINCE = "the source has not been listed since for files that were never announced"


@dataclass(frozen=True, slots=True)
class SealingState:
    """State on which sealing decisions are based.

    Args:
        now: current time, with a zone.
        registered_at: registration time of the channel. Groups before it are sealed only if they have data.
        groups: groups with data.
        seals: group -> its latest seal.
        has_source: the channel has a source. The following fields apply only then.
        last_listing_at: start of the last listing for files that were never announced.
        min_file_age_seconds: minimum age of a file in seconds.
        oldest_waiting_file_at: announcement time of the oldest waiting file.
    """

    now: datetime
    registered_at: datetime
    groups: Collection[str]
    seals: Mapping[str, Seal]
    has_source: bool = False
    last_listing_at: datetime | None = None
    min_file_age_seconds: int = 0
    oldest_waiting_file_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SealableGroup:
    """A group to seal.

    Args:
        version: version of the new seal.
    """

    group: str
    version: int


@dataclass(frozen=True, slots=True)
class IncompleteGroup:
    """A group that is not complete yet, with the reason.

    Args:
        needs_listing: only a listing for files that were never announced is missing.
    """

    group: str
    why: str
    needs_listing: bool = False


class SealingDecision(NamedTuple):
    """Groups to seal, and groups that are not complete yet; both oldest first."""

    sealable: list[SealableGroup]
    incomplete: list[IncompleteGroup]


def decide_sealing(sealing: Sealing, dimension: Dimension, state: SealingState) -> SealingDecision:
    """Decide which groups of a channel are complete. Sealed groups are left out.

    Args:
        sealing: sealing rules of the channel.
        dimension: dimension by which the channel is sealed.
        state: current state of the channel.
    """
    sealable: list[SealableGroup] = []
    incomplete: list[IncompleteGroup] = []
    for group in candidate_groups(dimension, state):
        latest_seal = state.seals.get(group)
        if latest_seal is not None and latest_seal.state == "sealed":
            continue
        reason = _reason_incomplete(sealing, dimension, group, state)
        if reason is None:
            sealable.append(SealableGroup(group, 1 if latest_seal is None else latest_seal.version + 1))
        else:
            incomplete.append(IncompleteGroup(group, reason, reason == _NOT_LISTED_SINCE))
    return SealingDecision(sealable, incomplete)


def _reason_incomplete(sealing: Sealing, dimension: Dimension, group: str, state: SealingState) -> str | None:
    end = dimension.partition_end(group)
    assert end is not None  # sealing dimensions are calendars
    closes = end + timedelta(seconds=sealing.seconds)
    if state.now < end:
        return f"its period ends at {_format_time(end)}"
    if state.now < closes:
        return f"late data is accepted until {_format_time(closes)}"
    if not state.has_source:
        return None
    # A listing time in the future comes from a clock that was fast, and proves nothing.
    if (
        state.last_listing_at is None
        or not closes + timedelta(seconds=state.min_file_age_seconds) <= state.last_listing_at <= state.now
    ):
        return _NOT_LISTED_SINCE
    if state.oldest_waiting_file_at is not None and state.oldest_waiting_file_at <= state.last_listing_at:
        return f"files announced at {_format_time(state.oldest_waiting_file_at)} are still waiting"
    return None


def candidate_groups(dimension: Dimension, state: SealingState) -> list[str]:
    """All groups with data, and all groups of the calendar from the first to be sealed up to now."""
    return sorted(
        {*state.groups, *_calendar_groups(dimension, state)}, key=lambda g: dimension.partition_end(g) or state.now
    )


def _calendar_groups(dimension: Dimension, state: SealingState) -> Iterator[str]:
    zone = ZoneInfo(dimension.tz or "UTC")
    start = datetime.fromisoformat(dimension.start or "0001-01-01")
    first = max(state.registered_at, start if start.tzinfo is not None else start.replace(tzinfo=zone))
    if dimension.kind == "daily":
        day = first.astimezone(zone).date()
        while day <= state.now.astimezone(zone).date():
            yield day.isoformat()
            day += timedelta(days=1)
    else:
        for hour in starts_of_clock_hours(first, state.now, zone):
            with suppress(PartitionError):  # an hour before the start of the dimension
                yield dimension.partition_starting_at(hour)


def _format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
