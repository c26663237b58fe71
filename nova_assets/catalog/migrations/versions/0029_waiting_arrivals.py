"""Index of the order in which waiting files are taken."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.create_index(
        "ix_nova_arrivals_taking_order",
        "nova_arrivals",
        ["channel", "state", sa.text("coalesce(modified, at)"), "at"],
    )


def downgrade() -> None:
    op.drop_index("ix_nova_arrivals_taking_order", "nova_arrivals")
