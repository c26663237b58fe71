"""Checks of Parquet footers: types that Arrow reads as their encodings, and damage that Arrow does not notice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from nova_assets.errors import BadRecord, SchemaMismatch

_GROUP = re.compile(
    r"( *)(?:required|optional|repeated) group field_id=-?\d+ (.*?)(?: \((?:(Variant)\(\d+\)|List|Map)\))? {"
)
"""Group in the text of a Parquet schema: its depth, its name, and its logical type if that is Variant. pyarrow has no
other access to the logical type of a group."""

_ENCODED_TYPES = frozenset({"GEOMETRY", "GEOGRAPHY", "INTERVAL", "UNDEFINED"})
"""UNDEFINED is a type that Arrow does not know, for example a later one, or a damaged one."""

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"


_REPETITION = re.compile(r" *(required|optional|repeated|}).*")
"""Line of the text of a Parquet schema. Arrow reads a column without a valid repetition as required."""


def check_parquet_footer(footer: pq.FileMetaData, file_name: str) -> None:
    """Check that a footer agrees with itself, because nothing else tells a turned bit in it.

    Args:
        file_name: name of the file in errors.

    Raises:
        BadRecord: the footer is damaged. Arrow would read other rows, or fewer.
    """
    row_count = sum(footer.row_group(n).num_rows for n in range(footer.num_row_groups))
    paths = [footer.schema.column(n).path for n in range(len(footer.schema))]
    _, *lines = str(footer.schema).split("\n")
    if row_count != footer.num_rows:
        found = f"a footer with {footer.num_rows} rows, and {row_count} rows in its row groups"
    elif not any("\n" in path for path in paths) and not all(map(_REPETITION.fullmatch, filter(None, lines))):
        found = "a footer with a column that is neither required, nor optional, nor repeated"
    else:
        return
    raise damaged_file_error(file_name, found)


def damaged_file_error(file_name: str, found: str) -> BadRecord:
    """Error for a Parquet file with damage that Arrow does not notice."""
    return BadRecord(
        f"{file_name}: the Parquet file is damaged",
        found=found,
        expected="a file as its writer wrote it",
        next="fetch the file again, or let its writer write it again",
        file=file_name,
    )


def check_parquet_types(footer: pq.FileMetaData, file_name: str) -> None:
    """Check that the columns of a file have types that Arrow reads as what they mean.

    Args:
        file_name: name of the file in errors.

    Raises:
        SchemaMismatch: with the first other column.
    """
    for column, type_name in (*_logical_types(footer), *_interval_types_of_spark(footer)):
        raise SchemaMismatch(
            f"{file_name}: column {column!r} has a type that channels do not support",
            found=type_name,
            next="write the column as text, bytes, numbers or structs",
            column=column,
        )


def may_be_julian(footer: pq.FileMetaData) -> bool:
    """Whether Spark wrote a file in the notation of its version 2, which counts old days in the Julian calendar."""
    metadata = footer.metadata or {}
    return any(key.startswith(b"org.apache.spark.legacy") for key in metadata) or metadata.get(
        b"org.apache.spark.version", b"3"
    ).startswith((b"1.", b"2."))


def _logical_types(footer: pq.FileMetaData) -> Iterator[tuple[str, str]]:
    """Columns with a type that Arrow reads as its encoding, and these types."""
    names = footer.schema.to_arrow_schema().names
    for column in (footer.schema.column(n) for n in range(len(footer.schema))):
        types = {column.logical_type.type, column.converted_type}
        if types & _ENCODED_TYPES:
            name = next((n for n in names if f"{column.path}.".startswith(f"{n}.")), column.path)
            is_unknown = column.logical_type.type == "UNDEFINED"
            yield name, "a logical type that Arrow does not know" if is_unknown else str(column.logical_type)
    name = ""
    for match in map(_GROUP.fullmatch, str(footer.schema).splitlines()):
        if match is not None:
            name = match[2] if len(match[1]) == 2 else name
            if match[3] is not None:
                yield name, match[3]


def _interval_types_of_spark(footer: pq.FileMetaData) -> Iterator[tuple[str, str]]:
    """Columns with intervals, which Spark writes as numbers."""
    try:
        fields = json.loads((footer.metadata or {}).get(_SPARK_SCHEMA, b'{"fields": []}'))["fields"]
        types = [(field["name"], _interval_type(field["type"])) for field in fields]
    except (ValueError, TypeError, KeyError):  # another program wrote the text
        return
    yield from ((name, type_) for name, type_ in types if type_ is not None)


def _interval_type(type_: Any) -> str | None:
    """First interval in Spark's JSON form of a type; None if there is none."""
    if isinstance(type_, str):
        return type_ if type_.startswith("interval") else None
    parts = [type_.get(key) for key in ("elementType", "keyType", "valueType")]
    parts += [field["type"] for field in type_.get("fields") or ()]
    return next((found for part in parts if part is not None and (found := _interval_type(part))), None)
