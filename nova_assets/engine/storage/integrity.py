"""Integrity checks of block files: by size and footer before a read, by page checksums during a read, and by all bytes
on request (``nova doctor --verify``).

The footer of a file names the file, so no two files have the same footer. If a file is overwritten with the file of
another block, the digest of its footer differs, even if its size does not. Pages have checksums of their own.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.storage import file_io
from nova_assets.errors import FileAltered, FileMissing, WarehouseUnavailable
from nova_assets.model.block import DataFile

T = TypeVar("T")

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
"""Bytes after the footer: the length of the footer, and the magic number."""

MAX_PARALLEL_REQUESTS = 16
"""Maximum number of concurrent requests to a remote store."""

_TAIL_BYTES = 64 * 2**10
"""Bytes of a file's end to read first. Most footers are shorter."""

_FETCH_WHOLE_BYTES = 2**20
"""Maximum size of a remote file that is fetched as a whole, with one request."""

_CACHE_BYTES = 64 * 2**20
_MAX_VERIFIED_FILES = 200_000
_CHUNK = 4 * 2**20

_REPAIR = (
    "nova doctor --repair --dry-run, which shows the affected versions and how to recover them: from a backup, by "
    "nova restore to a version that does not need the file, or by running its writer again"
)
_BLOCK_FILE_PATH = re.compile(
    r"blocks/[A-Za-z0-9_-]+/[^/\s'\"\\)]+?\.(?:parquet|orc|avro|csv|json|jsonl|ndjson)(?:\.gz|\.zstd?)?"
)
_CORRUPT = re.compile(r"checksum verification failed|not a Parquet file|ParquetDecodingException|NOVA-FILE-ALTERED")
_SPARK_FAILURE_TEXTS = ("CRC checksum verification failed", "could not verify", "FAILED_READ_FILE", "NOVA-FILE-ALTERED")


class _VerifiedFileCache:
    """Cache of this process: states of verified files, and contents of small files that are read next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._verified: OrderedDict[str, Hashable] = OrderedDict()
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0

    def is_verified(self, address: str, file_state: Hashable) -> bool:
        with self._lock:
            return self._verified.get(address) == file_state

    def mark_verified(self, address: str, file_state: Hashable) -> None:
        with self._lock:
            self._verified[address] = file_state
            while len(self._verified) > _MAX_VERIFIED_FILES:
                self._verified.popitem(last=False)

    def cache_content(self, address: str, data: bytes) -> None:
        with self._lock:
            self._cached_bytes += len(data) - len(self._contents.pop(address, b""))
            self._contents[address] = data
            while self._cached_bytes > _CACHE_BYTES:
                self._cached_bytes -= len(self._contents.popitem(last=False)[1])

    def pop_content(self, address: str) -> bytes | None:
        with self._lock:
            found = self._contents.pop(address, None)
            self._cached_bytes -= 0 if found is None else len(found)
            return found


_file_cache = _VerifiedFileCache()


# digests


def new_digest(data: bytes | memoryview = b"") -> Any:
    """Hash whose hexadecimal digest manifests keep."""
    return hashlib.blake2b(data, digest_size=16)


def digest_bytes(data: bytes | memoryview) -> str:
    """Digest of some bytes, in the form that manifests keep."""
    return str(new_digest(data).hexdigest())


def extract_footer(tail: bytes) -> bytes | None:
    """Footer of a Parquet file with its length and magic number, from the last bytes of the file.

    None if the bytes are not the end of a Parquet file, or do not contain the whole footer.
    """
    if len(tail) < _TRAILER_BYTES or tail[-4:] != _MAGIC:
        return None
    length = int.from_bytes(tail[-_TRAILER_BYTES:-4], "little") + _TRAILER_BYTES
    return tail[-length:] if length <= len(tail) else None


# checks before a read


def check_files_unaltered(files: Sequence[tuple[DataFile, str]], *, prefetch: bool = False) -> None:
    """Check the existence, size and footer of listed files. Remote files are checked concurrently.

    Args:
        files: listed files with their addresses.
        prefetch: whether this process reads the files next. All bytes of small remote files are then fetched and cached
            at once.

    Raises:
        FileMissing: a file is missing or was changed.
        FileAltered: a file was replaced by another file.
        WarehouseUnavailable: the store does not answer.
    """
    if not files:
        return
    if not file_io.is_remote(files[0][1]):
        for file, address in files:
            _check_local_file(file, address)
        return
    cache_contents = prefetch and sum(f.bytes for f, _ in files) <= _CACHE_BYTES
    with ThreadPoolExecutor(min(MAX_PARALLEL_REQUESTS, len(files)), "nova-files") as pool:
        list(pool.map(lambda item: _check_remote_file(item[0], item[1], cache_contents), files))


def _check_local_file(file: DataFile, address: str) -> None:
    try:
        file_stat = os.stat(address)
        if file_stat.st_size != file.bytes:
            raise size_changed_error(file, address, file_stat.st_size)
        state = (file.footer_digest, file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_ino)
        if file.footer_digest and not _file_cache.is_verified(address, state):
            with pa.OSFile(address) as stream:
                _check_footer_digest(file, stream, _TAIL_BYTES)
            _file_cache.mark_verified(address, state)
    except OSError as error:
        raise _file_access_error(file, address, error) from error


def _check_remote_file(file: DataFile, address: str, cache_content: bool) -> None:
    """Check a remote file.

    This takes one request for the size. A file that has not been checked before takes a second request, for its end or
    for all its bytes.
    """
    try:
        with file_io.open_input_stream(address) as stream:
            if stream.size() != file.bytes:
                raise size_changed_error(file, address, int(stream.size()))
            state = (file.footer_digest, file_io.etag_of(stream))
            is_verified = not file.footer_digest or (state[1] is not None and _file_cache.is_verified(address, state))
            fetch_whole = cache_content and file.bytes <= _FETCH_WHOLE_BYTES
            if is_verified and fetch_whole:
                _file_cache.cache_content(address, stream.read_at(file.bytes, 0))
            elif not is_verified:
                data = _check_footer_digest(file, stream, _FETCH_WHOLE_BYTES if fetch_whole else _TAIL_BYTES)
                _file_cache.mark_verified(address, state)
                if cache_content and len(data) == file.bytes:
                    _file_cache.cache_content(address, data)
    except OSError as error:
        raise _file_access_error(file, address, error) from error


def _check_footer_digest(file: DataFile, stream: Any, max_bytes: int) -> bytes:
    """Compare the digest of the footer. Returns the bytes at the end of the file that were read for the check."""
    length = min(file.bytes, max_bytes)
    tail: bytes = stream.read_at(length, file.bytes - length)
    footer = extract_footer(tail)
    if footer is None and length >= 8:
        footer_length = int.from_bytes(tail[-8:-4], "little") + 8
        footer = (
            extract_footer(stream.read_at(footer_length, file.bytes - footer_length))
            if footer_length <= file.bytes
            else None
        )
    if footer is None or digest_bytes(footer) != file.footer_digest:
        raise file_altered_error(
            file.path, "the footer of another file" if footer is not None else "no footer of a Parquet file"
        )
    return tail


def _file_access_error(file: DataFile, address: str, error: OSError) -> FileMissing | WarehouseUnavailable:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return file_missing_error(file, address, "no such object" if file_io.is_remote(address) else error.strerror)
    return _unreadable_error(address, error)


# checks during a read


class BlockFile(pq.ParquetFile):  # type: ignore[misc]
    """File of a block. Reads verify page checksums, and errors name the file."""

    address = ""

    def read(self, *args: Any, **options: Any) -> pa.Table:
        return _convert_read_errors(self.address, partial(super().read, *args, **options))

    def read_row_group(self, *args: Any, **options: Any) -> pa.Table:
        return _convert_read_errors(self.address, partial(super().read_row_group, *args, **options))

    def read_row_groups(self, *args: Any, **options: Any) -> pa.Table:
        return _convert_read_errors(self.address, partial(super().read_row_groups, *args, **options))


def open_block_file(address: str, footer: pq.FileMetaData | None = None) -> BlockFile:
    """Open a Parquet file of a block for reading.

    Args:
        footer: footer of the file, if it was read before.

    Raises:
        FileNotFoundError: the file is missing.
        FileAltered: the file is not a Parquet file.
        WarehouseUnavailable: the file cannot be read.
    """
    return _convert_read_errors(address, partial(_open_parquet, address, footer))


def read_block_file_footer(address: str) -> pq.FileMetaData:
    """Footer of a file of a block. Raises as ``open_block_file`` does."""
    return open_block_file(address).metadata


def _open_parquet(address: str, footer: pq.FileMetaData | None) -> BlockFile:
    cached_content = _file_cache.pop_content(address)
    files, path = (
        (None, pa.BufferReader(cached_content))
        if cached_content is not None
        else file_io.remote_filesystem_and_path(address)
    )
    filesystem_options = {} if files is None else {"filesystem": files, "pre_buffer": True}
    file = BlockFile(
        path, metadata=footer, coerce_int96_timestamp_unit="us", page_checksum_verification=True, **filesystem_options
    )
    file.address = address
    return file


def _convert_read_errors(address: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise _unreadable_error(address, error) from error


def _unreadable_error(address: str, error: Exception) -> FileMissing | WarehouseUnavailable:
    """Error for a file that cannot be read: the file was altered, or the store fails."""
    text = str(error).split("\n")[0]
    if (isinstance(error, OSError) and error.errno is not None) or "AWS Error" in text or "HTTP" in text:
        return WarehouseUnavailable(
            f"{address} cannot be read",
            found=text,
            expected="a store that answers, and credentials that may read it",
            next="nova doctor",
            path=address,
        )
    return file_altered_error(_BLOCK_FILE_PATH.search(address), text, address)


# checks of all bytes


def find_defect(file: DataFile, address: str, *, thorough: bool) -> str | None:
    """Defect of an existing file of the expected size, as a phrase; None if there is no defect.

    Args:
        thorough: whether to read all bytes. If a file has no digest, its page checksums are verified instead.
    """
    if file.footer_digest == "" and not thorough:
        return None
    try:
        check_files_unaltered([(file, address)])
        if thorough and file.digest:
            return None if digest_of_file(address) == file.digest else "has other bytes than were written"
        if thorough and address.endswith(file_io.PARQUET):
            opened = open_block_file(address)
            for n in range(opened.num_row_groups):
                opened.read_row_group(n)
    except FileNotFoundError:
        return "is missing"
    except FileMissing as error:
        return f"was altered: {error.found}"
    return None


def digest_of_file(address: str) -> str:
    """Digest of all bytes of a file."""
    hasher = new_digest()
    with file_io.open_input_stream(address) as stream:
        size = int(stream.size())
        for start in range(0, size, _CHUNK):
            hasher.update(stream.read_at(min(_CHUNK, size - start), start))
    return str(hasher.hexdigest())


# errors


def altered_file_error_from(spark_error: BaseException) -> FileAltered | None:
    """Error for the altered file that caused a Spark failure; None if the failure has another cause."""
    text = str(spark_error)
    path = _BLOCK_FILE_PATH.search(text) if any(sign in text for sign in _SPARK_FAILURE_TEXTS) else None
    corrupt = _CORRUPT.search(text)
    return None if path is None or corrupt is None else file_altered_error(path, corrupt[0])


def file_altered_error(path: re.Match[str] | str | None, reason: str, address: str = "") -> FileAltered:
    """Error for a file whose bytes differ from the written bytes."""
    name = path[0] if isinstance(path, re.Match) else path or address
    return FileAltered(
        f"the file {name} was altered after it was committed",
        found=reason,
        expected="the bytes that were written",
        next=_REPAIR,
        path=name,
    )


def file_missing_error(file: DataFile, address: str, reason: object) -> FileMissing:
    """Error for a listed file that does not exist."""
    return FileMissing(
        f"the file {file.path} is listed in the catalog and not in the warehouse",
        found=reason,
        expected=f"{file.bytes} bytes at {address}",
        next=_REPAIR,
        path=file.path,
    )


def size_changed_error(file: DataFile, address: str, actual_size: int) -> FileMissing:
    """Error for a listed file whose size differs."""
    return FileMissing(
        f"the file {file.path} was changed after it was committed",
        found=f"{actual_size} bytes",
        expected=f"{file.bytes} bytes at {address}",
        next=_REPAIR,
        path=file.path,
    )
