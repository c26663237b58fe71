"""Versions of the partitions that refreshes have copied from databases."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "nova_source_versions",
        sa.Column("channel", sa.String(128), sa.ForeignKey("nova_channels.name"), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("commit_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("channel", "partition", name="pk_nova_source_versions"),
    )


def downgrade() -> None:
    op.drop_table("nova_source_versions")
