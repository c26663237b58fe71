"""Conversion of user rows to the types of a channel, by the same rules for all kinds of input."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from nova_assets.errors import EmptyInput, SchemaMismatch
from nova_assets.formats.column_conversion import convert_table
from nova_assets.formats.schema_fit import schema_of
from nova_assets.formats.value_checks import check_values
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DELETED, Schema
from nova_assets.model.value_conversion import InputKind


def convert_user_table(
    table: pa.Table,
    schema: Schema | None,
    input_kind: InputKind,
    *,
    allow_widening: bool = False,
    first_row_number: int = 1,
) -> pa.Table:
    """User's table with the columns of a schema in their declared types.

    If all rows are deletions, the missing columns are added as nulls: a deletion needs only its key.

    Args:
        schema: schema of the channel; None leaves the types unchanged.
        allow_widening: whether the channel accepts wider types than it has.
        first_row_number: number of the first row in errors.

    Raises:
        EmptyInput: the table has rows but no column.
        SchemaMismatch: a channel cannot hold a value or type.
    """
    check_has_columns(table.num_rows, table.num_columns)
    table = convert_table(
        table, schema, input_kind, allow_wider_types=allow_widening, first_row_number=first_row_number
    )
    check_values(table, first_row_number)
    schema_of(table)  # rejects duplicate names and types that Spark lacks
    return _null_fill_delete_only_table(table, schema)


def check_has_columns(row_count: int, column_count: int) -> None:
    """Reject rows without columns. An Arrow table without columns loses its number of rows. Raises EmptyInput."""
    if row_count and not column_count:
        raise EmptyInput(
            "the rows to insert have no columns",
            found=f"{row_count} rows",
            expected="at least one column",
            next="add a column of the channel, with None for rows without a value",
        )


def _null_fill_delete_only_table(table: pa.Table, schema: Schema | None) -> pa.Table:
    if DELETED not in table.column_names or not table.num_rows:
        return table
    deleted_column = table.column(DELETED)
    if deleted_column.null_count or deleted_column.to_pylist().count(True) < table.num_rows:
        return table
    return add_missing_columns(table, schema)


def add_missing_columns(table: pa.Table, schema: Schema | None) -> pa.Table:
    """Table with all columns of a schema. Missing columns are null."""
    for field in schema.fields if schema is not None else ():
        if field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(table.num_rows, arrow_type(field.type)))
    return table


def concat_file_tables(tables: Sequence[pa.Table], file_names: Sequence[str]) -> pa.Table:
    """Rows of all files. A column that a file lacks is null.

    Args:
        tables: table of each file.
        file_names: names of the files in errors.

    Raises:
        SchemaMismatch: a column has different types in different files.
    """
    rows = tables[0]
    for table, file in zip(tables[1:], file_names[1:], strict=True):
        try:
            rows = pa.concat_tables([rows, table], promote_options="default")
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"{file} has other column types than {file_names[0]}",
                found=str(schema_of(table)),
                expected=str(schema_of(rows)),
                next="insert the files one by one, or declare the channel's schema",
                file=file,
            ) from error
    return rows
