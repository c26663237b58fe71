"""The quarantine of a channel: records and files that arrived for it and could not be taken."""

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
"""The line of what is set aside whole."""

QUARANTINE_COLUMNS = (
    "file string NOT NULL, version string NOT NULL, line bigint NOT NULL, reason string, raw string, whole boolean, "
    "header string, format string, set_aside_at timestamp"
)
"""``line`` is 0 for a whole file. ``raw`` is the record as it stands there; where ``whole`` is false, only what can be
shown of it: it is too long, or no text. ``header`` is the first line of its file, without which it cannot be read."""


_VALUE_PATTERN = re.compile(r"'[^']*\d[^']*'|\"[^\"]*\"|(?<![\w'])-?\d[\w.:+-]*")


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Reason -> how many records were set aside for it, most frequent first.

    Reasons that differ only in their values, such as the dates of rows, count as one; the first of them stands for all.
    """
    return merge_reason_counts({}, {}, ((reason, 1) for reason in reasons))


def merge_reason_counts(
    counts: Mapping[str, int], other_counts: Mapping[str, int], single_counts: Iterable[tuple[str, int]] = ()
) -> dict[str, int]:
    """Counts of reasons, put together as ``count_reasons`` does."""
    reason_by_pattern: dict[str, str] = {}
    count_by_reason: Counter[str] = Counter()
    for reason, count in (*counts.items(), *other_counts.items(), *single_counts):
        count_by_reason[reason_by_pattern.setdefault(_VALUE_PATTERN.sub("…", reason), reason)] += count
    return dict(count_by_reason.most_common())


def quarantine_name(channel: str) -> str:
    return f"{channel}_quarantine"


def quarantine_channel(channel: Channel) -> Channel:
    """The channel in which another one's bad records lie: one row for each, until it is mended and replayed."""
    from nova_assets.model.channel import Channel

    return Channel(
        quarantine_name(channel.name),
        merge=Upsert(key=("file", "version", "line")),
        schema=parse_ddl(QUARANTINE_COLUMNS),
        description=f"Records and files that arrived for {channel.name} and could not be taken.",
        owners=channel.owners,
        group=channel.group,
    )
