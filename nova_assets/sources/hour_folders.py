"""Folders of the last hours, which are listed to find files that were never announced."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from nova_assets.model.file_source import Files
from nova_assets.model.period import period_seconds


def folders_to_list(source: Files, now: datetime, last_listing_at: datetime | None) -> Iterator[str]:
    """Folders to list, oldest first, including the folder of the next hour, since clocks differ.

    Yields only ``""``, the location itself, for the first listing and for a source without an ``hours`` pattern.

    Args:
        source: declaration of the files, with ``hours``, ``look_back`` and ``tz``.
        now: time of this listing.
        last_listing_at: start of the last listing; None for the first. Every hour since then is listed.
    """
    if source.hours is None or last_listing_at is None:
        yield ""
        return
    look_back = timedelta(seconds=period_seconds(source.look_back) or 0)
    hour = (min(now, last_listing_at) - look_back).astimezone(ZoneInfo("UTC"))
    end = now + timedelta(hours=1)
    yielded_names: set[str] = set()
    while hour <= end:
        name = source.folder_of(hour.astimezone(ZoneInfo(source.tz)))
        if name is not None and name not in yielded_names:
            yielded_names.add(name)
            yield name
        hour += timedelta(hours=1)
