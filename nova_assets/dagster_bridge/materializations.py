"""Commits as Dagster materializations, with metadata that Dagster can plot or display."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from dagster import (
    AssetMaterialization,
    AssetObservation,
    BetaWarning,
    DataVersion,
    MetadataValue,
    Output,
    TableColumn,
    TableColumnDep,
    TableColumnLineage,
    TableRecord,
    TableSchema,
)
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.partitions import (
    dimensions_in_dagster,
    find_multi_partition_columns,
    to_dagster_key,
)
from nova_assets.dagster_bridge.recorded_events import COMMIT_METADATA_KEY, AssetEvent
from nova_assets.masking import get_logger
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.file_source import is_external_path
from nova_assets.model.partitions import WHOLE, partition_values, scope_for_columns
from nova_assets.model.provenance import column_lineage
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes
from nova_assets.plan.manifest_rows import count_rows
from nova_assets.store.store import Store

log = get_logger("nova_assets.row_counts")

DATA_VERSION = "dagster/data_version"

# Not a public name of Dagster. Rejected: optional inputs, which assets do not have; observable assets, which cannot be
# materialized; and outputs of checks, which do not skip steps but are no assets.
NO_EVENT = SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
"""Metadata key of an output for which Dagster records no materialization."""

_MAX_PARTITIONS_LISTED = 100
"""Maximum number of partitions that metadata lists individually."""


def to_table_schema(schema: Schema) -> TableSchema:
    """Columns of a channel as a Dagster table schema."""
    return TableSchema(columns=[TableColumn(f.name, str(f.type)) for f in schema.fields])


def materialization_metadata(
    store: Store, commit: Commit, blocks: Sequence[Block], extra_metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Metadata of a commit's blocks on one channel, including the commit id (R17). Dagster plots the numbers.

    Args:
        blocks: blocks of the channel, one per partition. They share their sequence number and kind (R13).
        extra_metadata: metadata beyond the commit, such as its duration, the number of rows and the current state of
            the channel.
    """
    first, warehouse = blocks[0], store.settings.warehouse
    files = [f for b in blocks for f in b.manifest.files]
    folder = files[0].path.rpartition("/")[0] if files else ""
    consumed = {c: {"cursor": cursor, "head": head} for c, (cursor, head) in commit.consumed.items()}
    return {
        "nova/seq": first.hi,
        "nova/kind": first.kind,
        "nova/range": first.range,
        COMMIT_METADATA_KEY: commit.id,
        "nova/consumed": MetadataValue.json(consumed),
        "nova/deletes": sum(b.manifest.deletes for b in blocks),
        "nova/files": len(files),
        "nova/bytes": sum(f.bytes for f in files),
        **_partition_metadata(blocks),
        **{f"nova/received_{what}": count for what, count in commit.details.get("received", {}).items()},
        **_maintenance_metadata(commit),
        **extra_metadata,
        "dagster/column_schema": to_table_schema(first.manifest.schema),
        **_column_lineage_metadata(store, commit.binding, first.channel),
        **({"dagster/uri": folder if is_external_path(folder) else f"{warehouse}/{folder}"} if folder else {}),
    }


def _column_lineage_metadata(store: Store, binding: str | None, channel: str) -> dict[str, Any]:
    """Column lineage that the tasks of the channel's writer declare; empty for a commit by another origin."""
    writer, names = store.project.writer(channel), DagsterNames.of(store)
    lineage_by_column = column_lineage(writer).get(channel) if writer is not None and writer.name == binding else None
    if not lineage_by_column:
        return {}
    made_from = {
        column: [TableColumnDep(names.key(c), of) for c, of in sources if c != channel]
        for column, sources in lineage_by_column.items()
    }
    return {"dagster/column_lineage": TableColumnLineage(made_from)}


def _maintenance_metadata(commit: Commit) -> dict[str, Any]:
    """How maintained results of the commit were brought up to date, and why."""
    found = [(t["task"], t.get("facts", {}).get("maintenance")) for t in commit.details.get("tasks", ())]
    texts = [f"{task}: {m['strategy']}, because {m['reason']}" for task, m in found if m is not None]
    return {"nova/maintenance": "; ".join(texts)} if texts else {}


def _partition_metadata(blocks: Sequence[Block]) -> dict[str, Any]:
    if not any(b.partition for b in blocks):
        return {}
    largest = sorted(blocks, key=lambda b: -b.rows)[:_MAX_PARTITIONS_LISTED]
    rows = [TableRecord({"partition": b.partition, "rows": b.rows, "bytes": b.bytes}) for b in largest]
    columns = [TableColumn("partition"), TableColumn("rows", "int"), TableColumn("bytes", "int")]
    return {
        "nova/partition_count": len(blocks),
        "nova/partitions": MetadataValue.table(rows, TableSchema(columns)),
    }


def row_count_metadata(store: Store, blocks: Sequence[Block], partition: str = WHOLE) -> dict[str, Any]:
    """``nova/rows`` counts the rows of the blocks. ``dagster/row_count`` counts those of the channel, or of the
    partition that is materialized, after the commit.

    If a keyed channel has deltas, only the files tell how many rows it has. Then ``nova/rows_at_most`` is an upper
    bound, and ``dagster/row_count`` is left out.

    Args:
        blocks: blocks of one commit on one channel.
        partition: the partition that is materialized. If the blocks are in other partitions, the rows of the channel
            are not counted, because its partitions may be many.
    """
    shown: dict[str, Any] = {"nova/rows": sum(b.rows - b.manifest.deletes for b in blocks)}
    block = blocks[0]
    if len(blocks) > 1 or block.partition != partition:
        return shown
    try:
        return {**shown, **channel_rows_metadata(store, block.channel, block.hi, block.partition)}
    except NovaError as error:  # the version is collected, or the catalog is away; the block is committed all the same
        log.warning("the rows of %s are not counted: %s", block.channel, error)
        return shown


def channel_rows_metadata(store: Store, channel: str, seq: int, partition: str = WHOLE) -> dict[str, Any]:
    """Number of the rows of a channel at a version, as ``row_count_metadata`` names it; empty if it is not known."""
    rows = count_rows(modes.snapshot(store.catalog.histories.of(channel, seq, partition, back_to=seq), seq))
    return {} if rows is None else {"dagster/row_count" if rows.is_exact else "nova/rows_at_most": rows.at_most}


def event_tags(commit: Commit, kind: str) -> dict[str, str]:
    """Tags that identify the events of a commit."""
    return {"nova/commit": commit.id, "nova/kind": kind}


def build_commit_output(store: Store, commit: Commit, channel: str, extra_metadata: Mapping[str, Any]) -> Output[None]:
    """Blocks of one channel as an output of the commit step."""
    blocks = [b for b in commit.blocks if b.channel == channel]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # data_version
        return Output(
            None,
            channel,
            metadata=materialization_metadata(store, commit, blocks, extra_metadata),
            data_version=DataVersion(str(blocks[0].hi)),
            tags=event_tags(commit, blocks[0].kind),
        )


def build_unchanged_output(channel: str, newest_seq: int, materialized: bool) -> Output[None]:
    """Output of the commit step for a channel that received no block.

    Dagster skips every step downstream of an output that was not yielded, even if the step has other data to read. The
    commit step therefore yields all of its outputs. This output has no event, because without a block there is no
    materialization (DESIGN §5).

    Args:
        newest_seq: sequence number of the newest block.
        materialized: report a materialization of the same version. A backfill counts a partition as failed unless the
            backfill's own run materialized it.
    """
    metadata: dict[str, Any] = {
        "nova/unchanged": True,
        "nova/seq": newest_seq,
        **({} if materialized else {NO_EVENT: True}),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # data_version
        return Output(None, channel, metadata=metadata, data_version=DataVersion(str(newest_seq)))


def newest_sequence_number(store: Store, channel: str, partition: str) -> int:
    """Sequence number of the newest block in the partitions that an execution writes; 0 if there is no block."""
    state = store.catalog.definitions.channel(channel)
    scope = scope_for_columns(state.channel.partition_columns, partition)
    return max((p.seq for p in store.catalog.histories.partitions(channel, scope)), default=0) if scope else state.head


def build_commit_event(
    store: Store,
    commit: Commit,
    blocks: Sequence[Block],
    extra_metadata: Mapping[str, Any],
    partition_key: str | None = None,
) -> AssetEvent:
    """Blocks of one channel as an event outside any step, for commits that no step has reported.

    Partitions that retention dropped become an observation, not a materialization (R19).

    Args:
        partition_key: Dagster's key of the partition; None if the blocks have no key in Dagster.
    """
    tags = {**event_tags(commit, blocks[0].kind), DATA_VERSION: str(blocks[0].hi)}
    metadata = materialization_metadata(store, commit, blocks, extra_metadata)
    kind = AssetObservation if all(b.origin == "drop" for b in blocks) else AssetMaterialization
    key = DagsterNames.of(store).key(blocks[0].channel)
    return kind(key, metadata=metadata, tags=tags, partition=partition_key)


def count_commit_events(store: Store, commit: Commit, channels_by_name: Mapping[str, Channel]) -> int:
    """Number of the events of a commit."""
    return len(_blocks_by_event(store, commit, channels_by_name)) + ("sealed" in commit.details)


def build_commit_events(
    store: Store,
    commit: Commit,
    channels_by_name: Mapping[str, Channel],
    timeline_metadata: Mapping[str, Mapping[str, Any]],
    start: int = 0,
    stop: int | None = None,
) -> list[AssetEvent]:
    """Events of a commit: one per channel and Dagster partition, and an observation if the commit seals a group.

    Args:
        channels_by_name: definitions of the commit's channels.
        timeline_metadata: metadata on the current state of each channel, by channel.
        start, stop: number of the first event, and number after the last one. The order of the events never changes.
    """
    blocks_by_event = _blocks_by_event(store, commit, channels_by_name)
    events = [
        build_commit_event(
            store,
            commit,
            blocks,
            {
                **timeline_metadata.get(channel, {}),
                **row_count_metadata(store, blocks, WHOLE if key is None else blocks[0].partition),
            },
            key,
        )
        for (channel, key), blocks in islice(blocks_by_event.items(), start, stop)
    ]
    sealed = commit.details.get("sealed")
    if sealed is not None and start <= len(blocks_by_event) and (stop is None or len(blocks_by_event) < stop):
        events.append(_seal_observation(store, commit, sealed, channels_by_name[sealed["channel"]]))
    return events


def _seal_observation(store: Store, commit: Commit, sealed: Mapping[str, Any], channel: Channel) -> AssetObservation:
    """Observation that a group (a day or an hour) of a channel is sealed. A seal materializes nothing.

    Args:
        sealed: the ``sealed`` details of the commit.
    """
    group, dimensions = sealed["group"], dimensions_in_dagster(store.project, channel)
    shown = {f"nova/sealed_{what}": sealed[what] for what in ("version", "seq", "rows", "bytes", "files")}
    is_one_partition = len(partition_values(group)) == len(dimensions)
    return AssetObservation(
        DagsterNames.of(store).key(channel.name),
        metadata={COMMIT_METADATA_KEY: commit.id, "nova/sealed": group, **shown},
        tags=event_tags(commit, "seal"),
        partition=to_dagster_key(dimensions, group, find_multi_partition_columns(store.project))
        if is_one_partition
        else None,
    )


def _blocks_by_event(
    store: Store, commit: Commit, channels_by_name: Mapping[str, Channel]
) -> dict[tuple[str, str | None], list[Block]]:
    """Blocks of each channel and Dagster partition, in the order of the names."""
    blocks_by_event: dict[tuple[str, str | None], list[Block]] = {}
    multi_partition_columns = find_multi_partition_columns(store.project)
    for block in sorted(commit.blocks, key=lambda b: (b.channel, b.partition)):
        shown = dimensions_in_dagster(store.project, channels_by_name[block.channel])
        scope = scope_for_columns([d.column for d in shown], block.partition)
        key = (
            to_dagster_key(shown, scope, multi_partition_columns)
            if scope and len(partition_values(scope)) == len(shown)
            else None
        )
        blocks_by_event.setdefault((block.channel, key), []).append(block)
    return blocks_by_event
