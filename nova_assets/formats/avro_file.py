"""Reader for Avro files, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pyarrow as pa

from nova_assets.formats.input_file import InputFile, bad_record_error
from nova_assets.formats.parsed_records import ParsedRecords, refused_record_from_row
from nova_assets.formats.row_collector import BadValue, RowCollector
from nova_assets.formats.schema_fit import schema_of
from nova_assets.model.schema import Schema
from nova_assets.model.value_conversion import TYPED

_FLUSH_EVERY = 10_000
"""Maximum number of records held as Python objects."""


def read_avro(file: InputFile, schema: Schema | None) -> pa.Table:
    """Read a whole Avro file in the declared types. Undeclared columns get inferred types.

    Raises:
        BadRecord: the file is no Avro file, cannot be read to its end, or has a record that does not conform.
        SchemaMismatch: Spark lacks the type of an undeclared column, or its values have different types.
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


def _read_records(file: InputFile, collector: RowCollector) -> ParsedRecords:
    with _open_records(file) as records:
        for number, record in enumerate(records, start=1):
            try:
                collector.add_row(number, record)
            except BadValue as error:
                collector.refused.append(refused_record_from_row(str(error), number, record, error.column))
            if number % _FLUSH_EVERY == 0:
                collector.flush_rows()
    return collector.to_parsed()


@contextmanager
def _open_records(file: InputFile) -> Iterator[Iterator[Any]]:
    try:
        with file.open() as stream:
            yield iter(fastavro.reader(stream))
    except (ValueError, EOFError, OSError, IndexError, KeyError, TypeError) as error:
        # fastavro has no error class of its own and raises any of these on damaged bytes
        raise bad_record_error(
            file,
            "the file is not a complete Avro file",
            found=str(error) or type(error).__name__,
            expected="an Avro object container file",
            next="fetch the file again: it seems to be truncated, or has another format",
        ) from error
