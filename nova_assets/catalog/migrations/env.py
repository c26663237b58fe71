"""Run by Alembic: applies the versions on the connection, and in the transaction, that ``upgrade.py`` hands over."""

from __future__ import annotations

from alembic import context

from nova_assets.catalog.tables import metadata
from nova_assets.catalog.upgrade import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
