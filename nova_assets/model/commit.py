"""Commits: new blocks with their preconditions, published in one catalog transaction (R2, R6).

Runs, inserts and maintenance use the same request. It lists the blocks to add, the cursors to move, and the
preconditions of the change. The catalog checks and applies the whole request, or rejects it as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from nova_assets.errors import IdempotencyConflict
from nova_assets.model.arrival import ArrivalOutcome
from nova_assets.model.block import Block, Kind, Manifest, Origin
from nova_assets.model.database_table import SetSourceVersion
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm, json_key
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.provenance import ChannelRead
from nova_assets.model.published_version import SetPublishedVersion
from nova_assets.model.schema import Schema
from nova_assets.model.seal import AddSeal
from nova_assets.model.sum_bounds import RequireSumHeadroom
from nova_assets.short_repr import short_repr

_MAX_BLOCKS_LISTED = 100
"""Maximum number of blocks that the summary of a commit lists."""


@dataclass(frozen=True, slots=True)
class AddBlock:
    """A block to add, at the sequence number that the commit assigns to its channel.

    A delta without rows is not published and takes no number. A base without rows takes a number (R1).

    Args:
        span: for a block that maintenance adds at existing numbers (R14): a delta between the two numbers, or a base at
            the second number. Such a block takes no number.
        replaces_base: replaces an earlier base of maintenance at the same number; the same commit collects that base.
        channel_merge: the channel's merge model, if the block has another model.
    """

    __repr__ = short_repr

    block_id: str
    channel: str
    kind: Kind
    manifest: Manifest
    merge: MergeModel
    partition: str = WHOLE
    origin: Origin = "task"
    span: tuple[int, int] | None = None
    replaces_base: bool = False
    channel_merge: MergeModel | None = None

    @property
    def is_committed(self) -> bool:
        return self.kind == "base" or self.manifest.rows > 0 or self.span is not None

    @property
    def takes_sequence_number(self) -> bool:
        return self.is_committed and self.span is None


@dataclass(frozen=True, slots=True)
class MoveCursor:
    """A cursor update of a commit.

    Args:
        expected: pinned position of the cursor. The commit is rejected if the cursor is elsewhere (R6).
        to: the pinned head.
        follows_own_write: this execution writes the channel. The cursor then moves to the number of the commit itself,
            if the commit takes a number (R5).
    """

    binding: str
    channel: str
    expected: int
    to: int
    follows_own_write: bool = False
    partition: str = WHOLE
    channel_partition: str = WHOLE


@dataclass(frozen=True, slots=True)
class RequireHead:
    """Precondition: nothing was committed to the channel after ``seq``, in the partitions of the scope."""

    channel: str
    seq: int
    scope: str = WHOLE


@dataclass(frozen=True, slots=True)
class RequireNoConsumers:
    """Precondition: no consumer has read changes of the channel, or is about to (R10).

    For a base that was not compared with the rows that it replaces. If the precondition fails, the base is planned
    again and compared.
    """

    channel: str


@dataclass(frozen=True, slots=True)
class SetSchema:
    """Sets the new schema of a channel. Precondition: the schema is still the one to which the blocks were
    converted.

    Args:
        is_next: whether the channel's definition waited for a base with this schema. Precondition: it still does.
    """

    channel: str
    expected: Schema | None
    to: Schema
    is_next: bool = False


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Everything that one execution publishes, with all preconditions.

    Args:
        id: chosen by the caller, who can look it up after an unknown outcome (R7).
        execution_id, epoch: the execution, which must be live under this epoch.
        binding: None for an insert.
        added_blocks: the blocks to add.
        cursors: the cursor updates.
        required_heads, required_without_consumers: the preconditions.
        schema_changes: the schema changes.
        required_sum_headrooms: how much other commits may have added meanwhile to the summed columns.
        reads: what was read of each channel; stored as provenance.
        arrival_outcomes: (channel, outcome of one of its arrivals). The commit is rejected if an arrival is no longer
            waiting.
        seals: groups that are now complete.
        published_versions: versions that the published tables now show.
        source_versions: versions of a database that partitions now show.
        idempotency: (channel, key). A second commit with the same key returns the first commit.
        rows_digest: hash of the rows that are inserted under that key. A second commit with another hash is rejected.
        keeps_dirty_marks: the inputs are themselves marked to be recomputed, so the outputs keep that mark.
        recomputed_without_change: (channel, partition) that the execution has recomputed, without a change of its rows.
        details: metrics to store with the commit (timings, estimates).
    """

    __repr__ = short_repr

    id: str
    execution_id: str
    epoch: int
    binding: str | None
    added_blocks: tuple[AddBlock, ...]
    cursors: tuple[MoveCursor, ...] = ()
    required_heads: tuple[RequireHead, ...] = ()
    required_without_consumers: tuple[RequireNoConsumers, ...] = ()
    schema_changes: tuple[SetSchema, ...] = ()
    required_sum_headrooms: tuple[RequireSumHeadroom, ...] = ()
    reads: tuple[ChannelRead, ...] = ()
    arrival_outcomes: tuple[tuple[str, ArrivalOutcome], ...] = ()
    seals: tuple[AddSeal, ...] = ()
    published_versions: tuple[SetPublishedVersion, ...] = ()
    source_versions: tuple[SetSourceVersion, ...] = ()
    idempotency: tuple[str, str] | None = None
    rows_digest: str | None = None
    keeps_dirty_marks: bool = False
    recomputed_without_change: tuple[tuple[str, str], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Commit(JsonForm):
    """A published commit.

    Args:
        id: id of the commit. Dagster shows the same id (R17).
        numbers: channel -> new sequence number of the channel. A channel that got an empty delta is left out.
        blocks: the published blocks. Each block has its sequence numbers.
        heads: channel -> head of the channel after this commit. Contains every channel that was written or consumed.
        consumed: channel -> (cursor, head) between which the execution read the channel.
        repeated: true if the idempotency key was used before. This object is then the first commit with the key.
    """

    __repr__ = short_repr

    id: str
    execution_id: str = field(metadata=json_key("execution"))
    binding: str | None
    at: datetime
    numbers: Mapping[str, int]
    blocks: tuple[Block, ...]
    heads: Mapping[str, int] = field(default_factory=dict, hash=False)
    consumed: Mapping[str, tuple[int | None, int]] = field(default_factory=dict, hash=False, metadata=NOT_IN_JSON)
    repeated: bool = False
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def seq(self) -> int:
        """Sequence number of a commit to a single channel, such as an insert; its head if the delta was empty."""
        number_by_channel = self.numbers or self.heads
        if len(number_by_channel) != 1:
            raise ValueError(
                f"the commit touches {len(number_by_channel)} channels; look its numbers up by "
                f"channel: {dict(number_by_channel)}"
            )
        return next(iter(number_by_channel.values()))


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What a commit recorded about its execution.

    Args:
        read_versions: channel -> version that the execution read.
        heads: channel -> head of the channel after the commit. Contains every channel that was written or consumed.
        details: facts about the tasks.
    """

    read_versions: Mapping[str, int]
    heads: Mapping[str, int]
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IdempotentCommit:
    """The commit that belongs to an idempotency key.

    Args:
        key: the idempotency key.
        commit: the first commit with that key.
        digest: hash of the rows inserted under the key; None if the key was used before catalogs stored hashes.
    """

    key: str
    commit: Commit
    digest: str | None

    def as_repeated(self, channel: str, digest: str | None) -> Commit:
        """The first commit, as the answer to an insert with the same key. Raises IdempotencyConflict for other
        content.
        """
        if self.digest is not None and digest is not None and digest != self.digest:
            first = f"{_describe_insert_digest(self.digest)}, which commit {self.commit.id} inserted"
            raise IdempotencyConflict(
                f"the idempotency key {self.key!r} of channel {channel!r} was used for other rows",
                found=f"{_describe_insert_digest(digest)} to be inserted now",
                expected=f"{first} at {self._describe_number(channel)}",
                next="use another key for these rows; nothing was changed",
                channel=channel,
                key=self.key,
                commit_id=self.commit.id,
                seq=self.commit.heads.get(channel),
                digest=digest,
                first_digest=self.digest,
            )
        return replace(self.commit, repeated=True)

    def _describe_number(self, channel: str) -> str:
        number, at = self.commit.heads.get(channel), self.commit.at.strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"number {number} on {at}"


def insert_digest(kind: Kind, scope: str, rows_digest: str) -> str:
    """Hash of an insert: its rows, its kind, and the partitions that a base replaces."""
    return f"{kind}:{scope_digest(scope) if kind == 'base' else ''}:{rows_digest}"


def scope_digest(scope: str) -> str:
    """Short hash of the partitions that a base replaces; empty for all partitions."""
    return hashlib.blake2b(scope.encode(), digest_size=6).hexdigest() if scope else ""


def _describe_insert_digest(digest: str) -> str:
    kind, _, rows, hashes = digest.split(":")
    return f"a {kind} of {rows} rows (digest {hashes[:12]})"


def describe_commit(commit: Commit) -> str:
    """One-line summary of a commit for the log."""
    block_texts = [
        f"{b.channel} {f'{b.range} {b.partition}'.rstrip()} ({b.rows} rows)" for b in commit.blocks[:_MAX_BLOCKS_LISTED]
    ]
    numbers = ", ".join(block_texts) or "nothing new"
    return f"commit {commit.id[:8]}: {numbers}; consumed {json.dumps({c: h for c, (_, h) in commit.consumed.items()})}"
