"""Columns of Spark frames in wider types. No value changes."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from nova_assets.engine.rows.spark_types import to_spark_type
from nova_assets.model.schema import DataType
from nova_assets.model.type_widening import has_other_fields


def widen_column(value: Column, from_type: DataType, to_type: DataType) -> Column:
    """Column in a type to which ``model.type_widening.can_widen`` allows to widen it.

    Spark casts structs by position, and only if they have equally many fields. So structs with other fields are built
    anew.
    """
    if not has_other_fields(from_type, to_type):
        return value.cast(to_spark_type(to_type))
    if to_type.name != "struct":
        parts = [(a.type, b.type) for a, b in zip(from_type.fields, to_type.fields, strict=True)]
        if to_type.name == "array":
            return F.transform(value, lambda element: widen_column(element, *parts[0]))
        with_keys = F.transform_keys(value, lambda key, _: widen_column(key, *parts[0]))
        return F.transform_values(with_keys, lambda _, item: widen_column(item, *parts[1]))
    types = {f.name: f.type for f in from_type.fields}
    fields = [
        (widen_column(value[f.name], types[f.name], f.type) if f.name in types else F.lit(None))
        .cast(to_spark_type(f.type))
        .alias(f.name)
        for f in to_type.fields
    ]
    return F.when(value.isNotNull(), F.struct(*fields))
