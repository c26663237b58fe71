"""Identity and condition of the catalog, and identity of the warehouse that belongs to it."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, case, inspect, literal, select, text, update
from sqlalchemy.exc import DatabaseError

from nova_assets.catalog import schema_version
from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.tables import blocks, catalog_identity, channels, commits, files, metadata

LEAST_SKIPPED_NUMBERS = 1_000_000
_MOST_SKIPPED_NUMBERS = 20_000_000


def skip_numbers(c: Connection) -> None:
    """Let all channels leave out numbers that commits of a lost or another state of the catalog may have.

    How many is random, so that two states that come from one backup leave out different numbers.
    """
    skipped = LEAST_SKIPPED_NUMBERS + secrets.randbelow(_MOST_SKIPPED_NUMBERS - LEAST_SKIPPED_NUMBERS)
    last_used = case((channels.c.used_until > channels.c.head, channels.c.used_until), else_=channels.c.head)
    c.execute(update(channels).values(used_until=last_used + skipped))
    c.execute(update(catalog_identity).values(used_until=catalog_identity.c.used_until + skipped))


class Identity(CatalogPart):
    """Reads the catalog's identity, links the catalog to one warehouse, and checks whether it is readable."""

    def get(self) -> str:
        """Identity of this catalog, independent of its name and location."""
        return str(self.database.read(lambda c: c.execute(select(catalog_identity.c.id)).scalar_one()))

    def warehouse(self) -> tuple[str | None, str | None]:
        """Identity and first address of the warehouse; None for both if nothing was written yet."""
        row = self.database.read(
            lambda c: c.execute(select(catalog_identity.c.warehouse, catalog_identity.c.warehouse_address)).one()
        )
        return row[0], row[1]

    def adopt_warehouse(self, new_identity: str, address: str) -> tuple[str, str]:
        """Store the identity and the address of the warehouse, unless they are set.

        Returns:
            The stored identity and address.
        """

        def adopt_if_unset(c: Connection) -> tuple[str, str]:
            change = update(catalog_identity).where(catalog_identity.c.warehouse.is_(None))
            c.execute(change.values(warehouse=new_identity, warehouse_address=address))
            row = c.execute(select(catalog_identity.c.warehouse, catalog_identity.c.warehouse_address)).one()
            return row[0], row[1]

        return self.database.write(adopt_if_unset)

    def copied_from(self) -> str | None:
        """Place of the catalog of which this one is a copy; None if it is no copy, or a person has decided."""
        original: str | None = self.database.read(lambda c: c.execute(select(catalog_identity.c.copied_from)).scalar())
        return original

    def claim_warehouse(self, new_identity: str | None) -> None:
        """Store a new identity of the warehouse, and decide that this catalog is no copy.

        Channels leave out the numbers that commits of another copy may have.

        Args:
            new_identity: None if no warehouse belongs to the catalog yet.
        """

        def claim(c: Connection) -> None:
            c.execute(update(catalog_identity).values(warehouse=new_identity, copied_from=None))
            if not self.database.is_sqlite:  # a copy of a SQLite file leaves out numbers since it was first opened
                skip_numbers(c)

        self.database.write(claim)

    def newest_listed_file(self) -> str | None:
        """A file of the newest block that has files in the warehouse; None if there is no such block."""
        is_live_block = blocks.c.collected_at.is_(None) & blocks.c.outside.is_(None)
        query = select(files.c.path).join(blocks, files.c.block_id == blocks.c.id).where(is_live_block)
        query = query.join(commits, commits.c.id == blocks.c.commit_id).order_by(commits.c.at.desc()).limit(1)
        return self.database.read(lambda c: c.execute(query).scalar())

    def file_problem(self) -> str | None:
        """Why this process cannot use the file of the catalog any more, without host or folder names; None if it can.

        SQLite does not notice that its file was removed or replaced, so ``stat`` examines the file. Nothing here may
        open the file: closing it would drop SQLite's locks ("How To Corrupt An SQLite Database File", section 2.2).
        """
        return self.database.backend.find_file_problem()

    def check_writable(self) -> str:
        """One-line description of the catalog. Raises CatalogUnavailable."""
        self.database.write(lambda c: c.execute(text("SELECT 1")))
        kind = "SQLite" if self.database.is_sqlite else "PostgreSQL"
        return f"{kind}, version {schema_version.current_version(self.database)}, {self.database.masked_url}"

    def damage(self) -> str | None:
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
