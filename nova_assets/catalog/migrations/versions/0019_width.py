"""How wide the rows of files are."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    with op.batch_alter_table("nova_files") as batch:
        batch.add_column(sa.Column("unpacked", sa.BigInteger()))


def downgrade() -> None:
    with op.batch_alter_table("nova_files") as batch:
        batch.drop_column("unpacked")
