"""Arrow tables fitted to a channel's schema: columns in order, types widened, nothing lost on the way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.errors import NovaError, SchemaMismatch
from nova_assets.model.arrow_types import arrow_type, from_arrow, spark_type
from nova_assets.model.schema import DELETED, Schema, widens


def schema_of(table: pa.Table) -> Schema:
    """The columns of a table, in Spark's types. Every column may be null: a promise is made by declaring it.

    Raises:
        SchemaMismatch: two columns of one name, or a type that Spark does not have.
    """
    try:
        return from_arrow(table.schema).relaxed()
    except NovaError as error:
        raise SchemaMismatch(error.what, found=error.found, expected=error.expected, next=error.next) from error


def fit(table: pa.Table, schema: Schema) -> pa.Table:
    """A table with exactly the columns of ``schema``, as Spark would write them.

    Columns that the table lacks are null. ``_deleted``, where the schema has it, is false where the table does not say.

    Raises:
        SchemaMismatch: a column of no place in the schema, a type that is not narrower, a time finer than microseconds.
    """
    extra = [n for n in table.column_names if n not in schema]
    if extra:
        raise SchemaMismatch(f"columns have no place: {', '.join(map(repr, extra))}", expected=str(schema))
    columns = [_column(table, f.name, f.nullable, arrow_type(f.type)) for f in schema.fields]
    fields = [pa.field(f.name, arrow_type(f.type), f.name != DELETED) for f in schema.fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _column(table: pa.Table, name: str, nullable: bool, type_: pa.DataType) -> pa.ChunkedArray:
    if name not in table.column_names:
        if name == DELETED:
            return pa.chunked_array([pa.repeat(pa.scalar(False), table.num_rows)])
        if not nullable:
            raise SchemaMismatch(f"column {name!r} is missing and may not be null", column=name)
        return pa.chunked_array([pa.nulls(table.num_rows, type_)])
    column = table.column(name)
    if name == DELETED:
        return pc.fill_null(_deletion_mark(column), False)
    if column.type == type_:
        return column
    if not pa.types.is_null(column.type) and not _may_become(column.type, type_, name):
        raise SchemaMismatch(
            f"column {name!r} is {spark_type(column.type, name)}, not {spark_type(type_, name)}",
            next="cast the column first",
            column=name,
        )
    return cast(column, type_, name)


def cast(column: pa.ChunkedArray, type_: pa.DataType, name: str) -> pa.ChunkedArray:
    """A column in another type, value by value the same.

    Raises:
        SchemaMismatch: a value cannot be kept as it is.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return column.cast(type_, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        if _is_too_fine(column.type, type_):
            raise SchemaMismatch(
                f"column {name!r} has times finer than a microsecond, which Spark cannot keep",
                found=f"{column.type}: {error}",
                expected=str(type_),
                next="round them first, for example with pyarrow.compute.round_temporal or .dt.floor('us')",
                column=name,
            ) from error
        raise SchemaMismatch(
            f"column {name!r} has values that are no {spark_type(type_, name)}",
            found=f"{column.type}: {error}",
            expected=str(type_),
            next="cast the column first",
            column=name,
        ) from error


def adapt(table: pa.Table, schema: Schema | None, *, by_value: bool) -> pa.Table:
    """What a user gave, with those of its columns in the declared types that mean the same.

    Times without a zone are taken as UTC where the channel has ``timestamp``. Columns with nothing but nulls take the
    declared type. Everything else is left for ``model.schema.reconcile`` to judge.

    Args:
        table: the user's data.
        schema: the channel's; None leaves the table as it is.
        by_value: the data has no types of its own (Python values, pandas): a column of whole numbers may then become
            any type that can hold each of them.
    """
    for index, field in enumerate(table.schema):
        column = table.column(index)
        if field.name == DELETED:
            table = table.set_column(index, field.name, _deletion_mark(column))
        elif schema is not None and field.name in schema:
            wanted = arrow_type(schema.field(field.name).type)
            if column.type != wanted and (_means_same(column.type, wanted) or (by_value and _holds(column, wanted))):
                table = table.set_column(index, field.name, cast(column, wanted, field.name))
    return table


def _deletion_mark(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_null(column.type):
        return column.cast(pa.bool_())
    if not pa.types.is_boolean(column.type):
        raise SchemaMismatch(
            f"column {DELETED!r} is {column.type}", expected="boolean: true for a deletion", column=DELETED
        )
    return column


def _may_become(given: pa.DataType, wanted: pa.DataType, name: str) -> bool:
    return widens(spark_type(given, name), spark_type(wanted, name))


def _means_same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column is meant as the wanted type, which its own type cannot say."""
    if pa.types.is_null(given):
        return True
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return given.tz is None and wanted.tz is not None
    if _is_list(given) and _is_list(wanted):
        return given.value_type != wanted.value_type and _means_same(given.value_type, wanted.value_type)
    return False


def _holds(column: pa.ChunkedArray, wanted: pa.DataType) -> bool:
    """Whether every value of an untyped column is one of the wanted type: exactly, but for floats, of which Python
    has only one size."""
    given = column.type
    if pa.types.is_floating(given) and pa.types.is_floating(wanted):
        return True
    dates = pa.types.is_timestamp(given) and pa.types.is_date(wanted)
    if not (dates or (_is_number(given) and _is_number(wanted)) or _keeps_fields(given, wanted)):
        return False
    try:
        there = column.cast(wanted, safe=True)
        return bool(pa.types.is_nested(wanted) or there.cast(given, safe=True).equals(column))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _keeps_fields(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types are nested alike; Arrow drops fields of a struct for which the other one has no place."""
    if _is_list(given) and _is_list(wanted):
        return _keeps_fields(given.value_type, wanted.value_type)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        fields = {f.name: f.type for f in wanted}
        return all(f.name in fields and _keeps_fields(f.type, fields[f.name]) for f in given)
    return not (_is_nested(given) or _is_nested(wanted))


def _is_nested(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _is_too_fine(given: pa.DataType, wanted: pa.DataType) -> bool:
    fine: Any = pa.types.is_timestamp(given) and given.unit == "ns"
    return bool(fine and pa.types.is_timestamp(wanted))
