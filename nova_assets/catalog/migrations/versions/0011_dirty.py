"""Marks, and backfills: partitions that are to be made again, and who wants that."""

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
        sa.Column("priority", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("channel", "partition", name="pk_nova_dirty"),
        sa.ForeignKeyConstraint(["channel"], ["nova_channels.name"], name="fk_nova_dirty_channel"),
    )
    op.create_table(
        "nova_backfills",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("dataset", sa.String(128), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("downstream", sa.JSON, nullable=False),
        sa.Column("cancelled_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_nova_backfills"),
        sa.ForeignKeyConstraint(["dataset"], ["nova_channels.name"], name="fk_nova_backfills_dataset"),
    )
    op.create_table(
        "nova_backfill_parts",
        sa.Column("backfill", sa.String(64), nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("seq", sa.Integer),
        sa.Column("execution_id", sa.String(64)),
        sa.PrimaryKeyConstraint("backfill", "n", name="pk_nova_backfill_parts"),
        sa.ForeignKeyConstraint(["backfill"], ["nova_backfills.id"], name="fk_nova_backfill_parts_backfill"),
    )
    op.create_index("ix_nova_backfill_parts_channel_partition", "nova_backfill_parts", ["channel", "partition"])


def downgrade() -> None:
    op.drop_table("nova_backfill_parts")
    op.drop_table("nova_backfills")
    op.drop_table("nova_dirty")
