"""Partitions (R13): a channel's blocks by number, whatever their partition; firings of each partition."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_index("ix_nova_blocks_channel_hi", "nova_blocks", ["channel", "hi"])
    with op.batch_alter_table("nova_firings") as firings:
        firings.add_column(sa.Column("partition", sa.Text(), nullable=False, server_default=""))
        firings.drop_constraint("uq_nova_firings_binding_n", type_="unique")
        firings.create_unique_constraint("uq_nova_firings_binding_partition_n", ["binding", "partition", "n"])


def downgrade() -> None:
    with op.batch_alter_table("nova_firings") as firings:
        firings.drop_constraint("uq_nova_firings_binding_partition_n", type_="unique")
        firings.create_unique_constraint("uq_nova_firings_binding_n", ["binding", "n"])
        firings.drop_column("partition")
    op.drop_index("ix_nova_blocks_channel_hi", table_name="nova_blocks")
