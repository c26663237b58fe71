"""Quarantine of a channel: arrived records and files that could not be ingested."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nova_assets.model.merge import Upsert
from nova_assets.model.schema import parse_ddl

if TYPE_CHECKING:
    from nova_assets.model.channel import Channel

WHOLE_FILE_LINE = 0
"""Line number of an entry for a whole file."""

QUARANTINE_COLUMNS = (
    "file string NOT NULL, version string NOT NULL, line bigint NOT NULL, reason string, raw string, whole boolean, "
    "header string, format string, set_aside_at timestamp"
)
"""Schema of a quarantine channel.

``line`` is 0 for a whole file. ``raw`` is the original record. Where ``whole`` is false, ``raw`` is only a printable
part of it, because the record is too long or not text. ``header`` is the first line of the file, without which the
record cannot be parsed.
"""


_VALUE_PATTERN = re.compile(r"'[^']*\d[^']*'|\"[^\"]*\"|(?<![\w'])-?\d[\w.:+-]*")


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Reason -> number of records quarantined for it, most frequent first.

    Reasons that differ only in their values, such as the dates of rows, count as one and share the first text.
    """
    return merge_reason_counts({}, {}, ((reason, 1) for reason in reasons))


def merge_reason_counts(
    counts: Mapping[str, int], other_counts: Mapping[str, int], single_counts: Iterable[tuple[str, int]] = ()
) -> dict[str, int]:
    """Sum of counts of reasons, which groups reasons like ``count_reasons``."""
    reason_by_pattern: dict[str, str] = {}
    count_by_reason: Counter[str] = Counter()
    for reason, count in (*counts.items(), *other_counts.items(), *single_counts):
        count_by_reason[reason_by_pattern.setdefault(_VALUE_PATTERN.sub("…", reason), reason)] += count
    return dict(count_by_reason.most_common())


def quarantine_channel_name(channel: str) -> str:
    return f"{channel}_quarantine"


def quarantine_channel(channel: Channel) -> Channel:
    """Channel that stores the bad records of another channel, one row per record, until they are repaired and
    replayed.
    """
    from nova_assets.model.channel import Channel

    return Channel(
        quarantine_channel_name(channel.name),
        merge=Upsert(key=("file", "version", "line")),
        schema=parse_ddl(QUARANTINE_COLUMNS),
        description=f"Records and files that arrived for {channel.name} and could not be taken.",
        owners=channel.owners,
        group=channel.group,
    )
