"""Columns by their exact names, whatever those are, and values in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t


def col(name: str) -> Column:
    """A column called ``a.b`` or ``52 week low`` as itself."""
    return F.col("`" + name.replace("`", "``") + "`")


def struct_of_columns(names: Iterable[str]) -> Column:
    """Some columns as one."""
    return F.struct(*(col(n).alias(n) for n in names))


def maps_to_sorted_arrays(value: Column, type_: t.DataType) -> Column:
    """A value that is equal when and only when the given one is; Spark compares no maps, so they become sorted
    lists."""
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
