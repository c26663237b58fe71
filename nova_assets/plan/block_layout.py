"""Key layout of a channel's blocks, and of reads over blocks with a common layout. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.key_layout import HASHED_TYPES, KeyLayout, KeyRange
from nova_assets.model.merge import COMBINERS, Custom, Keyed, MergeModel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.reads import DeltaChain, Snapshot, SnapshotDiff, source_blocks
from nova_assets.model.schema import DataType, Schema
from nova_assets.plan.merge_units import base_files_overlapping
from nova_assets.plan.partial_reads import keeps_merge_columns, stored_blocks

COMPARABLE_TYPES = HASHED_TYPES | {"float", "double", "decimal"}
"""Types whose values Arrow and NumPy compare like Spark, if zeros and NaNs are handled separately."""


def layout_for_channel(channel: Channel, schema: Schema) -> KeyLayout | None:
    """Key layout of new blocks of a channel; None for a channel without a key.

    Also None if Arrow and Spark hash or sort values of a key column differently.
    """
    model = channel.merge
    if not model.key or isinstance(model, Custom):
        return None
    if any(k not in schema or schema.field(k).type.name not in HASHED_TYPES for k in model.key):
        return None
    other_key_columns = tuple(k for k in model.key if k not in channel.cluster_by)
    order = (*channel.cluster_by, *other_key_columns)
    return KeyLayout(order, tuple(str(schema.field(k).type) for k in order), bool(channel.cluster_by))


@dataclass(frozen=True, slots=True)
class CommonLayout:
    """The key layout that all blocks of a read share.

    Args:
        model: merge model of the blocks.
        schema: schema of the rows that are read.
    """

    layout: KeyLayout
    model: MergeModel
    schema: Schema


def common_layout(read: Snapshot | DeltaChain | SnapshotDiff) -> CommonLayout | None:
    """Common key layout of the blocks of a read; None if they cannot be merged unit by unit.

    That is the case if a block has another layout or merge model, or values that only Spark can combine or compare.
    """
    blocks = stored_blocks(read)
    nonempty_blocks = [b for b in blocks if b.manifest.files]
    schema = read.new.schema or read.old.schema if isinstance(read, SnapshotDiff) else read.schema
    if schema is None or not nonempty_blocks or len(blocks) < len(source_blocks(read)):
        return None
    layout, model = nonempty_blocks[-1].manifest.layout, blocks[-1].merge
    if (
        layout is None
        or (isinstance(read, SnapshotDiff) and not keeps_merge_columns(read))
        or not can_merge_outside_spark(model, schema)
        or (isinstance(read, SnapshotDiff) and not can_compare_outside_spark(schema))
    ):
        return None
    if any(c not in schema for c in layout.order) or set(layout.order) != set(model.key):
        return None
    if any(f.partition not in (WHOLE, b.partition) for b in nonempty_blocks for f in b.manifest.files):
        return None  # a staged block that is not split by partition
    has_layout_types = tuple(str(schema.field(c).type) for c in layout.order) == layout.types
    has_one_model = all(
        b.merge.as_json() == model.as_json() and not b.has_own_merge and b.manifest.format == "parquet" for b in blocks
    )
    return (
        CommonLayout(layout, model, schema)
        if has_layout_types and has_one_model and all(b.manifest.layout == layout for b in nonempty_blocks)
        else None
    )


def layout_of_small_diff(read: SnapshotDiff) -> CommonLayout | None:
    """Layout in which two small snapshots are sorted and compared in memory, however their blocks are stored.

    None if only Spark can compare the rows, or if the key or the merge model of the channel has changed.
    """
    schema, model = read.new.schema or read.old.schema, read.new.merge
    blocks = stored_blocks(read)
    if schema is None or not can_merge_outside_spark(model, schema) or not can_compare_outside_spark(schema):
        return None
    if not keeps_merge_columns(read):
        return None
    if any(k not in schema or schema.field(k).type.name not in COMPARABLE_TYPES for k in model.key):
        return None
    if any(b.model_of_channel.as_json() != model.as_json() for b in blocks):
        return None
    types = tuple(str(schema.field(k).type) for k in model.key)
    return CommonLayout(KeyLayout(model.key, types), model, schema)


class SplitSnapshot(NamedTuple):
    """Two parts of a snapshot.

    Args:
        untouched: base files that no delta changes. They are read without merging.
        overlapping: the other base files, with the deltas.
    """

    untouched: Snapshot
    overlapping: Snapshot


def split_by_delta_overlap(read: Snapshot) -> SplitSnapshot:
    """Split a snapshot into base files that no delta changes, and the rest.

    With a common layout and clustered keys, most of a large table is untouched.
    """
    common = common_layout(read)
    bases = [b for b in read.bases if isinstance(b, Block)]
    if common is None or not bases or not read.deltas:
        return SplitSnapshot(replace(read, bases=(), deltas=()), read)
    overlapping_paths: set[str] = set()
    for partition in {b.partition for b in bases}:
        partition_bases, deltas = (
            [b for b in some if isinstance(b, Block) and b.partition == partition] for some in (bases, read.deltas)
        )
        overlapping_paths |= base_files_overlapping(partition_bases, deltas, common.layout)

    def bases_with_files(overlapping: bool) -> tuple[Block, ...]:
        kept = ((b, tuple(f for f in b.manifest.files if (f.path in overlapping_paths) == overlapping)) for b in bases)
        return tuple(replace(b, manifest=replace(b.manifest, files=files)) for b, files in kept if files)

    return SplitSnapshot(
        replace(read, bases=bases_with_files(False), deltas=()), replace(read, bases=bases_with_files(True))
    )


def split_by_changed_partition(read: Snapshot) -> SplitSnapshot:
    """Split a snapshot into the bases of partitions that no delta changes, and the rest."""
    changed = set[str]().union(*(_partitions_of(d) for d in read.deltas if isinstance(d, Block)))
    bases = [b for b in read.bases if isinstance(b, Block)]
    untouched = tuple(b for b in bases if WHOLE not in changed and _partitions_of(b).isdisjoint({WHOLE, *changed}))
    return SplitSnapshot(
        replace(read, bases=untouched, deltas=()), replace(read, bases=tuple(b for b in bases if b not in untouched))
    )


def _partitions_of(block: Block) -> set[str]:
    """Partitions of the rows of a block. A staged block may have several, one for each file."""
    return {f.partition if f.partition != WHOLE else block.partition for f in block.manifest.files}


class ColumnRange(NamedTuple):
    """Smallest and greatest value of a column, as JSON values."""

    column: str
    least: Any
    greatest: Any


def changed_key_range(read: Snapshot) -> ColumnRange | None:
    """Range of the first layout column in the deltas of a snapshot.

    None if the layout or the files have no key ranges.
    """
    common = common_layout(read)
    if common is None or not common.layout.clustered:
        return None
    placements = [f.key_placement for d in read.deltas if isinstance(d, Block) for f in d.manifest.files]
    key_ranges = [p for p in placements if isinstance(p, KeyRange)]
    if not key_ranges or len(key_ranges) < len(placements):
        return None
    return ColumnRange(
        common.layout.order[0], min(p.least for p in key_ranges)[0], max(p.greatest for p in key_ranges)[0]
    )


def can_merge_outside_spark(model: MergeModel, schema: Schema) -> bool:
    """Whether changes under a model can be merged outside Spark. User functions need Spark columns."""
    if isinstance(model, Custom) or not model.key:
        return False
    combined = model.combine if isinstance(model, Keyed) else ()
    ordered = [*model.order_by, *(c for c, f in combined if f in ("min", "max"))]
    is_built_in = all(f in COMBINERS for _, f in combined)
    return is_built_in and all(c in schema and schema.field(c).type.name in COMPARABLE_TYPES for c in ordered)


def can_compare_outside_spark(schema: Schema) -> bool:
    """Whether rows of a schema can be compared outside Spark. Arrow cannot compare lists and maps."""
    return all(_is_comparable_type(f.type) for f in schema.fields)


def _is_comparable_type(type_: DataType) -> bool:
    if type_.name == "struct":
        return all(_is_comparable_type(f.type) for f in type_.fields)
    return type_.name in COMPARABLE_TYPES
