"""Damage check of a catalog: its file, and each of its tables."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, literal, select
from sqlalchemy.exc import DatabaseError

from nova_assets.catalog import schema_version
from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import Database
from nova_assets.catalog.tables import metadata

_SQLITE_HEADER = b"SQLite format 3\x00"


class CatalogDamage(CatalogPart):
    """Checks whether the catalog is readable."""

    def catalog_damage(self) -> str | None:
        """Damage of the catalog, described without host or folder names; None if the catalog is readable.

        An open SQLite connection would not notice that its file was deleted or overwritten, so the file itself is
        checked.

        Raises:
            CatalogUnavailable: the database does not answer.
            CatalogVersion: another version of this package has migrated the catalog since it was opened.
        """
        return _find_file_damage(self.database) or self.database.read(_find_table_damage)


def _find_file_damage(database: Database) -> str | None:
    name = database.engine.url.database
    if not database.is_sqlite or name in (None, "", ":memory:"):
        return None
    file = Path(str(name))
    try:
        with file.open("rb") as opened:
            file_start = opened.read(len(_SQLITE_HEADER))
    except FileNotFoundError:
        return f"its file {file.name} is missing"
    except OSError as error:
        return f"its file {file.name} cannot be read: {error.strerror}"
    return None if file_start in (_SQLITE_HEADER, b"") else f"its file {file.name} is no longer a database"


def _find_table_damage(c: Connection) -> str | None:
    try:
        schema_version.check_current(c)
        existing = set(inspect(c).get_table_names())
        missing = [t.name for t in metadata.sorted_tables if t.name not in existing]
        if missing:
            return f"the table {', '.join(missing)} is missing"
        for table in metadata.sorted_tables:
            c.execute(select(literal(1)).select_from(table).limit(1)).first()
    except DatabaseError as error:
        if "malformed" in str(error.orig) or "not a database" in str(error.orig):
            return "its file is damaged: it cannot be read as a database"
        raise
    return None
