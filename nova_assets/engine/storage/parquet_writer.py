"""One Parquet file, written once and described by its writer: nobody has to list, reopen or ask for what was written.

A file carries its own name, and a checksum for each page. Its digest is computed while its bytes pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.storage import file_io
from nova_assets.errors import WarehouseUnavailable

FILE_NAME = b"nova.file"
"""Key of the footer's entry that names the file: two files never have the same footer."""

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
"""Bytes after the footer: its length, and the magic number."""


def digest_bytes(data: bytes | memoryview) -> str:
    """Digest of some bytes, as manifests keep it."""
    return str(_new_hasher(data).hexdigest())


def _new_hasher(data: bytes | memoryview = b"") -> Any:
    return hashlib.blake2b(data, digest_size=16)


def extract_footer(tail: bytes) -> bytes | None:
    """Footer of a Parquet file with its length and magic number, out of the file's last bytes.

    None where these bytes are no end of a Parquet file, or too few.
    """
    if len(tail) < _TRAILER_BYTES or tail[-4:] != _MAGIC:
        return None
    length = int.from_bytes(tail[-_TRAILER_BYTES:-4], "little") + _TRAILER_BYTES
    return tail[-length:] if length <= len(tail) else None


@dataclass(frozen=True, slots=True)
class FileReport:
    """A file, as its writer knows it.

    Args:
        digest: of all bytes.
        footer_digest: of the footer, its length and the magic number.
    """

    path: str
    rows: int
    bytes: int
    digest: str
    footer_digest: str
    metadata: pq.FileMetaData


class ParquetFileWriter:
    """Writes one Parquet file, with Zstandard.

    Args:
        path: address of the file.
        dictionaries: names of the columns that are written with a dictionary; all by default. Numbers in lists never
            are.
        options: of ``pyarrow.parquet.ParquetWriter``.
    """

    def __init__(
        self, path: str, schema: pa.Schema, dictionary_columns: Collection[str] | None = None, **options: Any
    ) -> None:
        self.path = path
        self.rows = 0
        self._metadata_collector: list[pq.FileMetaData] = []
        self._sink = _DigestingSink(path)
        try:
            self._writer = pq.ParquetWriter(
                self._sink,
                schema,
                compression="zstd",
                use_dictionary=_dictionary_leaf_paths(schema, dictionary_columns) or False,
                store_schema=False,
                write_page_checksum=True,
                metadata_collector=self._metadata_collector,
                **options,
            )
        except BaseException:
            self._sink.discard()
            raise

    @property
    def bytes(self) -> int:
        """Bytes that were written until now."""
        return self._sink.bytes

    def write(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Append rows."""
        self._writer.write_table(table, row_group_size=row_group_size)
        self.rows += table.num_rows

    def close(self) -> FileReport:
        """Finish the file.

        Raises:
            OSError: the file cannot be finished.
            WarehouseUnavailable: the footer counts other rows than were handed over.
        """
        self._writer.add_key_value_metadata({FILE_NAME: file_io.name_of(self.path).encode()})
        self._sink.start_recording_tail()
        self._writer.close()
        self._sink.close()
        [metadata] = self._metadata_collector
        footer = extract_footer(self._sink.recorded_tail)
        if metadata.num_rows != self.rows or footer is None:
            raise WarehouseUnavailable(
                f"{self.path} was not written whole",
                found=f"{metadata.num_rows} rows in its footer",
                expected=f"the {self.rows} rows that were handed over",
                next="do it again: nothing of it was kept",
            )
        return FileReport(self.path, self.rows, self.bytes, self._sink.digest, digest_bytes(footer), metadata)

    def discard(self) -> None:
        """Let go of an unfinished file, which is removed with its folder. Raises nothing.

        What stays open is finished by Arrow whenever it is collected, maybe after its folder was removed.
        """
        with suppress(Exception):
            self._writer.close()
        self._sink.discard()


def _dictionary_leaf_paths(schema: pa.Schema, columns: Collection[str] | None) -> list[str]:
    """Parquet paths of the leaves of some columns that are written with a dictionary.

    Spark's vectorized reader decodes a number in a list before it looks whether the number is null. It fails where the
    dictionary has no entry, because all numbers of the row group are null.
    """
    fields = [f for f in schema if columns is None or f.name in columns]
    return [path for field in fields for path in _leaf_paths(field.type, field.name)]


def _leaf_paths(type_: pa.DataType, path: str, *, is_list_element: bool = False) -> Iterator[str]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _leaf_paths(field.type, f"{path}.{field.name}")
    elif pa.types.is_map(type_):
        yield from _leaf_paths(type_.key_type, f"{path}.key_value.key", is_list_element=True)
        yield from _leaf_paths(type_.item_type, f"{path}.key_value.value", is_list_element=True)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        yield from _leaf_paths(type_.value_type, f"{path}.list.element", is_list_element=True)
    elif not is_list_element or not pa.types.is_primitive(type_):
        yield path


def _open_local_file(path: str) -> BinaryIO:
    return Path(path).open("wb")


class _DigestingSink:
    """The bytes of a file on their way. Speaks what Arrow asks of a Python file."""

    def __init__(self, path: str) -> None:
        files, name = file_io.remote_filesystem_and_path(path)
        self._stream: Any = _open_local_file(name) if files is None else files.open_output_stream(name)
        self._hash = _new_hasher()
        self._tail_chunks: list[bytes] | None = None
        self.bytes = 0
        self.closed = False

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    @property
    def recorded_tail(self) -> bytes:
        """Everything that was written since ``remember_end``."""
        return b"".join(self._tail_chunks or ())

    def start_recording_tail(self) -> None:
        self._tail_chunks = []

    def write(self, data: Any) -> int:
        size = len(data)
        self._hash.update(data)
        if self._tail_chunks is not None:
            self._tail_chunks.append(bytes(data))
        self._stream.write(data)
        self.bytes += size
        return size

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        pass

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()

    def discard(self) -> None:
        with suppress(Exception):
            self.close()
