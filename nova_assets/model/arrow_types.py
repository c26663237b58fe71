"""Conversion between Spark's and Arrow's types. Importing this module loads pyarrow, so import it only on demand."""

from __future__ import annotations

import pyarrow as pa

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import DataType, Field, Schema

_TO_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def to_arrow_schema(schema: Schema) -> pa.Schema:
    """Arrow schema of the Parquet files that Spark writes: microsecond timestamps, ``timestamp`` in UTC."""
    return pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in schema.fields])


def arrow_type(type_: DataType) -> pa.DataType:
    if type_.name == "decimal":
        return pa.decimal128(*type_.args)
    if type_.name == "array":
        return pa.list_(pa.field("element", arrow_type(type_.fields[0].type)))
    if type_.name == "map":
        return pa.map_(arrow_type(type_.fields[0].type), arrow_type(type_.fields[1].type))
    if type_.name == "struct":
        return pa.struct([pa.field(f.name, arrow_type(f.type), f.nullable) for f in type_.fields])
    return _TO_ARROW[type_.name]


def from_arrow_schema(schema: pa.Schema) -> Schema:
    """Spark schema for Arrow data. Unsigned integers become the next wider signed type."""
    return Schema(tuple(Field(f.name, spark_type(f.type, f.name), f.nullable) for f in schema))


def spark_type(type_: pa.DataType, column: str) -> DataType:
    t = pa.types
    if t.is_dictionary(type_):
        return spark_type(type_.value_type, column)
    if t.is_decimal(type_) and type_.precision <= 38 and 0 <= type_.scale <= type_.precision:
        return DataType("decimal", (type_.precision, type_.scale))
    if t.is_map(type_):
        key, item = spark_type(type_.key_type, column), spark_type(type_.item_type, column)
        return DataType("map", fields=(Field("key", key, nullable=False), Field("value", item)))
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return DataType("array", fields=(Field("element", spark_type(type_.value_type, column)),))
    if t.is_struct(type_):
        if not type_.num_fields:
            raise DefinitionError(
                f"column {column!r} has a struct without fields, which Parquet cannot hold",
                found=str(type_),
                next="give the struct a field, or leave the column out",
            )
        return DataType("struct", fields=tuple(Field(f.name, spark_type(f.type, column), f.nullable) for f in type_))
    for test, name in _SPARK_TYPE_BY_ARROW_TEST:
        if test(type_):
            return DataType(name)
    if t.is_timestamp(type_):
        return DataType("timestamp" if type_.tz else "timestamp_ntz")
    cast = "declare the column as decimal(20,0), or cast it" if t.is_uint64(type_) else "cast the column first"
    raise DefinitionError(f"column {column!r} has the Arrow type {type_}, which Spark has no type for", next=cast)


_SPARK_TYPE_BY_ARROW_TEST = [
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_uint8, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_uint16, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_uint32, "bigint"),
    (pa.types.is_float16, "float"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date, "date"),
    (pa.types.is_null, "string"),
]
