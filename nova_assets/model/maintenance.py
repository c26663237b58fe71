"""Upkeep: what is known of a channel's readers, what may go, and what would be worth compacting (Nova 2.4)."""

from __future__ import annotations

from dataclasses import dataclass

from nova_assets.model.block import Block
from nova_assets.model.partitions import WHOLE
from nova_assets.model.timeline import History
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class ConsumerPosition:
    """Somebody who has read a channel up to a number and will ask for what came since.

    Args:
        name: as it is told to people.
        cursor: 0 for one that has never run, or has run when the channel was empty.
        scope: the partitions that it reads.
        reads_old_snapshot: it reads the snapshot at its cursor, too.
        has_run: it has; at 0, it is told what came to partitions that are dropped before it runs again.
    """

    name: str
    cursor: int
    scope: str = WHOLE
    reads_old_snapshot: bool = False
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class PinnedRead:
    """What a live execution or reader has pinned.

    Args:
        head: the snapshot that it may read.
        cursor: where its changes begin; None where it reads none.
        has_run: it has run before, if at 0.
    """

    __repr__ = short_repr

    holder: str
    head: int
    cursor: int | None = None
    scope: str = WHOLE
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class RetentionState:
    """Everything that decides what of a channel is held.

    Args:
        history: all blocks that are there, up to the head.
        consumers: every consumer.
        pins: of live executions and readers.
        bases: the channel may be given a base: a bound task produces one, or one was ever inserted. Then consumers that
            lag will need the snapshot at their cursor, to compare it with.
        keep_from: the oldest number that is kept for time travel.
    """

    __repr__ = short_repr

    history: History
    consumers: tuple[ConsumerPosition, ...] = ()
    pins: tuple[PinnedRead, ...] = ()
    bases: bool = False
    keep_from: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a block.

    Args:
        held_by: who needs it, and for what; empty where it can go.
    """

    __repr__ = short_repr

    block: Block
    held_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Collection:
    """Blocks of a channel that were marked as collected, in one transaction."""

    __repr__ = short_repr

    channel: str
    blocks: tuple[Block, ...]
    commit_id: str = ""
