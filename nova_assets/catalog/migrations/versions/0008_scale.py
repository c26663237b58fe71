"""Scale: indexes by which a plan finds what it needs of a long history, and a begin what is to be superseded."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

LIVE = sa.text("collected_at IS NULL")
BASES = sa.text("kind = 'base' AND collected_at IS NULL")


def upgrade() -> None:
    def made(name: str, table: str, columns: list[str], where: sa.TextClause | None = None) -> None:
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)

    made("ix_nova_blocks_live", "nova_blocks", ["channel", "hi"], LIVE)
    made("ix_nova_blocks_bases", "nova_blocks", ["channel", "partition", "hi"], BASES)
    made("ix_nova_executions_binding_partition_state", "nova_executions", ["binding", "partition", "state"])


def downgrade() -> None:
    op.drop_index("ix_nova_executions_binding_partition_state", "nova_executions")
    op.drop_index("ix_nova_blocks_bases", "nova_blocks")
    op.drop_index("ix_nova_blocks_live", "nova_blocks")
