"""Steps: everything that happened to a channel, in order and sealed by a chain of hashes; what executions are for; and
tokens, by which others may ask a service."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_GONE = sa.text("collected_by IS NOT NULL")


def upgrade() -> None:
    with op.batch_alter_table("nova_channels") as batch:
        batch.add_column(sa.Column("step", sa.Integer, nullable=False, server_default="0"))
        batch.add_column(sa.Column("prefix", sa.String(64), nullable=False, server_default=""))
    with op.batch_alter_table("nova_executions") as batch:
        batch.add_column(sa.Column("purpose", sa.String(16), nullable=False, server_default="commit"))
    op.create_table(
        "nova_steps",
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("prefix", sa.String(64), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("commit_id", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("channel", "n", name="pk_nova_steps"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="fk_nova_steps_channel"),
    )
    op.create_index("ix_nova_blocks_gone", "nova_blocks", ["collected_by"], sqlite_where=_GONE, postgresql_where=_GONE)
    op.create_table(
        "nova_tokens",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("grants", sa.JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_nova_tokens"),
        sa.UniqueConstraint("name", name="uq_nova_tokens_name"),
    )


def downgrade() -> None:
    op.drop_table("nova_tokens")
    op.drop_index("ix_nova_blocks_gone", "nova_blocks")
    op.drop_table("nova_steps")
    with op.batch_alter_table("nova_executions") as batch:
        batch.drop_column("purpose")
    with op.batch_alter_table("nova_channels") as batch:
        batch.drop_column("prefix")
        batch.drop_column("step")
