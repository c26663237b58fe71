"""The oldest version that can be migrated. New catalogs get the tables of ``catalog/tables.py``, and no migration."""

revision = "0028"
down_revision = None


def upgrade() -> None:
    """Nothing to do: a catalog of this version exists."""
