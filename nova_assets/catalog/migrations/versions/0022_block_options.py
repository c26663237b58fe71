"""Blocks that have another merge model than their channel."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.add_column("nova_blocks", sa.Column("channel_merge", sa.JSON()))


def downgrade() -> None:
    op.drop_column("nova_blocks", "channel_merge")
