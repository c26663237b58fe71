"""Commits as Dagster shows them: one materialization per block, with everything that can be plotted or looked up."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from dagster import (
    AssetKey,
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
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION as NO_EVENT

from nova_assets.dagster_bridge.recorded_events import COMMIT_METADATA_KEY, AssetEvent
from nova_assets.model.block import Block
from nova_assets.model.column_lineage import column_lineage
from nova_assets.model.commit import Commit
from nova_assets.model.external_files import is_external_path
from nova_assets.model.project import Project
from nova_assets.model.schema import Schema

DATA_VERSION = "dagster/data_version"

_MAX_PARTITIONS_LISTED = 100
"""Partitions listed one by one."""


def to_table_schema(schema: Schema) -> TableSchema:
    """A channel's columns as Dagster shows them."""
    return TableSchema(columns=[TableColumn(f.name, str(f.type)) for f in schema.fields])


def materialization_metadata(
    commit: Commit, blocks: Sequence[Block], warehouse: str, project: Project, extra_metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """The facts of what a commit put onto one channel. Numbers plot themselves (R17: each carries its commit's id).

    Args:
        blocks: of the channel, one for each partition; they share their number and kind (R13).
        extra_metadata: facts that are not the commit's own: how long it took, how the channel stands now.
    """
    first = blocks[0]
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
        **extra_metadata,
        "dagster/row_count": sum(b.rows for b in blocks),
        "dagster/column_schema": to_table_schema(first.manifest.schema),
        **_column_lineage_metadata(project, commit.binding, first.channel),
        **({"dagster/uri": folder if is_external_path(folder) else f"{warehouse}/{folder}"} if folder else {}),
    }


def _column_lineage_metadata(project: Project, binding: str | None, channel: str) -> dict[str, Any]:
    """Column lineage, of what a task made and declared it of."""
    writer = project.writer(channel)
    lineage_by_column = column_lineage(writer).get(channel) if writer is not None and writer.name == binding else None
    if not lineage_by_column:
        return {}
    made_from = {
        column: [TableColumnDep(AssetKey(c), of) for c, of in sources if c != channel]
        for column, sources in lineage_by_column.items()
    }
    return {"dagster/column_lineage": TableColumnLineage(made_from)}


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


def event_tags(commit: Commit, kind: str) -> dict[str, str]:
    """By these, events can be told apart and found again."""
    return {"nova/commit": commit.id, "nova/kind": kind}


def build_commit_output(
    commit: Commit, channel: str, warehouse: str, project: Project, extra_metadata: Mapping[str, Any]
) -> Output[None]:
    """What a commit put onto a channel, as an output of the commit step."""
    blocks = [b for b in commit.blocks if b.channel == channel]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # data_version
        return Output(
            None,
            channel,
            metadata=materialization_metadata(commit, blocks, warehouse, project, extra_metadata),
            data_version=DataVersion(str(blocks[0].hi)),
            tags=event_tags(commit, blocks[0].kind),
        )


def build_unchanged_output(channel: str, newest_seq: int, materialized: bool) -> Output[None]:
    """The output of a channel that got no block from a commit.

    Dagster skips every step below an output that was not yielded, whatever data that step has still to read. So the
    commit step yields all of its outputs, and this one without an event: no block, no materialization (DESIGN §5).

    Args:
        newest_seq: sequence number of the newest block.
        materialized: report a materialization of the same version after all. A backfill counts a partition as failed
            unless its own run materialized it.
    """
    metadata: dict[str, Any] = {
        "nova/unchanged": True,
        "nova/seq": newest_seq,
        **({} if materialized else {NO_EVENT: True}),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # data_version
        return Output(None, channel, metadata=metadata, data_version=DataVersion(str(newest_seq)))


def build_commit_event(
    commit: Commit,
    blocks: Sequence[Block],
    warehouse: str,
    project: Project,
    extra_metadata: Mapping[str, Any],
    partition_key: str | None = None,
) -> AssetEvent:
    """Blocks of one channel as an event of its own, for commits that no step has reported. That retention has dropped a
    partition is observed, and materializes nothing (R19).

    Args:
        partition_key: Dagster's key.
    """
    tags = {**event_tags(commit, blocks[0].kind), DATA_VERSION: str(blocks[0].hi)}
    metadata = materialization_metadata(commit, blocks, warehouse, project, extra_metadata)
    kind = AssetObservation if all(b.origin == "drop" for b in blocks) else AssetMaterialization
    return kind(AssetKey(blocks[0].channel), metadata=metadata, tags=tags, partition=partition_key)


def build_seal_observation(
    commit: Commit, seal_details: Mapping[str, Any], partition_key: str | None
) -> AssetObservation:
    """That a day or hour of a channel is complete, as an event; it materializes nothing.

    Args:
        seal_details: what the commit says of it.
        partition_key: Dagster's key, where the channel has no further dimensions.
    """
    shown = {f"nova/sealed_{what}": seal_details[what] for what in ("version", "seq", "rows", "bytes", "files")}
    metadata = {COMMIT_METADATA_KEY: commit.id, "nova/sealed": seal_details["group"], **shown}
    tags = event_tags(commit, "seal")
    return AssetObservation(AssetKey(seal_details["channel"]), metadata=metadata, tags=tags, partition=partition_key)


def describe_commit(commit: Commit) -> str:
    """One line for the log."""
    block_texts = [
        f"{b.channel} {f'{b.range} {b.partition}'.rstrip()} ({b.rows} rows)"
        for b in commit.blocks[:_MAX_PARTITIONS_LISTED]
    ]
    numbers = ", ".join(block_texts) or "nothing new"
    return f"commit {commit.id[:8]}: {numbers}; consumed {json.dumps({c: h for c, (_, h) in commit.consumed.items()})}"
