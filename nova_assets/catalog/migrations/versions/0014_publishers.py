"""Publishers: which code location shows the commits on a channel in Dagster."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "nova_publishers",
        sa.Column("channel", sa.String(128), nullable=False),
        sa.Column("location", sa.String(256), nullable=False),
        sa.Column("writes", sa.Boolean, nullable=False),
        sa.Column("claimed_at", sa.BigInteger, nullable=False),
        sa.Column("renewed_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("channel", name="pk_nova_publishers"),
    )


def downgrade() -> None:
    op.drop_table("nova_publishers")
