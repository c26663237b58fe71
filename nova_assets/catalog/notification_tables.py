"""Tables of notifications, for queries. They belong to the metadata of ``tables``."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Index, Integer, String, Table, Text

from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.tables import metadata

notifiers = Table(
    "nova_notifiers",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("events", JSON, nullable=False),
    Column("bindings", JSON, nullable=False),
    # Last time at which a process was ready to deliver.
    Column("seen_at", UtcMicroseconds, nullable=False),
    # Process that delivers now.
    Column("owner", Text),
    Column("lease_until", UtcMicroseconds),
    # Number of notifications that were dropped, because too many waited.
    Column("dropped", BigInteger, nullable=False, server_default="0"),
)

notifications = Table(
    "nova_notifications",
    metadata,
    # Order of the outbox. A delivered notification is deleted by its id, since SQLite may assign its number again.
    Column("n", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    # Equal for all notifiers of one event.
    Column("id", String(64), nullable=False),
    Column("notifier", String(128), nullable=False),
    Column("subject", String(512), nullable=False),
    Column("state", String(16), nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("body", JSON, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("retry_at", UtcMicroseconds),
    Column("error", Text),
    Index("ix_nova_notifications_notifier_state_subject_n", "notifier", "state", "subject", "n"),
)

problems = Table(
    "nova_problems",
    metadata,
    Column("event", String(32), primary_key=True),
    Column("subject", String(1024), primary_key=True),
    Column("since", UtcMicroseconds, nullable=False),
)
