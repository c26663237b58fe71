"""Place of the catalog's file, copies of it, backups, and the numbers that a restored catalog leaves out."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    with op.batch_alter_table("nova_identity") as table:
        table.add_column(sa.Column("place", sa.Text()))
        table.add_column(sa.Column("copied_from", sa.Text()))
        table.add_column(sa.Column("used_until", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("nova_channels") as table:
        table.add_column(sa.Column("used_until", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "nova_backups",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("held_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_nova_backups"),
    )


def downgrade() -> None:
    op.drop_table("nova_backups")
    with op.batch_alter_table("nova_channels") as table:
        table.drop_column("used_until")
    with op.batch_alter_table("nova_identity") as table:
        table.drop_column("used_until")
        table.drop_column("copied_from")
        table.drop_column("place")
