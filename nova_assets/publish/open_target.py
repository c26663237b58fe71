"""Opens the publish target of a table definition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from nova_assets.errors import NotSupported
from nova_assets.model.address import parse_address
from nova_assets.model.published_table import HiveTable, PublishedTable
from nova_assets.model.published_version import TableStore
from nova_assets.publish.target import PublishTarget


def open_publish_target(
    table: PublishedTable,
    base_folder: Path,
    default_folder: Path,
    warehouse_address: str,
    owner: str,
    store: Callable[[], TableStore],
) -> PublishTarget:
    """Open the publish target of a table.

    Args:
        base_folder: folder to which relative paths refer.
        default_folder: folder for tables and catalogs without a configured location.
        warehouse_address: address of all blocks.
        owner: identifies the catalog and the channel that own the table.
        store: opens the store of tables in S3 or HDFS.

    Raises:
        NotSupported: a local Hive table cannot link to files in an object store, or nova cannot write the format there.
    """
    if isinstance(table, HiveTable):
        if "://" in table.path:
            return _open_remote_hive_target(table, warehouse_address, owner, store())
        from nova_assets.publish.registered_hive import RegisteredHiveTarget

        if "://" in warehouse_address and not table.converts:
            raise NotSupported(
                f"a warehouse in an object store cannot be published as {table.id}, because it has no links",
                found=warehouse_address,
                expected="a warehouse in a folder, or a table in the object store",
                next='nova.hive("s3://BUCKET/PATH"), nova.hive_table(...) for converted files, or nova.iceberg(...)',
            )
        forbidden_folders = (*(() if "://" in warehouse_address else (Path(warehouse_address),)), default_folder)
        return RegisteredHiveTarget(base_folder / table.path, forbidden_folders, owner, table)
    from nova_assets.publish.iceberg import IcebergPublishTarget, configured_iceberg_catalog, default_iceberg_catalog

    catalog_name = table.catalog
    open_iceberg_catalog = (
        partial(default_iceberg_catalog, default_folder / "iceberg")
        if catalog_name is None
        else partial(configured_iceberg_catalog, catalog_name)
    )
    return IcebergPublishTarget(table.name, open_iceberg_catalog, owner)


def _open_remote_hive_target(table: HiveTable, warehouse_address: str, owner: str, store: TableStore) -> PublishTarget:
    from nova_assets.publish.remote_hive import RemoteHivePublishTarget

    if table.format not in (None, "parquet"):
        raise NotSupported(
            f"{table.id} cannot be written as {table.format} in an object store",
            found=f'format="{table.format}"',
            expected="Parquet: Spark's writers of other formats rename files",
            next='format="parquet", or a folder on a disk',
        )
    return RemoteHivePublishTarget(str(parse_address(table.path)), store, warehouse_address, owner, table.format)
