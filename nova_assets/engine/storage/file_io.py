"""Files by address: local paths, ``s3://BUCKET/KEY``, or ``hdfs://NAMENODE:PORT/PATH``.

All reads and writes of block files use this module, also in Spark's Python workers, which get nothing but addresses. A
pickled file system would carry its keys into Spark's plans and logs.
Access to a store is configured by the usual environment variables: ``AWS_ACCESS_KEY_ID``, ``AWS_REGION``,
``AWS_ENDPOINT_URL``, ... for S3, and ``HADOOP_USER_NAME`` for HDFS, with ``WEBHDFS_URL`` if the namenode does not
answer at port 9870.
"""

from __future__ import annotations

import getpass
import os
import posixpath
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from nova_assets.engine.storage.patient_s3 import PatientReader, PatientS3
from nova_assets.engine.storage.throttling import process_throttle
from nova_assets.errors import NotSupported
from nova_assets.model.address import split_store_address
from nova_assets.plan.batch_size import PAGE_BYTES, rows_per_batch
from nova_assets.s3_settings import s3_endpoint_and_region

# Not fsspec throughout, nor a library of paths: pyarrow's client of S3 is quicker, and is there anyway.

PARQUET = ".parquet"

join = posixpath.join
name_of = posixpath.basename


def is_remote(address: str) -> bool:
    """Whether an address is in a remote store."""
    return "://" in address


def open_parquet_file(address: str, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a Parquet file for reading. Reads verify the checksums of its pages.

    Args:
        footer: footer of the file, if it was read before.
    """
    files, path = remote_filesystem_and_path(address)
    filesystem_options = {} if files is None else {"filesystem": files, "pre_buffer": True}
    return pq.ParquetFile(
        path, metadata=footer, coerce_int96_timestamp_unit="us", page_checksum_verification=True, **filesystem_options
    )


def read_parquet_metadata(address: str) -> pq.FileMetaData:
    files, path = remote_filesystem_and_path(address)
    return pq.read_metadata(path, filesystem=files) if files is not None else pq.read_metadata(path)


def open_input_stream(address: str) -> Any:
    """Open a file for random access. Its size is known without a further request. Raises FileNotFoundError."""
    if address.startswith("s3://"):
        _, bucket, key = split_store_address(address)
        return _patient_s3().open_patiently(f"{bucket}/{key}")
    files, path = remote_filesystem_and_path(address)
    return pa.OSFile(path) if files is None else files.open_input_file(path)


def etag_of(open_file: Any) -> str | None:
    """ETag by which a store identifies the content of an open file; None if there is none."""
    is_native = isinstance(open_file, pa.NativeFile) and not isinstance(open_file, pa.PythonFile)
    metadata = open_file.metadata() if is_native or isinstance(open_file, PatientReader) else None
    return next((str(v) for k, v in (metadata or {}).items() if str(k).lower() == "etag"), None)


def size_of(address: str) -> int:
    """Size of a file in bytes. Raises FileNotFoundError."""
    if not is_remote(address):
        return os.stat(address).st_size
    files, path = _remote_filesystem_and_key(address)
    info = files.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(address)
    return int(info.size)


def sizes_of(addresses: Sequence[str]) -> list[int | None]:
    """Sizes of files of one store in bytes, fetched concurrently; None for each file that does not exist."""
    if not addresses or not is_remote(addresses[0]):
        return [_local_size(a) for a in addresses]
    locations = [_remote_filesystem_and_key(a) for a in addresses]
    infos = locations[0][0].get_file_info([path for _, path in locations])
    return [int(i.size) if i.is_file else None for i in infos]


def _local_size(path: str) -> int | None:
    try:
        return size_of(path)
    except OSError:
        return None


def page_write_options(rows: pa.Table) -> dict[str, Any]:
    """Options for pyarrow that give pages a good size: after how many rows it checks the size of a page."""
    # A reader decompresses a page as a whole, and a page of 1,024 wide rows would be large.
    return {"write_batch_size": rows_per_batch(PAGE_BYTES, rows.nbytes // max(1, rows.num_rows), 1024)}


def delete_file(address: str) -> None:
    """Delete a file. Raises FileNotFoundError."""
    if is_remote(address):
        files, path = _remote_filesystem_and_key(address)
        files.delete_file(path)
    else:
        os.unlink(address)


def list_parquet_and_remove_other_files(folder: str) -> list[str]:
    """Parquet files of a newly written folder, sorted by name. All other entries of the folder are removed.

    Spark leaves checksums and markers beside its files. The folder of a block must hold no file that the manifest does
    not list.
    """
    files, path = filesystem_and_path(folder)
    file_names = []
    for entry in files.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if not entry.is_file:
            files.delete_dir(entry.path)
        elif not entry.base_name.endswith(PARQUET) or entry.base_name.startswith((".", "_")):
            files.delete_file(entry.path)
        else:
            file_names.append(entry.base_name)
    return [join(folder, name) for name in sorted(file_names)]


def remove_files_except(folder: str, names: Container[str]) -> None:
    """Remove all files of a folder except those with the given names."""
    files, path = filesystem_and_path(folder)
    for entry in files.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if entry.is_file and entry.base_name not in names:
            files.delete_file(entry.path)


def flatten_partition_folders(folder: str, column: str) -> None:
    """Move the files of Spark's partition folders for a column up into the parent folder."""
    files, path = filesystem_and_path(folder)
    partition_folders = [f for f in files.get_file_info(fs.FileSelector(path)) if f.base_name.startswith(f"{column}=")]
    for n, partition_folder in enumerate(sorted(partition_folders, key=lambda f: f.base_name)):
        for entry in files.get_file_info(fs.FileSelector(partition_folder.path)):
            if entry.base_name.endswith(PARQUET) and not entry.base_name.startswith((".", "_")):
                files.move(entry.path, join(path, f"p{n:05d}-{entry.base_name}"))
        files.delete_dir(partition_folder.path)


def fsync_paths(addresses: Iterable[str]) -> None:
    """Sync files and folders to disk, so that the files of a commit survive a power failure as the commit itself does.

    Object stores are skipped: their acknowledged writes are durable.
    """
    for address in addresses:
        if is_remote(address):
            continue
        handle = os.open(address, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def to_spark_address(address: str) -> str:
    """Address as Spark expects it. Spark names S3 by its client, ``s3a``."""
    return f"s3a://{address.removeprefix('s3://')}" if address.startswith("s3://") else address


def filesystem_and_path(address: str) -> tuple[fs.FileSystem, str]:
    """Filesystem of an address, and the path in it."""
    return _remote_filesystem_and_key(address) if is_remote(address) else (_local_filesystem(), address)


def remote_filesystem_and_path(address: str) -> tuple[fs.FileSystem | None, str]:
    """Filesystem of a remote address, and the path in it; None as the filesystem for a local path, which is opened
    directly."""
    return _remote_filesystem_and_key(address) if is_remote(address) else (None, address)


def _remote_filesystem_and_key(address: str) -> tuple[fs.FileSystem, str]:
    scheme, authority, name = split_store_address(address)
    return (
        (_hdfs_filesystem(authority), f"/{name}")
        if scheme == "hdfs"
        else (_s3_filesystem(), f"{authority}/{name}".rstrip("/"))
    )


@lru_cache(maxsize=1)
def _local_filesystem() -> fs.FileSystem:
    return fs.LocalFileSystem()


def _s3_filesystem() -> fs.FileSystem:
    """S3 filesystem of this process, which is patient with a store that throttles requests."""
    return fs.PyFileSystem(_patient_s3())


@lru_cache(maxsize=1)
def _patient_s3() -> PatientS3:
    """S3 client of this process. Its threads and connections must not be shared between processes."""
    endpoint, region = s3_endpoint_and_region()
    options: dict[str, Any] = {"region": region} if region else {}
    options |= {"allow_delayed_open": True}  # a small file is one PUT request, not a multipart upload
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    options |= {"retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=1)}  # the throttle repeats requests
    return PatientS3(fs.S3FileSystem(**options), process_throttle())


@lru_cache(maxsize=4)
def _hdfs_filesystem(namenode: str) -> fs.FileSystem:
    """HDFS client over HTTP (WebHDFS), which needs no Hadoop installation."""
    # Not libhdfs: it needs a JVM and Hadoop's jars in every process.
    try:
        from fsspec.implementations.webhdfs import WebHDFS
    except ModuleNotFoundError as error:
        raise NotSupported(
            "HDFS needs the package fsspec, which is not installed",
            found=str(error),
            next="pip install 'nova-assets[hdfs]'",
        ) from error

    class Handler(fs.FSSpecHandler):  # type: ignore[misc]
        """fsspec handler that reads the modification time of a file from WebHDFS's own field."""

        @staticmethod
        def _create_file_info(path: str, info: dict[str, Any]) -> fs.FileInfo:
            changed = info.get("modificationTime")
            return fs.FSSpecHandler._create_file_info(path, {**info, "mtime": changed / 1000 if changed else None})

    host = namenode.rpartition(":")[0] or namenode
    url = urlsplit(os.environ.get("WEBHDFS_URL") or f"http://{host}:9870")
    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    webhdfs = WebHDFS(url.hostname, port=url.port, user=user, use_https=url.scheme == "https")
    return fs.PyFileSystem(Handler(webhdfs))
