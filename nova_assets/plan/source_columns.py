"""Types of other systems in Spark, and the differences between a source's columns and a channel's. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from nova_assets.errors import SchemaMismatch
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import SourceColumn
from nova_assets.model.schema import DataType, Field, Schema

_PLAIN_TYPES = {
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "boolean": "boolean",
    "date": "date",
    "bytea": "binary",
}
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TIMESTAMP = re.compile(r"timestamp(?:\(\d\))? (with|without) time zone")

_WIDER_TYPES = {
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}
"""Types that represent every value of a narrower type."""

_MAX_PRECISION = 38
ORDERED_TYPES = ("smallint", "integer", "bigint", "date")
"""PostgreSQL types that an incremental column may have, beside timestamps with a time zone."""


def spark_type_of(source_type: str) -> DataType:
    """Spark type that represents every value of a PostgreSQL type exactly. Types without a twin are text."""
    if source_type in _PLAIN_TYPES:
        return DataType(_PLAIN_TYPES[source_type])
    if (match := _TIMESTAMP.fullmatch(source_type)) is not None:
        return DataType("timestamp" if match[1] == "with" else "timestamp_ntz")
    if (match := _NUMERIC.fullmatch(source_type)) is not None:
        precision, scale = int(match[1]), int(match[2])
        if 0 <= scale <= precision <= _MAX_PRECISION:
            return DataType("decimal", (precision, scale))
    return DataType("string")


def is_readable_as(column: SourceColumn, declared: DataType) -> bool:
    """Whether a channel's type represents the values of a source's column.

    Any column is readable as text. A decimal may be declared for a numeric column without a precision: a value that
    does not fit then fails the read.
    """
    own = column.type
    if str(own) == str(declared) or declared.name == "string" or declared.name in _WIDER_TYPES.get(own.name, ()):
        return True
    if declared.name != "decimal":
        return False
    precision, scale = declared.args or (10, 0)
    if own.name == "decimal":
        return scale >= own.args[1] and precision - scale >= own.args[0] - own.args[1]
    return column.source_type.startswith("numeric")


def is_ordered_type(source_type: str) -> bool:
    """Whether a column of this type can be incremental."""
    return source_type in ORDERED_TYPES or is_timestamp_with_zone(source_type)


def is_timestamp_with_zone(source_type: str) -> bool:
    match = _TIMESTAMP.fullmatch(source_type)
    return match is not None and match[1] == "with"


def match_columns(channel_name: str, schema: Schema, columns: Sequence[SourceColumn]) -> dict[str, SourceColumn]:
    """Declared column -> the source's column: the one with the same name, or the only one with the same letters.

    Raises:
        SchemaMismatch: columns are missing in the source, or have types that the declared types do not represent.
    """
    matches = {f.name: find_column(f.name, columns) for f in schema.fields}
    problems = [
        f"{name} is missing" if column is None else f"{name} is {column.source_type}, not {schema.field(name).type}"
        for name, column in matches.items()
        if column is None or not is_readable_as(column, schema.field(name).type)
    ]
    if problems:
        raise SchemaMismatch(
            f"external channel {channel_name!r} has other columns than its source",
            found="; ".join(problems),
            expected=", ".join(map(str, schema.fields)),
            next=f"nova external check {channel_name}",
            channel=channel_name,
        )
    return {name: column for name, column in matches.items() if column is not None}


def find_column(name: str, columns: Sequence[SourceColumn]) -> SourceColumn | None:
    """Column of a name; with other letter case if only one such column exists."""
    exact = [c for c in columns if c.name == name]
    similar = exact or [c for c in columns if c.name.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A difference between a channel's columns and those of its source.

    Args:
        kind: ``added`` to the source, ``dropped`` from the source, or ``retyped`` in the source.
        declared: the type in the definition; None for an added column.
        actual: the type that represents the source's column; None for a dropped column.
        breaking: whether the channel cannot be refreshed until its definition follows, or its readers lose a column.
    """

    column: str
    kind: Literal["added", "dropped", "retyped"]
    declared: DataType | None
    actual: DataType | None
    breaking: bool

    @property
    def text(self) -> str:
        if self.kind == "added":
            return f"{self.column} {self.actual} was added"
        if self.kind == "dropped":
            return f"{self.column} {self.declared} was dropped"
        return f"{self.column} {self.declared} is now {self.actual}"


def column_changes(channel: Channel, columns: Sequence[SourceColumn]) -> tuple[ColumnChange, ...]:
    """Differences between a channel's columns and those of its source, in the channel's order, then the added ones.

    Partition columns of files are in the names of their folders, so files may lack them.
    """
    assert channel.schema is not None and channel.external is not None
    is_database = channel.external.database is not None
    in_folder_names = set() if is_database else {c.lower() for c in channel.partition_columns}
    fields = [f for f in channel.schema.fields if f.name.lower() not in in_folder_names]
    if is_database:
        is_readable = is_readable_as
    else:
        is_readable = is_file_readable_as if channel.external.metastore_table is None else is_hive_type_readable_as
    changes = [c for f in fields if (c := _change_of_field(f, columns, is_readable)) is not None]
    declared = {f.name.lower() for f in channel.schema.fields}
    changes += [ColumnChange(c.name, "added", None, c.type, False) for c in columns if c.name.lower() not in declared]
    return tuple(changes)


def is_file_readable_as(column: SourceColumn, declared: DataType) -> bool:
    """Whether a column of a file is readable as a type. Older files have timestamps without a zone that mean UTC."""
    return str(column.type) == str(declared) or (column.type.name, declared.name) == ("timestamp_ntz", "timestamp")


def is_hive_type_readable_as(column: SourceColumn, declared: DataType) -> bool:
    """Whether a column of a Hive metastore is readable as a type. Whether a timestamp has a zone, the files decide."""
    is_timestamp = {column.type.name, declared.name} <= {"timestamp", "timestamp_ntz"}
    return str(column.type).lower() == str(declared).lower() or is_timestamp


def _change_of_field(
    field: Field, columns: Sequence[SourceColumn], is_readable: Callable[[SourceColumn, DataType], bool]
) -> ColumnChange | None:
    column = find_column(field.name, columns)
    if column is None:
        return ColumnChange(field.name, "dropped", field.type, None, True)
    if is_readable(column, field.type):
        return None
    return ColumnChange(field.name, "retyped", field.type, column.type, True)
