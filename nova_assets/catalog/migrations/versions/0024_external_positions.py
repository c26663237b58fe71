"""Positions of external channels in the logs of other systems."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "nova_external_positions",
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.BigInteger(), nullable=False),
        sa.Column("listed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("channel", name="pk_nova_external_positions"),
    )


def downgrade() -> None:
    op.drop_table("nova_external_positions")
