"""The folders of the last hours: what is looked through for files that were never announced."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from nova_assets.model.file_source import Files
from nova_assets.model.period import seconds_of


def folders(source: Files, now: datetime, since: datetime | None) -> Iterator[str]:
    """Oldest first; the next hour, too, since clocks differ. Only ``""``, the location itself, at the first look, and
    where the source does not say how the folders of an hour are called.

    Args:
        since: when the last look began: nothing between the two is left out.
    """
    if source.hours is None or since is None:
        yield ""
        return
    back = timedelta(seconds=seconds_of(source.look_back) or 0)
    hour = (min(now, since) - back).astimezone(ZoneInfo("UTC"))
    end = now + timedelta(hours=1)
    seen: set[str] = set()
    while hour <= end:
        name = source.folder_of(hour.astimezone(ZoneInfo(source.tz)))
        if name is not None and name not in seen:
            seen.add(name)
            yield name
        hour += timedelta(hours=1)
