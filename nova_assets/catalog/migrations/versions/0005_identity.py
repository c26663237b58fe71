"""Repair: each catalog has an identity, so that it takes nobody else's files for orphans."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    identity = op.create_table(
        "nova_identity",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nova_identity")),
    )
    op.bulk_insert(identity, [{"id": uuid.uuid4().hex}])


def downgrade() -> None:
    op.drop_table("nova_identity")
