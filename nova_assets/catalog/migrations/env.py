"""Run by Alembic inside the transaction that ``schema_version`` has opened."""

from alembic import context

from nova_assets.catalog.tables import VERSION_TABLE, metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE, transactional_ddl=False)
context.run_migrations()
