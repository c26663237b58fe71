"""Entries of a view in its storage: keys and keyspaces, header, instants, partitions, and blocks.

A block is one line about the block, and one line with its files. Descriptions that many blocks share, such as a
schema, are stored once, under their hash. The files are stored in the format of the answers, so that answering needs
no parsing.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, TypeVar

import orjson

from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.file_source import ExternalFolder
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import single_partition_in_scope
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import TimelinePosition, TimelineStep

T = TypeVar("T")

StoreDescription = Callable[[Any], str]
"""Stores a description, and returns its hash."""

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


class ViewDamaged(Exception):
    """Stored data differs from what was written."""


class decode_errors_as_damage:
    """Context manager that converts decoding errors to ViewDamaged."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            raise ViewDamaged(f"{type(error).__name__}: {error}") from error


def decode_json(encoded: bytes) -> Any:
    """Decode JSON. Raises ViewDamaged."""
    with decode_errors_as_damage():
        return orjson.loads(encoded)


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


class Descriptions:
    """Descriptions by hash. Each is read once per object, and decoded once per process."""

    def __init__(self, read_description: Callable[[str], bytes | None]) -> None:
        self._read_description = read_description
        self._cache: dict[str, bytes] = {}

    def schema(self, digest: str | None) -> Schema | None:
        return None if digest is None else _decode(Schema.from_json, digest, self.encoded_description(digest))

    def merge(self, digest: str | None) -> MergeModel | None:
        return None if digest is None else _decode(MergeModel.from_json, digest, self.encoded_description(digest))

    def layout(self, digest: str | None) -> KeyLayout | None:
        return None if digest is None else _decode(KeyLayout.from_json, digest, self.encoded_description(digest))

    def encoded_description(self, digest: str) -> bytes:
        """Description as JSON. Raises ViewDamaged if it is missing."""
        if digest not in self._cache:
            encoded = self._read_description(digest)
            if encoded is None:
                raise ViewDamaged(f"the description {digest} is missing")
            self._cache[digest] = encoded
        return self._cache[digest]


@lru_cache(maxsize=3 * 4096)
def _decode(from_json: Callable[[Any], T], digest: str, encoded: bytes) -> T:
    return from_json(orjson.loads(encoded))


def encode_description(description: Any) -> tuple[str, bytes]:
    """Hash and JSON of a description."""
    encoded = orjson.dumps(description, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()[:24], encoded


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block of a view, with its encoded lines.

    Args:
        block: the block without its files.
        header_line: encoded line about the block.
        files_line: encoded line with its files.
    """

    block: Block
    header_line: bytes
    files_line: bytes


def encode_block(block: Block, store_description: StoreDescription) -> bytes:
    """Encode a block with its files."""
    manifest = block.manifest
    header = {
        "id": block.id,
        "kind": block.kind,
        "lo": block.lo,
        "hi": block.hi,
        "origin": block.origin,
        "commit": block.commit_id,
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "deletes": manifest.deletes,
        "format": manifest.format,
        "keeps_all": manifest.drops_no_rows,
        "schema": store_description(manifest.schema.as_json()),
        "merge": store_description(block.merge.as_json()),
        "layout": None if manifest.layout is None else store_description(manifest.layout.as_json()),
        "outside": None if manifest.external_folder is None else manifest.external_folder.as_json(),
        "partition": block.partition,
        **({} if block.channel_merge is None else {"channel_merge": store_description(block.channel_merge.as_json())}),
    }
    return orjson.dumps(header) + b"\n" + orjson.dumps([_file_to_json(f) for f in manifest.files])


def _file_to_json(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "rows": file.rows,
        "bytes": file.bytes,
        "ranges": {k: list(v) for k, v in file.ranges.items() if all(map(_is_json_representable, v))},
        "place": None if file.key_placement is None else file.key_placement.as_json(),
        "digest": file.digest,
        "footer_digest": file.footer_digest,
        **({"unpacked": file.uncompressed_bytes} if file.uncompressed_bytes else {}),
    }


def _is_json_representable(value: Any) -> bool:
    """Whether JSON can represent a value. Other bounds of a range are omitted, as if unknown."""
    return not isinstance(value, float) or math.isfinite(value)


def decode_block(channel: str, encoded: bytes, descriptions: Descriptions) -> EncodedBlock:
    """Decode a block encoded by ``encode_block``."""
    header_line, _, files_line = encoded.partition(b"\n")
    with decode_errors_as_damage():
        return EncodedBlock(block_from_header(channel, decode_json(header_line), descriptions), header_line, files_line)


def block_from_header(channel: str, header: Mapping[str, Any], descriptions: Descriptions) -> Block:
    """Block without its files, from its decoded header line."""
    schema, merge = descriptions.schema(header["schema"]), descriptions.merge(header["merge"])
    assert schema is not None and merge is not None
    outside = None if header["outside"] is None else ExternalFolder.from_json(header["outside"])
    manifest = Manifest(
        (),
        schema,
        header["deletes"],
        header["format"],
        header["keeps_all"],
        descriptions.layout(header["layout"]),
        outside,
    )
    return Block(
        header["id"],
        channel,
        header["partition"],
        header["kind"],
        header["lo"],
        header["hi"],
        manifest,
        merge,
        header["origin"],
        header["commit"],
        descriptions.merge(header.get("channel_merge")),
    )
