"""Files have digests, and the catalog knows its warehouse."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    with op.batch_alter_table("nova_files") as batch:
        batch.add_column(sa.Column("digest", sa.String(64)))
        batch.add_column(sa.Column("footer_digest", sa.String(64)))
    with op.batch_alter_table("nova_identity") as batch:
        batch.add_column(sa.Column("warehouse", sa.String(64)))
        batch.add_column(sa.Column("warehouse_address", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("nova_identity") as batch:
        batch.drop_column("warehouse_address")
        batch.drop_column("warehouse")
    with op.batch_alter_table("nova_files") as batch:
        batch.drop_column("footer_digest")
        batch.drop_column("digest")
