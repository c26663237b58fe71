"""Hours of the local clock in a time zone.

An hour starts when the clock shows a full hour, and lasts until the next full hour. Where clocks change by half an hour
(Australia/Lord_Howe), the hour before the change lasts 90 minutes of real time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_HOUR = timedelta(hours=1)


def start_of_clock_hour(moment: datetime, zone: ZoneInfo) -> datetime:
    """Start, in the zone, of the clock hour that contains a moment."""
    hour_start = moment.astimezone(zone)
    while past_full_hour := _time_since_full_hour(hour_start):
        hour_start = (hour_start.astimezone(UTC) - past_full_hour).astimezone(zone)
    return hour_start


def start_of_next_clock_hour(hour_start: datetime, zone: ZoneInfo) -> datetime:
    """Start, in the zone, of the clock hour after the one that starts at ``hour_start``."""
    following = (hour_start.astimezone(UTC) + _HOUR).astimezone(zone)
    while past_full_hour := _time_since_full_hour(following):
        following = (following.astimezone(UTC) + (_HOUR - past_full_hour)).astimezone(zone)
    return following


def starts_of_clock_hours(first: datetime, last: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Starts, in the zone, of all clock hours from the one that contains ``first`` up to ``last``."""
    hour, end = start_of_clock_hour(first, zone), last.astimezone(UTC)
    while hour.astimezone(UTC) <= end:
        yield hour
        hour = start_of_next_clock_hour(hour, zone)


def _time_since_full_hour(local: datetime) -> timedelta:
    return timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
