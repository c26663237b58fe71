"""Schemas of the Parquet files of published tables: as nova writes them, or as they were before a take-over."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from nova_assets.errors import NotSupported, SchemaMismatch
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.published_version import TableFileLayout
from nova_assets.model.schema import Schema


def encode_arrow_schema(schema: pa.Schema) -> str:
    """Text of an Arrow schema."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_arrow_schema(text: str) -> pa.Schema:
    """Arrow schema from its text; without columns for an empty text."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) if text else pa.schema([])


def parquet_table_schema(schema: Schema, layout: TableFileLayout) -> pa.Schema:
    """Schema of the files of a channel in a layout. All columns are nullable, as in other tables of Hive."""
    channel_fields = {f.name: f for f in to_arrow_schema(schema)}
    old_fields = {f.name: f for f in decode_arrow_schema(layout.arrow_schema)}
    columns = layout.file_columns(list(channel_fields))
    return pa.schema([pa.field(c, old_fields.get(c, channel_fields[c]).type, nullable=True) for c in columns])


def parquet_write_options(layout: TableFileLayout) -> dict[str, Any]:
    """Options of pyarrow's writer."""
    return {"compression": layout.compression, "use_deprecated_int96_timestamps": layout.int96}


def fit_to_table_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the types of a published table. No value changes.

    Raises:
        SchemaMismatch: the type that readers know cannot represent a value.
        NotSupported: Arrow cannot convert into this type.
    """
    columns = [_fit_column(table.column(f.name), f) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _fit_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    try:
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type, safe=True).dictionary_encode()
        return column.cast(field.type, safe=True)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(
            f"column {field.name!r} has a value that the published table cannot hold",
            found=str(error),
            expected=f"values of the type {field.type}, which readers knew before the table was taken over",
            next="correct the rows, or publish the channel under another path in its own types",
            column=field.name,
        ) from error
    except pa.ArrowNotImplementedError as error:
        raise NotSupported(
            f"column {field.name!r} cannot be published in the type that readers knew before the take-over",
            found=f"{column.type}: {error}",
            expected=str(field.type),
            next="declare the column of the channel with that type",
            column=field.name,
        ) from error
