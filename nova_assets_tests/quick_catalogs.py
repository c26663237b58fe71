"""New SQLite catalogs in a test process: the first is migrated, and the others get its tables as one script.

The 25 migrations of an empty file take a tenth of a second, and most tests open a new catalog.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, inspect, text

from nova_assets.catalog import schema_version
from nova_assets.catalog.tables import VERSION_TABLE, catalog_identity

TESTS_OF_NEW_DATABASES = {
    "test_database_refusals",
    "test_races",
    "test_schema_versions",
    "test_sqlite_file",
    "test_sqlite_log",
    "test_url_options",
}
"""Modules that test how the tables of a catalog are made. They need the migrations."""

_statements: list[str] = []
"""The script: the SQL of the tables and indexes, as the migrations have left it."""


@contextmanager
def quick_catalogs() -> Iterator[None]:
    """While the block lasts, each new SQLite catalog of this process gets the tables of the first one."""
    migrate = schema_version._migrate

    def copy_or_migrate(connection: Connection, masked_url: str) -> None:
        if connection.dialect.name != "sqlite" or inspect(connection).get_table_names():
            migrate(connection, masked_url)
            return
        if not _statements:
            migrate(connection, masked_url)
            _statements.extend(_read_statements(connection))
            return
        for statement in _statements:
            connection.exec_driver_sql(statement)
        connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES (:head)"), {"head": schema_version.HEAD})
        connection.execute(catalog_identity.insert().values(id=uuid.uuid4().hex))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_version, "_migrate", copy_or_migrate)
        yield


def _read_statements(connection: Connection) -> list[str]:
    """The statements that make the tables and indexes of a catalog.

    Raises:
        AssertionError: a migration inserts rows of which this module does not know.
    """
    filled = [name for name in inspect(connection).get_table_names() if _has_rows(connection, name)]
    assert sorted(filled) == sorted([VERSION_TABLE, catalog_identity.name]), filled
    made = text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid")
    return [str(row[0]) for row in connection.execute(made)]


def _has_rows(connection: Connection, table: str) -> bool:
    return connection.execute(text(f"SELECT 1 FROM {table} LIMIT 1")).first() is not None
