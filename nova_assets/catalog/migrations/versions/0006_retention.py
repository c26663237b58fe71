"""Retention: for how long old versions and partitions of a channel are kept, and its newest number that was news; and
when staged blocks were swept."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("nova_channels") as channels:
        channels.add_column(sa.Column("upkeep", sa.JSON(), nullable=False, server_default="{}"))
        channels.add_column(sa.Column("news", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("nova_staged") as staged:
        staged.add_column(sa.Column("swept_at", sa.BigInteger()))
    known = sa.table("nova_channels", *(sa.column(c) for c in ("head", "news")))
    op.execute(known.update().values(news=known.c.head))


def downgrade() -> None:
    with op.batch_alter_table("nova_staged") as staged:
        staged.drop_column("swept_at")
    with op.batch_alter_table("nova_channels") as channels:
        channels.drop_column("news")
        channels.drop_column("upkeep")
