"""The catalog's own version: made, migrated, or refused when a newer package made it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from nova_assets.catalog.database import Database
from nova_assets.catalog.tables import VERSION_TABLE
from nova_assets.errors import CatalogVersion

HEAD = "0013"
"""The version that this package works with: the newest in ``migrations/versions``."""

_KNOWN = tuple(f"{n:04}" for n in range(1, int(HEAD) + 1))
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
    database.write(_migrate)


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


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    if _current(connection) == HEAD:
        return
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
