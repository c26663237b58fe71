"""Tables and partitions as a Hive metastore describes them: formats, types and locations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_assets.errors import NotSupported
from nova_assets.model.schema import DataType

_INPUT_FORMATS: Mapping[str, str] = {
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat": "parquet",
    "parquet.hive.DeprecatedParquetInputFormat": "parquet",
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat": "orc",
}

PARQUET_STORAGE = (
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
)
"""Input format, output format and serializer of Parquet files."""

_HIVE_TYPES = frozenset(
    {"tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary", "boolean", "date"}
    | {"timestamp", "array", "map", "struct", "char", "varchar"}
)
"""Types that have the same name and meaning in Hive and Spark."""

_LOCAL_SCHEMES = ("file:///", "file:/")


def storage_format(storage: Any) -> str:
    """Format of the files of a table or partition: ``parquet``, ``orc``, or the class of an unknown format."""
    return _INPUT_FORMATS.get(storage.inputFormat or "", storage.inputFormat or "no format")


def unsupported_table_kind(table: Any) -> str | None:
    """Kind of a table whose files alone do not show its rows; None if they do."""
    parameters = {k.lower(): (v or "").lower() for k, v in (table.parameters or {}).items()}
    if "VIEW" in (table.tableType or ""):
        return "a view"
    if parameters.get("table_type") == "iceberg" or "iceberg" in parameters.get("storage_handler", ""):
        return "an Iceberg table"
    if parameters.get("transactional") == "true":
        return "a transactional table of Hive"
    provider = parameters.get("spark.sql.sources.provider", "")
    if provider in ("delta", "hudi", "iceberg"):
        return f"a table of {provider}"
    if provider and [c.comment for c in table.sd.cols or ()] == ["from deserializer"]:
        return "a table whose columns only Spark knows"
    return f"a table of {parameters['storage_handler']}" if parameters.get("storage_handler") else None


def nova_address(location: str) -> str | None:
    """Address of a folder as nova writes it, from a metastore's location; None if nova cannot read there."""
    for scheme in _LOCAL_SCHEMES:
        if location.startswith(scheme):
            return "/" + location.removeprefix(scheme).strip("/")
    scheme, separator, rest = location.partition("://")
    if not separator:
        return location.rstrip("/") if location.startswith("/") else None
    if scheme in ("s3", "s3a", "s3n"):
        return f"s3://{rest.rstrip('/')}"
    return f"hdfs://{rest.rstrip('/')}" if scheme == "hdfs" and not rest.startswith("/") else None


def hive_location(address: str) -> str:
    """Location as a metastore records it, from nova's address of a folder."""
    return address if "://" in address else f"file:{address}"


def hive_type(type_: DataType, column: str) -> str:
    """Type of a column as Hive writes it.

    Raises:
        NotSupported: Hive has no type with this meaning.
    """
    if type_.name not in _HIVE_TYPES:
        raise NotSupported(
            f"column {column!r} cannot be registered in a Hive metastore, which has no such type",
            found=str(type_),
            expected="types of Hive: " + ", ".join(sorted(_HIVE_TYPES)),
            next="publish an Iceberg table instead, or leave metastore= out",
        )
    if type_.name == "struct":
        fields = ",".join(f"{_nested_name(f.name, column)}:{hive_type(f.type, column)}" for f in type_.fields)
        return f"struct<{fields}>"
    if type_.fields:
        return f"{type_.name}<{','.join(hive_type(f.type, column) for f in type_.fields)}>"
    return str(type_)


def _nested_name(name: str, column: str) -> str:
    if not name.replace("_", "a").isalnum():
        raise NotSupported(
            f"column {column!r} cannot be registered in a Hive metastore: Hive cannot write the name of a nested field",
            found=name,
            expected="letters, digits and underscores",
            next="rename the field, publish an Iceberg table instead, or leave metastore= out",
        )
    return name
