"""State for maintenance of a channel: its readers, its blocks, and what retains each block (Nova 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field

from nova_assets.model.block import Block
from nova_assets.model.json_form import JsonForm, json_key
from nova_assets.model.partitions import WHOLE
from nova_assets.model.timeline import History
from nova_assets.short_repr import short_repr


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
