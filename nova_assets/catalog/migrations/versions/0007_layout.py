"""Layout: how rows lie in the files of keyed blocks. Blocks from before are laid out in no way that is known."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    with op.batch_alter_table("nova_blocks") as blocks:
        blocks.add_column(sa.Column("layout", sa.JSON()))
    with op.batch_alter_table("nova_files") as files:
        files.add_column(sa.Column("place", sa.JSON()))
        files.drop_column("bucket")


def downgrade() -> None:
    with op.batch_alter_table("nova_files") as files:
        files.add_column(sa.Column("bucket", sa.Integer()))
        files.drop_column("place")
    with op.batch_alter_table("nova_blocks") as blocks:
        blocks.drop_column("layout")
