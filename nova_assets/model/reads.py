"""Reads: which blocks answer a mode, and how they combine. Pure; the engine interprets them, ``nova plan`` prints
them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from nova_assets.model.block import Block
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.schema import Schema
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class FromPort:
    """Stands for the block that another task of this execution stages on a port (R5); known only when it has run."""

    __repr__ = short_repr

    port: str
    kind: str

    @property
    def range(self) -> str:
        return "B(staged)" if self.kind == "base" else "Δ(staged)"


Source: TypeAlias = Block | FromPort

_SHOWN_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """B_at: the newest usable base, and the deltas that lead from it to ``at``. Without a base, B_0.

    Of a partitioned channel, both for each partition: rows of different partitions have different keys, so all bases
    are read as one, and all deltas, in the order of their numbers.
    """

    __repr__ = short_repr

    channel: str
    at: int
    bases: tuple[Source, ...]
    deltas: tuple[Source, ...]
    schema: Schema | None
    merge: MergeModel


@dataclass(frozen=True, slots=True)
class Inserts:
    """A snapshot as a change: every row is new, nothing was deleted (the first run of a consumer)."""

    __repr__ = short_repr

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Chain:
    """Deltas in sequence order, as one delta."""

    __repr__ = short_repr

    channel: str
    lo: int
    hi: int
    deltas: tuple[Source, ...]
    schema: Schema | None
    merge: MergeModel


@dataclass(frozen=True, slots=True)
class Diff:
    """What turns one snapshot into another, where a base lies between them."""

    __repr__ = short_repr

    old: Snapshot
    new: Snapshot


@dataclass(frozen=True, slots=True)
class Together:
    """Changes of different partitions, side by side."""

    __repr__ = short_repr

    channel: str
    parts: tuple[Chain | Diff | Inserts, ...]


@dataclass(frozen=True, slots=True)
class Empty:
    """No rows, with the channel's columns."""

    __repr__ = short_repr

    channel: str
    schema: Schema | None
    merge: MergeModel
    change: bool


@dataclass(frozen=True, slots=True)
class Port:
    """The rows that another task hands over on a private port."""

    __repr__ = short_repr

    port: str


Change: TypeAlias = Inserts | Chain | Diff | Together | Empty
Read: TypeAlias = Snapshot | Change | Port


def sources(read: Read) -> tuple[Source, ...]:
    """Every block that a read opens."""
    if isinstance(read, Snapshot):
        return read.bases + read.deltas
    if isinstance(read, Inserts):
        return sources(read.snapshot)
    if isinstance(read, Chain):
        return read.deltas
    if isinstance(read, Diff):
        return sources(read.old) + sources(read.new)
    if isinstance(read, Together):
        return tuple(s for part in read.parts for s in sources(part))
    return ()


def model_of(read: Snapshot | Chain | Diff | Empty) -> MergeModel:
    """The model that the blocks of a read were written under; a changed one takes effect by a base (R18)."""
    if isinstance(read, Diff):
        return model_of(read.new)
    blocks = [s for s in sources(read) if isinstance(s, Block)]
    return blocks[-1].merge if blocks else read.merge


ReadT = TypeVar("ReadT", bound=Read)


def resolved(read: ReadT, staged: Mapping[str, Block]) -> ReadT:
    """The read with every ``FromPort`` replaced by what is staged on that port: as it will be committed, a block for
    each partition (R13)."""

    def all_of(some: Iterable[Source]) -> tuple[Source, ...]:
        return tuple(b for s in some for b in (_apart(staged[s.port]) if isinstance(s, FromPort) else (s,)))

    if isinstance(read, Snapshot):
        schema = _schema(read.schema, read, staged)
        return replace(read, bases=all_of(read.bases), deltas=all_of(read.deltas), schema=schema)
    if isinstance(read, Inserts):
        return replace(read, snapshot=resolved(read.snapshot, staged))
    if isinstance(read, Chain):
        return replace(read, deltas=all_of(read.deltas), schema=_schema(read.schema, read, staged))
    if isinstance(read, Diff):
        return replace(read, new=resolved(read.new, staged))
    return read


def _apart(block: Block) -> tuple[Block, ...]:
    """A staged block by partition. One without rows stays one."""
    parts = block.manifest.by_partition()
    if not parts or parts.keys() <= {WHOLE, block.partition}:
        return (block,)
    each = enumerate(parts.items())
    return tuple(replace(block, id=f"{block.id}-{n}", partition=p, manifest=m) for n, (p, m) in each)


def _schema(schema: Schema | None, read: Read, staged: Mapping[str, Block]) -> Schema | None:
    """A staged block was fitted to the schema that the channel will have, so its schema is the newest."""
    ports = [s.port for s in sources(read) if isinstance(s, FromPort)]
    return staged[ports[-1]].manifest.schema if ports else schema


def is_empty(read: Read) -> bool:
    """Whether a read certainly has no rows."""
    return isinstance(read, Empty) or (
        not isinstance(read, Port) and all(isinstance(s, Block) and s.rows == 0 for s in sources(read))
    )


def describe(read: Read) -> str:
    """The read in Nova's notation: ``B3 ⊕ Δ(3→4) ⊕ Δ(4→5)``."""
    if isinstance(read, Snapshot):
        return _by_partition([*read.bases, *read.deltas], " ⊕ ") or "B0 (empty)"
    if isinstance(read, Inserts):
        return f"{describe(read.snapshot)} as inserts"
    if isinstance(read, Chain):
        return _by_partition(read.deltas, " · ")
    if isinstance(read, Diff):
        return f"diff({describe(read.old)}, {describe(read.new)})"
    if isinstance(read, Together):
        return "; ".join(map(describe, read.parts))
    return f"port {read.port}" if isinstance(read, Port) else "nothing new"


def _by_partition(blocks: Sequence[Source], sign: str) -> str:
    """Blocks in order, and of partitioned channels for each partition by itself; the first few of many."""
    found: dict[str, list[str]] = {}
    for block in blocks:
        found.setdefault("" if isinstance(block, FromPort) else block.partition, []).append(block.range)
    shown = [f"{p}: {sign.join(r)}" if p else sign.join(r) for p, r in list(found.items())[:_SHOWN_PARTITIONS]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more partitions" if more else "")


def as_json(read: Read) -> dict[str, Any]:
    """The read for ``--json``: what it is, and the files it opens."""
    blocks = [s for s in sources(read) if isinstance(s, Block)]
    files = [f for b in blocks for f in b.manifest.files]
    return {
        "read": type(read).__name__.lower(),
        "as": describe(read),
        "blocks": [b.range for b in blocks],
        "files": [f.path for f in files],
        "rows": sum(f.rows for f in files),
        "bytes": sum(f.bytes for f in files),
    }
