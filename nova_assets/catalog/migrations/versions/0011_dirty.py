"""Marks: partitions that are to be made again."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "nova_dirty",
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("by", sa.String(64), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("channel", "partition", name="pk_nova_dirty"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="fk_nova_dirty_channel"),
    )


def downgrade() -> None:
    op.drop_table("nova_dirty")
