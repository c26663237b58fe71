"""The first catalog: channels, blocks and files, commits, cursors, executions, staging, firings.

A version describes the tables as they were; it never imports ``tables.py``, which moves on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ORDINAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
MOMENT = sa.DateTime(timezone=True)
RUNNING = sa.text("state = 'running'")
UNPUBLISHED = sa.text("published_at IS NULL")


def upgrade() -> None:
    _definitions()
    _executions()
    _history()
    _consumers()


def _definitions() -> None:
    op.create_table(
        "nova_channels",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("head", sa.BigInteger, nullable=False),
        sa.Column("schema", sa.Text),
        sa.Column("registered_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("name", name="nova_channels_pk"),
    )
    op.create_table(
        "nova_bindings",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("registered_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="nova_bindings_pk"),
    )


def _executions() -> None:
    op.create_table(
        "nova_executions",
        sa.Column("n", ORDINAL, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("binding", sa.Text),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("firing_id", sa.Text),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("lease_until", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT),
        sa.Column("error", sa.Text),
        sa.Column("commit_id", sa.Text),
        sa.PrimaryKeyConstraint("n", name="nova_executions_pk"),
        sa.UniqueConstraint("id", name="nova_executions_id_key"),
    )
    op.create_index(
        "nova_executions_one_running",
        "nova_executions",
        ["binding", "partition"],
        unique=True,
        sqlite_where=RUNNING,
        postgresql_where=RUNNING,
    )
    op.create_index("nova_executions_state", "nova_executions", ["state", "lease_until"])
    op.create_table(
        "nova_pins",
        sa.Column("execution_id", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("head", sa.BigInteger, nullable=False),
        sa.Column("cursor", sa.BigInteger),
        sa.PrimaryKeyConstraint("execution_id", "channel", "partition", name="nova_pins_pk"),
        sa.ForeignKeyConstraint(["execution_id"], ["nova_executions.id"], name="nova_pins_execution_id_fk"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="nova_pins_channel_fk"),
    )
    op.create_index("nova_pins_channel", "nova_pins", ["channel"])
    op.create_table(
        "nova_staged",
        sa.Column("n", ORDINAL, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("execution_id", sa.Text, nullable=False),
        sa.Column("channel", sa.Text),
        sa.Column("port", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("manifest", sa.Text),
        sa.Column("dropped", sa.Boolean, nullable=False),
        sa.Column("recorded_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("n", name="nova_staged_pk"),
        sa.UniqueConstraint("id", name="nova_staged_id_key"),
        sa.ForeignKeyConstraint(["execution_id"], ["nova_executions.id"], name="nova_staged_execution_id_fk"),
    )
    op.create_index("nova_staged_execution", "nova_staged", ["execution_id"])
    op.create_index("nova_staged_channel", "nova_staged", ["channel"])


def _history() -> None:
    op.create_table(
        "nova_commits",
        sa.Column("n", ORDINAL, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("execution_id", sa.Text, nullable=False),
        sa.Column("binding", sa.Text),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("heads", sa.Text, nullable=False),
        sa.Column("consumed", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("published_at", MOMENT),
        sa.PrimaryKeyConstraint("n", name="nova_commits_pk"),
        sa.UniqueConstraint("id", name="nova_commits_id_key"),
        sa.UniqueConstraint("execution_id", name="nova_commits_execution_id_key"),
        sa.ForeignKeyConstraint(["execution_id"], ["nova_executions.id"], name="nova_commits_execution_id_fk"),
    )
    op.create_index(
        "nova_commits_unpublished", "nova_commits", ["n"], sqlite_where=UNPUBLISHED, postgresql_where=UNPUBLISHED
    )
    op.create_table(
        "nova_commit_numbers",
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("commit_id", sa.Text, nullable=False),
        sa.Column("schema", sa.Text),
        sa.PrimaryKeyConstraint("channel", "seq", name="nova_commit_numbers_pk"),
        sa.UniqueConstraint("commit_id", "channel", name="nova_commit_numbers_commit_id_channel_key"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="nova_commit_numbers_channel_fk"),
        sa.ForeignKeyConstraint(["commit_id"], ["nova_commits.id"], name="nova_commit_numbers_commit_id_fk"),
    )
    op.create_table(
        "nova_blocks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("commit_id", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("lo", sa.BigInteger, nullable=False),
        sa.Column("hi", sa.BigInteger, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("deletes", sa.BigInteger, nullable=False),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("schema", sa.Text, nullable=False),
        sa.Column("merge", sa.Text, nullable=False),
        sa.Column("keeps_all", sa.Boolean, nullable=False),
        sa.Column("collected_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="nova_blocks_pk"),
        sa.UniqueConstraint(
            "commit_id", "channel", "partition", "kind", name="nova_blocks_commit_id_channel_partition_kind_key"
        ),
        sa.ForeignKeyConstraint(["commit_id"], ["nova_commits.id"], name="nova_blocks_commit_id_fk"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="nova_blocks_channel_fk"),
    )
    op.create_index("nova_blocks_channel", "nova_blocks", ["channel", "partition", "hi"])
    op.create_table(
        "nova_files",
        sa.Column("block_id", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("ranges", sa.Text, nullable=False),
        sa.Column("bucket", sa.Integer),
        sa.PrimaryKeyConstraint("block_id", "position", name="nova_files_pk"),
        sa.ForeignKeyConstraint(["block_id"], ["nova_blocks.id"], name="nova_files_block_id_fk"),
    )


def _consumers() -> None:
    op.create_table(
        "nova_cursors",
        sa.Column("binding", sa.Text, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("channel_partition", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("moved_at", MOMENT, nullable=False),
        sa.Column("commit_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("binding", "partition", "channel", "channel_partition", name="nova_cursors_pk"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="nova_cursors_channel_fk"),
        sa.ForeignKeyConstraint(["commit_id"], ["nova_commits.id"], name="nova_cursors_commit_id_fk"),
    )
    op.create_index("nova_cursors_channel", "nova_cursors", ["channel"])
    op.create_table(
        "nova_idempotency",
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("commit_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("channel", "key", name="nova_idempotency_pk"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="nova_idempotency_channel_fk"),
        sa.ForeignKeyConstraint(["commit_id"], ["nova_commits.id"], name="nova_idempotency_commit_id_fk"),
    )
    op.create_table(
        "nova_firings",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("binding", sa.Text, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("positions", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="nova_firings_pk"),
        sa.UniqueConstraint("binding", "n", name="nova_firings_binding_n_key"),
    )
