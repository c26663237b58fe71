"""Spark columns by exact name, and values in a comparable form."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

_REPETITION = "__nova_repetition"


def col(name: str) -> Column:
    """Column by its literal name, even if that is ``a.b`` or ``52 week low``."""
    return F.col("`" + name.replace("`", "``") + "`")


def struct_of_columns(names: Iterable[str]) -> Column:
    """Struct column of the given columns."""
    return F.struct(*(col(n).alias(n) for n in names))


def repeat_rows(rows: DataFrame, row: str, number: Column, columns: Iterable[str], *others: Column) -> DataFrame:
    """Each row as often as its number says, never for less than 1.

    Args:
        row: struct column with the row.
        columns: fields of the struct that become the columns of the result.
        others: further columns of the result.
    """
    repeated = rows.filter(number > 0).withColumn(_REPETITION, F.explode(F.sequence(F.lit(1), number)))
    return repeated.select(*(col(row).getField(c).alias(c) for c in columns), *others)


def maps_to_sorted_arrays(value: Column, type_: t.DataType) -> Column:
    """Comparable form of a value: two values are equal if and only if their forms are. Spark cannot compare maps, so
    they become sorted lists."""
    if not _contains_map(type_):
        return value
    if isinstance(type_, t.MapType):
        entries = F.map_entries(value)
        parts = F.transform(
            entries,
            lambda e: F.struct(e["key"].alias("k"), maps_to_sorted_arrays(e["value"], type_.valueType).alias("v")),
        )
        return F.array_sort(parts)
    if isinstance(type_, t.ArrayType):
        return F.transform(value, lambda e: maps_to_sorted_arrays(e, type_.elementType))
    assert isinstance(type_, t.StructType)
    fields = [maps_to_sorted_arrays(value.getField(f.name), f.dataType).alias(f.name) for f in type_.fields]
    return F.when(value.isNotNull(), F.struct(*fields))


def _contains_map(type_: t.DataType) -> bool:
    if isinstance(type_, t.ArrayType):
        return _contains_map(type_.elementType)
    if isinstance(type_, t.StructType):
        return any(_contains_map(f.dataType) for f in type_.fields)
    return isinstance(type_, t.MapType)
