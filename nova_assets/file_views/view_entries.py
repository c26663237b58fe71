"""Entries of a view in its storage, with their keys and keyspaces."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from nova_assets.file_views.block_encoding import (
    decode_errors_as_damage,
    decode_json,
)
from nova_assets.model.block import Block
from nova_assets.model.partitions import single_partition_in_scope
from nova_assets.model.timeline import TimelinePosition, TimelineStep

HEADER_KEY = b"!"
"""Key of the header in the keyspace of a channel."""
DESCRIPTION_PREFIX = b"d"
INSTANT_PREFIX = b"i"
PARTITION_PREFIX = b"p"

NUMBER_FORMAT = struct.Struct(">Q")
"""Sequence numbers and steps within keys, so that keys sort by number."""

COLLECTED_MARK = b"-"
BASE_MARK = b"b"

END_OF_NUMBERS = b"\xff" * 9
"""Greater than every number in a key."""


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
        partitions: all partitions that it touched, loaded or not, sorted.
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
        touched_partitions = {b.partition for b in step.collected} | {b.partition for b in step.added}
        touched_partitions |= {b.partition for b in step.rolled_back}
        at, seq = step.at.isoformat(), max(numbers, default=None)
        return ViewInstant(
            step.position.step,
            step.position.prefix,
            step.action,
            step.commit_id,
            at,
            seq,
            tuple(sorted(touched_partitions)),
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


def channel_keyspace(channel: str) -> bytes:
    return b"c" + hashlib.sha256(channel.encode()).digest()[:16]


def partition_keyspace(channel: str, partition: str) -> bytes:
    return b"p" + hashlib.sha256(f"{channel}\0{partition}".encode()).digest()[:16]


def partition_key(partition: str) -> bytes:
    return PARTITION_PREFIX + hashlib.sha256(partition.encode()).digest()[:16]


def instant_key(n: int) -> bytes:
    return INSTANT_PREFIX + NUMBER_FORMAT.pack(n)


def block_key(block: Block | Any) -> bytes:
    """Key of a block or collected block."""
    return NUMBER_FORMAT.pack(block.hi) + block.kind[:1].encode() + block.id.encode()


def collected_number_key(number: int) -> bytes:
    return NUMBER_FORMAT.pack(number) + COLLECTED_MARK


def partition_entry(partition: LoadedPartition) -> Mapping[bytes, bytes | None]:
    return {partition_key(partition.name): orjson.dumps(asdict(partition))}
