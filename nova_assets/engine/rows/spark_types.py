"""Conversion between schemas and Spark's StructTypes. Needs no session."""

from __future__ import annotations

from pyspark.sql import types as t

from nova_assets.errors import SchemaMismatch
from nova_assets.model.schema import DataType, Field, Schema

_SIMPLE: dict[str, t.DataType] = {
    "boolean": t.BooleanType(),
    "tinyint": t.ByteType(),
    "smallint": t.ShortType(),
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestampType(),
    "timestamp_ntz": t.TimestampNTZType(),
}
_NAMES = {type(kind): name for name, kind in _SIMPLE.items()} | {t.VarcharType: "string", t.CharType: "string"}


def to_struct(schema: Schema) -> t.StructType:
    """Schema as a Spark StructType, for reading files or casting."""
    return t.StructType([t.StructField(f.name, to_spark_type(f.type), f.nullable) for f in schema.fields])


def to_spark_type(type_: DataType) -> t.DataType:
    if type_.name == "decimal":
        return t.DecimalType(*type_.args)
    if type_.name == "array":
        return t.ArrayType(to_spark_type(type_.fields[0].type))
    if type_.name == "map":
        return t.MapType(to_spark_type(type_.fields[0].type), to_spark_type(type_.fields[1].type))
    if type_.name == "struct":
        return t.StructType([t.StructField(f.name, to_spark_type(f.type), f.nullable) for f in type_.fields])
    return _SIMPLE[type_.name]


def from_struct(struct: t.StructType) -> Schema:
    """Schema of a frame. Every column is nullable, since Spark's inference about nulls is not a promise of the author.

    Raises:
        SchemaMismatch: a column has a type that channels do not support.
    """
    return Schema(tuple(Field(f.name, from_spark_type(f.dataType, f.name)) for f in struct.fields))


def from_spark_type(type_: t.DataType, column: str) -> DataType:
    if isinstance(type_, t.DecimalType):
        return DataType("decimal", (type_.precision, type_.scale))
    if isinstance(type_, t.ArrayType):
        return DataType("array", fields=(Field("element", from_spark_type(type_.elementType, column)),))
    if isinstance(type_, t.MapType):
        key, value = from_spark_type(type_.keyType, column), from_spark_type(type_.valueType, column)
        return DataType("map", fields=(Field("key", key, nullable=False), Field("value", value)))
    if isinstance(type_, t.StructType) and type_.fields:
        fields = tuple(Field(f.name, from_spark_type(f.dataType, column), f.nullable) for f in type_.fields)
        return DataType("struct", fields=fields)
    if isinstance(type_, t.NullType):
        raise SchemaMismatch(
            f"column {column!r} has no type, because all its values are null",
            found="void",
            expected="a type",
            next=f'F.lit(None).cast("string").alias("{column}"), with the type that the channel declares',
            column=column,
        )
    name = _NAMES.get(type(type_))
    if name is None:
        raise SchemaMismatch(
            f"column {column!r} has a type that channels do not support",
            found=type_.simpleString(),
            expected=f"one of {', '.join(sorted(_SIMPLE))}, decimal, array, map or struct with fields",
            next="cast the column first",
            column=column,
        )
    return DataType(name)
