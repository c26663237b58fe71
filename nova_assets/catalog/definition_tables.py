"""Tables of registered definitions: their versions, and which of them are paused or removed."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Integer, String, Table, Text

from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.tables import metadata

definition_versions = Table(
    "nova_definition_versions",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("definition", JSON, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("by", Text, nullable=False),
)

definition_states = Table(
    "nova_definition_states",
    metadata,
    # Only definitions that are paused or removed have a row.
    Column("kind", String(16), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("paused_at", UtcMicroseconds),
    Column("paused_by", Text),
    Column("removed_at", UtcMicroseconds),
    Column("removed_by", Text),
    # Time at which garbage collection made the removal final.
    Column("collected_at", UtcMicroseconds),
)
