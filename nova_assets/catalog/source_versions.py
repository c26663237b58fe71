"""Versions of the partitions that refreshes have copied from databases, stored with the commits of their rows."""

from __future__ import annotations

from sqlalchemy import Column, Connection, ForeignKey, String, Table, Text, delete, insert, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.tables import metadata
from nova_assets.model.commit import CommitRequest

source_versions = Table(
    "nova_source_versions",
    metadata,
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("version", Text, nullable=False),
    Column("commit_id", String(64), nullable=False),
)


class SourceVersions(CatalogPart):
    """Reads the versions of the sources of channels."""

    def source_versions(self, channel: str) -> dict[str, str]:
        """Partition -> version of the source that its rows show, for a channel that copies a database table."""
        query = select(source_versions.c.partition, source_versions.c.version).where(
            source_versions.c.channel == channel
        )
        return self.database.read(lambda c: query_as_dict(c, query))


def set_source_versions(c: Connection, request: CommitRequest) -> None:
    """Part of a commit: record the versions that its rows show."""
    for change in request.source_versions:
        c.execute(
            delete(source_versions).where(
                source_versions.c.channel == change.channel, source_versions.c.partition == change.partition
            )
        )
    rows = [
        {"channel": v.channel, "partition": v.partition, "version": v.version, "commit_id": request.id}
        for v in request.source_versions
        if v.version is not None
    ]
    if rows:
        c.execute(insert(source_versions), rows)


def delete_source_versions(c: Connection, channel: str) -> None:
    """Forget the versions of a channel that is removed, so that a later refresh copies everything again."""
    c.execute(delete(source_versions).where(source_versions.c.channel == channel))
