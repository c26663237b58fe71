"""Editions: what the tables show in which channels are published."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "nova_editions",
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("place", sa.String(512), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("shown_at", sa.BigInteger),
        sa.Column("superseded_at", sa.BigInteger),
        sa.Column("execution_id", sa.String(64), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("files", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("channel", "place", "number", name="pk_nova_editions"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="fk_nova_editions_channel"),
    )


def downgrade() -> None:
    op.drop_table("nova_editions")
