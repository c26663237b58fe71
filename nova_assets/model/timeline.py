"""Timelines: the instants of one channel, oldest first."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from nova_assets.model.block import Block
from nova_assets.model.json_form import JsonForm, json_key
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema
from nova_assets.short_repr import short_repr

Action = Literal["commit", "compact", "collect", "drop", "restore", "rollback", "define"]
"""Kind of instant.

``rollback`` removes staged files of an aborted execution, and ``define`` changes the definition of the channel. Both
touch no committed block.
"""


@dataclass(frozen=True, slots=True)
class TimelinePosition(JsonForm):
    """Position of a reader in a timeline: the number of instants read, and a hash over them.

    Two readers at the same position have read the same instants. The hash detects a timeline that was reset, for
    example by restoring a backup.

    Args:
        step: number of instants of the channel, including those that take no sequence number; 0 for none.
        prefix: hash over all these instants.
    """

    step: int = 0
    prefix: str = ""

    def with_instant(self, action: str, commit_id: str) -> TimelinePosition:
        """Position after one more instant."""
        step = self.step + 1
        return TimelinePosition(step, hashlib.sha256(f"{self.prefix} {step} {action} {commit_id}".encode()).hexdigest())

    def __str__(self) -> str:
        return f"{self.step}-{self.prefix}"

    def as_json(self) -> str:
        return str(self)

    @classmethod
    def from_json(cls, data: str) -> TimelinePosition:
        return cls.parse(data)

    @staticmethod
    def parse(text: str) -> TimelinePosition:
        """Position from its ``str``. Raises ValueError."""
        step, sep, prefix = text.partition("-")
        is_valid = step.isascii() and step.isdigit() and len(step) < 10 and len(prefix) in (0, 64)
        if not sep or not is_valid or not set(prefix) <= set("0123456789abcdef"):
            raise ValueError(text[:100])
        return TimelinePosition(int(step), prefix)


@dataclass(frozen=True, slots=True)
class RolledBackBlock(JsonForm):
    """A block that was staged and never committed, and whose files were removed.

    Args:
        id: id of the staged block. If it covers several partitions, each has an entry.
        partition: partition of the files; the scope of the write if it was cut off.
        folder: folder that was removed, relative to the warehouse root.
        files: removed files, relative to the warehouse root.
    """

    id: str
    partition: str
    folder: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instant(JsonForm):
    """One action on a channel: requested, then complete.

    Args:
        action: the action.
        state: ``requested`` or ``complete``.
        seq: sequence number that the action took, or at which it added a block; None while requested.
        at: time of completion; while requested, time of the request.
        commit_id: commit of the action.
        binding: binding that caused the action; None for an insert.
        blocks: the added blocks.
        details: metrics stored with the commit: reports of its tasks, read strategies with estimated costs; for a
            compaction, its cost.
        rolled_back: for a rollback: the staged blocks whose files were removed.
    """

    __repr__ = short_repr

    action: Action
    state: Literal["requested", "complete"]
    seq: int | None
    at: datetime
    commit_id: str = field(metadata=json_key("commit"))
    binding: str | None
    blocks: tuple[Block, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rolled_back: tuple[RolledBackBlock, ...] = ()


class InstantSummary(NamedTuple):
    """An instant without its blocks.

    Args:
        step, prefix: position after the instant.
        at: time of the commit, in ISO format.
        seq: newest number at which it added or collected a block.
        partitions: partitions that it touched.
    """

    step: int
    prefix: str
    action: str
    commit: str
    at: str
    seq: int | None
    partitions: tuple[str, ...]


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
    """One complete instant, in the form that a follower of the timeline applies.

    Args:
        position: position after the instant.
        added, collected: blocks. A compaction that replaces an earlier one has both.
        rolled_back: for a rollback: the staged blocks whose files were removed.
    """

    __repr__ = short_repr

    position: TimelinePosition
    action: Action
    commit_id: str
    at: datetime
    added: tuple[Block, ...] = ()
    collected: tuple[CollectedBlock, ...] = ()
    rolled_back: tuple[RolledBackBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelHead:
    """State of a channel at its head that belongs to no single partition.

    Args:
        columns: partition columns.
        last_merge: merge model of the newest block from a task, an insert or a restore; None without such a block.
        newest_block_schema: schema at the head according to its newest block; needed once the channel has later
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
    """History of one partition. The table of modes applies to each partition separately (R13).

    Args:
        blocks: sorted by (hi, kind).
        numbers: sequence numbers at which the partition changed.
        floor: sequence number of a base, below which everything is left out; 0 if nothing is left out.
    """

    __repr__ = short_repr

    partition: str
    blocks: tuple[Block, ...]
    numbers: tuple[int, ...]
    floor: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """Everything that a plan needs to know about a channel: its blocks up to a head, in order.

    Planning is pure: it gets this object from the catalog and queries nothing else. A history may be an excerpt without
    the blocks that no plan from some number on can need. For such plans an excerpt answers like the full history.

    Args:
        scope: partitions concerned: the name of one partition, of some dimensions, or ``""`` for all.
        blocks: retained blocks in the scope, sorted by (hi, kind).
        head: pinned head of the channel.
        schema: current schema of the channel; None before the first block of a channel without a declared schema.
        merge: current merge model of the channel.
        collected_numbers: partition -> sequence numbers of its changes whose blocks have been collected.
        first_answerable_version: for an excerpt. Earlier blocks that no answer from this number on needs are left out.
        last_merge: merge model of the newest block from a task, an insert or a restore, in any partition; None without
            such a block.
        base_floors: for an excerpt: partition -> sequence number of a base, below which the partition is left out.
        schema_at_first_version: for an excerpt: the schema at ``first_answerable_version``; None if not needed.
        next_schema: columns that take effect with the next base of the whole channel, because the definition changed
            them; None if it did not.
    """

    __repr__ = short_repr

    channel: str
    scope: str
    head: int
    blocks: tuple[Block, ...]
    schema: Schema | None
    merge: MergeModel
    collected_numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    first_answerable_version: int = 0
    last_merge: MergeModel | None = None
    base_floors: Mapping[str, int] = field(default_factory=dict, hash=False)
    schema_at_first_version: Schema | None = None
    next_schema: Schema | None = None

    def for_partitions(self, partitions: Collection[str]) -> History:
        """History restricted to some partitions."""
        blocks = tuple(b for b in self.blocks if b.partition in partitions)
        numbers = {p: n for p, n in self.collected_numbers.items() if p in partitions}
        # For partitions without a floor, their own blocks give the earlier schema.
        earlier = self.schema_at_first_version if any(self.base_floors.get(p) for p in partitions) else None
        return replace(self, blocks=blocks, collected_numbers=numbers, schema_at_first_version=earlier)

    @property
    def partition_histories(self) -> tuple[PartitionHistory, ...]:
        """History of each partition, sorted by name."""
        blocks_by_partition: dict[str, list[Block]] = {p: [] for p in self.collected_numbers}
        for block in self.blocks:
            blocks_by_partition.setdefault(block.partition, []).append(block)
        return tuple(
            PartitionHistory(
                p,
                tuple(blocks),
                tuple(sorted({b.hi for b in blocks} | set(self.collected_numbers.get(p, ())))),
                self.base_floors.get(p, 0),
            )
            for p, blocks in sorted(blocks_by_partition.items())
        )


def action_of_block_origins(origins: Iterable[str]) -> Action:
    """Action of a commit on a channel, derived from the origins of the added blocks."""
    distinct_origins = set(origins)
    if distinct_origins == {"drop"}:
        return "drop"
    if distinct_origins == {"compact"}:
        return "compact"
    return "restore" if "restore" in distinct_origins else "commit"
