"""The catalog's own version: made, migrated, or refused when a newer package made it."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from nova_assets.catalog.block_rows import with_files
from nova_assets.catalog.database import Database
from nova_assets.catalog.database_errors import reason_of, trouble_of
from nova_assets.catalog.definitions import state_of
from nova_assets.catalog.tables import VERSION_TABLE, blocks, channels, metadata
from nova_assets.errors import CatalogVersion

HEAD = "0019"
"""The version that this package works with: the newest in ``migrations/versions``."""

_KNOWN = tuple(f"{n:04}" for n in range(1, int(HEAD) + 1))
_ONE_AT_A_TIME = Lock()
"""Alembic's context belongs to the process: two threads cannot migrate at once, whatever their catalogs are."""

_LOCK = 7_020_118  # any number: the name of the advisory lock under which PostgreSQL catalogs are migrated


def current(database: Database) -> str | None:
    """The version of the catalog; None for an empty database."""
    return database.read(_current)


def upgrade(database: Database) -> None:
    """Bring the catalog to ``HEAD``. Several processes may do so at once: one does, the others wait.

    Raises:
        CatalogVersion: a newer package made it, or it is something else.
    """
    found = current(database)
    if found == HEAD:
        return
    if found is not None and found not in _KNOWN:
        raise CatalogVersion(
            f"the catalog {database.shown} was made by a newer version of nova_assets",
            found=f"catalog version {found}",
            expected=f"{HEAD} or older",
            next="pip install --upgrade nova-assets",
        )
    if found is None and database.is_sqlite:
        _refuse_foreign(database)
    database.write(lambda c: _migrate(c, database.shown), slow=True)


def _refuse_foreign(database: Database) -> None:
    """A SQLite file of another program is left alone; a PostgreSQL database may be shared."""
    others = database.read(lambda c: inspect(c).get_table_names())
    if others:
        raise CatalogVersion(
            f"{database.shown} is the database of another program",
            found=f"tables {', '.join(others[:5])}",
            expected="a SQLite file made by nova init, or none",
            next="name another file with --catalog or NOVA_CATALOG",
        )


def _current(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    row = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).first()
    return None if row is None else str(row[0])


def _migrate(connection: Connection, shown: str) -> None:
    from alembic import command
    from alembic.config import Config

    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    if _current(connection) == HEAD:
        return
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    version = _current(connection)
    try:
        with _ONE_AT_A_TIME:
            command.upgrade(config, HEAD)
        if version is not None:
            _check_whole(connection)
    except (KeyError, ValueError, TypeError, NoSuchTableError) as error:
        raise _cannot_migrate(shown, version, f"{type(error).__name__}: {error}") from error
    except DBAPIError as error:
        if not trouble_of(error).lacks_tables:
            raise
        raise _cannot_migrate(shown, version, reason_of(error)) from error


def _check_whole(connection: Connection) -> None:
    """Raises what decoding raises, unless every table is as the code expects it and every channel can be read."""
    inspector = inspect(connection)
    for table in metadata.tables.values():
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        lacking = [column.name for column in table.columns if column.name not in columns]
        if lacking:
            raise KeyError(f"{table.name} has no {', '.join(lacking)}")
    for row in connection.execute(select(channels)).mappings():
        state_of(row)
        newest = select(blocks).where(blocks.c.channel == row["name"], blocks.c.collected_at.is_(None))
        with_files(connection, connection.execute(newest.order_by(blocks.c.hi.desc()).limit(10)).mappings().all())


def _cannot_migrate(shown: str, version: str | None, reason: str) -> CatalogVersion:
    return CatalogVersion(
        f"the catalog {shown}, of version {version}, cannot be migrated; it is left as it was",
        found=reason,
        expected="a catalog that a released version made",
        next="go on with the version of nova_assets that made it, or make a new catalog and insert the data again",
    )
