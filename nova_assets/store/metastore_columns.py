"""Columns of a table of a Hive metastore, and their comparison with the columns of a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova_assets.errors import DefinitionError, NotSupported, SchemaMismatch, SourceUnavailable
from nova_assets.metastore.client import HiveMetastore, open_metastore
from nova_assets.metastore.hive_tables import storage_format, unsupported_table_kind
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import SourceColumn
from nova_assets.model.external_table import MetastoreTable
from nova_assets.model.schema import DataType, parse_type
from nova_assets.plan.source_columns import is_hive_type_readable_as


@dataclass(frozen=True, slots=True)
class MetastoreColumns:
    """Columns of a table, as its metastore has them.

    Args:
        format: format of the table's files: ``parquet``, ``orc``, or the class of an unknown format.
        columns: columns of the files.
        partition_columns: columns of the partitions, outermost first.
    """

    format: str
    columns: tuple[SourceColumn, ...]
    partition_columns: tuple[SourceColumn, ...]

    @property
    def partition_keys(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.partition_columns)


def describe_metastore_table(table: MetastoreTable, channel_name: str) -> MetastoreColumns:
    """Ask a metastore for the columns of a table.

    Args:
        channel_name: name of the channel, for errors.

    Raises:
        SourceUnavailable: the metastore does not answer, or has no such table.
        NotSupported: the files of the table alone do not show its rows.
    """
    next_step = "correct the address, or wait until the metastore answers"
    with open_metastore(table, SourceUnavailable, next_step, {"channel": channel_name}) as metastore:
        return metastore_columns(load_described_table(metastore, channel_name))


def load_described_table(metastore: HiveMetastore, channel_name: str) -> Any:
    """Description of a table whose files alone show its rows.

    Raises:
        SourceUnavailable: the metastore has no such table.
        NotSupported: the table is of another kind.
    """
    table, description = metastore.table, metastore.load_table()
    if description is None:
        raise SourceUnavailable(
            f"the Hive metastore {table.metastore} has no table {table.full_name}",
            expected="a table of Parquet or ORC files",
            next=f"correct the location of {channel_name!r}; the channel keeps its earlier state",
            channel=channel_name,
        )
    kind = unsupported_table_kind(description)
    if kind is not None:
        raise NotSupported(
            f"{table.full_name} is {kind}",
            found="a table whose rows do not follow from its files and the metastore alone",
            expected="a table of plain Parquet or ORC files",
            next="read the table in a user function: nova.sql_function(returns='table(...)')",
            channel=channel_name,
        )
    return description


def partition_keys(description: Any) -> tuple[str, ...]:
    """Names of a table's partition columns, outermost first."""
    return tuple(k.name.lower() for k in description.partitionKeys or ())


def metastore_columns(description: Any) -> MetastoreColumns:
    """Columns of a described table. A type that nova does not support has the name that the metastore gives it."""
    return MetastoreColumns(
        storage_format(description.sd),
        tuple(map(_source_column, description.sd.cols or ())),
        tuple(map(_source_column, description.partitionKeys or ())),
    )


def is_supported(column: SourceColumn) -> bool:
    """Whether a channel can have a column of this type."""
    return _supported_type(column.source_type) is not None


def check_declared_columns(channel: Channel, table: MetastoreTable, actual: MetastoreColumns) -> None:
    """Compare the declared columns of a channel with those of its table.

    Raises:
        SchemaMismatch: a column is missing in the table, or has another type there.
    """
    check_partition_columns(channel, table, actual)
    assert channel.schema is not None
    keys, columns = {c.lower() for c in channel.partition_columns}, {c.name: c for c in actual.columns}
    for field in channel.schema.fields:
        column = columns.get(field.name.lower())
        if field.name.lower() in keys or (column is not None and is_hive_type_readable_as(column, field.type)):
            continue
        raise SchemaMismatch(
            f"column {field.name!r} of external channel {channel.name!r} differs from {table.full_name}",
            found=f"{field.name} {field.type}",
            expected=f"{field.name} {column.source_type}" if column else ", ".join(columns) or "no columns",
            next=f"nova external check {channel.name}",
            channel=channel.name,
        )


def check_partition_columns(channel: Channel, table: MetastoreTable, actual: MetastoreColumns) -> None:
    """Raise SchemaMismatch if a channel has other partition columns than its table."""
    if sorted(actual.partition_keys) != sorted(c.lower() for c in channel.partition_columns):
        raise SchemaMismatch(
            f"external channel {channel.name!r} has other partition columns than {table.full_name}",
            found=", ".join(channel.partition_columns) or "no partition columns",
            expected=", ".join(actual.partition_keys) or "no partition columns",
            next="declare the partition columns of the metastore",
            channel=channel.name,
        )


def _source_column(column: Any) -> SourceColumn:
    type_ = _supported_type(column.type) or DataType(column.type.lower())
    return SourceColumn(column.name.lower(), column.type, type_)


def _supported_type(hive_type: str) -> DataType | None:
    try:
        return parse_type(hive_type)
    except DefinitionError:
        return None
