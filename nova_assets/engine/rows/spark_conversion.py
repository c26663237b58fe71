"""Conversion of Spark frames to declared types by the rules of ``model.value_conversion``, at evaluation time."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.rows.spark_columns import col
from nova_assets.engine.rows.spark_types import from_struct, to_spark_type
from nova_assets.engine.rows.spark_versions import try_cast
from nova_assets.errors import SchemaMismatch
from nova_assets.formats.column_conversion import is_convertible
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DataType, Schema
from nova_assets.model.schema_evolution import can_widen

_ERROR_MARK = "nova-conversion"
_ERROR_PATTERN = re.compile(rf"{_ERROR_MARK}\[(.*?)\]\[(.*?)\]\[(.*?)\]{_ERROR_MARK}", re.DOTALL)


def convert_frame(frame: DataFrame, schema: Schema | None, *, allow_widening: bool) -> DataFrame:
    """User's frame with the columns of a schema in their declared types. Nothing is evaluated.

    A column that no rule converts stays unchanged: ``model.schema_evolution.reconcile_schema`` reports all such columns
    at once. The evaluation fails at a value that the rules reject. ``parse_conversion_error`` then returns the error
    for it.

    Args:
        schema: schema of the channel; None leaves the types unchanged.
        allow_widening: whether the channel accepts wider types. A column of a wider type then stays unchanged.
    """
    if schema is None:
        return frame
    for field in from_struct(frame.schema).fields:
        if field.name not in schema:
            continue
        declared = schema.field(field.name).type
        stays_unchanged = can_widen(field.type, declared) or (allow_widening and can_widen(declared, field.type))
        if not stays_unchanged and is_convertible(arrow_type(field.type), declared):
            frame = frame.withColumn(field.name, _convert_column(col(field.name), field.type, declared, field.name))
    return frame


def parse_conversion_error(error: BaseException, error_label: str) -> SchemaMismatch | None:
    """Conversion error that ended an evaluation; None if it failed otherwise."""
    match = _ERROR_PATTERN.search(str(error))
    if match is None:
        return None
    name, value, type_ = match.groups()
    return SchemaMismatch(
        f"{error_label}: column {name!r} has a value of another type",
        found=f"{value} is no {type_}",
        expected=f"{type_}: see the conversion table in the reference",
        next="convert the value, or remove the row",
        column=name,
    )


def _convert_column(value: Column, source_type: DataType, declared_type: DataType, column: str) -> Column:
    if str(source_type) == str(declared_type):
        return value
    if declared_type.name == "array":
        element, inner = source_type.fields[0].type, declared_type.fields[0].type
        return F.transform(value, lambda v: _convert_column(v, element, inner, column))
    if declared_type.name == "map":
        keys, items = (f.type for f in source_type.fields)
        key, item = (f.type for f in declared_type.fields)
        with_keys = F.transform_keys(value, lambda k, _: _convert_column(k, keys, key, column))
        return F.transform_values(with_keys, lambda _, v: _convert_column(v, items, item, column))
    if declared_type.name == "struct":
        types = {f.name: f.type for f in source_type.fields}
        error_parts = [
            _convert_column(value[f.name], types[f.name], f.type, column) if f.name in types else F.lit(None)
            for f in declared_type.fields
        ]
        cast_fields = [
            p.cast(to_spark_type(f.type)).alias(f.name) for p, f in zip(error_parts, declared_type.fields, strict=True)
        ]
        return F.when(value.isNotNull(), F.struct(*cast_fields))
    result = _cast_column(value, source_type, declared_type)
    error_parts = [F.lit(f"{_ERROR_MARK}[{column}]["), value.cast("string"), F.lit(f"][{declared_type}]{_ERROR_MARK}")]
    conversion_error = F.raise_error(F.concat(*error_parts)).cast(to_spark_type(declared_type))
    return F.when(value.isNull() | _is_conversion_exact(value, result, source_type, declared_type), result).otherwise(
        conversion_error
    )


def _cast_column(value: Column, source_type: DataType, declared_type: DataType) -> Column:
    if (source_type.name, declared_type.name) == (
        "timestamp_ntz",
        "timestamp",
    ):  # UTC, independent of the session's zone
        return F.concat(value.cast("string"), F.lit("Z")).cast("timestamp")
    return try_cast(value, to_spark_type(declared_type))


def _is_conversion_exact(value: Column, converted: Column, source_type: DataType, declared_type: DataType) -> Column:
    """Whether a conversion preserves a value: the value survives a cast back, or, for floats, the result is the nearest
    float."""
    if declared_type.name == "timestamp":
        return converted.isNotNull()
    if declared_type.name not in ("float", "double") or source_type.name not in ("float", "double", "decimal"):
        return F.coalesce(try_cast(converted, to_spark_type(source_type)) == value, F.lit(False))
    number, converted_number = value.cast("double"), converted.cast("double")
    if source_type.name == "decimal":
        converted_back = try_cast(
            converted.cast("string"), to_spark_type(DataType("decimal", (38, source_type.args[1])))
        )
        return F.coalesce(F.abs(converted_back - value) < F.lit(0.5), F.lit(False))
    is_near = (F.abs(converted_number - number) < F.lit(0.5)) & ((converted_number != 0) | (number == 0))
    has_equal_text = (F.abs(number) >= F.lit(1e16)) & (converted.cast("string") == value.cast("string"))
    is_infinite = F.abs(number) == F.lit(float("inf"))
    return F.isnan(number) | is_near | ((F.abs(converted_number) != F.lit(float("inf"))) & has_equal_text) | is_infinite
