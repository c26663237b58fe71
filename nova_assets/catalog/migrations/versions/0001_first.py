"""The first version: channels, blocks, commits, cursors, executions, firings."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "nova_bindings",
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nova_bindings")),
    )
    op.create_table(
        "nova_channels",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("head", sa.Integer(), nullable=False),
        sa.Column("schema", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nova_channels")),
    )
    op.create_table(
        "nova_commits",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("execution_id", sa.String(length=64), nullable=False),
        sa.Column("binding", sa.String(length=256), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("heads", sa.JSON(), nullable=False),
        sa.Column("consumed", sa.JSON(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("published_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nova_commits")),
        sa.UniqueConstraint("execution_id", name=op.f("uq_nova_commits_execution_id")),
    )
    op.create_index("ix_nova_commits_published_at_at", "nova_commits", ["published_at", "at"], unique=False)
    op.create_table(
        "nova_executions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("binding", sa.String(length=256), nullable=True),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("commit_id", sa.String(length=64), nullable=True),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("firing_id", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nova_executions")),
    )
    op.create_index("ix_nova_executions_binding_started_at", "nova_executions", ["binding", "started_at"], unique=False)
    op.create_index("ix_nova_executions_state_lease_until", "nova_executions", ["state", "lease_until"], unique=False)
    op.create_index(
        "uq_nova_executions_live",
        "nova_executions",
        ["binding", "partition"],
        unique=True,
        sqlite_where=sa.text("state = 'running' AND binding IS NOT NULL"),
        postgresql_where=sa.text("state = 'running' AND binding IS NOT NULL"),
    )
    op.create_table(
        "nova_firings",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("binding", sa.String(length=256), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("positions", sa.JSON(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nova_firings")),
        sa.UniqueConstraint("binding", "n", name=op.f("uq_nova_firings_binding_n")),
    )
    op.create_table(
        "nova_blocks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("channel", sa.String(length=128), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("lo", sa.Integer(), nullable=False),
        sa.Column("hi", sa.Integer(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("deletes", sa.BigInteger(), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=False),
        sa.Column("format", sa.String(length=32), nullable=False),
        sa.Column("keeps_all", sa.Boolean(), nullable=False),
        sa.Column("merge", sa.JSON(), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("commit_id", sa.String(length=64), nullable=False),
        sa.Column("collected_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name=op.f("fk_nova_blocks_channel")),
        sa.ForeignKeyConstraint(["commit_id"], ["nova_commits.id"], name=op.f("fk_nova_blocks_commit_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nova_blocks")),
    )
    op.create_index("ix_nova_blocks_channel_partition_hi", "nova_blocks", ["channel", "partition", "hi"], unique=False)
    op.create_index("ix_nova_blocks_commit_id", "nova_blocks", ["commit_id"], unique=False)
    op.create_table(
        "nova_cursors",
        sa.Column("binding", sa.String(length=256), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("channel", sa.String(length=128), nullable=False),
        sa.Column("channel_partition", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("commit_id", sa.String(length=64), nullable=False),
        sa.Column("moved_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name=op.f("fk_nova_cursors_channel")),
        sa.ForeignKeyConstraint(["commit_id"], ["nova_commits.id"], name=op.f("fk_nova_cursors_commit_id")),
        sa.PrimaryKeyConstraint("binding", "partition", "channel", "channel_partition", name=op.f("pk_nova_cursors")),
    )
    op.create_index("ix_nova_cursors_channel", "nova_cursors", ["channel"], unique=False)
    op.create_table(
        "nova_keys",
        sa.Column("channel", sa.String(length=128), nullable=False),
        sa.Column("key", sa.String(length=512), nullable=False),
        sa.Column("commit_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name=op.f("fk_nova_keys_channel")),
        sa.ForeignKeyConstraint(["commit_id"], ["nova_commits.id"], name=op.f("fk_nova_keys_commit_id")),
        sa.PrimaryKeyConstraint("channel", "key", name=op.f("pk_nova_keys")),
    )
    op.create_table(
        "nova_numbers",
        sa.Column("commit_id", sa.String(length=64), nullable=False),
        sa.Column("channel", sa.String(length=128), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name=op.f("fk_nova_numbers_channel")),
        sa.ForeignKeyConstraint(["commit_id"], ["nova_commits.id"], name=op.f("fk_nova_numbers_commit_id")),
        sa.PrimaryKeyConstraint("commit_id", "channel", name=op.f("pk_nova_numbers")),
        sa.UniqueConstraint("channel", "seq", name=op.f("uq_nova_numbers_channel_seq")),
    )
    op.create_table(
        "nova_pins",
        sa.Column("execution_id", sa.String(length=64), nullable=False),
        sa.Column("channel", sa.String(length=128), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("head", sa.Integer(), nullable=False),
        sa.Column("cursor", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["nova_executions.id"], name=op.f("fk_nova_pins_execution_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("execution_id", "channel", "partition", name=op.f("pk_nova_pins")),
    )
    op.create_index("ix_nova_pins_channel", "nova_pins", ["channel"], unique=False)
    op.create_table(
        "nova_staged",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("execution_id", sa.String(length=64), nullable=False),
        sa.Column("channel", sa.String(length=128), nullable=True),
        sa.Column("port", sa.String(length=128), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("manifest", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("dropped", sa.Boolean(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["nova_executions.id"], name=op.f("fk_nova_staged_execution_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nova_staged")),
    )
    op.create_index("ix_nova_staged_channel", "nova_staged", ["channel"], unique=False)
    op.create_index("ix_nova_staged_execution_id", "nova_staged", ["execution_id"], unique=False)
    op.create_table(
        "nova_files",
        sa.Column("block_id", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("ranges", sa.JSON(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["block_id"], ["nova_blocks.id"], name=op.f("fk_nova_files_block_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("block_id", "ordinal", name=op.f("pk_nova_files")),
    )
    op.create_index("ix_nova_files_path", "nova_files", ["path"], unique=False)
