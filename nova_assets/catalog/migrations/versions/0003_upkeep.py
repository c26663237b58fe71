"""Upkeep (R14, R15): which channels may be given a base, and what collected a block."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("nova_channels") as channels:
        channels.add_column(sa.Column("bases", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("nova_blocks") as blocks:
        blocks.add_column(sa.Column("collected_by", sa.String(length=64)))
    _set_bases()


def downgrade() -> None:
    with op.batch_alter_table("nova_blocks") as blocks:
        blocks.drop_column("collected_by")
    with op.batch_alter_table("nova_channels") as channels:
        channels.drop_column("bases")


def _set_bases() -> None:
    """Whoever has been given a base, or is written as one by a registered binding, may be given another."""
    channels = sa.table("nova_channels", sa.column("name"), sa.column("bases", sa.Boolean))
    blocks = sa.table("nova_blocks", sa.column("channel"), sa.column("kind"))
    bindings = sa.table("nova_bindings", sa.column("definition", sa.JSON))
    connection = op.get_bind()
    may = set(connection.execute(sa.select(blocks.c.channel).where(blocks.c.kind == "base").distinct()).scalars())
    for definition in connection.execute(sa.select(bindings.c.definition)).scalars():
        ports = {e["port"] for t in definition["tasks"] for e in t["produces"] if e["kind"] == "base"}
        may |= {channel for port, channel in definition["channels"].items() if port in ports}
    op.execute(channels.update().where(channels.c.name.in_(sorted(may))).values(bases=True))
