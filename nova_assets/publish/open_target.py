"""Opens the publish target of a table definition."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from nova_assets.errors import NotSupported
from nova_assets.model.published_table import HiveTable, PublishedTable
from nova_assets.publish.target import PublishTarget


def open_publish_target(
    table: PublishedTable, base_folder: Path, default_folder: Path, warehouse_address: str, owner: str
) -> PublishTarget:
    """Open the publish target of a table.

    Args:
        base_folder: folder to which relative paths refer.
        default_folder: folder for tables and catalogs without a configured location.
        warehouse_address: address of all blocks.
        owner: identifies the catalog and the channel that own the table.

    Raises:
        NotSupported: a Hive table cannot link to files in an object store.
    """
    if isinstance(table, HiveTable):
        from nova_assets.publish.registered_hive import open_hive_target

        if "://" in warehouse_address:
            raise NotSupported(
                f"a warehouse in an object store cannot be published as {table.id}, because it has no links",
                found=warehouse_address,
                expected="a warehouse in a folder",
                next="publish the channel as an Iceberg table: nova.iceberg(...)",
            )
        return open_hive_target(table, base_folder / table.path, (Path(warehouse_address), default_folder), owner)
    from nova_assets.publish.iceberg import IcebergPublishTarget, configured_iceberg_catalog, default_iceberg_catalog

    catalog_name = table.catalog
    open_iceberg_catalog = (
        partial(default_iceberg_catalog, default_folder / "iceberg")
        if catalog_name is None
        else partial(configured_iceberg_catalog, catalog_name)
    )
    return IcebergPublishTarget(table.name, open_iceberg_catalog, owner)
