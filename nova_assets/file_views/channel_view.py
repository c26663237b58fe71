"""View of one channel: its partitions with their blocks, at one position of its timeline.

A view uses several keyspaces of a storage. The keyspace of the channel holds its header, descriptions that blocks
share, its latest instants, and the names of the loaded partitions. Each loaded partition has a keyspace of its own,
with its blocks by number. So an instant changes only the partitions that it touches.
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
"""Greater than every key in the keyspace of a partition."""
_UNNUMBERED_ACTIONS = ("compact", "collect", "define")
"""Actions that take no sequence number."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """Schema and merge model of the newest blocks, from a number on, as hashes of descriptions.

    Args:
        number: sequence number from which they apply.
        schema: schema of the newest block that determines it.
        merge: merge model of the newest block from a task, an insert or a restore.
    """

    number: int
    schema: str | None
    merge: str | None


@dataclass(frozen=True, slots=True)
class ViewHeader:
    """State of a view that belongs to no partition.

    Args:
        position: position in the timeline.
        head: head of the channel.
        schema, merge, last_merge: hashes of the channel's current descriptions.
        columns: partition columns.
        versions: schema versions, from the number at which the view began.
        scopes: loaded scopes, in addition to single partitions.
        cleaned: step up to which garbage collection is complete: partitions that no later instant touched have nothing
            left to collect.
        began: step at which the view began.
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
        """Partition that a scope selects, if it names all dimensions; otherwise None."""
        return single_partition_in_scope(self.columns, scope)


@dataclass(frozen=True, slots=True)
class ViewInstant:
    """An instant that a view has applied.

    Args:
        n, prefix: position after the instant.
        action: action; empty for the entry at which the view began.
        commit: commit of the action.
        at: time, in ISO format.
        seq: sequence number that it took, or newest number at which it added or collected a block.
        partitions: all partitions that it touched, loaded or not.
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
    """A loaded partition.

    Args:
        step: step at which it was loaded, or of the newest later instant that touched it.
    """

    name: str
    step: int

    @staticmethod
    def decode(encoded: bytes) -> LoadedPartition:
        with decode_errors_as_damage():
            return LoadedPartition(**decode_json(encoded))


class ChannelView:
    """View of one channel in one snapshot of a storage."""

    def __init__(self, snapshot: StorageSnapshot, head: ViewHeader) -> None:
        self._snapshot = snapshot
        self._channel_keyspace = channel_keyspace(head.channel)
        self.head = head
        self.descriptions = Descriptions(lambda mark: snapshot.get(self._channel_keyspace, DESCRIPTION + mark.encode()))

    @staticmethod
    def load(snapshot: StorageSnapshot, channel: str) -> ChannelView | None:
        """View of a channel; None if nothing of the channel is loaded."""
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
        """Applied instants after a step, as far back as they are kept."""
        start = INSTANT + _NUMBER.pack(after_step + 1)
        result = []
        for key, text in self._snapshot.scan(self._channel_keyspace, start):
            if not key.startswith(INSTANT):
                break
            result.append(ViewInstant.decode(text))
        return [i for i in result if i.action]

    def is_scope_loaded(self, scope: str) -> bool:
        """Whether all partitions of a scope are loaded."""
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
        """Loaded partitions in a scope, by name."""
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
        """Blocks of a partition, sorted by (hi, kind, id).

        Args:
            oldest_number: return only blocks from the newest base at or before this number on. Without such a base, all
                blocks are returned.

        Returns:
            The blocks, the numbers whose blocks were collected, and the number of that base (0 if there is none).
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
        """Whether the view knows the schema at a number."""
        return number >= self.head.head or (bool(self.head.versions) and self.head.versions[0].number <= number)

    def schema_at(self, scope: str, number: int) -> Schema | None:
        """Schema at a number, as the partitions of a scope determine it (R18).

        It is the schema of the newest block that is no compaction, or of the newest existing block. At equal numbers,
        the base decides.
        """
        newest_blocks = [b for p in self.loaded_partitions(scope) for b in self._newest_blocks_at(p.name, number)]
        newest_block = min(newest_blocks, key=lambda b: (b.origin == "compact", -b.hi, b.kind, b.id), default=None)
        return None if newest_block is None else newest_block.manifest.schema.without_columns("_deleted")

    def _newest_blocks_at(self, partition: str, number: int) -> list[Block]:
        """Blocks of a partition up to a number, back to the newest number of a block that is no compaction."""
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
        """Excerpt of the history of a scope (see ``plan/history_excerpt``), with its encoded blocks by id.

        For a long history, hardly more than the excerpt is read.

        Args:
            at: sequence number; the head by default.
            since: only the changes after this number; 0 for all.
            back_to: only what snapshots from this number on need; 0 for all.
        """
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
        """Full history of a loaded scope, with blocks without files, and the encoded blocks by id.

        Args:
            at: sequence number; the head by default. The view must know the schema at this number.
        """
        at = self.head.head if at is None else at
        return self._load_history(scope, [p.name for p in self.loaded_partitions(scope)], at, 0)

    def history_of(self, partitions: Sequence[str]) -> History:
        """History of some loaded partitions, with blocks without files."""
        return self._load_history(WHOLE, partitions, self.head.head, 0)[0]

    def last_step_at_number(self, number: int) -> int:
        """Last step before the channel took the next number after the given one.

        Returns:
            -1 if the view does not reach back that far.
        """
        known_instants = self.instants()
        has_all_instants = len(known_instants) == self.position.step - self.head.began
        if number < self.head.versions[0].number or not has_all_instants:
            return -1
        later = (
            i.n for i in known_instants if i.action not in _UNNUMBERED_ACTIONS and i.seq is not None and i.seq > number
        )
        return min(later, default=self.position.step + 1) - 1

    def _partitions_changed_between(self, scope: str, since: int, at: int) -> list[str]:
        """Partitions of a scope that changed between two numbers. May include others."""
        touched_partitions = self.partitions_touched_since(since) if since < at else set()
        if touched_partitions is None:
            return [p.name for p in self.loaded_partitions(scope)]
        return sorted(p for p in touched_partitions if is_in_scope(p, scope) and self.is_partition_loaded(p))

    def partitions_touched_since(self, since: int) -> set[str] | None:
        """Partitions touched after a number was committed, loaded or not.

        Returns:
            None if the kept instants do not reach back that far.
        """
        result: set[str] = set()
        for key, text in self._snapshot.scan_backwards(self._channel_keyspace, INSTANT + _PARTITION_KEYS_END):
            if not key.startswith(INSTANT):
                break
            instant = ViewInstant.decode(text)
            if not instant.action:  # the view began here
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
        """Hashes of the schema, the channel's merge model and the newest block's merge model at a number."""
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
    """Key of a block or collected block."""
    return _NUMBER.pack(block.hi) + block.kind[:1].encode() + block.id.encode()


def collected_number_key(number: int) -> bytes:
    return _NUMBER.pack(number) + _GONE


def partition_entry(partition: LoadedPartition) -> Mapping[bytes, bytes | None]:
    return {partition_key(partition.name): orjson.dumps(asdict(partition))}
