"""Fitting of Arrow tables to a channel's schema: columns in order, types widened, no values lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.column_conversion import contains_null_type, to_deletion_column
from nova_assets.model.arrow_types import arrow_type, from_arrow_schema, spark_type
from nova_assets.model.schema import DELETED, UNKNOWN_TYPE, Schema
from nova_assets.model.schema_evolution import can_widen
from nova_assets.nova_error import NovaError


def schema_of(table: pa.Table) -> Schema:
    """Schema of a table in Spark's types.

    Every column is nullable, because only a declaration can exclude nulls. A column that holds only nulls has the type
    ``UNKNOWN_TYPE``.

    Raises:
        SchemaMismatch: two columns have the same name, Spark lacks a type, or a nested part has an unknown type.
    """
    for field in table.schema:
        if pa.types.is_nested(field.type) and contains_null_type(field.type):
            raise SchemaMismatch(
                f"column {field.name!r} has a part without a type, because it has only nulls or no elements",
                found=str(field.type),
                expected="a value in every part, or a channel with declared types",
                next=f'declare the channel with schema="..., {field.name} TYPE"',
                column=field.name,
            )
    try:
        schema = from_arrow_schema(table.schema).with_all_nullable()
        untyped_columns = {f.name for f in table.schema if pa.types.is_null(f.type) and f.name != DELETED}
        return Schema(tuple(replace(f, type=UNKNOWN_TYPE) if f.name in untyped_columns else f for f in schema.fields))
    except NovaError as error:
        raise SchemaMismatch(error.what, found=error.found, expected=error.expected, next=error.next) from error


def drop_undeclared_null_columns(table: pa.Table, schema: Schema) -> pa.Table:
    """Table without the all-null columns that the schema lacks."""
    null_columns = [f.name for f in table.schema if pa.types.is_null(f.type) and f.name not in schema]
    return table.drop_columns(null_columns) if null_columns else table


def fit_to_schema(table: pa.Table, schema: Schema) -> pa.Table:
    """Table with exactly the columns of ``schema``, in the types that Spark would write.

    Columns that the table lacks become null. If the schema has ``_deleted``, missing or null marks become false.

    Raises:
        SchemaMismatch: the schema lacks a column of the table, a column's type cannot be widened to the declared type,
            a non-nullable column is missing, or a time is finer than microseconds.
    """
    undeclared = [n for n in table.column_names if n not in schema]
    if undeclared:
        raise SchemaMismatch(
            f"the schema does not have these columns: {', '.join(map(repr, undeclared))}", expected=str(schema)
        )
    columns = [_fit_column(table, f.name, f.nullable, arrow_type(f.type)) for f in schema.fields]
    fields = [pa.field(f.name, arrow_type(f.type), f.name != DELETED) for f in schema.fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _fit_column(table: pa.Table, name: str, nullable: bool, target_type: pa.DataType) -> pa.ChunkedArray:
    if name not in table.column_names:
        if name == DELETED:
            return pa.chunked_array([pa.repeat(pa.scalar(False), table.num_rows)])
        if not nullable:
            raise SchemaMismatch(f"column {name!r} is missing, but must not be null", column=name)
        return pa.chunked_array([pa.nulls(table.num_rows, target_type)])
    column = table.column(name)
    if name == DELETED:
        return pc.fill_null(to_deletion_column(column), False)
    if column.type == target_type:
        return column
    if not pa.types.is_null(column.type) and not _is_widening(column.type, target_type, name):
        raise SchemaMismatch(
            f"column {name!r} is {spark_type(column.type, name)}, not {spark_type(target_type, name)}",
            next="cast the column first",
            column=name,
        )
    return cast_column(column, target_type, name)


def cast_column(column: pa.ChunkedArray, target_type: pa.DataType, name: str) -> pa.ChunkedArray:
    """Cast a column to another type without changing any value.

    Raises:
        SchemaMismatch: the type cannot represent a value exactly.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return column.cast(target_type, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        if _is_finer_than_microseconds(column.type, target_type):
            raise SchemaMismatch(
                f"column {name!r} has times finer than a microsecond, which Spark cannot store",
                found=f"{column.type}: {error}",
                expected=str(target_type),
                next="round them first, for example with pyarrow.compute.round_temporal or .dt.floor('us')",
                column=name,
            ) from error
        raise SchemaMismatch(
            f"column {name!r} has values that do not fit into {spark_type(target_type, name)}",
            found=f"{column.type}: {error}",
            expected=str(target_type),
            next="cast the column first",
            column=name,
        ) from error


def _is_widening(source_type: pa.DataType, target_type: pa.DataType, name: str) -> bool:
    return can_widen(spark_type(source_type, name), spark_type(target_type, name))


def _is_finer_than_microseconds(source_type: pa.DataType, target_type: pa.DataType) -> bool:
    has_nanoseconds: Any = pa.types.is_timestamp(source_type) and source_type.unit == "ns"
    return bool(has_nanoseconds and pa.types.is_timestamp(target_type))
