"""Canonical form of keys (``model/value_comparison``), for Arrow and for Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.model.partition_values import has_unequal_representations
from nova_assets.model.schema import DataType, Schema

if TYPE_CHECKING:
    from pyspark.sql import Column


def columns_to_canonicalize(schema: Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Columns among the given names whose values need a canonical form before they are written."""
    return tuple(n for n in names if n in schema and has_unequal_representations(schema.field(n).type))


def canonicalize_columns(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Table with canonical values in the given columns."""
    for name in columns:
        index = table.schema.get_field_index(name)
        chunks = [canonicalize_array(chunk) for chunk in table.column(index).chunks]
        table = table.set_column(index, table.schema.field(index), pa.chunked_array(chunks, table.column(index).type))
    return table


def canonicalize_array(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_floating(type_):
        positive = pc.add(array, pa.scalar(0.0, type_))  # -0.0 + 0.0 = 0.0
        return pc.if_else(pc.is_nan(positive), pa.scalar(float("nan"), type_), positive)
    if pa.types.is_struct(type_):
        fields = [canonicalize_array(field) for field in array.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=array.is_null())
    if pa.types.is_list(type_):
        offsets = pa.array(np.array(array.offsets), pa.int32())
        return pa.ListArray.from_arrays(offsets, canonicalize_array(array.values), type=type_, mask=array.is_null())
    return array


def canonicalize_spark_column(value: Column, type_: DataType) -> Column:
    """Spark column with canonical values."""
    from pyspark.sql import functions as F

    from nova_assets.engine.rows.spark_types import to_spark_type

    if not has_unequal_representations(type_):
        return value
    if type_.name == "array":
        return F.transform(value, lambda e: canonicalize_spark_column(e, type_.fields[0].type))
    if type_.name == "struct":
        fields = [canonicalize_spark_column(value.getField(f.name), f.type).alias(f.name) for f in type_.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    kind = to_spark_type(type_)
    nan, zero = F.lit(float("nan")).cast(kind), F.lit(0.0).cast(kind)
    return F.when(F.isnan(value), nan).when(value == zero, zero).otherwise(value)
