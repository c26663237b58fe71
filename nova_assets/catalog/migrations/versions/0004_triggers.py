"""Triggers: why a firing fired or was abandoned; how often an execution failed, by which cascades count."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    with op.batch_alter_table("nova_firings") as firings:
        firings.add_column(sa.Column("why", sa.Text()))
    with op.batch_alter_table("nova_executions") as executions:
        executions.add_column(sa.Column("failures", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_nova_executions_run_id", "nova_executions", ["run_id"])
    executed = sa.table("nova_executions", *(sa.column(c) for c in ("state", "error", "failures")))
    failed = (executed.c.state != "committed") & executed.c.error.is_not(None)
    op.execute(executed.update().where(failed).values(failures=1))


def downgrade() -> None:
    op.drop_index("ix_nova_executions_run_id", "nova_executions")
    with op.batch_alter_table("nova_executions") as executions:
        executions.drop_column("failures")
    with op.batch_alter_table("nova_firings") as firings:
        firings.drop_column("why")
