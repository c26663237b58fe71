"""Channels, partitions and cursors as the catalog knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.schema import Schema
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import TimelinePosition
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A registered channel as it stands: its definition, head and schema.

    Args:
        bases: it may be given a base (R15).
        news: the newest number at which it was given something; a dropped partition is no news (R19).
        retain: for how long old versions are kept.
        keep: partition column -> for how long its partitions are kept.
        since: when it was registered.
        looked: when the last look for files that were never announced began.
        seal: when its days or hours are complete.
        position: in its timeline.
    """

    __repr__ = short_repr

    channel: Channel
    head: int
    schema: Schema | None
    rows: int = 0
    bytes: int = 0
    blocks: int = 0
    updated_at: datetime | None = None
    bases: bool = False
    news: int = 0
    retain: str | None = None
    keep: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    looked: datetime | None = None
    seal: Sealing | None = None
    position: TimelinePosition = field(default_factory=TimelinePosition)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of a channel as it stands: the number of its last change, and what its blocks hold.

    Args:
        news: the newest number at which it was given something (R19).
        dropped: its last change is that it was dropped.
    """

    __repr__ = short_repr

    partition: str
    seq: int
    rows: int
    bytes: int
    blocks: int
    news: int = 0

    @property
    def dropped(self) -> bool:
        return self.seq > self.news


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a binding has read a channel: the pinned head of its last successful execution."""

    __repr__ = short_repr

    binding: str
    channel: str
    seq: int
    head: int
    partition: str = WHOLE
    channel_partition: str = WHOLE
    moved_at: datetime | None = None

    @property
    def lag(self) -> int:
        """Sequence numbers still unread."""
        return self.head - self.seq


@dataclass(frozen=True, slots=True)
class UnreadData:
    """What came to a channel, or to some of its partitions, after a number.

    Args:
        blocks, rows, bytes: of what was committed; a base that came together with what it changes counts by that.
        oldest: when the first of it was committed.
    """

    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    oldest: datetime | None = None

    def describe(self, now: datetime) -> str:
        """For people: how much, and since when."""
        waits = "" if self.oldest is None else f", the oldest for {(now - self.oldest).total_seconds():.0f} s"
        return f"{self.blocks} blocks, {self.rows} rows, {self.bytes} bytes{waits}"
