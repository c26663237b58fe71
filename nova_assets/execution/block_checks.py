"""Checks of a block before it may be committed: schema, partition columns, sums, dropped rows."""

from __future__ import annotations

from dataclasses import replace

from nova_assets.errors import PartitionError, SchemaMismatch, UnrepresentableChange
from nova_assets.model.block import Block, Kind, Manifest, StagedBlock
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.engine import Engine
from nova_assets.model.merge import Append, Custom
from nova_assets.model.schema import DELETED, HIDDEN_PREFIX, UNKNOWN_TYPE, DataType, Schema
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets.model.sum_bounds import overflowable_sums
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan import modes
from nova_assets.plan.required_base import check_merge_model_accepts
from nova_assets.plan.sum_bounds import block_chains_to_sum, is_headroom_ample, sum_headrooms


def resolve_block_schema(
    channel: Channel | None, history: History | None, kind: Kind, frame_schema: Schema, *, may_hide: bool = False
) -> Schema:
    """Schema in which the block is written.

    Args:
        may_hide: whether columns with the prefix of hidden columns are hidden. Otherwise they are refused.
    """
    split_schema = frame_schema.with_hidden_prefix()
    frame_schema, hidden = split_schema.visible, split_schema.hidden
    if hidden and not may_hide:
        raise SchemaMismatch(
            f"column {hidden[0].name!r} has a reserved name",
            expected=f"a name that does not begin with {HIDDEN_PREFIX}",
            **({} if channel is None else {"channel": channel.name}),
        )
    if channel is None or history is None:
        return _null_columns_as_text(frame_schema)
    _check_partition_columns(channel, frame_schema)
    check_merge_model_accepts(history, kind)
    if kind == "delta" and isinstance(channel.merge, Custom):
        return _null_columns_as_text(frame_schema)
    frame_schema = frame_schema.without_columns(DELETED)
    declared = _declared_schema(history, kind, frame_schema)
    schema = reconcile_schema(channel.name, declared, frame_schema, channel.on_schema_change, history.head)
    if history.schema is None:
        _check_first_schema(channel, schema)
    return replace(schema, hidden=hidden)


def _declared_schema(history: History, kind: Kind, frame_schema: Schema) -> Schema | None:
    """Schema that the rows of a block have to fit. A base may bring changed columns, or the present ones, as a restored
    version does. Their names differ.
    """
    is_present = history.schema is not None and set(frame_schema.names) == set(history.schema.names)
    return history.next_schema if kind == "base" and history.next_schema and not is_present else history.schema


def check_no_sum_overflow(
    catalog: Catalog, engine: Engine, channel: Channel, history: History, staged: StagedBlock
) -> None:
    """Refuse a delta that would make a sum overflow its column's type, which no reader could read any more.

    Rows are read only if the bounds of the files do not decide.
    """
    assert staged.manifest is not None
    merge = staged.manifest.merge or history.merge
    types = overflowable_sums(merge, staged.manifest.schema)
    if not types or not staged.manifest.rows:
        return
    head = history.head
    since_base = catalog.history(channel.name, head, history.scope, back_to=head)
    if is_headroom_ample(
        sum_headrooms(since_base, staged.manifest, types), types
    ) and not catalog.has_dropped_partitions(channel.name):
        return
    full_history = catalog.history(channel.name, head, history.scope)
    partitions_without_headroom = {
        r.partition for r in sum_headrooms(full_history, staged.manifest, types) if r.headroom is None
    }
    manifests, histories = (
        staged.manifest.split_by_partition(),
        {t.partition: t for t in full_history.partition_histories},
    )
    for partition in sorted(partitions_without_headroom):
        block = Block(staged.id, channel.name, partition, "delta", head, head + 1, manifests[partition], merge)
        partition_history = histories.get(partition, PartitionHistory(partition, (), ()))
        for older in block_chains_to_sum(full_history, partition_history):
            engine.check_no_sum_overflow(f"channel {channel.name!r}", block, older, types)


def check_base_keeps_rows(
    catalog: Catalog, engine: Engine, channel: Channel, history: History, manifest: Manifest
) -> Manifest:
    """Check that a base of an Append channel drops no rows, since the channel cannot represent removals to its
    consumers.

    The comparison is skipped while the channel has no consumers. The commit then requires that there are still
    none.
    """
    if not isinstance(channel.merge, Append) or history.head == 0 or not catalog.has_consumers(channel.name):
        return manifest
    dropped = engine.count_dropped_rows(modes.snapshot(history), manifest)
    if dropped:
        raise UnrepresentableChange(
            f"the base for channel {channel.name!r} drops {dropped} rows, which an Append channel cannot report "
            "to its consumers (R10)",
            found=f"{dropped} rows of version {history.head} are not in the new base",
            expected="a base that keeps every row",
            next="declare the channel with merge=nova.Upsert(key=...), or insert a base that keeps these rows",
            channel=channel.name,
            dropped=dropped,
        )
    return replace(manifest, drops_no_rows=True)


def _null_columns_as_text(schema: Schema) -> Schema:
    """Schema with all-null columns as text, for rows whose schema nothing later depends on."""
    return Schema(tuple(replace(f, type=DataType("string")) if f.type == UNKNOWN_TYPE else f for f in schema.fields))


def _check_first_schema(channel: Channel, schema: Schema) -> None:
    """Check that the schema of the first block is one that the channel could have been declared with."""
    problems = channel.merge.problems(schema)
    problems += [f"partition column {c!r} has no type yet" for c in channel.partition_columns if c not in schema]
    if problems:
        raise SchemaMismatch(
            f"the first data of channel {channel.name!r} does not fit its merge model: {'; '.join(problems)}",
            found=str(schema),
            expected="columns and types that the merge model can compare and combine",
            next="cast or rename the columns, or declare the channel with schema=",
            channel=channel.name,
            problems=problems,
        )


def _check_partition_columns(channel: Channel, schema: Schema) -> None:
    missing_columns = [c for c in channel.partition_columns if c not in schema]
    if missing_columns:
        raise PartitionError(
            f"the data for channel {channel.name!r} does not determine its partition",
            found=f"columns {', '.join(schema.names)}",
            expected=f"also {', '.join(missing_columns)}",
            next="add the column, or name the partition: partition=..., --partition",
            channel=channel.name,
        )
