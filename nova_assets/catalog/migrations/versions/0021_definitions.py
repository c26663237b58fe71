"""Versions of definitions, definitions that are paused or removed, and the version that an execution ran."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "nova_definition_versions",
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "number", name="pk_nova_definition_versions"),
    )
    op.create_table(
        "nova_definition_states",
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("paused_at", sa.BigInteger()),
        sa.Column("paused_by", sa.Text()),
        sa.Column("removed_at", sa.BigInteger()),
        sa.Column("removed_by", sa.Text()),
        sa.Column("collected_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_nova_definition_states"),
    )
    op.add_column("nova_executions", sa.Column("version", sa.Integer()))


def downgrade() -> None:
    op.drop_column("nova_executions", "version")
    op.drop_table("nova_definition_states")
    op.drop_table("nova_definition_versions")
