"""Inboxes, which announce, list and fetch the files of a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from nova_assets.formats.input_file import InputFile
from nova_assets.model.arrival import Arrival
from nova_assets.model.file_source import Files
from nova_assets.model.period import period_seconds
from nova_assets.nova_error import NovaError


class SourceFileMissing(NovaError):
    """An announced file no longer exists."""

    code = "NOVA-FILE-GONE"


class SourceFileChanged(NovaError):
    """A file is no longer the version that was announced."""

    code = "NOVA-FILE-CHANGED"


class PathEscapesSource(NovaError):
    """A file's path leads out of its source's location."""

    code = "NOVA-FILE-OUTSIDE"


@dataclass(frozen=True, slots=True)
class Notice:
    """An announcement of files, which is repeated until it is acknowledged.

    Args:
        arrivals: the announced files; empty if the announcement concerns no file of the source.
        receipt: handle with which the inbox acknowledges the notice.
    """

    arrivals: tuple[Arrival, ...]
    receipt: Any = None


class Inbox(Protocol):
    """Announcements and files of one source. An inbox may announce the same file several times.

    Args:
        is_local: notices reach this process alone, as from the operating system. A queue answers any process.
    """

    is_local: bool

    def has_notices(self) -> bool:
        """Whether notices are waiting, as far as the inbox can tell without receiving them.

        Raises:
            SourceUnavailable: the source does not answer.
        """

    def poll(self, limit: int) -> list[Notice]:
        """Notices that are not yet acknowledged. Does not wait.

        Args:
            limit: stop after about this many notices. An inbox that receives notices in groups may return a few more.

        Raises:
            SourceUnavailable: the source does not answer.
        """

    def acknowledge(self, notices: Sequence[Notice]) -> None:
        """Acknowledge notices whose files are committed, so that they are not repeated."""

    def list_arrivals(self, now: datetime, last_listing_at: datetime | None) -> Iterator[Arrival]:
        """List every existing file, announced or not: the listing finds files whose notices were lost.

        If the source declares a folder name for each hour, only the folders of the last hours and of the time since the
        last listing are listed. Otherwise the whole location is listed.

        Args:
            now: time of this listing.
            last_listing_at: start of the last listing; None for the first listing, which covers the whole location.

        Raises:
            SourceUnavailable: the source does not answer.
        """

    def fetch(self, arrival: Arrival) -> AbstractContextManager[InputFile]:
        """Context manager for reading exactly the announced version of a file.

        Raises:
            SourceFileMissing: the file no longer exists.
            SourceFileChanged: the file is no longer the announced version.
            PathEscapesSource: the file's path leads out of the location.
            BadRecord: the file is too large, or may not be read.
            SourceUnavailable: the source does not answer.
        """

    def close(self) -> None:
        """Release connections and watchers."""


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
