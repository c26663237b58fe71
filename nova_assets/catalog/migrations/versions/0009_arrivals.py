"""Arrivals: files that were announced for a channel, and what became of each; and seals: what is complete."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "nova_arrivals",
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("place", sa.String(64), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("modified", sa.BigInteger),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("bad", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("reason", sa.Text),
        sa.Column("commit_id", sa.String(64)),
        sa.PrimaryKeyConstraint("channel", "key", name="pk_nova_arrivals"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="fk_nova_arrivals_channel"),
    )
    op.create_index("ix_nova_arrivals_channel_state_at", "nova_arrivals", ["channel", "state", "at"])
    op.create_index("ix_nova_arrivals_channel_place", "nova_arrivals", ["channel", "place"])
    op.add_column("nova_channels", sa.Column("looked_at", sa.BigInteger))
    op.create_table(
        "nova_seals",
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("grp", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("files", sa.BigInteger, nullable=False),
        sa.Column("commit_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("channel", "grp", "version", name="pk_nova_seals"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="fk_nova_seals_channel"),
    )
    op.create_index("ix_nova_seals_channel_at", "nova_seals", ["channel", "at"])


def downgrade() -> None:
    op.drop_table("nova_seals")
    op.drop_column("nova_channels", "looked_at")
    op.drop_table("nova_arrivals")
