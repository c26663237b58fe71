"""Avro files, record by record, as rows of the declared types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pyarrow as pa

from nova_assets.formats.arrow import schema_of
from nova_assets.formats.file import File, bad
from nova_assets.formats.outcome import Parsed, refused_row
from nova_assets.formats.rows import Rows
from nova_assets.model.schema import Schema


def read_avro(file: File, schema: Schema | None) -> pa.Table:
    """A whole Avro file, in the declared types.

    Raises:
        BadRecord: it is none, cannot be read to its end, or a record is not what is declared.
    """
    if schema is None:
        with _records(file) as records:
            table = pa.Table.from_pylist(list(records))
        schema_of(table)  # refuses types that Spark lacks
        return table
    parsed = what_is_right(file, schema)
    if parsed.refused:
        first = parsed.refused[0]
        raise bad(file, f"record {first.line}: {first.reason}", found=first.raw, expected=str(schema), line=first.line)
    return parsed.table


def what_is_right(file: File, schema: Schema, drop: bool = False) -> Parsed:
    """The records of an Avro file that are what is declared, and those that are not, counted from 1.

    Args:
        drop: leave out what is not declared.

    Raises:
        BadRecord: it is no Avro file, or cannot be read to its end.
    """
    rows = Rows(schema, drop)
    with _records(file) as records:
        for number, record in enumerate(records, start=1):
            try:
                rows.take(number, record)
            except ValueError as error:
                rows.refused.append(refused_row(str(error), number, record))
    return rows.parsed()


@contextmanager
def _records(file: File) -> Iterator[Iterator[Any]]:
    try:
        with file.open() as stream:
            yield iter(fastavro.reader(stream))
    except (ValueError, EOFError, OSError, IndexError, KeyError, TypeError) as error:
        # fastavro has no error of its own: what it meets in damaged bytes is whatever they lead to
        raise bad(
            file,
            "the file is no whole Avro file",
            found=str(error) or type(error).__name__,
            expected="an Avro object container file",
            next="fetch the file again: it looks cut short, or is of another format",
        ) from error
