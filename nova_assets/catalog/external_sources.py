"""How far external channels show their sources: positions in logs, and versions of copied partitions."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, ForeignKey, String, Table, Text, delete, insert, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.tables import metadata
from nova_assets.model.commit import CommitRequest
from nova_assets.model.external_table import ExternalPosition

source_versions = Table(
    "nova_source_versions",
    metadata,
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("version", Text, nullable=False),
    Column("commit_id", String(64), nullable=False),
)


external_positions = Table(
    "nova_external_positions",
    metadata,
    Column("channel", String(128), primary_key=True),
    # Identity of the log, and of the definition with which the channel was compared.
    Column("source", String(64), nullable=False),
    Column("event_id", BigInteger, nullable=False),
    Column("head", BigInteger, nullable=False),
    Column("listed_at", UtcMicroseconds, nullable=False),
)
"""Positions in the logs of other systems up to which external channels show all changes."""


class ExternalSources(CatalogPart):
    """Reads the versions of the sources of channels, and records positions in the logs of other systems."""

    def versions(self, channel: str) -> dict[str, str]:
        """Partition -> version of the source that its rows show, for a channel that copies a database table."""
        query = select(source_versions.c.partition, source_versions.c.version).where(
            source_versions.c.channel == channel
        )
        return self.database.read(lambda c: query_as_dict(c, query))

    def position(self, channel: str) -> ExternalPosition | None:
        """Recorded position of a channel; None if there is none."""
        query = select(external_positions).where(external_positions.c.channel == channel)
        row = self.database.read(lambda c: c.execute(query).mappings().first())
        if row is None:
            return None
        return ExternalPosition(row["source"], row["event_id"], row["listed_at"], row["head"])

    def set_position(self, channel: str, position: ExternalPosition) -> None:
        """Record the position of a channel. An unchanged position is not written."""
        if self.position(channel) == position:
            return

        def replace_position(c: Connection) -> None:
            c.execute(delete(external_positions).where(external_positions.c.channel == channel))
            c.execute(
                insert(external_positions).values(
                    channel=channel,
                    source=position.source,
                    event_id=position.event_id,
                    head=position.head,
                    listed_at=position.listed_at,
                )
            )

        self.database.write(replace_position)


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
