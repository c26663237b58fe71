"""Digests of what was inserted under an idempotency key. Keys that are older have none."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    with op.batch_alter_table("nova_keys") as batch:
        batch.add_column(sa.Column("digest", sa.String(128)))


def downgrade() -> None:
    with op.batch_alter_table("nova_keys") as batch:
        batch.drop_column("digest")
