"""Which outlet a table is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from nova_assets.errors import NotSupported
from nova_assets.model.publish_table import HiveTable, Table
from nova_assets.publish.target import Outlet


def open_outlet(table: Table, root: Path, home: Path, warehouse: str, owner: str) -> Outlet:
    """What shows editions in a table.

    Args:
        root: from which relative paths go.
        home: the folder of what is made without being asked where.
        warehouse: where all blocks are.
        owner: tells whose the table is.
    """
    if isinstance(table, HiveTable):
        from nova_assets.publish.hive import HiveFolder

        if "://" in warehouse:
            raise NotSupported(
                f"a warehouse in an object store cannot be shown as {table.id}: it has no links",
                found=warehouse,
                expected="a warehouse in a folder",
                next="publish the channel as an Iceberg table: nova.iceberg(...)",
            )
        return HiveFolder(root / table.path, (Path(warehouse), home), owner)
    from nova_assets.publish.iceberg import IcebergOutlet, named_catalog, own_catalog

    named = table.catalog
    load = partial(own_catalog, home / "iceberg") if named is None else partial(named_catalog, named)
    return IcebergOutlet(table.name, load, owner)
