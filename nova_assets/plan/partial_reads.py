"""Partial reads: some columns or some partitions of a read. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar

from nova_assets.model.block import Block
from nova_assets.model.merge import Custom, Keyed, MergeModel, Multiset
from nova_assets.model.reads import (
    ChangeUnion,
    DeltaChain,
    EmptyRead,
    Read,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    merge_model_of,
    source_blocks,
)
from nova_assets.model.schema import DataType, Field, Schema

MAX_PORTION_BYTES = 256 * 2**20
"""Maximum bytes of files in a portion that is read at once. A larger partition is a portion of its own."""

_BYTES_BY_TYPE = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "date": 4, "float": 4}
_BYTES_BY_TYPE |= {"bigint": 8, "double": 8, "timestamp": 8, "timestamp_ntz": 8, "decimal": 8}
_OTHER_TYPE_BYTES = 24
"""Bytes of a value, such as a short text, whose type is not in ``_BYTES_BY_TYPE``."""

_Blocks: TypeAlias = Snapshot | DeltaChain | SnapshotDiff
BlocksT = TypeVar("BlocksT", bound=_Blocks)


def stored_blocks(read: Read) -> list[Block]:
    """Blocks of a read that are written already."""
    return [s for s in source_blocks(read) if isinstance(s, Block)]


def columns_of_read(read: Read) -> Schema | None:
    """Columns of the rows of a read; None if only user functions or a frame determine them."""
    if isinstance(read, SnapshotAsInserts):
        return _add_deleted_column(columns_of_read(read.snapshot), read.snapshot)
    if isinstance(read, ChangeUnion):
        parts = {columns_of_read(p) for p in read.parts}
        return parts.pop() if len(parts) == 1 else None
    if not isinstance(read, _Blocks | EmptyRead) or isinstance(merge_model_of(read), Custom):
        return None
    schema = (read.new.schema or read.old.schema) if isinstance(read, SnapshotDiff) else read.schema
    is_change = read.is_change if isinstance(read, EmptyRead) else not isinstance(read, Snapshot)
    return _add_deleted_column(schema or Schema(()), read) if is_change else schema or Schema(())


def _add_deleted_column(schema: Schema | None, read: _Blocks | EmptyRead) -> Schema | None:
    return schema.with_deleted() if schema is not None and merge_model_of(read).has_deletions else schema


def is_plain_file_scan(read: _Blocks) -> bool:
    """Whether the rows of a read are exactly the rows of its files."""
    if isinstance(read, SnapshotDiff) or isinstance(merge_model_of(read), Custom):
        return False
    return not merge_model_of(read).has_deletions or (isinstance(read, Snapshot) and not read.deltas)


def narrow_columns(read: BlocksT, column_names: Collection[str]) -> BlocksT:
    """The read restricted to some columns and the columns needed for merging. A comparison needs all columns."""
    if isinstance(read, SnapshotDiff) or read.schema is None:
        return read
    if isinstance(merge_model_of(read), Multiset) and not is_plain_file_scan(read):
        return read
    models = (merge_model_of(read), *(b.merge for b in stored_blocks(read)))
    needed_columns = {*column_names, *(c for m in models for c in _merge_columns(m))}
    return replace(read, schema=read.schema.select_columns(n for n in read.schema.names if n in needed_columns))


def share_of_row(columns: Schema, row: Schema) -> float:
    """Approximate share of some columns in the bytes of whole rows, between 0 and 1."""
    whole = sum(_typical_bytes(f.type) for f in row.fields)
    return min(1.0, sum(_typical_bytes(f.type) for f in columns.fields) / whole) if whole else 1.0


def _typical_bytes(type_: DataType) -> int:
    return _BYTES_BY_TYPE.get(type_.name, _OTHER_TYPE_BYTES)


def columns_of_old_snapshot(read: SnapshotDiff) -> Schema:
    """Columns in which the old snapshot of a comparison is merged: first those of the new one, in their order and by
    their identity, then the columns of the old merge model that the channel no longer has (R23).

    A column has the name that it had in the old snapshot, because the merge model knows it by that name (R18).
    """
    new, old = read.new.schema or read.old.schema or Schema(()), read.old.schema or Schema(())
    merge_columns = set(_merge_columns_of_old(read))
    missing = [f for f in old.fields if f.name in merge_columns and new.name_of_field(f) is None]
    taken = {f.name.lower() for f in old.fields}

    def named(field: Field) -> Field:
        unused = f"__nova_{field.name}" if field.name.lower() in taken else field.name
        return replace(field, name=old.name_of_field(field) or unused, id=field.identity)

    return Schema((*map(named, new.fields), *missing))


def keeps_merge_columns(read: SnapshotDiff) -> bool:
    """Whether the columns by which the old snapshot is merged have the same names in the new one."""
    new, old = read.new.schema or read.old.schema, read.old.schema
    if new is None or old is None:
        return True
    fields = [f for f in old.fields if f.name in set(_merge_columns_of_old(read))]
    return all(new.name_of_field(f) == f.name for f in fields)


def _merge_columns_of_old(read: SnapshotDiff) -> Iterator[str]:
    models = (merge_model_of(read.old), *(b.merge for b in stored_blocks(read.old)))
    return (column for model in models for column in _merge_columns(model))


def _merge_columns(model: MergeModel) -> Iterator[str]:
    yield from (*model.key, *model.order_by)
    yield from (column for column, _ in (model.combine if isinstance(model, Keyed) else ()))


def split_into_portions(read: BlocksT, max_bytes: int = MAX_PORTION_BYTES) -> list[BlocksT]:
    """Split a read by partition, with small partitions grouped.

    The read stays whole if its partitions depend on each other: under user functions, which may combine any rows; after
    a change of the merge model; and for a diff of an append-only channel, which must report all removed rows at once.
    """
    blocks = stored_blocks(read)
    model = read.new.merge if isinstance(read, SnapshotDiff) else read.merge
    alike = all(b.merge.as_json() == model.as_json() for b in blocks)
    if isinstance(model, Custom) or not alike or (isinstance(read, SnapshotDiff) and not model.has_deletions):
        return [read]
    bytes_by_partition: dict[str, int] = {}
    for block in blocks:
        bytes_by_partition[block.partition] = bytes_by_partition.get(block.partition, 0) + block.bytes
    groups = list(_group_partitions(bytes_by_partition, max_bytes))
    return [read] if len(groups) < 2 else [_restrict_to_partitions(read, g) for g in groups]


def _group_partitions(bytes_by_partition: Mapping[str, int], max_bytes: int) -> Iterator[frozenset[str]]:
    group: list[str] = []
    total = 0
    for partition in sorted(bytes_by_partition):
        if group and total + bytes_by_partition[partition] > max_bytes:
            yield frozenset(group)
            group, total = [], 0
        group.append(partition)
        total += bytes_by_partition[partition]
    if group:
        yield frozenset(group)


def _restrict_to_partitions(read: BlocksT, partitions: Collection[str]) -> BlocksT:
    """The read restricted to some partitions."""
    if isinstance(read, SnapshotDiff):
        return replace(
            read, old=_restrict_to_partitions(read.old, partitions), new=_restrict_to_partitions(read.new, partitions)
        )
    deltas = tuple(d for d in read.deltas if isinstance(d, Block) and d.partition in partitions)
    if isinstance(read, DeltaChain):
        return replace(read, deltas=deltas)
    bases = tuple(b for b in read.bases if isinstance(b, Block) and b.partition in partitions)
    return replace(read, bases=bases, deltas=deltas)
