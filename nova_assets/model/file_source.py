"""Where files that arrive for a channel come from, and what is expected of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nova_assets.model.file_format import Format
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.type_checks import check_argument_types
from nova_assets.short_repr import short_repr

Replaced = Literal["refuse", "take"]
Extra = Literal["refuse", "drop"]

_REMOTE_SCHEMES = ("s3",)


@dataclass(frozen=True, slots=True)
class Files:
    """Files that arrive: each is taken exactly once, by what it is called and which version of it that is.

    They are announced by the operating system (a folder) or by a queue (an object store). Announcements may come late,
    twice, or not at all: what was never announced is found by looking through the folders of the last hours.

    Args:
        location: a folder, from the project's root; or ``s3://BUCKET/PREFIX``.
        format: of all files; by default each file's name says it.
        pattern: which files, by the path below the location: ``*`` is any part of a name, ``**`` any folders.
        queue: name or URL of the queue in which an object store announces new objects.
        hours: how the folders are called in which the files of an hour arrive, as ``strftime`` writes it:
            ``"%Y/%m/%d/%H"``. Then only those of the last hours are looked through, and never the whole location.
        tz: of the clock that ``hours`` goes by.
        look_back: how many hours are looked through for what was never announced.
        min_age: a file of a folder that was changed more recently is still being written.
        on_extra_columns: what becomes of columns that are not the channel's: ``refuse`` sets the record aside (or the
            file, where that says its columns itself), ``drop`` leaves them out.
        on_replaced: what becomes of a file that has changed after it was taken: ``refuse`` sets it aside and counts it,
            ``take`` takes its records beside the old ones.
        max_bad: a batch with more bad records is not taken at all: a share below 1, or a number. None for any.
        max_bytes: bytes of one file when it is decompressed; beyond that it is set aside.
        batch_files, batch_bytes: about so much is taken by one commit; the latter in memory.
    """

    __repr__ = short_repr

    location: str
    format: Format | None = None
    pattern: str = "**"
    queue: str | None = None
    hours: str | None = None
    tz: str = "UTC"
    look_back: str = "24h"
    min_age: str = "2s"
    on_extra_columns: Extra = "refuse"
    on_replaced: Replaced = "refuse"
    max_bad: float | None = None
    max_bytes: int = 1 << 30
    batch_files: int = 1000
    batch_bytes: int = 256 << 20

    @property
    def scheme(self) -> str:
        """``file`` or ``s3``."""
        return self.location.split("://", 1)[0] if "://" in self.location else "file"

    def problems(self) -> list[str]:
        """What is wrong with it."""
        found = []
        if not self.location or (self.scheme != "file" and self.scheme not in _REMOTE_SCHEMES):
            found.append(f"source has location={self.location!r}; expected a folder or s3://BUCKET/PREFIX")
        if self.format is not None and self.format not in get_args(Format):
            found.append(f"source has format={self.format!r}; expected one of {', '.join(get_args(Format))}")
        if self.on_replaced not in get_args(Replaced):
            found.append(f'source has on_replaced={self.on_replaced!r}; expected "refuse" or "take"')
        if self.on_extra_columns not in get_args(Extra):
            found.append(f'source has on_extra_columns={self.on_extra_columns!r}; expected "refuse" or "drop"')
        if self.queue is not None and self.scheme == "file":
            found.append("source has a queue, but its location is a folder, which the operating system watches")
        for name in ("look_back", "min_age"):
            if period_seconds(getattr(self, name)) is None:
                found.append(f"source has {name}={getattr(self, name)!r}; expected {EXPECTED_PERIOD}")
        for name in ("max_bytes", "batch_files", "batch_bytes"):
            if getattr(self, name) < 1:
                found.append(f"source has {name}={getattr(self, name)!r}; expected a number, from 1")
        if self.max_bad is not None and self.max_bad < 0:
            found.append(f"source has max_bad={self.max_bad!r}; expected a share below 1, or a number of records")
        try:
            ZoneInfo(self.tz)
        except (ZoneInfoNotFoundError, ValueError):
            found.append(f'source has tz={self.tz!r}; expected a name such as "UTC" or "Europe/Paris"')
        if self.hours is not None and not _is_hour_pattern(self.hours):
            found.append(f'source has hours={self.hours!r}; expected one of an hour and its day, such as "%Y/%m/%d/%H"')
        return found

    def takes(self, path: str) -> bool:
        """Whether the file at a path below the location is one of these. Names that begin with a dot or an underscore
        are none, as everywhere in the field."""
        hidden = any(part.startswith((".", "_")) for part in path.split("/"))
        return not hidden and _compile_glob(self.pattern).fullmatch(path) is not None

    def is_too_bad(self, bad: int, records: int) -> bool:
        """Whether so many bad records are too many.

        Args:
            records: of the batch, good and bad.
        """
        if self.max_bad is None:
            return False
        return bad > self.max_bad * (records if self.max_bad < 1 else 1)

    def folder_of(self, hour: datetime) -> str | None:
        """The folder below the location in which the files of an hour arrive; None where nothing says."""
        return None if self.hours is None else hour.strftime(self.hours).strip("/")


def _is_hour_pattern(strftime_pattern: str) -> bool:
    """Whether it says an hour of a day, and nothing finer."""
    day, hour = datetime(2024, 1, 2, 3), datetime(2024, 1, 2, 4)
    tells_hours_apart = (
        len({at.strftime(strftime_pattern) for at in (day, hour, datetime(2024, 1, 3, 3), datetime(2023, 1, 2, 3))})
        == 4
    )
    return tells_hours_apart and day.strftime(strftime_pattern) == day.replace(minute=59, second=59).strftime(
        strftime_pattern
    )


def _compile_glob(glob_pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob_pattern)
    regex_by_wildcard = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(regex_by_wildcard.get(p, re.escape(p)) for p in parts), re.DOTALL)


@check_argument_types("nova.files")
def files(
    location: str,
    *,
    format: Format | None = None,
    pattern: str = "**",
    queue: str | None = None,
    hours: str | None = None,
    tz: str = "UTC",
    look_back: str = "24h",
    min_age: str = "2s",
    on_extra_columns: Extra = "refuse",
    on_replaced: Replaced = "refuse",
    max_bad: float | None = None,
    max_bytes: int = 1 << 30,
    batch_files: int = 1000,
    batch_bytes: int = 256 << 20,
) -> Files:
    """A source of a channel: files that arrive in a folder or an object store, each taken exactly once.

        actions = nova.Channel("actions", schema="at timestamp, action string, user string",
                               source=nova.files("landing/actions", format="json", hours="%Y-%m-%d/%H"))

    See ``Files`` for what the arguments mean.
    """
    return Files(
        location,
        format=format,
        pattern=pattern,
        queue=queue,
        hours=hours,
        tz=tz,
        look_back=look_back,
        min_age=min_age,
        on_extra_columns=on_extra_columns,
        on_replaced=on_replaced,
        max_bad=max_bad,
        max_bytes=max_bytes,
        batch_files=batch_files,
        batch_bytes=batch_bytes,
    )
