"""Rows of Parquet files that other systems keep (``outside``), without Spark, wherever that gives what Spark reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.storage import file_io
from nova_assets.formats import schema_fit
from nova_assets.model.arrow_types import arrow_type, spark_type
from nova_assets.model.block import Block
from nova_assets.model.partitions import partition_values
from nova_assets.model.schema import DataType, Field, Schema

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class Foreign:
    """One file.

    Args:
        names: what it calls a column -> what the channel does; in other small and great letters, maybe.
        told: the columns whose value its folder says, whatever is in the file.
        schema: of the rows that are read.
    """

    path: str
    footer: pq.FileMetaData
    names: Mapping[str, str]
    told: Mapping[str, pa.Scalar]
    schema: Schema

    def groups(self) -> Iterator[pa.Table]:
        """Its rows, a row group at a time."""
        return (self._group(n) for n in range(self.footer.num_row_groups))

    def _group(self, n: int) -> pa.Table:
        with file_io.opened(self.path, self.footer) as file:
            rows = file.read_row_group(n, list(self.names))
        rows = rows.rename_columns([self.names[c] for c in rows.column_names])
        for column, value in self.told.items():
            rows = rows.append_column(column, pa.repeat(value, rows.num_rows))
        return schema_fit.fit(rows, self.schema)


def foreign(block: Block, path: str, schema: Schema) -> Foreign | None:
    """A file of a block; None where only Spark knows what it reads there.

    Args:
        schema: the columns that are wanted.
    """
    relaxed = schema.relaxed()
    told = _told(block, relaxed)
    footer = file_io.footer_of(path)
    there = footer.schema.to_arrow_schema()
    given = {name.lower(): name for name in there.names}
    if told is None or len(given) < len(there.names):
        return None
    found = {given[f.name.lower()]: f for f in relaxed.fields if f.name not in told and f.name.lower() in given}
    if not all(_is_plain(there.field(name).type, field) for name, field in found.items()):
        return None
    return Foreign(path, footer, {name: f.name for name, f in found.items()}, told, relaxed)


def _told(block: Block, schema: Schema) -> dict[str, pa.Scalar] | None:
    """What a partition's name says of columns. It was written by what Spark reads in its folder (``plan/external``)."""
    found: dict[str, pa.Scalar] = {}
    for column, text in partition_values(block.partition).items():
        if column not in schema:
            continue
        type_ = schema.field(column).type
        if type_.name not in ("string", "boolean", "date", *_INTEGERS):
            return None
        found[column] = pa.scalar(None if text is None else _value(text, type_), arrow_type(type_))
    return found


def _value(text: str, type_: DataType) -> str | bool | date | int:
    if type_.name == "boolean":
        return text == "true"
    if type_.name == "date":
        return date.fromisoformat(text)
    return int(text) if type_.name in _INTEGERS else text


def _is_plain(given: pa.DataType, field: Field) -> bool:
    """Whether a column is of the declared type. Moments without a zone, and those that are finer than a microsecond as
    those of old files are, Spark reads by rules of its own."""
    return str(spark_type(given, field.name)) == str(field.type) and "timestamp[ns" not in str(given)
