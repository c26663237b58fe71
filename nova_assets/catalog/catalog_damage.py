"""Damage check of a catalog: its file, and each of its tables."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, literal, select
from sqlalchemy.exc import DatabaseError

from nova_assets.catalog import schema_version
from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.tables import metadata


class CatalogDamage(CatalogPart):
    """Checks whether the catalog is readable."""

    def catalog_file_problem(self) -> str | None:
        """Why this process cannot use the file of the catalog any more, without host or folder names; None if it can.

        SQLite does not notice that its file was removed or replaced, so ``stat`` examines the file. Nothing here may
        open the file: closing it would drop SQLite's locks ("How To Corrupt An SQLite Database File", section 2.2).
        """
        return self.database.backend.find_file_problem()

    def catalog_damage(self) -> str | None:
        """Damage of the catalog, described without host or folder names; None if the catalog is readable.

        Raises:
            CatalogUnavailable: the database does not answer.
            CatalogVersion: another version of this package has migrated the catalog since it was opened.
        """
        return self.database.read(_find_table_damage)


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
