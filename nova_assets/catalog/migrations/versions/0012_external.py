"""Blocks whose files others keep."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    with op.batch_alter_table("nova_blocks") as batch:
        batch.add_column(sa.Column("outside", sa.JSON()))


def downgrade() -> None:
    with op.batch_alter_table("nova_blocks") as batch:
        batch.drop_column("outside")
