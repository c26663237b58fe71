"""The tables of the catalog. ``migrations/`` makes them; a test holds the two to each other.

All names begin with ``nova_``, so that the catalog can share a PostgreSQL database with Dagster's own storage.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from nova_assets.catalog.types import Json, MergeText, SchemaText, UtcTime

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)

# SQLite counts rows by itself only in a column that is exactly INTEGER PRIMARY KEY.
Ordinal = BigInteger().with_variant(Integer, "sqlite")

# ``schema`` is the channel's current one, ``definition`` what was declared: they differ once blocks have given or
# widened columns.
channels = Table(
    "nova_channels",
    metadata,
    Column("name", Text, primary_key=True),
    Column("definition", Json, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("head", BigInteger, nullable=False),
    Column("schema", SchemaText),
    Column("registered_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime),
)

bindings = Table(
    "nova_bindings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("definition", Json, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("registered_at", UtcTime, nullable=False),
)

# ``binding`` is a name, not a reference: a consumer may keep cursors without being registered.
executions = Table(
    "nova_executions",
    metadata,
    Column("n", Ordinal, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("binding", Text),
    Column("partition", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("owner", Text, nullable=False),
    Column("run_id", Text),
    Column("firing_id", Text),
    Column("started_at", UtcTime, nullable=False),
    Column("lease_until", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Column("error", Text),
    Column("commit_id", Text),
    UniqueConstraint("id"),
)
# R6. An insert has no binding, and nulls are never equal: any number of inserts may be live.
Index(
    "nova_executions_one_running",
    executions.c.binding,
    executions.c.partition,
    unique=True,
    sqlite_where=text("state = 'running'"),
    postgresql_where=text("state = 'running'"),
)
Index("nova_executions_state", executions.c.state, executions.c.lease_until)

pins = Table(
    "nova_pins",
    metadata,
    Column("execution_id", Text, ForeignKey("nova_executions.id"), primary_key=True),
    Column("channel", Text, ForeignKey("nova_channels.name"), primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("head", BigInteger, nullable=False),
    Column("cursor", BigInteger),
)
Index("nova_pins_channel", pins.c.channel)

# What was staged and is no block (yet). ``dropped``: its task ran again; its files go with the execution.
staged = Table(
    "nova_staged",
    metadata,
    Column("n", Ordinal, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("execution_id", Text, ForeignKey("nova_executions.id"), nullable=False),
    Column("channel", Text),
    Column("port", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("partition", Text, nullable=False),
    Column("manifest", Json),
    Column("dropped", Boolean, nullable=False),
    Column("recorded_at", UtcTime, nullable=False),
    UniqueConstraint("id"),
)
Index("nova_staged_execution", staged.c.execution_id)
Index("nova_staged_channel", staged.c.channel)

commits = Table(
    "nova_commits",
    metadata,
    Column("n", Ordinal, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("execution_id", Text, ForeignKey("nova_executions.id"), nullable=False),
    Column("binding", Text),
    Column("at", UtcTime, nullable=False),
    Column("heads", Json, nullable=False),
    Column("consumed", Json, nullable=False),
    Column("details", Json, nullable=False),
    Column("published_at", UtcTime),
    UniqueConstraint("id"),
    UniqueConstraint("execution_id"),
)
Index(
    "nova_commits_unpublished",
    commits.c.n,
    sqlite_where=text("published_at IS NULL"),
    postgresql_where=text("published_at IS NULL"),
)

# ``schema`` is the channel's as of this number, for time travel (R18).
commit_numbers = Table(
    "nova_commit_numbers",
    metadata,
    Column("channel", Text, ForeignKey("nova_channels.name"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("commit_id", Text, ForeignKey("nova_commits.id"), nullable=False),
    Column("schema", SchemaText),
    UniqueConstraint("commit_id", "channel"),
)

blocks = Table(
    "nova_blocks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("commit_id", Text, ForeignKey("nova_commits.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("channel", Text, ForeignKey("nova_channels.name"), nullable=False),
    Column("partition", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("lo", BigInteger, nullable=False),
    Column("hi", BigInteger, nullable=False),
    Column("origin", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("deletes", BigInteger, nullable=False),
    Column("format", Text, nullable=False),
    Column("schema", SchemaText, nullable=False),
    Column("merge", MergeText, nullable=False),
    Column("keeps_all", Boolean, nullable=False),
    Column("collected_at", UtcTime),
    UniqueConstraint("commit_id", "channel", "partition", "kind"),
)
Index("nova_blocks_channel", blocks.c.channel, blocks.c.partition, blocks.c.hi)

files = Table(
    "nova_files",
    metadata,
    Column("block_id", Text, ForeignKey("nova_blocks.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("path", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("ranges", Json, nullable=False),
    Column("bucket", Integer),
)

cursors = Table(
    "nova_cursors",
    metadata,
    Column("binding", Text, primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("channel", Text, ForeignKey("nova_channels.name"), primary_key=True),
    Column("channel_partition", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("moved_at", UtcTime, nullable=False),
    Column("commit_id", Text, ForeignKey("nova_commits.id"), nullable=False),
)
Index("nova_cursors_channel", cursors.c.channel)

idempotency = Table(
    "nova_idempotency",
    metadata,
    Column("channel", Text, ForeignKey("nova_channels.name"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("commit_id", Text, ForeignKey("nova_commits.id"), nullable=False),
)

firings = Table(
    "nova_firings",
    metadata,
    Column("id", Text, primary_key=True),
    Column("binding", Text, nullable=False),
    Column("n", Integer, nullable=False),
    Column("positions", Json, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    UniqueConstraint("binding", "n"),
)
