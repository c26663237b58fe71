"""Declaration of the files that arrive for a channel: their location, format and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.json_form import JsonForm, json_key
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.short_repr import short_repr

Format = Literal["json", "csv", "parquet", "orc", "avro", "text"]
"""``json`` is one object per line, or one array of objects; ``text`` gives one row per line, in a single column."""


ReplacedFilePolicy = Literal["refuse", "take"]
ExtraColumnsPolicy = Literal["refuse", "drop"]

_REMOTE_SCHEMES = ("s3",)


@dataclass(frozen=True, slots=True)
class Files:
    """Files that arrive for a channel. Each file is ingested exactly once. The path and the version identify a file.

    The operating system announces new files in a folder, and a queue announces new files in an object store.
    Announcements may be late, duplicated or lost. Nova therefore also lists the folders of the last hours, to find
    files that were never announced.

    Args:
        location: a folder, relative to the project's root, or ``s3://BUCKET/PREFIX``.
        format: format of all files; by default the name of each file determines it.
        pattern: only files whose path below the location matches this pattern are ingested. ``*`` matches part of a
            name, and ``**`` matches any folders.
        queue: name or URL of the queue in which an object store announces new objects.
        hours: name of the folder in which the files of an hour arrive, as a ``strftime`` pattern: ``"%Y/%m/%d/%H"``.
            With ``hours``, the first listing covers the whole location, and later listings cover only the folders of
            the last hours.
        tz: time zone of ``hours``.
        look_back: how far before the previous listing the folders of ``hours`` are listed again, to find files that
            were never announced.
        min_age: minimum time since the last change of a file in a folder. A file that changed more recently counts as
            unfinished, and is not ingested yet.
        on_extra_columns: handling of columns that the channel lacks. ``refuse`` quarantines the record, or the whole
            file if the file declares its columns. ``drop`` leaves out the columns.
        on_replaced: handling of a file that changes after it was ingested. ``refuse`` quarantines and counts the file.
            ``take`` adds the records of the changed file to the old records.
        max_bad: maximum of bad records in a batch: a share if below 1, otherwise a number of records. A batch with more
            bad records is rejected as a whole. None means no limit.
        max_bytes: maximum size of a decompressed file in bytes. Larger files are quarantined.
        batch_files, batch_bytes: approximate size of one commit, as a number of files and as bytes in memory.
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
    on_extra_columns: ExtraColumnsPolicy = "refuse"
    on_replaced: ReplacedFilePolicy = "refuse"
    max_bad: float | None = None
    max_bytes: int = 1 << 30
    batch_files: int = 1000
    batch_bytes: int = 256 << 20

    @property
    def scheme(self) -> str:
        """``file`` or ``s3``."""
        return self.location.split("://", 1)[0] if "://" in self.location else "file"

    def problems(self) -> list[str]:
        """Problems of this definition alone."""
        found = []
        if not self.location or (self.scheme != "file" and self.scheme not in _REMOTE_SCHEMES):
            found.append(f"source has location={self.location!r}; expected a folder or s3://BUCKET/PREFIX")
        if self.format is not None and self.format not in get_args(Format):
            found.append(f"source has format={self.format!r}; expected one of {', '.join(get_args(Format))}")
        if self.on_replaced not in get_args(ReplacedFilePolicy):
            found.append(f'source has on_replaced={self.on_replaced!r}; expected "refuse" or "take"')
        if self.on_extra_columns not in get_args(ExtraColumnsPolicy):
            found.append(f'source has on_extra_columns={self.on_extra_columns!r}; expected "refuse" or "drop"')
        if self.queue is not None and self.scheme == "file":
            found.append("source has queue=, but its location is a folder, where the operating system announces files")
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
        """Whether this source ingests the file at a path below the location.

        A file is hidden if its name, or the name of a folder below the location, begins with a dot or an underscore.
        Hidden files are never ingested.
        """
        hidden = any(part.startswith((".", "_")) for part in path.split("/"))
        return not hidden and _compile_glob(self.pattern).fullmatch(path) is not None

    def is_too_bad(self, bad: int, records: int) -> bool:
        """Whether a batch has more bad records than ``max_bad`` allows.

        Args:
            bad: number of bad records.
            records: number of records of the batch, good and bad.
        """
        if self.max_bad is None:
            return False
        return bad > self.max_bad * (records if self.max_bad < 1 else 1)

    def folder_of(self, hour: datetime) -> str | None:
        """Folder below the location in which the files of an hour arrive. None without an ``hours`` pattern."""
        return None if self.hours is None else hour.strftime(self.hours).strip("/")


def _is_hour_pattern(strftime_pattern: str) -> bool:
    """Whether a pattern distinguishes the hours of all days, and nothing finer."""
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
    on_extra_columns: ExtraColumnsPolicy = "refuse",
    on_replaced: ReplacedFilePolicy = "refuse",
    max_bad: float | None = None,
    max_bytes: int = 1 << 30,
    batch_files: int = 1000,
    batch_bytes: int = 256 << 20,
) -> Files:
    """Source of a channel: files that arrive in a folder or an object store. Each file is ingested exactly once.

        actions = nova.Channel("actions", schema="at timestamp, action string, user string",
                               source=nova.files("landing/actions", format="json", hours="%Y-%m-%d/%H"))

    See ``Files`` for the arguments.
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


GONE_VERSION = "gone"
"""Version of a partition that existed and no longer has any files."""


@dataclass(frozen=True, slots=True)
class ExternalFolder(JsonForm):
    """Folder of another system that holds the files of a block.

    Args:
        location: the folder of all files. The rest of a path consists of partition values and the file name.
        version: version of all files together. It changes when a file is added, removed or changed.
        has_values_in_path: whether folder names below the location give the partition's values. Otherwise the location
            is the folder of one partition, and only the name of the partition gives its values.
    """

    location: str
    version: str
    has_values_in_path: bool = field(default=True, metadata=json_key("values_in_path", omit_default=True))

    def contains(self, path: str) -> bool:
        """Whether a path lies in the folder."""
        return path.startswith(f"{self.location}/") and ".." not in path.split("/")


def is_external_path(path: str) -> bool:
    """Whether a listed file lies outside the warehouse. Paths of warehouse files are relative."""
    return path.startswith("/") or "://" in path


@dataclass(frozen=True, slots=True)
class ExternalFileInfo:
    """A file found by listing an external location.

    Args:
        path: address of the file.
        bytes: size of the file.
        modified_ns: time of the last change, in nanoseconds since 1970.
    """

    path: str
    bytes: int
    modified_ns: int
