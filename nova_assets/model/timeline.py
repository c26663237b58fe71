"""Timelines: what happened to one channel, oldest first."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from nova_assets.model.block import Block
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema
from nova_assets.short_repr import short_repr

Action = Literal["commit", "compact", "collect", "drop", "restore", "define"]
"""What happens to a channel; ``define`` is another definition of it, and the only one that touches no block."""


@dataclass(frozen=True, slots=True)
class TimelinePosition:
    """How much of a timeline somebody knows: its instants up to one, and a hash of them all.

    Two who are at one position have seen the same; a timeline that was set back, as by a backup that was played in, is
    told from the one before by the hash.

    Args:
        step: counts the instants of the channel from 1, those that take no sequence number among them. 0 for none.
        prefix: the hash; of each instant and that of those before it.
    """

    step: int = 0
    prefix: str = ""

    def with_instant(self, action: str, commit_id: str) -> TimelinePosition:
        """Where one instant more leads."""
        step = self.step + 1
        return TimelinePosition(step, hashlib.sha256(f"{self.prefix} {step} {action} {commit_id}".encode()).hexdigest())

    def __str__(self) -> str:
        return f"{self.step}-{self.prefix}"

    @staticmethod
    def parse(text: str) -> TimelinePosition:
        """As ``str`` wrote it. Raises ValueError."""
        step, sep, prefix = text.partition("-")
        is_valid = step.isascii() and step.isdigit() and len(step) < 10 and len(prefix) in (0, 64)
        if not sep or not is_valid or not set(prefix) <= set("0123456789abcdef"):
            raise ValueError(text[:100])
        return TimelinePosition(int(step), prefix)


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on a channel: requested, then complete.

    Args:
        action: what was done.
        state: ``requested`` or ``complete``.
        seq: the number it took, or at which it added a block; None while requested.
        at: when it was completed (requested, while it is).
        commit_id: the commit it belongs to.
        binding: the binding that did it; None for an insert.
        blocks: the blocks it added.
        details: what was kept beside the commit: what its tasks did, by which way they read and what that was expected
            to cost; of a compaction, what it cost.
    """

    __repr__ = short_repr

    action: Action
    state: Literal["requested", "complete"]
    seq: int | None
    at: datetime
    commit_id: str
    binding: str | None
    blocks: tuple[Block, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class CollectedBlock:
    """A block that was collected."""

    id: str
    partition: str
    kind: str
    hi: int
    origin: str


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One complete instant, as who follows a timeline applies it.

    Args:
        position: after it.
        added, collected: blocks; a compaction that replaces another one has both.
    """

    __repr__ = short_repr

    position: TimelinePosition
    action: Action
    commit_id: str
    at: datetime
    added: tuple[Block, ...] = ()
    collected: tuple[CollectedBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelHead:
    """Where a channel stands, and what of it belongs to no partition.

    Args:
        columns: its partition columns.
        last_merge: the model of the newest block that was given; None where there is none.
        newest_block_schema: the schema of the newest block, where it tells one: that of the head, once there are later
            numbers.
    """

    __repr__ = short_repr

    channel: str
    position: TimelinePosition
    head: int
    schema: Schema | None
    merge: MergeModel
    columns: tuple[str, ...] = ()
    last_merge: MergeModel | None = None
    newest_block_schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """One partition of a history: the table of modes holds for each by itself (R13).

    Args:
        blocks: by (hi, kind).
        numbers: at which the partition changed.
        floor: the number of a base; what is older is left out. 0 where nothing is.
    """

    __repr__ = short_repr

    partition: str
    blocks: tuple[Block, ...]
    numbers: tuple[int, ...]
    floor: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """Everything about a channel that a plan needs: its blocks up to a head, in order.

    Planning is pure: it gets this from the catalog and asks nothing more. It may be an excerpt, that leaves out what no
    plan from some number on can need; within that it answers as the whole would.

    Args:
        scope: the partitions concerned: the name of one, of some dimensions, or ``""`` for all.
        blocks: the retained blocks in the scope, by (hi, kind).
        head: the pinned head of the channel.
        schema: the channel's schema now; None while nothing has given one.
        merge: the channel's merge model now.
        numbers: partition -> numbers at which it changed and whose blocks were collected since.
        since: of an excerpt: from which number on it answers; up to it, blocks are left out that this does not need.
        last_merge: the model of the newest block that was given, whatever its partition; None where there is none.
        floors: of an excerpt: partition -> the number of a base; of the partition everything older is left out.
        earlier: of an excerpt: the schema at ``since``; None where it is not needed.
    """

    __repr__ = short_repr

    channel: str
    scope: str
    head: int
    blocks: tuple[Block, ...]
    schema: Schema | None
    merge: MergeModel
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    since: int = 0
    last_merge: MergeModel | None = None
    floors: Mapping[str, int] = field(default_factory=dict, hash=False)
    earlier: Schema | None = None

    def for_partitions(self, partitions: Collection[str]) -> History:
        """The history of some partitions."""
        blocks = tuple(b for b in self.blocks if b.partition in partitions)
        numbers = {p: n for p, n in self.numbers.items() if p in partitions}
        # Of partitions that are here whole the schema is told by their own blocks.
        earlier = self.earlier if any(self.floors.get(p) for p in partitions) else None
        return replace(self, blocks=blocks, numbers=numbers, earlier=earlier)

    @property
    def partition_histories(self) -> tuple[PartitionHistory, ...]:
        """The history of each partition, by name."""
        blocks_by_partition: dict[str, list[Block]] = {p: [] for p in self.numbers}
        for block in self.blocks:
            blocks_by_partition.setdefault(block.partition, []).append(block)
        return tuple(
            PartitionHistory(
                p,
                tuple(blocks),
                tuple(sorted({b.hi for b in blocks} | set(self.numbers.get(p, ())))),
                self.floors.get(p, 0),
            )
            for p, blocks in sorted(blocks_by_partition.items())
        )


def action_from_origins(origins: Iterable[str]) -> Action:
    """What a commit did to a channel, by the origins of the blocks that it added."""
    distinct_origins = set(origins)
    if distinct_origins == {"drop"}:
        return "drop"
    if distinct_origins == {"compact"}:
        return "compact"
    return "restore" if "restore" in distinct_origins else "commit"
