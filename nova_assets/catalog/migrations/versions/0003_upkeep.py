"""Upkeep (R14, R15): which channels may be given a base, and what collected a block."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("nova_channels") as channels:
        channels.add_column(sa.Column("bases", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("nova_blocks") as blocks:
        blocks.add_column(sa.Column("collected_by", sa.String(length=64)))
    # Whoever has been given one before may be again.
    given = "SELECT channel FROM nova_blocks WHERE kind = 'base'"
    op.execute(sa.text(f"UPDATE nova_channels SET bases = {_true()} WHERE name IN ({given})"))


def downgrade() -> None:
    with op.batch_alter_table("nova_blocks") as blocks:
        blocks.drop_column("collected_by")
    with op.batch_alter_table("nova_channels") as channels:
        channels.drop_column("bases")


def _true() -> str:
    return "1" if op.get_bind().dialect.name == "sqlite" else "true"
