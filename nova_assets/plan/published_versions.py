"""Content of a published version of a channel, and expiry of published versions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append
from nova_assets.model.partitions import partition_name, partition_values
from nova_assets.model.published_table import PublishedTable
from nova_assets.model.published_version import PublishedContent, PublishedVersion
from nova_assets.model.schema import Schema
from nova_assets.model.seal import Seal
from nova_assets.model.timeline import History
from nova_assets.plan import modes


def partitions_to_compact(history: History, version: int, *, is_converted: bool = False) -> tuple[str, ...]:
    """Partitions that must be compacted before they can be published as plain files.

    Deltas other than plain additions must be merged, and hidden columns removed. Unless the files are converted,
    columns that were renamed, dropped or widened since must be rewritten, too.
    """
    read = modes.snapshot(history, version)
    blocks = [b for b in (*read.bases, *read.deltas) if isinstance(b, Block) and b.rows]
    return tuple(sorted({b.partition for b in blocks if _needs_compaction(b, read.schema, is_converted)}))


def _needs_compaction(block: Block, current_schema: Schema | None, is_converted: bool) -> bool:
    schema = block.manifest.schema
    is_append_only = isinstance(block.merge, Append) and not block.manifest.deletes
    if schema.hidden or (block.kind == "delta" and not is_append_only):
        return True
    return not is_converted and (block.manifest.format != "parquet" or not _is_readable_as(schema, current_schema))


def _is_readable_as(file_schema: Schema, current_schema: Schema | None) -> bool:
    """Whether files of a schema can be read by column name under a newer schema: only columns added since may be
    missing.
    """
    if current_schema is None:
        return False
    current_columns = {f.name: (f.identity, f.type) for f in current_schema.fields}
    return all(current_columns.get(f.name) == (f.identity, f.type) for f in file_schema.fields)


def published_content(
    channel: Channel,
    history: History,
    version: int,
    seals: Mapping[str, Seal],
    seal_column: str | None,
    *,
    only_sealed: bool = False,
    is_converted: bool = False,
) -> PublishedContent | None:
    """Content of a version published now; None for a channel without a schema.

    Args:
        channel: the channel.
        history: its history.
        version: sequence number to show, at which ``partitions_to_compact`` is empty.
        seals: group -> its latest seal.
        seal_column: column by which the channel is sealed.
        only_sealed: leave out the files of days or hours that are not sealed.
        is_converted: the table lists converted copies of the files.
    """
    read = modes.snapshot(history, version)
    if read.schema is None:
        return None
    blocks = [b for b in (*read.bases, *read.deltas) if isinstance(b, Block)]
    files = [replace(f, partition=b.partition) for b in blocks for f in b.manifest.files]
    dropped_groups = _dropped_groups(history, version, seal_column) if seal_column else frozenset()
    groups = sorted(g for g, s in seals.items() if s.state == "sealed" and s.seq <= version and g not in dropped_groups)
    sealed = [partition_name([seal_column], {seal_column: g}) for g in groups] if seal_column else []
    frozen: frozenset[str] = frozenset()
    if only_sealed and seal_column:
        frozen = frozenset(f.partition for f in files if partition_values(f.partition)[seal_column] not in groups)
    seqs: dict[str, int] = {}
    for b in blocks:
        seqs[b.partition] = max(b.hi, seqs.get(b.partition, 0))
    return PublishedContent(
        channel.name,
        read.at,
        read.schema,
        channel.partitions,
        tuple(f for f in files if f.partition not in frozen),
        tuple(sealed),
        tuple((p, seq) for p, seq in seqs.items() if p not in frozen),
        frozen,
        () if is_converted else tuple(b.id for b in blocks if b.partition not in frozen),
    )


def _dropped_groups(history: History, version: int, seal_column: str) -> frozenset[str | None]:
    """Groups that retention has dropped. They were complete before, and no longer exist."""
    states = {t.partition: modes.base_and_deltas(history, t, version) for t in history.partition_histories}
    dropped_partitions = {
        p for p, (base, deltas) in states.items() if base is not None and base.origin == "drop" and not deltas
    }
    remaining_groups = {partition_values(p)[seal_column] for p in states.keys() - dropped_partitions}
    return frozenset(partition_values(p)[seal_column] for p in dropped_partitions) - remaining_groups


def expired_versions(
    published_versions: Sequence[PublishedVersion], now: datetime, grace_seconds: float
) -> tuple[PublishedVersion, ...]:
    """Versions that no reader can still be using: superseded more than ``grace_seconds`` ago."""
    superseded_before = now - timedelta(seconds=grace_seconds)
    return tuple(e for e in published_versions if e.superseded_at is not None and e.superseded_at < superseded_before)


def certainly_shown_version(published_versions: Sequence[PublishedVersion]) -> PublishedVersion | None:
    """The version that a table certainly shows: the newest, if publishing it is confirmed."""
    newest = max(published_versions, key=lambda e: e.number, default=None)
    return newest if newest is not None and newest.state == "shown" else None


def uncompacted_partitions(
    table: PublishedTable, history: History, seq: int, content: PublishedContent | None
) -> tuple[str, ...]:
    """Partitions that must be compacted before a table can show them."""
    if not table.converts:
        return partitions_to_compact(history, seq)
    shown = {f.partition for f in content.files} if content is not None else set[str]()
    return tuple(p for p in partitions_to_compact(history, seq, is_converted=True) if p in shown)


def table_fingerprint(table: PublishedTable, content: PublishedContent) -> str:
    """Hash of the content that readers of a table see."""
    if table.converts:
        return content.fingerprint_of_rows()
    return content.fingerprint(include_seals=table.shows_seals)


def find_version_showing(
    published_versions: Sequence[PublishedVersion], table: PublishedTable, channel_content: PublishedContent
) -> PublishedVersion | None:
    """Published version by which a table shows exactly this content, as far as the catalog knows."""
    newest = certainly_shown_version(published_versions)
    return newest if newest is not None and newest.fingerprint == table_fingerprint(table, channel_content) else None
