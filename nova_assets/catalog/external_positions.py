"""Positions of external channels in the logs of other systems."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, String, Table, delete, insert, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.tables import metadata
from nova_assets.model.external_table import ExternalPosition

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


class ExternalPositions(CatalogPart):
    """Records up to which event of another system's log an external channel shows all changes."""

    def external_position(self, channel: str) -> ExternalPosition | None:
        """Recorded position of a channel; None if there is none."""
        query = select(external_positions).where(external_positions.c.channel == channel)
        row = self.database.read(lambda c: c.execute(query).mappings().first())
        if row is None:
            return None
        return ExternalPosition(row["source"], row["event_id"], row["listed_at"], row["head"])

    def set_external_position(self, channel: str, position: ExternalPosition) -> None:
        """Record the position of a channel. An unchanged position is not written."""
        if self.external_position(channel) == position:
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
