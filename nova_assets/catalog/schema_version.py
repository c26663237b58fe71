"""Schema version of the catalog's tables: creation, migration, and rejection of other versions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from nova_assets.catalog.block_rows import load_blocks_with_files
from nova_assets.catalog.channel_rows import channel_state_from_row
from nova_assets.catalog.database.failures import classify_failure, failure_message
from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.tables import blocks, catalog_identity, channels, metadata, version
from nova_assets.errors import CatalogVersion

BASELINE = "0028"
"""The oldest schema version that can be migrated. Catalogs of earlier versions were made before the first release."""

HEAD = "0029"
"""Schema version of this package: the newest in ``migrations/versions``."""

_MIGRATION_LOCK = Lock()
"""Alembic's context belongs to the process, so two threads cannot migrate at once, even different catalogs."""

_ADVISORY_LOCK_KEY = 7_020_118  # arbitrary key of the advisory lock for migrations on PostgreSQL


def current_version(database: Database) -> str | None:
    """Schema version of a database; None for an empty database."""
    return database.read(_read_version)


def upgrade(database: Database, check_before_change: Callable[[str | None], None] = lambda version: None) -> None:
    """Create or migrate the catalog to ``HEAD``.

    If several processes call this at once, one migrates and the others wait.

    Args:
        check_before_change: called with the present version before the catalog is created or migrated.

    Raises:
        CatalogVersion: a newer package made the catalog, the database belongs to another program, or the migration
            failed.
    """
    present, table_names = database.read(_read_version_and_tables)
    if present == HEAD:
        return
    if present is not None:
        _check_can_migrate(present, database.masked_url)
    elif database.is_sqlite:
        _check_no_foreign_tables(database, table_names)
    check_before_change(present)
    database.write(lambda c: _create_or_migrate(c, database.masked_url), no_timeout=True)


def _check_can_migrate(present: str, masked_url: str) -> None:
    if present < BASELINE:
        raise CatalogVersion(
            f"the catalog {masked_url} was made before the first release of nova_assets",
            found=f"catalog version {present}",
            expected=f"{BASELINE} to {HEAD}",
            next=f"open it once with the revision of nova_assets that migrates to {BASELINE} (docs/guides/catalog.md)",
        )
    if present > HEAD:
        raise CatalogVersion(
            f"the catalog {masked_url} was made by a newer version of nova_assets",
            found=f"catalog version {present}",
            expected=f"{HEAD} or older",
            next="pip install --upgrade nova-assets",
        )


def check_current(connection: Connection) -> None:
    """Check that the tables are of this package's version. A catalog without a version table passes.

    Raises:
        CatalogVersion.
    """
    present = _read_version(connection)
    if present not in (None, HEAD):
        raise CatalogVersion(
            "another version of nova_assets has migrated the catalog",
            found=f"catalog version {present}",
            expected=HEAD,
            next="start this program again, with the version of nova_assets that migrated the catalog",
        )


def _check_no_foreign_tables(database: Database, table_names: Sequence[str]) -> None:
    """Check that a SQLite file does not belong to another program. A PostgreSQL database may be shared.

    Args:
        table_names: the tables, read in one transaction with the version. Another process may create a catalog now.

    Raises:
        CatalogVersion.
    """
    if table_names:
        raise CatalogVersion(
            f"{database.masked_url} is the database of another program",
            found=f"tables {', '.join(table_names[:5])}",
            expected="a SQLite file that nova init has created, or no file",
            next="name another file with --catalog or NOVA_CATALOG",
        )


def _read_version_and_tables(connection: Connection) -> tuple[str | None, Sequence[str]]:
    """The version and, if there is none, the names of all tables."""
    present = _read_version(connection)
    return present, inspect(connection).get_table_names() if present is None else ()


def _read_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(version.name):
        return None
    number = connection.execute(select(version)).scalar()
    return None if number is None else str(number)


def _create_or_migrate(connection: Connection, masked_url: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK_KEY})
    present = _read_version(connection)  # another process may have been first
    if present is None:
        _create_tables(connection)
    elif present != HEAD:
        _migrate(connection, present, masked_url)


def _create_tables(connection: Connection) -> None:
    for table in metadata.tables.values():
        for index in table.indexes:
            if condition := index.info.get("where"):
                index.dialect_options[connection.dialect.name]["where"] = text(condition)
    metadata.create_all(connection, checkfirst=False)
    version.create(connection, checkfirst=False)
    connection.execute(version.insert().values(version_num=HEAD))
    connection.execute(catalog_identity.insert().values(id=uuid.uuid4().hex))


def _migrate(connection: Connection, present: str, masked_url: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        with _MIGRATION_LOCK:
            command.upgrade(config, HEAD)
        _check_migrated_catalog(connection)
    except (KeyError, ValueError, TypeError, NoSuchTableError) as error:
        raise _migration_error(masked_url, present, f"{type(error).__name__}: {error}") from error
    except DBAPIError as error:
        if not classify_failure(error).lacks_tables:
            raise
        raise _migration_error(masked_url, present, failure_message(error)) from error


def _check_migrated_catalog(connection: Connection) -> None:
    """Check that every table has the expected columns and that every channel can be decoded.

    Raises:
        KeyError, ValueError, TypeError: a column is missing, or decoding failed.
        NoSuchTableError: a table is missing.
    """
    inspector = inspect(connection)
    for table in metadata.tables.values():
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        missing_columns = [column.name for column in table.columns if column.name not in columns]
        if missing_columns:
            raise KeyError(f"{table.name} has no {', '.join(missing_columns)}")
    for row in connection.execute(select(channels)).mappings():
        channel_state_from_row(row)
        newest_blocks = select(blocks).where(blocks.c.channel == row["name"], blocks.c.collected_at.is_(None))
        load_blocks_with_files(
            connection, connection.execute(newest_blocks.order_by(blocks.c.hi.desc()).limit(10)).mappings().all()
        )


def _migration_error(masked_url: str, version: str | None, reason: str) -> CatalogVersion:
    return CatalogVersion(
        f"the catalog {masked_url}, of version {version}, cannot be migrated; it is left as it was",
        found=reason,
        expected="a catalog that a released version has created",
        next="use the version of nova_assets that made it, or create a new catalog and insert the data again",
    )
