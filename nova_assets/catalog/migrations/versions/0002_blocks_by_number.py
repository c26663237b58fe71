"""Blocks of a channel by number, whatever their partition: what came after a cursor (R13)."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_index("ix_nova_blocks_channel_hi", "nova_blocks", ["channel", "hi"])


def downgrade() -> None:
    op.drop_index("ix_nova_blocks_channel_hi", table_name="nova_blocks")
