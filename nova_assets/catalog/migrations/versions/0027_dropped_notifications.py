"""How many notifications of a notifier were dropped."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    with op.batch_alter_table("nova_notifiers") as batch:
        batch.add_column(sa.Column("dropped", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("nova_notifiers") as batch:
        batch.drop_column("dropped")
