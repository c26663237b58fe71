"""Which outlet a table is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from nova_assets.model.table import HiveTable, Table
from nova_assets.publish.outlet import Outlet


def open_outlet(table: Table, root: Path, home: Path, warehouse: Path, owner: str) -> Outlet:
    """What shows editions in a table.

    Args:
        root: from which relative paths go.
        home: the folder of what is made without being asked where.
        warehouse: the folder of all blocks.
        owner: tells whose the table is.
    """
    if isinstance(table, HiveTable):
        from nova_assets.publish.hive import HiveFolder

        return HiveFolder(root / table.path, warehouse, owner)
    from nova_assets.publish.iceberg import IcebergOutlet, named_catalog, own_catalog

    named = table.catalog
    load = partial(own_catalog, home / "iceberg") if named is None else partial(named_catalog, named)
    return IcebergOutlet(table.name, load, owner)
