"""Columns of a channel that take effect with its next base."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    with op.batch_alter_table("nova_channels") as batch:
        batch.add_column(sa.Column("next_schema", sa.JSON()))


def downgrade() -> None:
    with op.batch_alter_table("nova_channels") as batch:
        batch.drop_column("next_schema")
