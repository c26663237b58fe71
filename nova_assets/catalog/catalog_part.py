"""Base of the parts of a catalog."""

from __future__ import annotations

from nova_assets.catalog.database.transactions import Database


class CatalogPart:
    """The reads and transactions of a catalog about one subject. All parts of a catalog share one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
