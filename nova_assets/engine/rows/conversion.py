"""Columns of Spark frames converted to declared types by the rules of ``model.conversion``, when they are computed."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nova_assets.engine.rows.columns import col
from nova_assets.engine.rows.spark_types import from_struct, to_spark
from nova_assets.engine.rows.spark_versions import try_cast
from nova_assets.errors import SchemaMismatch
from nova_assets.formats.conversion import may_convert
from nova_assets.model.arrow_types import arrow_type
from nova_assets.model.schema import DataType, Schema, widens

_MARK = "nova-conversion"
_REFUSAL = re.compile(rf"{_MARK}\[(.*?)\]\[(.*?)\]\[(.*?)\]{_MARK}", re.DOTALL)


def convert_frame(frame: DataFrame, schema: Schema | None, *, evolves: bool) -> DataFrame:
    """A user's frame with the columns of a schema in their declared types. Evaluates nothing.

    A column that no rule converts is left as it is: ``model.evolution.reconcile`` names all such columns at once. The
    evaluation fails at a value that the rules refuse; ``refusal_of`` tells which.

    Args:
        schema: the channel's; None leaves the types as they are.
        evolves: the channel takes wider types: a column of a wider type is left as it is.
    """
    if schema is None:
        return frame
    for field in from_struct(frame.schema).fields:
        if field.name not in schema:
            continue
        declared = schema.field(field.name).type
        stays = widens(field.type, declared) or (evolves and widens(declared, field.type))
        if not stays and may_convert(arrow_type(field.type), declared):
            frame = frame.withColumn(field.name, _converted(col(field.name), field.type, declared, field.name))
    return frame


def refusal_of(error: BaseException, where: str) -> SchemaMismatch | None:
    """The refusal that ended an evaluation; None where something else did."""
    match = _REFUSAL.search(str(error))
    if match is None:
        return None
    name, value, type_ = match.groups()
    return SchemaMismatch(
        f"{where}: column {name!r} has a value of another type",
        found=f"{value} is no {type_}",
        expected=f"{type_}: see the conversion table in the reference",
        next="convert the value, or leave the row out",
        column=name,
    )


def _converted(value: Column, source: DataType, declared: DataType, name: str) -> Column:
    if str(source) == str(declared):
        return value
    if declared.name == "array":
        element, inner = source.fields[0].type, declared.fields[0].type
        return F.transform(value, lambda v: _converted(v, element, inner, name))
    if declared.name == "map":
        keys, items = (f.type for f in source.fields)
        key, item = (f.type for f in declared.fields)
        with_keys = F.transform_keys(value, lambda k, _: _converted(k, keys, key, name))
        return F.transform_values(with_keys, lambda _, v: _converted(v, items, item, name))
    if declared.name == "struct":
        types = {f.name: f.type for f in source.fields}
        parts = [
            _converted(value[f.name], types[f.name], f.type, name) if f.name in types else F.lit(None)
            for f in declared.fields
        ]
        cast = [p.cast(to_spark(f.type)).alias(f.name) for p, f in zip(parts, declared.fields, strict=True)]
        return F.when(value.isNotNull(), F.struct(*cast))
    result = _cast(value, source, declared)
    parts = [F.lit(f"{_MARK}[{name}]["), value.cast("string"), F.lit(f"][{declared}]{_MARK}")]
    refused = F.raise_error(F.concat(*parts)).cast(to_spark(declared))
    return F.when(value.isNull() | _is_exact(value, result, source, declared), result).otherwise(refused)


def _cast(value: Column, source: DataType, declared: DataType) -> Column:
    if (source.name, declared.name) == ("timestamp_ntz", "timestamp"):  # UTC, whatever the zone of the session is
        return F.concat(value.cast("string"), F.lit("Z")).cast("timestamp")
    return try_cast(value, to_spark(declared))


def _is_exact(value: Column, result: Column, source: DataType, declared: DataType) -> Column:
    """Whether a value is still what it was: cast back, it is the same; floats are the nearest."""
    if declared.name == "timestamp":
        return result.isNotNull()
    if declared.name not in ("float", "double") or source.name not in ("float", "double", "decimal"):
        return F.coalesce(try_cast(result, to_spark(source)) == value, F.lit(False))
    number, nearest = value.cast("double"), result.cast("double")
    if source.name == "decimal":
        back = try_cast(result.cast("string"), to_spark(DataType("decimal", (38, source.args[1]))))
        return F.coalesce(F.abs(back - value) < F.lit(0.5), F.lit(False))
    near = (F.abs(nearest - number) < F.lit(0.5)) & ((nearest != 0) | (number == 0))
    alike = (F.abs(number) >= F.lit(1e16)) & (result.cast("string") == value.cast("string"))
    infinite = F.abs(number) == F.lit(float("inf"))
    return F.isnan(number) | near | ((F.abs(nearest) != F.lit(float("inf"))) & alike) | infinite
