"""Arrow's file system of S3, with patience: each request that the store throttles is repeated (``throttling``)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import fs

from nova_assets.engine.storage.throttling import HIDDEN_STATUS_TEXT, Throttle

_SPOOLED_BYTES = 32 * 2**20
"""Bytes of a written file that are kept in memory; more are kept in a temporary file until the object is written."""

_COPIED_BYTES = 4 * 2**20

_STATUS_PROBE_BYTES = 64 * 2**10
"""Bytes to request so that the body of any error answer fits."""


class PatientS3(fs.FileSystemHandler):  # type: ignore[misc]
    """S3 filesystem whose requests are repeated while the store throttles them.

    Args:
        files: filesystem that repeats nothing itself.
        throttle: repeats the requests.
    """

    def __init__(self, files: fs.S3FileSystem, throttle: Throttle) -> None:
        self.files = files
        self.throttle = throttle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatientS3) and self.files == other.files

    def __hash__(self) -> int:
        return id(self.files)

    def get_type_name(self) -> str:
        return "s3"

    def normalize_path(self, path: str) -> str:
        return str(self.files.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        return self.throttle.call(lambda: self.files.get_file_info(paths))

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        return self.throttle.call(lambda: self.files.get_file_info(selector))

    def create_dir(self, path: str, recursive: bool) -> None:
        self.throttle.call(lambda: self.files.create_dir(path, recursive=recursive))

    def delete_dir(self, path: str) -> None:
        self._delete(lambda: self.files.delete_dir(path))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self.throttle.call(lambda: self.files.delete_dir_contents(path, missing_dir_ok=missing_dir_ok))

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("nova deletes no bucket")

    def delete_file(self, path: str) -> None:
        self._delete(lambda: self.files.delete_file(path))

    def move(self, src: str, dest: str) -> None:
        self.copy_file(src, dest)
        self.delete_file(src)

    def copy_file(self, src: str, dest: str) -> None:
        self.throttle.call(lambda: self.files.copy_file(src, dest))

    def open_input_stream(self, path: str) -> Any:
        return pa.PythonFile(self.open_patiently(path), mode="r")

    def open_input_file(self, path: str) -> Any:
        return pa.PythonFile(self.open_patiently(path), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return pa.PythonFile(_SpooledObject(self, path, metadata), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError("objects are written as a whole")

    def open_patiently(self, path: str) -> PatientReader:
        """Open an object for random access. Raises FileNotFoundError."""
        file = self.throttle.call(lambda: self.files.open_input_file(path))
        return PatientReader(file, self.throttle, lambda: _hidden_error(self.files, path))

    def _delete(self, delete: Callable[[], None]) -> None:
        """Delete an object. If the answer of a first attempt was lost, the object may be missing already."""
        attempts = 0

        def delete_once() -> None:
            nonlocal attempts
            attempts += 1
            try:
                delete()
            except FileNotFoundError:
                if attempts == 1:
                    raise

        self.throttle.call(delete_once)


class PatientReader:
    """Object that is open for reading. Implements the file interface that Arrow uses.

    Args:
        file: the open object.
        throttle: repeats its requests.
        find_hidden_error: asks the store why a read failed whose status Arrow does not show; None if the store answers
            by now.
    """

    def __init__(
        self, file: pa.NativeFile, throttle: Throttle, find_hidden_error: Callable[[], OSError | None]
    ) -> None:
        self._file = file
        self._throttle = throttle
        self._find_hidden_error = find_hidden_error
        self._position = 0
        self._size = int(file.size())

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def size(self) -> int:
        return self._size

    def metadata(self) -> Any:
        return self._file.metadata()

    def read_at(self, length: int, offset: int) -> bytes:
        """Bytes at an offset."""
        return bytes(self._throttle.call(lambda: self._read_once(length, offset)))

    def _read_once(self, length: int, offset: int) -> bytes:
        try:
            return self._file.read_at(length, offset)  # type: ignore[no-any-return]
        except OSError as error:
            if HIDDEN_STATUS_TEXT not in str(error):
                raise
            shown = self._find_hidden_error()
            if shown is None:
                raise
            raise shown from error

    def read(self, length: int | None = None) -> bytes:
        rest = self._size - self._position
        wanted = rest if length is None or length < 0 else min(length, rest)
        data = self.read_at(wanted, self._position) if wanted > 0 else b""
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> PatientReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hidden_error(files: fs.S3FileSystem, path: str) -> OSError | None:
    """Error of the store for a read of an object, with its status; None if the object can be read.

    Arrow requests no more bytes of an object than it has, except of a dataset's file whose size the caller states.
    """
    from pyarrow.dataset import ParquetFileFormat

    fragment = ParquetFileFormat().make_fragment(path, files, file_size=_STATUS_PROBE_BYTES)
    try:
        fragment.ensure_complete_metadata()
    except pa.ArrowInvalid:  # the bytes are no Parquet
        return None
    except OSError as error:
        shown = re.search(r"AWS Error .*", str(error))
        if shown is None or "HTTP status 416" in shown[0]:  # the range is beyond the end of the object
            return None
        return OSError(shown[0])
    return None


class _SpooledObject:
    """Object that is written as a whole when it is closed, so that a throttled write can be repeated."""

    def __init__(self, handler: PatientS3, path: str, metadata: Any) -> None:
        self._handler = handler
        self._path = path
        self._metadata = metadata
        self._spool = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, prefix="nova-")  # noqa: SIM115 - close() closes it
        self.closed = False

    def write(self, data: Any) -> int:
        return self._spool.write(data)

    def tell(self) -> int:
        return self._spool.tell()

    def flush(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Write the object. Raises OSError."""
        if self.closed:
            return
        self.closed = True
        with self._spool:
            self._handler.throttle.call(self._write_object)

    def _write_object(self) -> None:
        self._spool.seek(0)
        with self._handler.files.open_output_stream(self._path, metadata=self._metadata) as stream:
            while data := self._spool.read(_COPIED_BYTES):
                stream.write(data)
