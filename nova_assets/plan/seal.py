"""When a group of partitions, such as a day, is complete. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from nova_assets.errors import PartitionError
from nova_assets.model.local_hours import clock_hours
from nova_assets.model.partitions import Dimension
from nova_assets.model.seal import Seal, Sealing

_UNLOOKED = "files that were never announced have not been looked for since"


@dataclass(frozen=True, slots=True)
class Situation:
    """What a decision rests on.

    Args:
        now: the moment, with a zone.
        since: when the channel came to be: groups before it are sealed only if they hold anything.
        groups: those that hold anything.
        seals: group -> its latest seal.
        is_fed: the channel has a source; the next two are of that.
        looked: when the last look for files that were never announced began.
        settling: seconds for which a file is left alone after it was changed.
        oldest: when the first of the files that still wait was announced.
    """

    now: datetime
    since: datetime
    groups: Collection[str]
    seals: Mapping[str, Seal]
    is_fed: bool = False
    looked: datetime | None = None
    settling: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A group that is to be sealed.

    Args:
        version: the seal's.
    """

    group: str
    version: int


@dataclass(frozen=True, slots=True)
class Open:
    """A group that is not complete yet, and why.

    Args:
        unlooked: only a look for files that were never announced is missing.
    """

    group: str
    why: str
    unlooked: bool = False


def judge(sealing: Sealing, dimension: Dimension, s: Situation) -> tuple[list[Due], list[Open]]:
    """The groups that are complete and not sealed, oldest first, and those that are not complete.

    Args:
        dimension: by which the channel is sealed.
    """
    due: list[Due] = []
    still: list[Open] = []
    for group in groups(dimension, s):
        known = s.seals.get(group)
        if known is not None and known.state == "sealed":
            continue
        why = _why_open(sealing, dimension, group, s)
        if why is None:
            due.append(Due(group, 1 if known is None else known.version + 1))
        else:
            still.append(Open(group, why, why == _UNLOOKED))
    return due, still


def _why_open(sealing: Sealing, dimension: Dimension, group: str, s: Situation) -> str | None:
    end = dimension.ends(group)
    assert end is not None  # of a calendar
    closes = end + timedelta(seconds=sealing.seconds)
    if s.now < end:
        return f"its time is not over before {_said(end)}"
    if s.now < closes:
        return f"what is late is waited for until {_said(closes)}"
    if not s.is_fed:
        return None
    # A clock that was ahead has looked in a future that is still to come.
    if s.looked is None or not closes + timedelta(seconds=s.settling) <= s.looked <= s.now:
        return _UNLOOKED
    if s.oldest is not None and s.oldest <= s.looked:
        return f"files wait that were announced at {_said(s.oldest)}"
    return None


def groups(dimension: Dimension, s: Situation) -> list[str]:
    """Every group that holds anything, and every one of the calendar from the first to be sealed up to now."""
    return sorted({*s.groups, *_calendar(dimension, s)}, key=lambda g: dimension.ends(g) or s.now)


def _calendar(dimension: Dimension, s: Situation) -> Iterator[str]:
    zone = ZoneInfo(dimension.tz or "UTC")
    start = datetime.fromisoformat(dimension.start or "0001-01-01")
    first = max(s.since, start if start.tzinfo is not None else start.replace(tzinfo=zone))
    if dimension.kind == "daily":
        day = first.astimezone(zone).date()
        while day <= s.now.astimezone(zone).date():
            yield day.isoformat()
            day += timedelta(days=1)
    else:
        for hour in clock_hours(first, s.now, zone):
            with suppress(PartitionError):  # before the start
                yield dimension.of_moment(hour)


def _said(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
