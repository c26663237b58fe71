"""Run by Alembic inside the transaction that ``schema_version`` has opened."""

from alembic import context

from nova_assets.catalog.tables import metadata, version

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table=version.name, transactional_ddl=False)
context.run_migrations()
