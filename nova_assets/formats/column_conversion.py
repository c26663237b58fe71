"""Conversion of Arrow columns to declared types by the rules of ``model.value_conversion``.

Arrow's casts convert a column if they are known to check every value. Every other column, and every column that a cast
rejects, is converted value by value by the rules. An error therefore names row and value, and all kinds of input agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.errors import SchemaMismatch
from nova_assets.formats.python_values import text_of_value
from nova_assets.model.arrow_types import arrow_type, spark_type
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.model.schema_evolution import can_widen
from nova_assets.model.value_conversion import RULES, TYPED, InputKind, ValueClass, convert_value
from nova_assets.nova_error import NovaError

_is = pa.types


def declared_types(schema: Schema | None) -> dict[str, DataType]:
    """Type of each declared column, including ``_deleted``, which any file may have."""
    fields = {f.name: f.type for f in schema.fields} if schema is not None else {}
    return {**fields, DELETED: DataType("boolean")}


def convert_table(
    table: pa.Table,
    schema: Schema | None,
    input_kind: InputKind = TYPED,
    *,
    allow_wider_types: bool = False,
    first_row_number: int = 1,
) -> pa.Table:
    """Convert the columns of a user's table to the declared types of a schema.

    A column that no rule converts stays unchanged. ``model.schema_evolution.reconcile_schema`` reports all such columns
    together.

    Args:
        table: the user's table.
        schema: schema of the channel; None keeps all types.
        input_kind: kind of input, which selects the conversion rules.
        allow_wider_types: keep a column whose type is wider than declared, for a channel that accepts wider types.
        first_row_number: number of the first row in error messages.

    Raises:
        SchemaMismatch: the rules reject a value. The error names its column and row.
    """
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        column = to_unencoded_column(column, name)
        if input_kind.nan_is_null and _is.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if name == DELETED:
            column = to_deletion_column(column)
        elif schema is not None and name in schema:
            column = _convert_column(
                column, schema.field(name).type, name, input_kind, allow_wider_types, first_row_number
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.column_names)


def convert_values(
    values: Iterable[Any], declared_type: DataType, column_name: str, input_kind: InputKind, first_row_number: int = 1
) -> pa.ChunkedArray:
    """Column of a declared type from Python values.

    Raises:
        SchemaMismatch: the rules reject a value. The error names its row.
    """
    converted = []
    for number, value in enumerate(values, start=first_row_number):
        try:
            converted.append(convert_value(value, declared_type, input_kind))
        except ValueError as error:
            raise SchemaMismatch(
                f"row {number} has a value of another type in column {column_name!r}",
                found=str(error),
                expected=f"{declared_type}: see the conversion table in the reference",
                next="convert the value, or remove the row",
                column=column_name,
                row=number,
            ) from error
    array = pa.array(converted, arrow_type(declared_type))
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def convert_to_inferred_type(
    values: Iterable[Any], inferred_array: pa.Array, column_name: str, input_kind: InputKind
) -> pa.ChunkedArray:
    """Column in the type that Arrow infers from its values.

    Arrow truncates values that the inferred type cannot represent. The rules for declared types therefore convert each
    value to that type.

    Args:
        values: the Python values.
        inferred_array: the array that Arrow creates from the values.
        column_name: name of the column, for errors.
        input_kind: kind of input, which selects the conversion rules.

    Raises:
        SchemaMismatch: the inferred type cannot represent a value exactly. The error names its row.
    """
    column = inferred_array if isinstance(inferred_array, pa.ChunkedArray) else pa.chunked_array([inferred_array])
    try:
        type_ = spark_type(column.type, column_name)
    except NovaError:  # a later step rejects all unsupported types together
        return column
    return (
        column
        if contains_null_type(column.type)
        else convert_values(values, type_, column_name, input_kind.for_inferred_types)
    )


def contains_null_type(type_: pa.DataType) -> bool:
    """Whether a type or a nested part of it is Arrow's null type."""
    # Nested parts count: an empty list is not null, so its column cannot be left out until a value shows its type.
    if _is.is_null(type_):
        return True
    if _is.is_dictionary(type_) or not _is.is_nested(type_):
        return False
    return any(contains_null_type(type_.field(n).type) for n in range(type_.num_fields))


def to_deletion_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Column ``_deleted`` as booleans. Raises SchemaMismatch for another type."""
    if _is.is_null(column.type):
        return column.cast(pa.bool_())
    if not _is.is_boolean(column.type):
        raise SchemaMismatch(
            f"column {DELETED!r} is {column.type}", expected="boolean: true for a deletion", column=DELETED
        )
    return column


# types without encodings


def unencoded_type(type_: pa.DataType) -> pa.DataType:
    """Type with dictionaries, views and JSON replaced by their plain types, at all levels."""
    if isinstance(type_, pa.BaseExtensionType) and type_.extension_name == "arrow.json":
        return unencoded_type(type_.storage_type)
    if _is.is_dictionary(type_):
        return unencoded_type(type_.value_type)
    if _is.is_string_view(type_):
        return pa.string()
    if _is.is_binary_view(type_):
        return pa.binary()
    if _is.is_list(type_) or _is.is_list_view(type_):
        return pa.list_(_unencoded_field(type_.value_field))
    if _is.is_large_list(type_) or _is.is_large_list_view(type_):
        return pa.large_list(_unencoded_field(type_.value_field))
    if _is.is_fixed_size_list(type_):
        return pa.list_(_unencoded_field(type_.value_field), type_.list_size)
    if _is.is_struct(type_):
        return pa.struct([_unencoded_field(type_.field(n)) for n in range(type_.num_fields)])
    if _is.is_map(type_):
        return pa.map_(_unencoded_field(type_.key_field), _unencoded_field(type_.item_field), type_.keys_sorted)
    return type_


def _unencoded_field(field: pa.Field) -> pa.Field:
    return field.with_type(unencoded_type(field.type))


def to_unencoded_column(column: pa.ChunkedArray, column_name: str) -> pa.ChunkedArray:
    """Column with dictionaries and views decoded, and JSON as text.

    Raises:
        SchemaMismatch: Arrow cannot decode the values.
    """
    target = unencoded_type(column.type)
    if target == column.type:
        return column
    try:
        if _is.is_dictionary(column.type):  # polars builds dictionaries of views, which Arrow cannot decode
            return pa.chunked_array([_decode_dictionary(chunk, target) for chunk in column.chunks], target)
        if "list_view" not in str(column.type):  # Arrow's cast returns lists without their last offset
            return column.cast(target)
    except pa.ArrowException:
        pass
    try:
        return pa.chunked_array([pa.array(column.to_pylist(), target)], target)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise SchemaMismatch(
            f"column {column_name!r} cannot be decoded",
            found=f"{column.type}: {error}",
            next="cast the column first",
            column=column_name,
        ) from error


def _decode_dictionary(chunk: pa.DictionaryArray, target: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(target)).dictionary_decode()


# columns


def _convert_column(
    column: pa.ChunkedArray,
    declared_type: DataType,
    column_name: str,
    input_kind: InputKind,
    allow_wider_types: bool,
    first_row_number: int,
) -> pa.ChunkedArray:
    target = arrow_type(declared_type)
    if column.type == target and not (input_kind.nan_is_null and _is.is_nested(target)):
        return column
    if _is.is_null(column.type):
        return column.cast(target)
    if not is_convertible(column.type, declared_type):
        return column
    may_stay_wider = allow_wider_types and _is_wider(column.type, declared_type, column_name)
    if may_stay_wider and input_kind is TYPED:
        return column
    cast_column = None if input_kind.nan_is_null and _is.is_nested(target) else _cast_if_lossless(column, target)
    if cast_column is not None:
        return cast_column
    try:
        return convert_values(
            _python_values(column, column_name, first_row_number),
            declared_type,
            column_name,
            input_kind,
            first_row_number,
        )
    except SchemaMismatch:
        if may_stay_wider:
            return column
        raise


def is_convertible(source_type: pa.DataType, declared_type: DataType) -> bool:
    """Whether the rules convert values of an Arrow type to a declared type."""
    if _is.is_null(source_type):
        return True
    if value_class_of(source_type) not in RULES[declared_type.name]:
        return False
    fields = declared_type.fields
    if declared_type.name == "array":
        return is_convertible(source_type.value_type, fields[0].type)
    if declared_type.name == "map":
        are_keys_convertible = _is.is_map(source_type) and is_convertible(source_type.key_type, fields[0].type)
        return are_keys_convertible and is_convertible(source_type.item_type, fields[1].type)
    if declared_type.name == "struct":
        types = {f.name: f.type for f in fields}
        return _is.is_struct(source_type) and all(
            f.name in types and is_convertible(f.type, types[f.name]) for f in source_type
        )
    return True


def value_class_of(type_: pa.DataType) -> ValueClass | None:
    """Value class of an Arrow type; None for a type that no channel supports."""
    if _is.is_timestamp(type_):
        return "local time" if type_.tz is None else "instant"
    return next((name for test, name in _VALUE_CLASS_TESTS if test(type_)), None)


_VALUE_CLASS_TESTS: tuple[tuple[Any, ValueClass], ...] = (
    (_is.is_boolean, "boolean"),
    (_is.is_integer, "whole number"),
    (_is.is_floating, "float"),
    (_is.is_decimal, "decimal"),
    (lambda t: _is.is_string(t) or _is.is_large_string(t), "text"),
    (lambda t: _is.is_binary(t) or _is.is_large_binary(t) or _is.is_fixed_size_binary(t), "bytes"),
    (_is.is_date, "date"),
    (_is.is_map, "mapping"),
    (_is.is_struct, "mapping"),
    (lambda t: _is.is_list(t) or _is.is_large_list(t) or _is.is_fixed_size_list(t), "list"),
)


def _is_wider(source_type: pa.DataType, declared_type: DataType, column_name: str) -> bool:
    try:
        return can_widen(declared_type, spark_type(source_type, column_name))
    except NovaError:  # Spark has no such type
        return False


def _python_values(column: pa.ChunkedArray, column_name: str, first_row_number: int) -> Iterator[Any]:
    for number, scalar in enumerate(column, start=first_row_number):
        try:
            yield scalar.as_py()
        except (ValueError, OverflowError, pa.ArrowException) as error:  # a date outside Python's years
            raise SchemaMismatch(
                f"row {number} has a value out of range in column {column_name!r}",
                found=text_of_value(scalar)[:300],
                expected="a year from 0001 to 9999",
                column=column_name,
                row=number,
            ) from error


def _cast_if_lossless(column: pa.ChunkedArray, target_type: pa.DataType) -> pa.ChunkedArray | None:
    """Column cast by Arrow; None if Arrow does not check that every value stays the same."""
    source = column.type
    if not _is_cast_checked_by_arrow(source, target_type):
        return None
    try:
        result = column.cast(target_type, safe=True)
    except pa.ArrowException:
        return None
    if _is.is_floating(source) and _is.is_floating(target_type):
        return result if _are_floats_preserved(column, result) else None
    if _is.is_timestamp(source) and _is.is_date(target_type):
        return result if result.cast(source).equals(column) else None
    return result


def _is_cast_checked_by_arrow(source_type: pa.DataType, target_type: pa.DataType) -> bool:
    if source_type == target_type or _is.is_null(source_type):
        return True
    if _is.is_nested(source_type):
        return _is_nested_cast_checked_by_arrow(source_type, target_type)
    pair = (value_class_of(source_type), value_class_of(target_type))
    return pair in _CASTS_CHECKED_BY_ARROW


_CASTS_CHECKED_BY_ARROW: frozenset[tuple[ValueClass | None, ValueClass | None]] = frozenset(
    {
        ("whole number", "whole number"),
        ("whole number", "float"),
        ("float", "whole number"),
        ("float", "float"),
        ("decimal", "decimal"),
        ("text", "text"),
        ("bytes", "bytes"),
        ("date", "date"),
        ("date", "local time"),
        ("local time", "local time"),
        ("local time", "instant"),
        ("local time", "date"),
        ("instant", "instant"),
    }
)


def _is_nested_cast_checked_by_arrow(source_type: pa.DataType, target_type: pa.DataType) -> bool:
    """Whether Arrow's cast between two nested types checks every value of their parts."""
    if _is.is_struct(source_type) and [f.name for f in source_type] != [f.name for f in target_type]:
        return False
    if _is.is_fixed_size_list(source_type):
        return False
    field_types = [(source_type.field(n).type, target_type.field(n).type) for n in range(source_type.num_fields)]
    return all(
        (
            _is_cast_checked_by_arrow(a, b)
            and (value_class_of(a), value_class_of(b)) not in {("float", "float"), ("local time", "date")}
        )
        or a == b
        for a, b in field_types
    )


def _are_floats_preserved(original: pa.ChunkedArray, converted: pa.ChunkedArray) -> bool:
    """Whether the rules accept all floats after a cast to another precision. Uncertain values count as not accepted."""
    before = pc.fill_null(original, 0.0).cast(pa.float64()).to_numpy()
    after = pc.fill_null(converted, 0.0).cast(pa.float64()).to_numpy()
    with np.errstate(invalid="ignore"):
        is_near = (np.abs(before - after) < 0.5) & ((after != 0) | (before == 0))
    return bool((is_near | ((before == after) | (np.isnan(before) & np.isnan(after)))).all())
