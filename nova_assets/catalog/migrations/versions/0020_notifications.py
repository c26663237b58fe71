"""Notifications: notifiers, the outbox of each, and the problems that last."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "nova_notifiers",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("bindings", sa.JSON, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("lease_until", sa.BigInteger),
        sa.PrimaryKeyConstraint("name", name="pk_nova_notifiers"),
    )
    op.create_table(
        "nova_notifications",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("notifier", sa.String(128), nullable=False),
        sa.Column("subject", sa.String(512), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("retry_at", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("n", name="pk_nova_notifications"),
    )
    op.create_index(
        "ix_nova_notifications_notifier_state_subject_n", "nova_notifications", ["notifier", "state", "subject", "n"]
    )
    op.create_table(
        "nova_problems",
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(1024), nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event", "subject", name="pk_nova_problems"),
    )


def downgrade() -> None:
    op.drop_table("nova_problems")
    op.drop_table("nova_notifications")
    op.drop_table("nova_notifiers")
