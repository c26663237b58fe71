"""Base of the classes whose methods form the catalog."""

from __future__ import annotations

from nova_assets.catalog.database.transactions import Database


class CatalogPart:
    """The catalog's methods for one subject. ``SqlCatalog`` inherits from all parts, which share one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
