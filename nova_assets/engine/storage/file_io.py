"""Files by their addresses: paths of this machine, ``s3://BUCKET/KEY``, or ``hdfs://NAMENODE:PORT/PATH``.

Whoever reads or writes a file of a block does it here, in Spark's Python workers, too: an address is all that they are
given. How a store is reached is for its own variables to say, as every tool of the field has it:
``AWS_ACCESS_KEY_ID``, ``AWS_REGION``, ``AWS_ENDPOINT_URL``, ...; ``HADOOP_USER_NAME``, and ``WEBHDFS_URL`` where a
namenode does not answer at port 9870.
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

from nova_assets.errors import NotSupported
from nova_assets.model.address import split_file_address
from nova_assets.plan.batch_size import PAGE_BYTES, rows_per_batch
from nova_assets.settings import s3_endpoint_and_region

PARQUET = ".parquet"

join = posixpath.join
name_of = posixpath.basename


def is_remote(address: str) -> bool:
    """Whether it is not on this machine."""
    return "://" in address


def open_parquet_file(address: str, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """A Parquet file, to read some of.

    Args:
        footer: of the file, where it was read before.
    """
    files, path = remote_filesystem_and_path(address)
    more = {} if files is None else {"filesystem": files}
    return pq.ParquetFile(path, metadata=footer, coerce_int96_timestamp_unit="us", **more)


def read_parquet_metadata(address: str) -> pq.FileMetaData:
    files, path = remote_filesystem_and_path(address)
    return pq.read_metadata(path, filesystem=files) if files is not None else pq.read_metadata(path)


def open_input_stream(address: str) -> Any:
    """A file to read some bytes of. Its size is known without a further request. Raises FileNotFoundError."""
    files, path = remote_filesystem_and_path(address)
    return pa.OSFile(path) if files is None else files.open_input_file(path)


def etag_of(open_file: Any) -> str | None:
    """What a store calls the content of a file that is open; None where it calls it nothing."""
    found = (
        open_file.metadata()
        if isinstance(open_file, pa.NativeFile) and not isinstance(open_file, pa.PythonFile)
        else None
    )
    return next((str(v) for k, v in (found or {}).items() if str(k).lower() == "etag"), None)


def size_of(address: str) -> int:
    """Bytes. Raises FileNotFoundError."""
    if not is_remote(address):
        return os.stat(address).st_size
    files, path = _remote_store(address)
    found = files.get_file_info(path)
    if not found.is_file:
        raise FileNotFoundError(address)
    return int(found.size)


def sizes_of(addresses: Sequence[str]) -> list[int | None]:
    """Bytes of files that are in one store, asked for side by side; None of those that are not there."""
    if not addresses or not is_remote(addresses[0]):
        return [_local_size(a) for a in addresses]
    found = [_remote_store(a) for a in addresses]
    infos = found[0][0].get_file_info([path for _, path in found])
    return [int(i.size) if i.is_file else None for i in infos]


def _local_size(path: str) -> int | None:
    try:
        return size_of(path)
    except OSError:
        return None


def page_write_options(rows: pa.Table) -> dict[str, Any]:
    """How pyarrow writes pages of a good size: it looks at how large one is after so many rows."""
    return {"write_batch_size": rows_per_batch(PAGE_BYTES, rows.nbytes // max(1, rows.num_rows), 1024)}


def delete_file(address: str) -> None:
    """Raises FileNotFoundError."""
    if is_remote(address):
        files, path = _remote_store(address)
        files.delete_file(path)
    else:
        os.unlink(address)


def list_and_clean_folder(folder: str) -> list[str]:
    """The Parquet files of a folder that was just written, in order of their names; everything else in it is removed.

    Spark leaves checksums and markers beside what it writes; nothing may lie in a block's folder that no manifest
    lists.
    """
    files, path = filesystem_and_path(folder)
    kept = []
    for found in files.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if not found.is_file:
            files.delete_dir(found.path)
        elif not found.base_name.endswith(PARQUET) or found.base_name.startswith((".", "_")):
            files.delete_file(found.path)
        else:
            kept.append(found.base_name)
    return [join(folder, name) for name in sorted(kept)]


def remove_files_except(folder: str, names: Container[str]) -> None:
    """Remove every file of a folder that has none of these names."""
    files, path = filesystem_and_path(folder)
    for found in files.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if found.is_file and found.base_name not in names:
            files.delete_file(found.path)


def flatten_partition_folders(folder: str, column: str) -> None:
    """Move the files that Spark put into folders by the values of a column up to where all the others are."""
    files, path = filesystem_and_path(folder)
    subs = [f for f in files.get_file_info(fs.FileSelector(path)) if f.base_name.startswith(f"{column}=")]
    for n, sub in enumerate(sorted(subs, key=lambda f: f.base_name)):
        for found in files.get_file_info(fs.FileSelector(sub.path)):
            if found.base_name.endswith(PARQUET) and not found.base_name.startswith((".", "_")):
                files.move(found.path, join(path, f"p{n:05d}-{found.base_name}"))
        files.delete_dir(sub.path)


def fsync_paths(addresses: Iterable[str]) -> None:
    """Put files and folders on disk for good: what a commit lists has to outlast a power cut, as the commit does. An
    object store keeps what it has acknowledged."""
    for address in addresses:
        if is_remote(address):
            continue
        handle = os.open(address, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def to_spark_address(address: str) -> str:
    """As Spark calls it, whose S3 goes by the name of the client that it has."""
    return f"s3a://{address.removeprefix('s3://')}" if address.startswith("s3://") else address


def filesystem_and_path(address: str) -> tuple[fs.FileSystem, str]:
    """The store that an address is in, and what that calls it."""
    return _remote_store(address) if is_remote(address) else (_local_filesystem(), address)


def remote_filesystem_and_path(address: str) -> tuple[fs.FileSystem | None, str]:
    """The store of an address, and its name there; None for a path of this machine, which is opened as such."""
    return _remote_store(address) if is_remote(address) else (None, address)


def _remote_store(address: str) -> tuple[fs.FileSystem, str]:
    scheme, authority, name = split_file_address(address)
    return (
        (_hdfs_filesystem(authority), f"/{name}")
        if scheme == "hdfs"
        else (_s3_filesystem(), f"{authority}/{name}".rstrip("/"))
    )


@lru_cache(maxsize=1)
def _local_filesystem() -> fs.FileSystem:
    return fs.LocalFileSystem()


@lru_cache(maxsize=1)
def _s3_filesystem() -> fs.FileSystem:
    """Made anew in each process: it has threads and connections of its own."""
    endpoint, region = s3_endpoint_and_region()
    given: dict[str, Any] = {"region": region} if region else {}
    given |= {"allow_delayed_open": True}  # what is small is put with one request, not uploaded in parts
    if endpoint:
        scheme_, _, host = endpoint.rpartition("://")
        given |= {"endpoint_override": host.rstrip("/"), "scheme": scheme_ or "https"}
    return fs.S3FileSystem(**given)


@lru_cache(maxsize=4)
def _hdfs_filesystem(namenode: str) -> fs.FileSystem:
    """By HTTP: nothing of Hadoop has to be installed for it."""
    try:
        from fsspec.implementations.webhdfs import WebHDFS
    except ModuleNotFoundError as error:
        raise NotSupported(
            "HDFS is reached by fsspec, which is not installed",
            found=str(error),
            next="pip install 'nova-assets[hdfs]'",
        ) from error

    class Handler(fs.FSSpecHandler):  # type: ignore[misc]
        """Knows what WebHDFS calls the time of a file's last change."""

        @staticmethod
        def _create_file_info(path: str, info: dict[str, Any]) -> fs.FileInfo:
            changed = info.get("modificationTime")
            return fs.FSSpecHandler._create_file_info(path, {**info, "mtime": changed / 1000 if changed else None})

    host = namenode.rpartition(":")[0] or namenode
    at = urlsplit(os.environ.get("WEBHDFS_URL") or f"http://{host}:9870")
    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    web = WebHDFS(at.hostname, port=at.port, user=user, use_https=at.scheme == "https")
    return fs.PyFileSystem(Handler(web))
