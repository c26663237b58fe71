"""The blocks whose files a published version lists."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    with op.batch_alter_table("nova_editions") as batch:
        batch.add_column(sa.Column("blocks", sa.JSON()))


def downgrade() -> None:
    with op.batch_alter_table("nova_editions") as batch:
        batch.drop_column("blocks")
