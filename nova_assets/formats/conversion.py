"""Arrow columns converted to declared types by the rules of ``model.conversion``.

Arrow's own casts do what they are known to check. Every other column, and every column that a cast refuses, is
converted value by value, by the rules themselves: so a refusal names row and value, and all kinds of input agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.errors import NovaError, SchemaMismatch
from nova_assets.model.arrow_types import arrow_type, spark_type
from nova_assets.model.conversion import RULES, TYPED, InputKind, ValueClass, convert
from nova_assets.model.schema import DELETED, DataType, Schema, widens

_is = pa.types


def convert_table(
    table: pa.Table, schema: Schema | None, kind: InputKind = TYPED, *, evolves: bool = False, first_row: int = 1
) -> pa.Table:
    """A user's table with the columns of a schema in their declared types.

    A column that no rule converts is left as it is: ``model.evolution.reconcile`` names all such columns at once.

    Args:
        schema: the channel's; None leaves the types as they are.
        evolves: the channel takes wider types: a column of a wider type is left as it is.
        first_row: what the first row is called in an error.

    Raises:
        SchemaMismatch: a value that the rules refuse, with its column and row.
    """
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        column = plain_column(column, name)
        if kind.nan_is_null and _is.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if name == DELETED:
            column = deletion_mark(column)
        elif schema is not None and name in schema:
            column = _convert_column(column, schema.field(name).type, name, kind, evolves, first_row)
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.column_names)


def convert_values(
    values: Iterable[Any], type_: DataType, name: str, kind: InputKind, first_row: int = 1
) -> pa.ChunkedArray:
    """A column of a declared type out of Python values. Raises SchemaMismatch with the row of a refused value."""
    converted = []
    for number, value in enumerate(values, start=first_row):
        try:
            converted.append(convert(value, type_, kind))
        except ValueError as error:
            raise SchemaMismatch(
                f"row {number} has a value of another type in column {name!r}",
                found=str(error),
                expected=f"{type_}: see the conversion table in the reference",
                next="convert the value, or leave the row out",
                column=name,
                row=number,
            ) from error
    array = pa.array(converted, arrow_type(type_))
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def inferred_values(values: Iterable[Any], inferred: pa.Array, name: str, kind: InputKind) -> pa.ChunkedArray:
    """A column whose type Arrow infers from its values. Arrow cuts off what the type cannot hold, so each value is
    converted to that type by the rules for declared types.

    Args:
        inferred: what Arrow makes of the values.

    Raises:
        SchemaMismatch: with the row of a value that is not exactly one of the type.
    """
    column = inferred if isinstance(inferred, pa.ChunkedArray) else pa.chunked_array([inferred])
    try:
        type_ = spark_type(column.type, name)
    except NovaError:  # of a type of no channel, which is refused with all the others
        return column
    return column if has_unknown_part(column.type) else convert_values(values, type_, name, kind.inferred)


def has_unknown_part(type_: pa.DataType) -> bool:
    """Whether a type, or a part of it, is that of nothing but nulls."""
    if _is.is_null(type_):
        return True
    if _is.is_dictionary(type_) or not _is.is_nested(type_):
        return False
    return any(has_unknown_part(type_.field(n).type) for n in range(type_.num_fields))


def deletion_mark(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column ``_deleted``. Raises SchemaMismatch where it is not boolean."""
    if _is.is_null(column.type):
        return column.cast(pa.bool_())
    if not _is.is_boolean(column.type):
        raise SchemaMismatch(
            f"column {DELETED!r} is {column.type}", expected="boolean: true for a deletion", column=DELETED
        )
    return column


# types whose values are all written out


def plain_type(type_: pa.DataType) -> pa.DataType:
    """A type without dictionaries and views."""
    if _is.is_dictionary(type_):
        return plain_type(type_.value_type)
    if _is.is_string_view(type_):
        return pa.string()
    if _is.is_binary_view(type_):
        return pa.binary()
    if _is.is_list(type_) or _is.is_list_view(type_):
        return pa.list_(_plain_field(type_.value_field))
    if _is.is_large_list(type_) or _is.is_large_list_view(type_):
        return pa.large_list(_plain_field(type_.value_field))
    if _is.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if _is.is_struct(type_):
        return pa.struct([_plain_field(type_.field(n)) for n in range(type_.num_fields)])
    if _is.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field), type_.keys_sorted)
    return type_


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def plain_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """A column whose values are all written out.

    Raises:
        SchemaMismatch: Arrow cannot write them out.
    """
    target = plain_type(column.type)
    if target == column.type:
        return column
    try:
        if _is.is_dictionary(column.type):  # of polars: Arrow has no kernel that takes views by an index
            return pa.chunked_array([_decoded(chunk, target) for chunk in column.chunks], target)
        return column.cast(target)
    except pa.ArrowException:
        try:
            return pa.chunked_array([pa.array(column.to_pylist(), target)], target)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise SchemaMismatch(
                f"column {name!r} cannot be written out", found=f"{column.type}: {error}", next="cast the column first"
            ) from error


def _decoded(chunk: pa.DictionaryArray, target: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(target)).dictionary_decode()


# columns


def _convert_column(
    column: pa.ChunkedArray, declared: DataType, name: str, kind: InputKind, evolves: bool, first_row: int
) -> pa.ChunkedArray:
    target = arrow_type(declared)
    if column.type == target and not (kind.nan_is_null and _is.is_nested(target)):
        return column
    if _is.is_null(column.type):
        return column.cast(target)
    if not may_convert(column.type, declared):
        return column
    stays = evolves and _is_wider(column.type, declared, name)
    if stays and kind is TYPED:
        return column
    exact = None if kind.nan_is_null and _is.is_nested(target) else _cast_exactly(column, target)
    if exact is not None:
        return exact
    try:
        return convert_values(_python_values(column, name, first_row), declared, name, kind, first_row)
    except SchemaMismatch:
        if stays:
            return column
        raise


def may_convert(source: pa.DataType, declared: DataType) -> bool:
    """Whether some rule converts values of an Arrow type."""
    if _is.is_null(source):
        return True
    if value_class_of(source) not in RULES[declared.name]:
        return False
    fields = declared.fields
    if declared.name == "array":
        return may_convert(source.value_type, fields[0].type)
    if declared.name == "map":
        same = _is.is_map(source) and may_convert(source.key_type, fields[0].type)
        return same and may_convert(source.item_type, fields[1].type)
    if declared.name == "struct":
        types = {f.name: f.type for f in fields}
        return _is.is_struct(source) and all(f.name in types and may_convert(f.type, types[f.name]) for f in source)
    return True


def value_class_of(type_: pa.DataType) -> ValueClass | None:
    """The class of the values of an Arrow type; None for a type of no channel."""
    if _is.is_timestamp(type_):
        return "local time" if type_.tz is None else "instant"
    return next((name for test, name in _CLASSES if test(type_)), None)


_CLASSES: tuple[tuple[Any, ValueClass], ...] = (
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


def _is_wider(source: pa.DataType, declared: DataType, name: str) -> bool:
    try:
        return widens(declared, spark_type(source, name))
    except NovaError:  # Spark has no such type
        return False


def _python_values(column: pa.ChunkedArray, name: str, first_row: int) -> Iterator[Any]:
    for number, scalar in enumerate(column, start=first_row):
        try:
            yield scalar.as_py()
        except (ValueError, OverflowError, pa.ArrowException) as error:  # a date that Python does not have
            raise SchemaMismatch(
                f"row {number} has a value out of range in column {name!r}",
                found=f"{scalar}: {error}",
                expected="the years 0001 to 9999, where a value is converted",
                column=name,
                row=number,
            ) from error


def _cast_exactly(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray | None:
    """The column, cast by Arrow; None where Arrow does not say whether each value stays what it is."""
    source = column.type
    if not _is_checked_by_arrow(source, target):
        return None
    try:
        result = column.cast(target, safe=True)
    except pa.ArrowException:
        return None
    if _is.is_floating(source) and _is.is_floating(target):
        return result if _are_near(column, result) else None
    if _is.is_timestamp(source) and _is.is_date(target):
        return result if result.cast(source).equals(column) else None
    return result


def _is_checked_by_arrow(source: pa.DataType, target: pa.DataType) -> bool:
    if source == target or _is.is_null(source):
        return True
    if _is.is_nested(source):
        return _is_nested_alike(source, target)
    pair = (value_class_of(source), value_class_of(target))
    return pair in _CHECKED


_CHECKED: frozenset[tuple[ValueClass | None, ValueClass | None]] = frozenset(
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


def _is_nested_alike(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether two nested types differ in nothing but what a plain cast checks within them."""
    if _is.is_struct(source) and [f.name for f in source] != [f.name for f in target]:
        return False
    if _is.is_fixed_size_list(source):
        return False
    inner = [(source.field(n).type, target.field(n).type) for n in range(source.num_fields)]
    return all(
        (
            _is_checked_by_arrow(a, b)
            and (value_class_of(a), value_class_of(b)) not in {("float", "float"), ("local time", "date")}
        )
        or a == b
        for a, b in inner
    )


def _are_near(column: pa.ChunkedArray, result: pa.ChunkedArray) -> bool:
    """Whether floats of another size are those that the rules take; the few of which this cannot say are none."""
    before = pc.fill_null(column, 0.0).cast(pa.float64()).to_numpy()
    after = pc.fill_null(result, 0.0).cast(pa.float64()).to_numpy()
    with np.errstate(invalid="ignore"):
        near = (np.abs(before - after) < 0.5) & ((after != 0) | (before == 0))
    return bool((near | ((before == after) | (np.isnan(before) & np.isnan(after)))).all())
