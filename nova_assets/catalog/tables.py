"""Tables of the catalog. A new catalog gets them as they are here; ``migrations/`` brings older catalogs up to them. A
table that only one part of the catalog uses stands in that part.

The condition of a partial index is its ``info["where"]``. With the argument ``postgresql_where``, SQLAlchemy would load
the dialect of PostgreSQL, which a catalog on SQLite does not need.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from nova_assets.catalog.database.column_types import CachedJson, UtcMicroseconds

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""All table names begin with ``nova_``, since the catalog may share a database with other programs, such as Dagster."""

version = Table(
    "nova_version",
    MetaData(),  # Alembic writes it, too
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="nova_version_pkc"),
)

channels = Table(
    "nova_channels",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("definition", JSON, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("head", Integer, nullable=False, default=0),
    Column("schema", JSON(none_as_null=True)),
    Column("next_schema", JSON(none_as_null=True)),  # columns that the next base brings (R23)
    Column("registered_at", UtcMicroseconds, nullable=False),
    # Whether the channel may be given a base (R15). Never reset, since earlier collections relied on it.
    Column("bases", Boolean, nullable=False, server_default=false()),
    # Maintenance settings, such as retention. Not part of the definition, since they may change at any time.
    Column("upkeep", JSON, nullable=False, server_default="{}"),
    Column("looked_at", UtcMicroseconds),  # start of the last listing for files that were never announced
    # Newest sequence number with new data. A drop by retention takes a number without new data (R19).
    Column("news", Integer, nullable=False, server_default="0"),
    # Number and prefix hash of the newest step.
    Column("step", Integer, nullable=False, server_default="0"),
    Column("prefix", String(64), nullable=False, server_default=""),
    # Numbers up to this one were perhaps given to commits that a restored catalog has lost. No commit gets them again.
    Column("used_until", Integer, nullable=False, server_default="0"),
)

bindings = Table(
    "nova_bindings",
    metadata,
    Column("name", String(256), primary_key=True),
    Column("definition", JSON, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("registered_at", UtcMicroseconds, nullable=False),
)

executions = Table(
    "nova_executions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("binding", String(256)),
    Column("partition", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("owner", Text, nullable=False),
    Column("started_at", UtcMicroseconds, nullable=False),
    Column("lease_until", UtcMicroseconds, nullable=False),
    Column("finished_at", UtcMicroseconds),
    Column("error", Text),
    Column("commit_id", String(64)),
    Column("run_id", String(64)),
    Column("firing_id", String(64)),
    # Number of failures. Never decreases, since cascade triggers count it.
    Column("failures", Integer, nullable=False, server_default="0"),
    # Planned action on a channel, for executions without a binding.
    Column("purpose", String(16), nullable=False, server_default="commit"),
    # Version of the binding's definition that ran.
    Column("version", Integer),
    Index("ix_nova_executions_binding_started_at", "binding", "started_at"),
    Index("ix_nova_executions_state_lease_until", "state", "lease_until"),
    Index("ix_nova_executions_binding_partition_state", "binding", "partition", "state"),
    Index("ix_nova_executions_run_id", "run_id"),
    # R6: one live execution per binding and partition.
    Index(
        "uq_nova_executions_live",
        "binding",
        "partition",
        unique=True,
        info={"where": "state = 'running' AND binding IS NOT NULL"},
    ),
)

pins = Table(
    "nova_pins",
    metadata,
    Column("execution_id", ForeignKey("nova_executions.id", ondelete="CASCADE"), primary_key=True),
    Column("channel", String(128), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("head", Integer, nullable=False),
    Column("cursor", Integer),
    Column("has_run", Boolean, nullable=False, server_default=false()),
    Index("ix_nova_pins_channel", "channel"),
)

staged_blocks = Table(
    "nova_staged",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("execution_id", ForeignKey("nova_executions.id", ondelete="CASCADE"), nullable=False),
    Column("channel", String(128)),
    Column("port", String(128), nullable=False),
    Column("partition", Text, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("folder", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("manifest", JSON(none_as_null=True)),
    Column("dropped", Boolean, nullable=False, default=False),
    Column("at", UtcMicroseconds, nullable=False),
    # Time at which the files were deleted. The row stays for a while, since Spark may still write for a dead process.
    Column("swept_at", UtcMicroseconds),
    Index("ix_nova_staged_execution_id", "execution_id"),
    Index("ix_nova_staged_channel", "channel"),
)

commits = Table(
    "nova_commits",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("execution_id", String(64), nullable=False, unique=True),
    Column("binding", String(256)),
    Column("at", UtcMicroseconds, nullable=False),
    Column("heads", JSON, nullable=False),
    Column("consumed", JSON, nullable=False),
    Column("details", JSON, nullable=False),
    Column("published_at", UtcMicroseconds),
    Index("ix_nova_commits_published_at_at", "published_at", "at"),
)

commit_numbers = Table(
    "nova_numbers",
    metadata,
    Column("commit_id", ForeignKey("nova_commits.id"), primary_key=True),
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    Column("seq", Integer, nullable=False),
    UniqueConstraint("channel", "seq"),  # R1
)

steps = Table(
    "nova_steps",
    metadata,
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    # Counts every action on a channel, including compactions and collections, which take no sequence number.
    Column("n", Integer, primary_key=True),
    # Hash over all steps up to this one.
    Column("prefix", String(64), nullable=False),
    Column("action", String(16), nullable=False),
    Column("commit_id", String(64), nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
)

blocks = Table(
    "nova_blocks",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("channel", ForeignKey("nova_channels.name"), nullable=False),
    Column("partition", Text, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("lo", Integer, nullable=False),
    Column("hi", Integer, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("deletes", BigInteger, nullable=False),
    Column("schema", CachedJson, nullable=False),
    Column("format", String(32), nullable=False),
    Column("keeps_all", Boolean, nullable=False),
    Column("layout", CachedJson(none_as_null=True)),
    Column("outside", CachedJson(none_as_null=True)),
    Column("merge", CachedJson, nullable=False),
    Column("origin", String(16), nullable=False),
    Column("commit_id", ForeignKey("nova_commits.id"), nullable=False),
    Column("collected_at", UtcMicroseconds),
    Column("collected_by", String(64)),
    Column("channel_merge", CachedJson(none_as_null=True)),
    Index("ix_nova_blocks_channel_partition_hi", "channel", "partition", "hi"),
    Index("ix_nova_blocks_channel_hi", "channel", "hi"),
    Index("ix_nova_blocks_commit_id", "commit_id"),
    # Plans look up blocks that are not collected, starting at a base.
    Index("ix_nova_blocks_live", "channel", "hi", info={"where": "collected_at IS NULL"}),
    Index(
        "ix_nova_blocks_bases",
        "channel",
        "partition",
        "hi",
        info={"where": "kind = 'base' AND collected_at IS NULL"},
    ),
    Index("ix_nova_blocks_gone", "collected_by", info={"where": "collected_by IS NOT NULL"}),
)

files = Table(
    "nova_files",
    metadata,
    Column("block_id", ForeignKey("nova_blocks.id", ondelete="CASCADE"), primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("path", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("ranges", CachedJson, nullable=False),
    Column("place", CachedJson(none_as_null=True)),
    Column("digest", String(64)),
    Column("footer_digest", String(64)),
    # Uncompressed bytes; NULL for files of older versions.
    Column("unpacked", BigInteger),
    Index("ix_nova_files_path", "path"),
)

cursors = Table(
    "nova_cursors",
    metadata,
    Column("binding", String(256), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    Column("channel_partition", Text, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("commit_id", ForeignKey("nova_commits.id"), nullable=False),
    Column("moved_at", UtcMicroseconds, nullable=False),
    Index("ix_nova_cursors_channel", "channel"),
)

idempotency_keys = Table(
    "nova_keys",
    metadata,
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    Column("key", String(512), primary_key=True),
    Column("commit_id", ForeignKey("nova_commits.id"), nullable=False),
    Column("digest", String(128)),
)

seals = Table(
    "nova_seals",
    metadata,
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    # Value of the dimension by which the channel is sealed.
    Column("grp", String(64), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("commit_id", String(64), nullable=False),
    Index("ix_nova_seals_channel_at", "channel", "at"),
)

published_versions = Table(
    "nova_editions",
    metadata,
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    # Id of the table in which the channel is published.
    Column("place", String(512), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("shown_at", UtcMicroseconds),
    Column("superseded_at", UtcMicroseconds),
    Column("execution_id", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("blocks", JSON),  # ids of the blocks whose files it lists; null in versions of older packages
)

backfill_requests = Table(
    "nova_dirty",
    metadata,
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("at", UtcMicroseconds, nullable=False),
    Column("by", String(64), nullable=False),
    Column("why", Text, nullable=False),
    Column("priority", Integer, nullable=False),
)

backfills = Table(
    "nova_backfills",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("dataset", ForeignKey("nova_channels.name"), nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("by", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("downstream", JSON, nullable=False),
    Column("cancelled_at", UtcMicroseconds),
)

backfill_parts = Table(
    "nova_backfill_parts",
    metadata,
    Column("backfill", ForeignKey("nova_backfills.id"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("channel", String(128), nullable=False),
    Column("partition", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("ended_at", UtcMicroseconds),
    Column("seq", Integer),
    Column("execution_id", String(64)),
    Index("ix_nova_backfill_parts_channel_partition", "channel", "partition"),
)

firings = Table(
    "nova_firings",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("binding", String(256), nullable=False),
    Column("partition", Text, nullable=False, server_default=""),
    Column("n", Integer, nullable=False),
    Column("positions", JSON, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("why", Text),
    UniqueConstraint("binding", "partition", "n"),
)

catalog_identity = Table(
    "nova_identity",
    metadata,
    Column("id", String(64), primary_key=True),
    # Identity of the warehouse that holds the blocks, and its address when it was adopted.
    Column("warehouse", String(64)),
    Column("warehouse_address", Text),
    Column("place", Text),  # of the file of a SQLite catalog (``database/sqlite_place.py``)
    # Place of the catalog of which this one is a copy, until a person decides which of the two owns the warehouse.
    Column("copied_from", Text),
    Column("used_until", Integer, nullable=False, server_default="0"),  # ``used_until`` of new channels
)
"""One row with the identity of this catalog. Catalogs that share a warehouse use it to tell their files apart."""

backups = Table(
    "nova_backups",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("folder", Text, nullable=False),
    Column("made_at", UtcMicroseconds, nullable=False),
    Column("held_until", UtcMicroseconds, nullable=False),
)
"""Backups of this catalog. Files that such a backup lists are not deleted until ``held_until``."""
