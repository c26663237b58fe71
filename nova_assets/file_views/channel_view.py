"""The view of one channel: its partitions with their blocks, as they are at one position of its timeline.

It is spread over drawers of a storage. That of the channel has its head, descriptions that blocks have in common, its
latest instants, and the names of the partitions that are loaded; each of these has a drawer of its own, with its blocks
by number. So an instant changes what it touches, and no more.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from nova_assets.file_views.block_encoding import (
    Descriptions,
    EncodedBlock,
    decode_block,
    decode_errors_as_damage,
    decode_json,
)
from nova_assets.file_views.storage import StorageSnapshot
from nova_assets.model.block import Block
from nova_assets.model.partitions import WHOLE, is_in_scope, single_partition_in_scope
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, TimelinePosition, TimelineStep
from nova_assets.plan.history_excerpt import IncompleteHistory, excerpt_history

HEAD = b"!"
DESCRIPTION, INSTANT, PARTITION = b"d", b"i", b"p"
_NUMBER = struct.Struct(">Q")
_GONE, _BASE = b"-", b"b"
_PARTITION_KEYS_END = b"\xff" * 9
"""After whatever is in the drawer of a partition."""
_UNNUMBERED_ACTIONS = ("compact", "collect", "define")
"""Actions that take no sequence number."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """From some number on: the schema that blocks tell, and the model of the newest that was given; as hashes."""

    number: int
    schema: str | None
    merge: str | None


@dataclass(frozen=True, slots=True)
class ViewHeader:
    """What of a view belongs to no partition.

    Args:
        schema, merge, last_merge: hashes of what the channel has now.
        columns: its partition columns.
        versions: what blocks told, from the number on at which the view began.
        scopes: those that are loaded, beside single partitions.
        cleaned: of partitions that no instant after this one has touched, everything is collected that ever will be.
        began: the instant at which the view began.
    """

    channel: str
    position: TimelinePosition
    head: int
    schema: str | None
    merge: str
    last_merge: str | None
    columns: tuple[str, ...]
    versions: tuple[SchemaVersion, ...]
    scopes: tuple[str, ...] = ()
    cleaned: int = -1
    began: int = 0

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @staticmethod
    def decode(encoded: bytes) -> ViewHeader:
        with decode_errors_as_damage():
            fields = decode_json(encoded)
            position = TimelinePosition(**fields.pop("position"))
            versions = tuple(SchemaVersion(**v) for v in fields.pop("versions"))
            columns, scopes = tuple(fields.pop("columns")), tuple(fields.pop("scopes"))
            return ViewHeader(position=position, versions=versions, columns=columns, scopes=scopes, **fields)

    def single_partition(self, scope: str) -> str | None:
        """The one partition that is in a scope, where it names all dimensions."""
        return single_partition_in_scope(self.columns, scope)


@dataclass(frozen=True, slots=True)
class ViewInstant:
    """One that a view has applied.

    Args:
        partitions: those that it touched; all of them, loaded or not.
        seq: the number that it took, or the newest at which it added or took a block.
    """

    n: int
    prefix: str
    action: str
    commit: str
    at: str
    seq: int | None
    partitions: tuple[str, ...]

    def encode(self) -> bytes:
        return orjson.dumps(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_step(step: TimelineStep) -> ViewInstant:
        numbers = [*(b.hi for b in step.added), *(g.hi for g in step.collected)]
        touched_partitions = dict.fromkeys([*(g.partition for g in step.collected), *(b.partition for b in step.added)])
        at, seq = step.at.isoformat(), max(numbers, default=None)
        return ViewInstant(
            step.position.step, step.position.prefix, step.action, step.commit_id, at, seq, tuple(touched_partitions)
        )

    @staticmethod
    def decode(encoded: bytes) -> ViewInstant:
        with decode_errors_as_damage():
            fields = decode_json(encoded)
            return ViewInstant(**{**fields, "partitions": tuple(fields["partitions"])})


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    """A partition that is loaded.

    Args:
        step: the newest instant that touched it since.
    """

    name: str
    step: int

    @staticmethod
    def decode(encoded: bytes) -> LoadedPartition:
        with decode_errors_as_damage():
            return LoadedPartition(**decode_json(encoded))


class ChannelView:
    """One channel, as one look at a storage shows it."""

    def __init__(self, snapshot: StorageSnapshot, head: ViewHeader) -> None:
        self._snapshot = snapshot
        self._channel_keyspace = channel_keyspace(head.channel)
        self.head = head
        self.descriptions = Descriptions(lambda mark: snapshot.get(self._channel_keyspace, DESCRIPTION + mark.encode()))

    @staticmethod
    def load(snapshot: StorageSnapshot, channel: str) -> ChannelView | None:
        """None where nothing of the channel is loaded."""
        encoded_header = snapshot.get(channel_keyspace(channel), HEAD)
        return None if encoded_header is None else ChannelView(snapshot, ViewHeader.decode(encoded_header))

    @property
    def position(self) -> TimelinePosition:
        return self.head.position

    def has_reached_position(self, position: TimelinePosition) -> bool:
        """Whether the view is at a position, or has passed it."""
        if position == self.position:
            return True
        encoded_instant = self._snapshot.get(self._channel_keyspace, INSTANT + _NUMBER.pack(position.step))
        return encoded_instant is not None and ViewInstant.decode(encoded_instant).prefix == position.prefix

    def instants(self, after_step: int = 0) -> list[ViewInstant]:
        """Those after a step, as far back as they are kept."""
        start = INSTANT + _NUMBER.pack(after_step + 1)
        result = []
        for key, text in self._snapshot.scan(self._channel_keyspace, start):
            if not key.startswith(INSTANT):
                break
            result.append(ViewInstant.decode(text))
        return [i for i in result if i.action]

    def is_scope_loaded(self, scope: str) -> bool:
        """Whether all that is in a scope is loaded."""
        if any(is_in_scope(scope, s) for s in self.head.scopes):
            return True
        partition = self.head.single_partition(scope)
        return partition is not None and self.is_partition_loaded(partition)

    def is_partition_loaded(self, partition: str) -> bool:
        return self._snapshot.get(self._channel_keyspace, partition_key(partition)) is not None

    def loaded_partition(self, name: str) -> LoadedPartition | None:
        encoded_partition = self._snapshot.get(self._channel_keyspace, partition_key(name))
        return None if encoded_partition is None else LoadedPartition.decode(encoded_partition)

    def loaded_partitions(self, scope: str = WHOLE) -> list[LoadedPartition]:
        """The loaded ones in a scope, by name."""
        partition = self.head.single_partition(scope)
        if partition is not None:
            loaded = self.loaded_partition(partition)
            return [] if loaded is None else [loaded]
        result: list[LoadedPartition] = []
        for key, text in self._snapshot.scan(self._channel_keyspace, PARTITION):
            if not key.startswith(PARTITION):
                break
            result.append(LoadedPartition.decode(text))
        return sorted((p for p in result if is_in_scope(p.name, scope)), key=lambda p: p.name)

    def partition_blocks(self, partition: str, oldest_number: int = 0) -> tuple[list[EncodedBlock], list[int], int]:
        """Of a partition the blocks, by (hi, kind, id), the numbers whose blocks were collected, and where they begin.

        Args:
            oldest_number: only what came from the newest base on that is no later than this; all of it, where there is
                none.
        """
        live_blocks, collected_numbers, first_number = [], [], 0
        for key, text in self._snapshot.scan_backwards(
            partition_keyspace(self.head.channel, partition), _PARTITION_KEYS_END
        ):
            number = int(_NUMBER.unpack(key[:8])[0])
            if number < first_number:
                break
            if key[8:9] == _GONE:
                collected_numbers.append(number)
                continue
            if key[8:9] == _BASE and number <= oldest_number:
                first_number = first_number or number
            live_blocks.append(decode_block(self.head.channel, text, self.descriptions))
        return live_blocks[::-1], collected_numbers[::-1], first_number

    def knows_schema_at(self, number: int) -> bool:
        """Whether it is known what the schema was at a number."""
        return number >= self.head.head or (bool(self.head.versions) and self.head.versions[0].number <= number)

    def schema_at(self, scope: str, number: int) -> Schema | None:
        """The schema of a number, as the partitions of a scope tell it (R18): by the newest block that was given, or
        that there is; by its base, where a delta tells the same."""
        newest_blocks = [b for p in self.loaded_partitions(scope) for b in self._newest_blocks_at(p.name, number)]
        newest_block = min(newest_blocks, key=lambda b: (b.origin == "compact", -b.hi, b.kind, b.id), default=None)
        return None if newest_block is None else newest_block.manifest.schema.without_columns("_deleted")

    def _newest_blocks_at(self, partition: str, number: int) -> list[Block]:
        """The blocks of a partition up to a number, back to the newest number at which it was given something."""
        result: list[Block] = []
        newest_number = 0
        for key, text in self._snapshot.scan_backwards(
            partition_keyspace(self.head.channel, partition), _NUMBER.pack(number + 1)
        ):
            if key[8:9] == _GONE:
                continue
            block = decode_block(self.head.channel, text, self.descriptions).block
            if block.hi < newest_number:
                break
            result.append(block)
            newest_number = block.hi if block.origin != "compact" else newest_number
        return result

    def excerpt(
        self, scope: str = WHOLE, at: int | None = None, since: int = 0, back_to: int = 0
    ) -> tuple[History, dict[str, EncodedBlock]]:
        """What of a history is asked for (``plan/excerpt``); of long ones little else is looked at."""
        at = self.head.head if at is None else at
        oldest = since or min(back_to, at)
        partitions = (
            self._partitions_changed_between(scope, since, at)
            if since
            else [p.name for p in self.loaded_partitions(scope)]
        )
        if oldest:
            with suppress(IncompleteHistory):
                short_history, encoded_blocks = self._load_history(scope, partitions, at, oldest)
                return excerpt_history(
                    short_history, since, back_to, lambda n: self.schema_at(scope, n)
                ), encoded_blocks
        full_history, encoded_blocks = self._load_history(scope, partitions, at, 0)
        return excerpt_history(full_history, since, back_to, lambda n: self.schema_at(scope, n)), encoded_blocks

    def history(self, scope: str = WHOLE, at: int | None = None) -> tuple[History, dict[str, EncodedBlock]]:
        """The history of a scope that is covered, of blocks without their files; and these, by their blocks' ids.

        Args:
            at: up to this number, of which it ``tells``.
        """
        at = self.head.head if at is None else at
        return self._load_history(scope, [p.name for p in self.loaded_partitions(scope)], at, 0)

    def history_of(self, partitions: Sequence[str]) -> History:
        """The history of some that are loaded, of blocks without their files."""
        return self._load_history(WHOLE, partitions, self.head.head, 0)[0]

    def last_step_at_number(self, number: int) -> int:
        """The newest instant before which no later number was given; -1 where that is longer ago than is known."""
        known_instants = self.instants()
        has_all_instants = len(known_instants) == self.position.step - self.head.began
        if number < self.head.versions[0].number or not has_all_instants:
            return -1
        later = (
            i.n for i in known_instants if i.action not in _UNNUMBERED_ACTIONS and i.seq is not None and i.seq > number
        )
        return min(later, default=self.position.step + 1) - 1

    def _partitions_changed_between(self, scope: str, since: int, at: int) -> list[str]:
        """The partitions of a scope that have changed between two numbers, and maybe others."""
        touched_partitions = self.partitions_touched_since(since) if since < at else set()
        if touched_partitions is None:
            return [p.name for p in self.loaded_partitions(scope)]
        return sorted(p for p in touched_partitions if is_in_scope(p, scope) and self.is_partition_loaded(p))

    def partitions_touched_since(self, since: int) -> set[str] | None:
        """The partitions that were touched since the number after this one was given, loaded or not; None where that is
        longer ago than instants are known."""
        result: set[str] = set()
        for key, text in self._snapshot.scan_backwards(self._channel_keyspace, INSTANT + _PARTITION_KEYS_END):
            if not key.startswith(INSTANT):
                break
            instant = ViewInstant.decode(text)
            if not instant.action:  # where the view began
                return result if self.head.versions[0].number <= since else None
            if instant.action not in _UNNUMBERED_ACTIONS and instant.seq is not None and instant.seq <= since:
                return result
            result.update(instant.partitions)
        return None

    def _load_history(
        self, scope: str, partitions: Sequence[str], at: int, oldest_number: int
    ) -> tuple[History, dict[str, EncodedBlock]]:
        blocks: list[EncodedBlock] = []
        numbers: dict[str, tuple[int, ...]] = {}
        floors: dict[str, int] = {}
        for partition in partitions:
            partition_blocks, collected_numbers, floor = self.partition_blocks(partition, oldest_number)
            if floor:
                floors[partition] = floor
            blocks += [k for k in partition_blocks if k.block.hi <= at]
            if before := tuple(n for n in collected_numbers if n <= at):
                numbers[partition] = before
        blocks.sort(key=lambda k: (k.block.hi, k.block.kind, k.block.id))
        schema, last_merge = self._schema_and_merge_at(at)
        merge = self.descriptions.merge(self.head.merge)
        assert merge is not None
        history = History(
            self.head.channel,
            scope,
            at,
            tuple(k.block for k in blocks),
            self.descriptions.schema(schema),
            merge,
            numbers,
            last_merge=self.descriptions.merge(last_merge),
            floors=floors,
        )
        return history, {k.block.id: k for k in blocks}

    def schema_and_merge_digests(self, number: int) -> tuple[str | None, str, str | None]:
        """The hashes of the schema, the channel's model and that of the newest block given, at a number."""
        schema, last_merge = self._schema_and_merge_at(number)
        return schema, self.head.merge, last_merge

    def _schema_and_merge_at(self, number: int) -> tuple[str | None, str | None]:
        if number >= self.head.head:
            return self.head.schema, self.head.last_merge
        version = next((v for v in reversed(self.head.versions) if v.number <= number), None)
        return (self.head.schema, None) if version is None else (version.schema or self.head.schema, version.merge)


def channel_keyspace(channel: str) -> bytes:
    return b"c" + hashlib.sha256(channel.encode()).digest()[:16]


def partition_keyspace(channel: str, partition: str) -> bytes:
    return b"p" + hashlib.sha256(f"{channel}\0{partition}".encode()).digest()[:16]


def partition_key(partition: str) -> bytes:
    return PARTITION + hashlib.sha256(partition.encode()).digest()[:16]


def instant_key(n: int) -> bytes:
    return INSTANT + _NUMBER.pack(n)


def block_key(block: Block | Any) -> bytes:
    """Of a block, or of one that is gone."""
    return _NUMBER.pack(block.hi) + block.kind[:1].encode() + block.id.encode()


def collected_number_key(number: int) -> bytes:
    return _NUMBER.pack(number) + _GONE


def partition_entry(partition: LoadedPartition) -> Mapping[bytes, bytes | None]:
    return {partition_key(partition.name): orjson.dumps(asdict(partition))}
