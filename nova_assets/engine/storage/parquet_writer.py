"""Writer of one Parquet file, which describes the file itself: the file is never listed, reopened or inspected
afterwards.

A file carries its own name, and a checksum for each page. Its digest is computed while its bytes are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import digest_bytes, extract_footer, new_digest
from nova_assets.engine.storage.parquet_footers import FileSummary, summarize_footer
from nova_assets.errors import WarehouseUnavailable

FILE_NAME = b"nova.file"
"""Key of the footer entry with the file's name. It makes the footer of every file unique."""


class ParquetFileWriter:
    """Writes one Parquet file, with Zstandard.

    Args:
        path: address of the file.
        schema: schema of the rows.
        dictionary_columns: columns that are written with a dictionary; None for all. Numbers in lists never have one.
        options: options of ``pyarrow.parquet.ParquetWriter``.
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
        """Bytes written so far."""
        return self._sink.bytes

    def write(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Append rows."""
        self._writer.write_table(table, row_group_size=row_group_size)
        self.rows += table.num_rows

    def close(self, range_columns: Sequence[str] = (), null_count_columns: Sequence[str] = ()) -> FileSummary:
        """Finish the file and describe it.

        Args:
            range_columns, null_count_columns: as for ``summarize_footer``.

        Raises:
            OSError: the file cannot be finished.
            WarehouseUnavailable: the row count in the footer differs from the number of appended rows.
        """
        self._writer.add_key_value_metadata({FILE_NAME: file_io.name_of(self.path).encode()})
        self._sink.start_recording_tail()
        self._writer.close()
        self._sink.close()
        [metadata] = self._metadata_collector
        footer = extract_footer(self._sink.recorded_tail)
        if metadata.num_rows != self.rows or footer is None:
            raise WarehouseUnavailable(
                f"{self.path} was not written completely",
                found=f"{metadata.num_rows} rows in its footer",
                expected=f"the {self.rows} rows that were passed to the writer",
                next="repeat the write: none of its files was kept",
            )
        summary = summarize_footer(metadata, self.path, self.bytes, range_columns, null_count_columns)
        return replace(summary, digest=self._sink.digest, footer_digest=digest_bytes(footer))

    def discard(self) -> None:
        """Close an unfinished file without a report. Its folder is deleted by the caller. Raises nothing.

        Arrow would finish an open file at garbage collection, possibly after its folder was deleted.
        """
        with suppress(Exception):
            self._writer.close()
        self._sink.discard()


def _dictionary_leaf_paths(schema: pa.Schema, columns: Collection[str] | None) -> list[str]:
    """Parquet paths of the leaf columns that are written with a dictionary.

    Numbers in lists are excluded. Spark's vectorized reader decodes such a number before it checks whether the number
    is null. The reader fails if the dictionary is empty, because all numbers of the row group are null.
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


def _create_local_file(path: str) -> BinaryIO:
    return Path(path).open("wb")


class _DigestingSink:
    """Output stream that computes the digest of its bytes. Implements the file interface that Arrow uses."""

    def __init__(self, path: str) -> None:
        files, name = file_io.remote_filesystem_and_path(path)
        self._stream: Any = _create_local_file(name) if files is None else files.open_output_stream(name)
        self._hash = new_digest()
        self._tail_chunks: list[bytes] | None = None
        self.bytes = 0
        self.closed = False

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    @property
    def recorded_tail(self) -> bytes:
        """All bytes written since ``start_recording_tail``."""
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
