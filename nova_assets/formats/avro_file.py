"""Reader for Avro files, record by record."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, cast

import fastavro
import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from nova_assets.errors import BadRecord
from nova_assets.formats.input_file import InputFile, bad_record_error, empty_file_error
from nova_assets.formats.parsed_records import ParsedRecords, refused_record_from_row
from nova_assets.formats.row_collector import BadValue, RowCollector
from nova_assets.formats.schema_fit import schema_of
from nova_assets.formats.value_checks import check_not_julian
from nova_assets.model.schema import Schema
from nova_assets.model.value_conversion import TYPED
from nova_assets.nova_error import NovaError

_FLUSH_EVERY = 10_000
"""Maximum number of records held as Python objects."""


def read_avro(file: InputFile, schema: Schema | None) -> pa.Table:
    """Read a whole Avro file in the declared types. Undeclared columns get inferred types.

    Raises:
        BadRecord: the file is no Avro file, cannot be read to its end, or has a record that does not conform.
        SchemaMismatch: Spark lacks the type of an undeclared column, or its values have different types.
        EmptyInput: the file has no record, and no columns are declared.
    """
    parsed = _read_records(file, RowCollector(schema, "keep", TYPED))
    if parsed.refused:
        first = parsed.refused[0]
        column_field = {} if first.column is None else {"column": first.column}
        raise bad_record_error(
            file,
            f"record {first.line}: {first.reason}",
            found=first.raw,
            expected=None if schema is None else str(schema),
            line=first.line,
            **column_field,
        )
    if not parsed.table.num_columns and not parsed.table.num_rows:
        raise empty_file_error(file)
    schema_of(parsed.table)  # rejects types that Spark lacks
    return parsed.table


def read_valid_records(file: InputFile, schema: Schema, drop_undeclared: bool = False) -> ParsedRecords:
    """Read the valid records of an Avro file, and the refused records, numbered from 1.

    Args:
        file: the file.
        schema: declared columns.
        drop_undeclared: drop undeclared columns and fields instead of refusing the record.

    Raises:
        BadRecord: the file is no Avro file, or cannot be read to its end.
    """
    return _read_records(file, RowCollector(schema, "drop" if drop_undeclared else "refuse", TYPED))


_CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
"""Compressions of blocks that can be read: those that Spark writes."""

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
"""Length of the random mark that ends the header and each block of a file."""

_CHECKSUM_BYTES = 4


def _read_records(file: InputFile, collector: RowCollector) -> ParsedRecords:
    with _open_records(file) as (records, metadata):
        for number, record in enumerate(records, start=1):
            try:
                collector.add_row(number, record)
            except BadValue as error:
                collector.refused.append(refused_record_from_row(str(error), number, record, error.column))
            if number % _FLUSH_EVERY == 0:
                collector.flush_rows()
    parsed = collector.to_parsed()
    if any(key.startswith("org.apache.spark.legacy") for key in metadata):
        check_not_julian(parsed.table, file.display_name)
    return parsed


@contextmanager
def _open_records(file: InputFile) -> Iterator[tuple[Iterator[Any], Mapping[str, Any]]]:
    """Records of a file, and the metadata in its header."""
    sync_mark, tail = b"", None
    try:
        with file.open() as stream:
            tail = _StreamTail(stream, file.path.stat().st_size if file.compression is None else sys.maxsize)
            blocks = fastavro.block_reader(cast(IO[bytes], tail))
            sync_mark = tail.last_bytes[-_SYNC_BYTES:]
            _replace_logical_types(blocks.writer_schema)
            if blocks.codec not in _CODECS:
                raise bad_record_error(
                    file,
                    "the Avro file has a compression that cannot be read",
                    found=blocks.codec,
                    expected=", ".join(_CODECS),
                    next="write the file with one of these compressions",
                )
            records = (record for block in blocks for record in _records_of_block(file, block, tail.last_bytes))
            yield records, blocks.metadata
    except (NovaError, MemoryError):
        raise
    except Exception as error:  # fastavro has no error class of its own, and each compression has another one
        if isinstance(error, LookupError | TypeError | AttributeError) or not str(error):
            found = "a block that ends within a record" if sync_mark else "a header without a valid schema"
        else:
            found = str(error)
        if _is_complete(file, sync_mark, tail is not None and tail.ran_out):
            raise _damaged_file_error(file, found) from error
        raise bad_record_error(
            file,
            "the file is not a complete Avro file",
            found=found,
            expected="an Avro object container file",
            next="fetch the file again: it seems to be truncated, or has another format",
        ) from error


def _is_complete(file: InputFile, sync_mark: bytes, ran_out: bool) -> bool:
    """Whether a file that cannot be read is complete: it ends with the mark of its header.

    Args:
        sync_mark: mark at the end of the header; empty if the header cannot be read.
        ran_out: whether a read passed the end of the file.
    """
    content = file.path.read_bytes()
    return content.startswith(_MAGIC) and (content.endswith(sync_mark) if sync_mark else not ran_out)


class _StreamTail:
    """Stream that remembers the last bytes that were read: the checksum of a block, and its end mark.

    Args:
        size: length of the stream in bytes. A damaged length of a block would otherwise need any amount of memory.
    """

    def __init__(self, stream: Any, size: int) -> None:
        self.stream = stream
        self.size = size
        self.position = 0
        self.last_bytes = b""
        self.ran_out = False

    def tell(self) -> int:
        return self.position

    def read(self, size: int) -> bytes:
        self.ran_out |= size > self.size - self.position
        if size < 0 or (self.ran_out and size > _SYNC_BYTES):
            raise EOFError(f"{size} bytes at byte {self.position} of a file of {self.size} bytes")
        data: bytes = self.stream.read(size)
        self.position += len(data)
        self.last_bytes = (self.last_bytes + data)[-_CHECKSUM_BYTES - _SYNC_BYTES :]
        return data


def _records_of_block(file: InputFile, block: Any, last_bytes: bytes) -> Iterator[Any]:
    """Records of a block.

    Args:
        last_bytes: checksum and end mark of the block. Only Snappy has a checksum, which fastavro skips.

    Raises:
        BadRecord: the block does not match its checksum, or has more bytes than records.
    """
    checksum = zlib.crc32(block.bytes_.getvalue()).to_bytes(_CHECKSUM_BYTES, "big") if block.codec == "snappy" else b""
    if not last_bytes.startswith(checksum):
        raise _damaged_file_error(file, f"a block at byte {block.offset} with bytes that do not match its checksum")
    yield from block
    if block.bytes_.read(1):
        raise _damaged_file_error(
            file, f"a block at byte {block.offset} with more content than {block.num_records} records"
        )


def _damaged_file_error(file: InputFile, found: str) -> BadRecord:
    return bad_record_error(
        file,
        "the Avro file is damaged",
        found=found,
        expected="blocks as their writer wrote them",
        next="fetch the file again, or let its writer write it again",
    )


# logical types

_TIME_TYPES = (
    "int-date",
    *(f"long-{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros")),
)
_OWN_PREFIX = "nova-"
"""Beginning of the names of logical types for which fastavro calls the readers of this module."""


class _OutOfYears:
    """A date or time that Python cannot represent. No column can hold it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _read_time(read: Callable[..., Any], data: int, writer_schema: Any = None, reader_schema: Any = None) -> Any:
    try:
        return read(data, writer_schema, reader_schema)
    except (ValueError, OverflowError):
        return _OutOfYears(f"{data} ({writer_schema['logicalType'].removeprefix(_OWN_PREFIX)})")


for _type in _TIME_TYPES:
    _avro_type, _, _logical_type = _type.partition("-")
    LOGICAL_READERS[f"{_avro_type}-{_OWN_PREFIX}{_logical_type}"] = partial(_read_time, LOGICAL_READERS[_type])


def _replace_logical_types(schema: Any) -> None:
    """Change the schema of an open file so that one value that Python cannot represent does not end the file.

    A UUID is the text that the file has, as in Spark.
    """
    if isinstance(schema, list):
        for part in schema:
            _replace_logical_types(part)
    elif isinstance(schema, dict):
        if f"{schema.get('type')}-{schema.get('logicalType')}" in _TIME_TYPES:
            schema["logicalType"] = f"{_OWN_PREFIX}{schema['logicalType']}"
        elif schema.get("logicalType") == "uuid":
            del schema["logicalType"]
        for part in schema.values():
            _replace_logical_types(part)
