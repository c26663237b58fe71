"""Pins say whether the binding has run before: at number 0, a cursor alone does not tell.

A cursor that exists has run, whatever its number; so cursors of older catalogs need no change.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    with op.batch_alter_table("nova_pins") as batch:
        batch.add_column(sa.Column("has_run", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("nova_pins") as batch:
        batch.drop_column("has_run")
