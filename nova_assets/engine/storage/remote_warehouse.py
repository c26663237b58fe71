"""Warehouse in S3 or HDFS, with the same names as in a local folder: ``s3://BUCKET/PREFIX/blocks/<block id>/<file>``.

A write that such a store has acknowledged is durable and visible to all readers, so no sync is needed. There are no
links that could lead elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyarrow import fs

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import MAX_PARALLEL_REQUESTS
from nova_assets.engine.storage.warehouse import (
    BLOCKS,
    CATALOGS,
    ORPHANS,
    Warehouse,
    is_block_folder_name,
    stays_inside_root,
)
from nova_assets.errors import NotSupported, WarehouseUnavailable
from nova_assets.model.address import parse_address, split_store_address
from nova_assets.model.block import DataFile
from nova_assets.model.damage import UnfinishedUpload, WarehouseEntry
from nova_assets.s3_settings import s3_endpoint_and_region


def open_warehouse(root: str | Path) -> Warehouse:
    """Warehouse at a path or an address.

    Raises:
        SettingsError, NotSupported: as for ``parse_address``.
    """
    address = parse_address(str(root))
    return RemoteWarehouse(str(address)) if address.scheme else Warehouse(root)


class RemoteWarehouse(Warehouse):
    """Part of S3 or HDFS that holds the files of all blocks.

    Args:
        root: ``s3://BUCKET/PREFIX`` or ``hdfs://NAMENODE:PORT/PATH``.
    """

    def __init__(self, root: str) -> None:
        self._address = str(parse_address(root))
        self.files, self.root_key = file_io.filesystem_and_path(self._address)

    @property
    def address(self) -> str:
        return self._address

    @property
    def exists(self) -> bool:
        return bool(self._list_folder(BLOCKS))

    def prepare_empty_block_folder(self, name: str) -> str:
        return self.block_folder_address(name)  # only a key prefix; a block id is new, so no file can exist

    def delete_block_folder(self, name: str) -> None:
        if not is_block_folder_name(name) and stays_inside_root(name) and not self._files_below(name):
            return
        self.block_folder_address(name)
        with self.unavailable_unless("be cleaned up"), suppress(FileNotFoundError):
            self.files.delete_dir(self.key_of(name))

    def delete_empty_block_folder(self, name: str) -> None:
        pass  # a key prefix exists only as long as it has files

    def delete_files(self, paths: Iterable[str]) -> None:
        """Delete files. In HDFS, folders that become empty are deleted, too.

        In S3, an empty object that stands for the folder remains. Its removal would need a listing, and a listing that
        misses a retained file would delete that file.
        """
        names = list(paths)
        for name in names:
            self.file_address(DataFile(name, 0, 0))
        with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS, "nova-delete") as pool:
            list(pool.map(self._delete_file, names))
        if not self.address.startswith("s3:"):
            for folder in {name.rpartition("/")[0] for name in names}:
                if not self._list_folder(folder):
                    self.delete_block_folder(folder)

    def _delete_file(self, name: str) -> None:
        with self.unavailable_unless("be cleaned up"), suppress(FileNotFoundError):
            self.files.delete_file(self.key_of(name))

    def list_block_entries(self) -> list[WarehouseEntry]:
        entries = super().list_block_entries()
        folders_with_files = {e.path.rpartition("/")[0] for e in entries}
        return [
            e for e in entries if not e.is_folder or e.path in folders_with_files or not self.address.startswith("s3:")
        ]

    def move_to_orphans(self, name: str) -> None:
        self.check_block_name(name)
        key = self.key_of(name)
        with self.unavailable_unless("be cleaned up"), suppress(FileNotFoundError):
            for found in self._files_below(name):
                name_in_blocks = found.path.removeprefix(self.key_of(BLOCKS)).strip("/")
                self._move(found.path, self.key_of(f"{ORPHANS}/{name_in_blocks}"))
            if self.files.get_file_info(key).type is fs.FileType.Directory and not self._files_below(name):
                self.files.delete_dir(key)

    def unfinished_uploads(self) -> list[UnfinishedUpload]:
        if not self.address.startswith("s3:"):
            return []
        client, bucket, root = self._s3_client_bucket_prefix()
        try:
            pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=f"{root}{BLOCKS}/")
            uploads = [u for page in pages for u in page.get("Uploads", [])]
        except Exception as error:
            raise self._upload_error("be searched for unfinished uploads", error) from error
        return [UnfinishedUpload(u["Key"].removeprefix(root), u["UploadId"], u["Initiated"]) for u in uploads]

    def abort_unfinished_upload(self, upload: UnfinishedUpload) -> None:
        client, bucket, root = self._s3_client_bucket_prefix()
        try:
            client.abort_multipart_upload(Bucket=bucket, Key=f"{root}{upload.path}", UploadId=upload.id)
        except client.exceptions.NoSuchUpload:
            return
        except Exception as error:
            raise self._upload_error("be cleaned up", error) from error

    def write_catalog_marker(self, catalog_id: str, warehouse_id: str) -> None:
        self.check_catalog_id(catalog_id)
        with (
            self.unavailable_unless("be written"),
            self.files.open_output_stream(self.key_of(f"{CATALOGS}/{catalog_id}")) as stream,
        ):
            stream.write(warehouse_id.encode())

    def read_catalog_marker(self, catalog_id: str) -> str | None:
        self.check_catalog_id(catalog_id)
        with (
            self.unavailable_unless("be read"),
            suppress(FileNotFoundError),
            self.files.open_input_file(self.key_of(f"{CATALOGS}/{catalog_id}")) as stream,
        ):
            return stream.read().decode() if stream.size() else ""
        return None

    def check_writable(self) -> str:
        is_in_use = self.exists
        with self.unavailable_unless("be written"):
            self._probe_write_and_read()
        return f"{self.address} ({'in use' if is_in_use else 'new'})"

    def _list_folder(self, folder: str) -> list[WarehouseEntry]:
        with self.unavailable_unless("be listed"):
            entries = self.files.get_file_info(fs.FileSelector(self.key_of(folder), allow_not_found=True))
        now = datetime.now(UTC)  # a folder of S3 is only a key prefix, without a modification time
        return [
            WarehouseEntry(
                f"{folder}/{f.base_name}", f.size or 0, f.mtime.astimezone(UTC) if f.mtime else now, not f.is_file
            )
            for f in entries
        ]

    def _files_below(self, name: str) -> list[fs.FileInfo]:
        entry = self.files.get_file_info(self.key_of(name))
        if entry.is_file:
            return [entry]
        selector = fs.FileSelector(self.key_of(name), recursive=True, allow_not_found=True)
        return [f for f in self.files.get_file_info(selector) if f.is_file]

    def _move(self, source: str, target: str) -> None:
        """Move a file. Raises OSError if the file did not arrive: HDFS silently ignores a move into a missing
        folder."""
        if not self.address.startswith("s3:"):
            self.files.create_dir(target.rpartition("/")[0], recursive=True)
        self.files.move(source, target)
        if not self.files.get_file_info(target).is_file:
            raise OSError(f"{source} was not moved to {target}")

    def key_of(self, name: str) -> str:
        return file_io.join(self.root_key, name)

    def unavailable_error(self, failed_action: str, error: OSError) -> WarehouseUnavailable:
        is_s3 = self.address.startswith("s3:")
        variables = "AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL" if is_s3 else "HADOOP_USER_NAME, WEBHDFS_URL"
        return WarehouseUnavailable(
            f"the warehouse {self.address} cannot {failed_action}",
            found=f"{error.strerror or error}".split("\n")[0],
            expected="a location that these credentials can read and write",
            next=f"check {variables}, and that the location exists; then: nova doctor",
            warehouse=self.address,
        )

    def _s3_client_bucket_prefix(self) -> tuple[Any, str, str]:
        """S3 client, bucket, and key prefix of the warehouse. Raises NotSupported without boto3."""
        try:
            import boto3
        except ModuleNotFoundError as error:
            raise NotSupported(
                "unfinished uploads cannot be listed: boto3 is not installed",
                found=str(error),
                next="pip install 'nova-assets[s3]'",
            ) from error
        endpoint, region = s3_endpoint_and_region()
        _, bucket, prefix = split_store_address(self.address)
        return boto3.client("s3", endpoint_url=endpoint, region_name=region), bucket, f"{prefix}/" if prefix else ""

    def _upload_error(self, failed_action: str, error: Exception) -> WarehouseUnavailable:
        return WarehouseUnavailable(
            f"the warehouse {self.address} cannot {failed_action}",
            found=str(error).split("\n")[0],
            expected="credentials that may list and abort uploads in parts (s3:ListBucketMultipartUploads, "
            "s3:AbortMultipartUpload)",
            next="check AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL; then: nova doctor",
            warehouse=self.address,
        )
