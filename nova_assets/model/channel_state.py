"""Channels, partitions and cursors as recorded in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from nova_assets.model.block import Block, Kind, Origin
from nova_assets.model.channel import Channel
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm, json_key
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.schema import Schema
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import History, TimelinePosition
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class ChannelState(JsonForm):
    """Current state of a registered channel: its definition, head and schema.

    Args:
        may_get_base: whether the channel may get a base (R15).
        last_data_seq: newest sequence number that added data. Dropping a partition adds no data (R19).
        retain: retention of old versions.
        keep_by_column: partition column -> retention of its partitions.
        registered_at: time of registration.
        last_listing_started_at: start of the last listing for files that were never announced.
        seal: when its days or hours are complete.
        position: position in its timeline.
        used_until: greatest number that a commit may have had before the catalog was restored; 0 for none.
    """

    __repr__ = short_repr

    channel: Channel = field(metadata=json_key("definition"))
    head: int
    schema: Schema | None = field(metadata=json_key("columns"))
    rows: int = 0
    bytes: int = 0
    blocks: int = 0
    updated_at: datetime | None = None
    may_get_base: bool = field(default=False, metadata=json_key("bases"))
    last_data_seq: int = field(default=0, metadata=json_key("news"))
    retain: str | None = None
    keep_by_column: Mapping[str, str] = field(default_factory=dict, metadata=json_key("keep"))
    registered_at: datetime | None = None
    last_listing_started_at: datetime | None = field(default=None, metadata=NOT_IN_JSON)
    seal: Sealing | None = None
    position: TimelinePosition = field(default_factory=TimelinePosition)
    used_until: int = field(default=0, metadata=NOT_IN_JSON)

    def as_json(self) -> dict[str, Any]:
        """State with the name of the channel, as the service sends it."""
        return {"name": self.channel.name, **super(ChannelState, self).as_json()}

    @property
    def next_number(self) -> int:
        """Sequence number of the next commit. A restored channel leaves out numbers, up to ``used_until``."""
        return max(self.head, self.used_until) + 1

    def parse_scope(self, partition: str | Mapping[str, object] | None) -> str:
        """Name of a partition, or of all partitions with some values, as a person writes it; None for the channel.

        Raises:
            PartitionError: the channel has no such partition.
        """
        if not partition:
            return WHOLE
        return parse_partition(self.channel.partitions, partition, allow_scope=True, schema=self.schema)


@dataclass(frozen=True, slots=True)
class PartitionState(JsonForm):
    """Current state of one partition: the sequence number of its last change, and the size of its blocks.

    Args:
        last_data_seq: newest sequence number that added data (R19).
    """

    __repr__ = short_repr

    partition: str
    seq: int
    rows: int
    bytes: int
    blocks: int
    last_data_seq: int = field(default=0, metadata=json_key("news"))

    @property
    def is_dropped(self) -> bool:
        """Whether the last change dropped the partition."""
        return self.seq > self.last_data_seq


@dataclass(frozen=True, slots=True)
class Cursor(JsonForm):
    """Position up to which a binding has read a channel: the pinned head of its last successful execution.

    Args:
        skipped: count of numbers after the position that a restored channel leaves out.
    """

    __repr__ = short_repr

    binding: str
    channel: str
    seq: int
    head: int
    partition: str = WHOLE
    channel_partition: str = WHOLE
    moved_at: datetime | None = None
    skipped: int = field(default=0, metadata=NOT_IN_JSON)

    _json_properties = ("lag",)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cursor:
        cursor = super(Cursor, cls).from_json(data)
        return replace(cursor, skipped=cursor.lag - data["lag"])

    @property
    def lag(self) -> int:
        """Number of unread commits."""
        return self.head - self.seq - self.skipped


@dataclass(frozen=True, slots=True)
class UnreadData:
    """Data that was added to a channel, or to some of its partitions, after a sequence number.

    Args:
        blocks, rows, bytes: size of the committed data. A base that was committed together with its changes counts with
            the size of these changes.
        oldest: commit time of the oldest unread data.
    """

    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    oldest: datetime | None = None

    def describe(self, now: datetime) -> str:
        """Readable text: how much data, and its age."""
        waits = "" if self.oldest is None else f", the oldest for {(now - self.oldest).total_seconds():.0f} s"
        return f"{self.blocks} blocks, {self.rows} rows, {self.bytes} bytes{waits}"


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Sequence numbers that a block covers: from ``lo`` to ``hi`` for a delta, ``hi`` for a base.

    Blocks of several partitions with the same ends share one span.

    Args:
        collected: the block was collected.
        rows: rows of the blocks, deletions included.
    """

    kind: Kind
    lo: int
    hi: int
    origin: Origin = "task"
    collected: bool = False
    rows: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ChannelOutline:
    """Data for the timeline chart of a channel, cheap enough to query after every commit.

    Args:
        spans: sorted by their ends; only for the newest numbers if the query was limited.
        cursors: cursors of its consumers, one per partition that is read separately.
        scope: partitions concerned.
    """

    channel: str
    head: int
    spans: tuple[BlockSpan, ...]
    cursors: tuple[Cursor, ...]
    scope: str = WHOLE


@dataclass(frozen=True, slots=True)
class ConsumerPosition:
    """A consumer that has read a channel up to a sequence number and will read the changes after it.

    Args:
        name: readable name of the consumer.
        cursor: 0 if it has never run, or ran on an empty channel.
        scope: partitions that it reads.
        reads_old_snapshot: whether it also reads the snapshot at its cursor.
        has_run: whether it has run. With a cursor of 0, it still needs the changes of partitions that are dropped
            before its next run.
    """

    name: str
    cursor: int
    scope: str = WHOLE
    reads_old_snapshot: bool = False
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class PinnedRead:
    """Versions that a live execution or reader has pinned.

    Args:
        head: sequence number of the snapshot that it may read.
        cursor: sequence number after which its changes begin; None if it reads no changes.
        has_run: whether it has run before, which matters for a cursor of 0.
    """

    __repr__ = short_repr

    holder: str
    head: int
    cursor: int | None = None
    scope: str = WHOLE
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class RetentionState:
    """Everything that determines which blocks of a channel are retained.

    Args:
        history: all existing blocks, up to the head.
        consumers: every consumer.
        pins: pins of live executions and readers.
        may_get_base: whether the channel may get a base: a bound task produces one, or one was ever inserted. Lagging
            consumers then need the snapshot at their cursor to compute the difference.
        oldest_kept_version: oldest sequence number that is kept for time travel.
    """

    __repr__ = short_repr

    history: History
    consumers: tuple[ConsumerPosition, ...] = ()
    pins: tuple[PinnedRead, ...] = ()
    may_get_base: bool = False
    oldest_kept_version: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionVerdict:
    """Decision whether a block can be collected.

    Args:
        held_by: readers that need the block, and for what; empty if it can be collected.
    """

    __repr__ = short_repr

    block: Block
    held_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CollectedGarbage(JsonForm):
    """Blocks of a channel that one transaction marked as collected."""

    __repr__ = short_repr

    channel: str
    blocks: tuple[Block, ...]
    commit_id: str = field(default="", metadata=json_key("commit"))
