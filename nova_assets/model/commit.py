"""Commits: updates and what they require, published in one catalog transaction (R2, R6).

The same request serves runs, inserts and, later, upkeep: whoever changes a channel says what it adds, which cursors it
moves, and what must still be true for that to be right. The catalog checks and applies it, or refuses it whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from nova_assets.errors import IdempotencyConflict
from nova_assets.model.arrival import ArrivalOutcome
from nova_assets.model.block import Block, Kind, Manifest, Origin
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.published_version import ShowPublishedVersion
from nova_assets.model.schema import Schema
from nova_assets.model.seal import PutSeal
from nova_assets.model.sum_bounds import SumHeadroom
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class AddBlock:
    """One block to be added, at the number that the commit gives its channel.

    A delta without rows is not published and takes no number; a base without rows is (R1).

    Args:
        span: of a block at numbers that exist already, as upkeep adds (R14): what lies between them, as one delta, or
            the second as a base. It takes no number.
        anew: a base that upkeep has added there before is replaced: it is collected by the same commit.
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
    anew: bool = False

    @property
    def is_committed(self) -> bool:
        return self.kind == "base" or self.manifest.rows > 0 or self.span is not None

    @property
    def takes_sequence_number(self) -> bool:
        return self.is_committed and self.span is None


@dataclass(frozen=True, slots=True)
class MoveCursor:
    """A cursor to be set.

    Args:
        expected: where it was pinned; the commit is refused if it is elsewhere (R6).
        to: the pinned head.
        own: the channel is written by this execution: the cursor goes to the commit's own number, if it takes one (R5).
    """

    binding: str
    channel: str
    expected: int
    to: int
    own: bool = False
    partition: str = WHOLE
    channel_partition: str = WHOLE


@dataclass(frozen=True, slots=True)
class HeadAt:
    """Requires that nothing was committed to the channel after ``seq``, in the partitions of the scope."""

    channel: str
    seq: int
    scope: str = WHOLE


@dataclass(frozen=True, slots=True)
class RequireNoConsumers:
    """Requires that nobody has consumed changes of the channel, or is about to (R10).

    For a base that was not compared with the rows that it replaces: when this fails, it is planned again, and compared.
    """

    channel: str


@dataclass(frozen=True, slots=True)
class SetSchema:
    """Requires that the channel's schema is still the one that the blocks were fitted to, and sets the new one."""

    channel: str
    expected: Schema | None
    to: Schema


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Everything that one execution publishes.

    Args:
        id: made by the caller, so that it can ask after an unknown outcome (R7).
        execution_id, epoch: the execution that must be live under this epoch.
        binding: None for an insert.
        sum_headrooms: how much others may have added meanwhile to what is summed.
        consumed: channel -> (cursor, head) read; kept as provenance.
        arrival_outcomes: (channel, what became of an arrival for it); refused if one of them is not waiting any more.
        seals: groups that are complete.
        published_versions: what tables show now.
        idempotency: (channel, key): a second commit with it gives back the first.
        digest: of what is inserted under that key: a second commit with another digest is refused.
        keeps_marks: what it writes was made of something that is to be made again: so is that, then, still.
        details: facts to keep beside the commit (timings, estimates).
    """

    __repr__ = short_repr

    id: str
    execution_id: str
    epoch: int
    binding: str | None
    publish: tuple[AddBlock, ...]
    cursors: tuple[MoveCursor, ...] = ()
    heads: tuple[HeadAt, ...] = ()
    no_consumers: tuple[RequireNoConsumers, ...] = ()
    schemas: tuple[SetSchema, ...] = ()
    sum_headrooms: tuple[SumHeadroom, ...] = ()
    consumed: Mapping[str, tuple[int | None, int]] = field(default_factory=dict, hash=False)
    arrival_outcomes: tuple[tuple[str, ArrivalOutcome], ...] = ()
    seals: tuple[PutSeal, ...] = ()
    published_versions: tuple[ShowPublishedVersion, ...] = ()
    idempotency: tuple[str, str] | None = None
    digest: str | None = None
    keeps_marks: bool = False
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Commit:
    """What was published.

    Args:
        id: the commit's id, which also reaches Dagster (R17).
        numbers: channel -> the sequence number it took; channels that got an empty delta are absent.
        blocks: the blocks, numbered.
        heads: channel -> head after this commit, for every channel that was written or consumed.
        consumed: channel -> (cursor, head) that was read.
        repeated: the idempotency key had been used; this is the first commit again.
    """

    __repr__ = short_repr

    id: str
    execution_id: str
    binding: str | None
    at: datetime
    numbers: Mapping[str, int]
    blocks: tuple[Block, ...]
    heads: Mapping[str, int] = field(default_factory=dict, hash=False)
    consumed: Mapping[str, tuple[int | None, int]] = field(default_factory=dict, hash=False)
    repeated: bool = False
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def seq(self) -> int:
        """The number of a commit to a single channel, as ``store.insert`` makes; its head, if the delta was empty."""
        number_by_channel = self.numbers or self.heads
        if len(number_by_channel) != 1:
            raise ValueError(
                f"the commit touches {len(number_by_channel)} channels; look its numbers up by "
                f"channel: {dict(number_by_channel)}"
            )
        return next(iter(number_by_channel.values()))


@dataclass(frozen=True, slots=True)
class IdempotentCommit:
    """The commit that an idempotency key stands for.

    Args:
        digest: of what was inserted under the key; None for a key that was used before catalogs kept digests.
    """

    key: str
    commit: Commit
    digest: str | None

    def as_repeated(self, channel: str, digest: str | None) -> Commit:
        """The commit again, for an insert with the same key. Raises IdempotencyConflict for other content."""
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
    """The digest of an insert: of its rows, and of what they are to do."""
    return f"{kind}:{scope_digest(scope) if kind == 'base' else ''}:{rows_digest}"


def scope_digest(scope: str) -> str:
    """A short text for the partitions that a base replaces; none for all of them."""
    return hashlib.blake2b(scope.encode(), digest_size=6).hexdigest() if scope else ""


def _describe_insert_digest(digest: str) -> str:
    kind, _, rows, hashes = digest.split(":")
    return f"a {kind} of {rows} rows (digest {hashes[:12]})"
