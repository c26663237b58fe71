"""Reads: the blocks that answer a mode, and how they combine.

A read is pure data. The engine interprets it, and ``nova plan`` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from nova_assets.model.block import Block
from nova_assets.model.block_options import has_same_effect
from nova_assets.model.merge import Append, Custom, MergeModel, Multiset
from nova_assets.model.partitions import WHOLE
from nova_assets.model.schema import Schema
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class StagedBlockPlaceholder:
    """Placeholder for the block that another task of this execution stages on a port (R5); known only after
    that task.

    Args:
        merge: merge model of the block; None for the channel's model.
        channel_merge: the channel's model, if the block has another model.
    """

    __repr__ = short_repr

    port: str
    kind: str
    merge: MergeModel | None = None
    channel_merge: MergeModel | None = None

    @property
    def range(self) -> str:
        return "B(staged)" if self.kind == "base" else "Δ(staged)"


BlockSource: TypeAlias = Block | StagedBlockPlaceholder

_MAX_SHOWN_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """B_at: the newest usable base, and the deltas from that base to ``at``. Without a base, the deltas start at B_0.

    On a partitioned channel this holds for each partition. Rows of different partitions have different keys, so all
    bases are read as one base, and all deltas are applied in order of their numbers.
    """

    __repr__ = short_repr

    channel: str
    at: int
    bases: tuple[BlockSource, ...]
    deltas: tuple[BlockSource, ...]
    schema: Schema | None
    merge: MergeModel


@dataclass(frozen=True, slots=True)
class SnapshotAsInserts:
    """A snapshot as a change in which every row is an insert (the first run of a consumer)."""

    __repr__ = short_repr

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class DeltaChain:
    """Consecutive deltas in sequence order, as one delta."""

    __repr__ = short_repr

    channel: str
    lo: int
    hi: int
    deltas: tuple[BlockSource, ...]
    schema: Schema | None
    merge: MergeModel


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """The change from one snapshot to another, computed by comparison because a base lies between them."""

    __repr__ = short_repr

    old: Snapshot
    new: Snapshot


@dataclass(frozen=True, slots=True)
class ChangeUnion:
    """Union of changes of different partitions."""

    __repr__ = short_repr

    channel: str
    parts: tuple[DeltaChain | SnapshotDiff | SnapshotAsInserts, ...]


@dataclass(frozen=True, slots=True)
class EmptyRead:
    """No rows, with the columns of the channel."""

    __repr__ = short_repr

    channel: str
    schema: Schema | None
    merge: MergeModel
    is_change: bool


@dataclass(frozen=True, slots=True)
class PrivatePortRead:
    """Rows that another task passes on through a private port."""

    __repr__ = short_repr

    port: str


Change: TypeAlias = SnapshotAsInserts | DeltaChain | SnapshotDiff | ChangeUnion | EmptyRead
Read: TypeAlias = Snapshot | Change | PrivatePortRead


_JSON_NAMES: Mapping[type, str] = {
    Snapshot: "snapshot",
    SnapshotAsInserts: "inserts",
    DeltaChain: "chain",
    SnapshotDiff: "diff",
    ChangeUnion: "together",
    EmptyRead: "empty",
    PrivatePortRead: "port",
}
"""Names of the kinds of reads in ``--json``."""


def source_blocks(read: Read) -> tuple[BlockSource, ...]:
    """All blocks that a read opens."""
    if isinstance(read, Snapshot):
        return read.bases + read.deltas
    if isinstance(read, SnapshotAsInserts):
        return source_blocks(read.snapshot)
    if isinstance(read, DeltaChain):
        return read.deltas
    if isinstance(read, SnapshotDiff):
        return source_blocks(read.old) + source_blocks(read.new)
    if isinstance(read, ChangeUnion):
        return tuple(s for part in read.parts for s in source_blocks(part))
    return ()


def schema_of(read: Read) -> Schema | None:
    """Columns of the channel in a read; None if no block has given the channel a schema, or for a private port."""
    if isinstance(read, SnapshotAsInserts):
        return read.snapshot.schema
    if isinstance(read, SnapshotDiff):
        return read.new.schema
    if isinstance(read, ChangeUnion):
        return schema_of(read.parts[-1])
    return None if isinstance(read, PrivatePortRead) else read.schema


def merge_model_of(read: Snapshot | DeltaChain | SnapshotDiff | EmptyRead) -> MergeModel:
    """The channel's merge model when the blocks of a read were written. A changed model takes effect with a base (R18).

    Single blocks may have another model, see ``merge_runs``.
    """
    if isinstance(read, SnapshotDiff):
        return merge_model_of(read.new)
    blocks = [s for s in source_blocks(read) if isinstance(s, Block)]
    if not blocks:
        return read.merge
    newest = blocks[-1].model_of_channel
    if isinstance(newest, Append):
        earlier = [b.model_of_channel for b in blocks if b.model_of_channel.has_deletions]
        if earlier and all(isinstance(m, Multiset) for m in earlier):  # any rows are a multiset, and a change of one
            return earlier[-1]
    return newest


def merge_runs(deltas: Iterable[Block], channel_merge: MergeModel) -> list[tuple[MergeModel, tuple[Block, ...]]]:
    """Deltas in runs of one merge model. The runs are merged one after the other, each under its model (Nova 3.1).

    A delta that only adds rows belongs to the run of a channel without a key.
    """
    if not channel_merge.key and not isinstance(channel_merge, Custom):
        return [(channel_merge, tuple(deltas))]
    runs: list[tuple[MergeModel, list[Block]]] = []
    for delta in deltas:
        model = delta.merge if delta.has_own_merge else channel_merge
        if not runs or runs[-1][0].as_json() != model.as_json():
            runs.append((model, []))
        runs[-1][1].append(delta)
    return [(model, tuple(run)) for model, run in runs]


def has_own_models(blocks: Iterable[BlockSource]) -> bool:
    """Whether a block has another merge model than its channel, so that its rows are no change in the channel's
    model.
    """
    return any(
        s.merge is not None and not has_same_effect(s.merge, s.channel_merge)
        for s in blocks
        if s.channel_merge is not None
    )


ReadT = TypeVar("ReadT", bound=Read)


def resolve_staged_blocks(read: ReadT, staged_by_port: Mapping[str, Block]) -> ReadT:
    """The read with every placeholder replaced by the block staged on that port.

    As after the commit, there is one block per partition (R13).
    """

    def replace_staged(block_sources: Iterable[BlockSource]) -> tuple[BlockSource, ...]:
        return tuple(
            b
            for s in block_sources
            for b in (_split_by_partition(staged_by_port[s.port]) if isinstance(s, StagedBlockPlaceholder) else (s,))
        )

    if isinstance(read, Snapshot):
        schema = _schema_with_staged(read.schema, read, staged_by_port)
        return replace(read, bases=replace_staged(read.bases), deltas=replace_staged(read.deltas), schema=schema)
    if isinstance(read, SnapshotAsInserts):
        return replace(read, snapshot=resolve_staged_blocks(read.snapshot, staged_by_port))
    if isinstance(read, DeltaChain):
        return replace(
            read, deltas=replace_staged(read.deltas), schema=_schema_with_staged(read.schema, read, staged_by_port)
        )
    if isinstance(read, SnapshotDiff):
        return replace(read, new=resolve_staged_blocks(read.new, staged_by_port))
    return read


def _split_by_partition(block: Block) -> tuple[Block, ...]:
    """A staged block split by partition. A block without rows stays unsplit."""
    parts = block.manifest.split_by_partition()
    if not parts or parts.keys() <= {WHOLE, block.partition}:
        return (block,)
    numbered_parts = enumerate(parts.items())
    return tuple(replace(block, id=f"{block.id}-{n}", partition=p, manifest=m) for n, (p, m) in numbered_parts)


def _schema_with_staged(schema: Schema | None, read: Read, staged_by_port: Mapping[str, Block]) -> Schema | None:
    """Schema of a read that includes staged blocks.

    A staged block has the schema that the channel gets with the commit, so its schema is the newest.
    """
    ports = [s.port for s in source_blocks(read) if isinstance(s, StagedBlockPlaceholder)]
    return staged_by_port[ports[-1]].manifest.schema.visible if ports else schema


def is_certainly_empty(read: Read) -> bool:
    """Whether a read certainly has no rows."""
    return isinstance(read, EmptyRead) or (
        not isinstance(read, PrivatePortRead) and all(isinstance(s, Block) and s.rows == 0 for s in source_blocks(read))
    )


def describe_read(read: Read) -> str:
    """The read in Nova's notation: ``B3 ⊕ Δ(3→4) ⊕ Δ(4→5)``."""
    if isinstance(read, Snapshot):
        return _describe_by_partition([*read.bases, *read.deltas], " ⊕ ") or "B0 (empty)"
    if isinstance(read, SnapshotAsInserts):
        return f"{describe_read(read.snapshot)} as inserts"
    if isinstance(read, DeltaChain):
        return _describe_by_partition(read.deltas, " · ")
    if isinstance(read, SnapshotDiff):
        return f"diff({describe_read(read.old)}, {describe_read(read.new)})"
    if isinstance(read, ChangeUnion):
        return "; ".join(map(describe_read, read.parts))
    return f"port {read.port}" if isinstance(read, PrivatePortRead) else "nothing new"


def _describe_by_partition(blocks: Sequence[BlockSource], separator: str) -> str:
    """Text of blocks in order, per partition on partitioned channels; only the first few partitions."""
    ranges_by_partition: dict[str, list[str]] = {}
    for block in blocks:
        ranges_by_partition.setdefault("" if isinstance(block, StagedBlockPlaceholder) else block.partition, []).append(
            block.range
        )
    shown = [
        f"{p}: {separator.join(r)}" if p else separator.join(r)
        for p, r in list(ranges_by_partition.items())[:_MAX_SHOWN_PARTITIONS]
    ]
    more = len(ranges_by_partition) - len(shown)
    return "; ".join(shown) + (f"; and {more} more partitions" if more else "")


def read_as_json(read: Read) -> dict[str, Any]:
    """The read for ``--json``: its kind, and the files that it opens."""
    blocks = [s for s in source_blocks(read) if isinstance(s, Block)]
    files = [f for b in blocks for f in b.manifest.files]
    return {
        "read": _JSON_NAMES[type(read)],
        "as": describe_read(read),
        "blocks": [b.range for b in blocks],
        "files": [f.path for f in files],
        "rows": sum(f.rows for f in files),
        "bytes": sum(f.bytes for f in files),
    }
