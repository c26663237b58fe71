"""A table or query of PostgreSQL: its columns, and checks of a channel's definition against it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nova_assets.errors import DefinitionError, SourceUnavailable
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import DatabaseTable, SourceColumn
from nova_assets.plan.source_columns import (
    find_column,
    is_ordered_type,
    is_timestamp_with_zone,
    match_columns,
    spark_type_of,
)
from nova_assets.sources.postgres.connection import CONNECT_TIMEOUT_SECONDS, connect

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql


@dataclass(frozen=True)
class ReadableTable:
    """A source table within one connection.

    Args:
        relation: the table or query, for a FROM clause.
        columns: all columns of the source.
        oid: id of the table in the database; None for a query.
    """

    channel_name: str
    table: DatabaseTable
    connection: psycopg.Connection[Any]
    relation: sql.Composable
    columns: tuple[SourceColumn, ...]
    oid: int | None

    def fetch(self, query: sql.Composable) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.connection.execute(query.as_string(self.connection)).fetchall()
        return rows

    def column(self, name: str, option: str) -> SourceColumn:
        """Column that an option names. Raises DefinitionError if the source has no such column."""
        column = find_column(name, self.columns)
        if column is None:
            raise DefinitionError(
                f"{option} of external channel {self.channel_name!r} is no column of its source",
                found=name,
                expected=", ".join(c.name for c in self.columns),
            )
        return column


def read_columns(
    channel_name: str, table: DatabaseTable, timeout: int = CONNECT_TIMEOUT_SECONDS
) -> tuple[SourceColumn, ...]:
    """Columns of a source. Raises SourceUnavailable, SettingsError, NotSupported.

    Args:
        timeout: of connecting, in seconds.
    """
    with open_table(channel_name, table, timeout) as readable:
        return readable.columns


def check_source(channel: Channel, timeout: int = CONNECT_TIMEOUT_SECONDS) -> None:
    """Check a channel's definition against its source.

    Raises:
        SchemaMismatch, DefinitionError: the definition contradicts the source.
        SourceUnavailable, SettingsError, NotSupported: the source does not answer.
    """
    table = table_of(channel)
    with open_table(channel.name, table, timeout) as readable:
        check_definition(channel, readable)


@contextmanager
def open_table(
    channel_name: str, table: DatabaseTable, timeout: int = CONNECT_TIMEOUT_SECONDS
) -> Iterator[ReadableTable]:
    """A table within a connection. Raises SourceUnavailable, SettingsError, NotSupported."""
    from nova_assets.sources.postgres import queries

    with connect(channel_name, table, timeout) as connection:
        name, oid = ((), None) if table.table is None else _resolve_table(channel_name, table, connection)
        relation = queries.relation_sql(table, name)
        yield ReadableTable(channel_name, table, connection, relation, _describe(connection, relation), oid)


def table_of(channel: Channel) -> DatabaseTable:
    """The table of a channel that has one."""
    assert channel.external is not None and channel.external.database is not None
    return channel.external.database


def _resolve_table(
    channel_name: str, table: DatabaseTable, connection: psycopg.Connection[Any]
) -> tuple[tuple[str, str], int]:
    """Schema, name and id of a table. Its written form follows SQL: unquoted names are in lower case."""
    row = connection.execute(
        "SELECT n.nspname, c.relname, c.oid::bigint FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
        [table.table],
    ).fetchone()
    if row is None:
        raise SourceUnavailable(
            f"the table of external channel {channel_name!r} does not exist",
            found=f"no {table.table} at {table.url}",
            expected="a table or view that this user can see",
            next='write the name with its schema, and letters as stored: public.orders, or public."Orders"',
            channel=channel_name,
        )
    return (row[0], row[1]), row[2]


def _describe(connection: psycopg.Connection[Any], relation: sql.Composable) -> tuple[SourceColumn, ...]:
    from psycopg import sql

    cursor = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(relation))
    result = cursor.pgresult
    assert result is not None
    columns = []
    for n in range(result.nfields):
        name = (result.fname(n) or b"").decode()
        row = connection.execute(
            "SELECT pg_catalog.format_type(%s::oid, %s::int)", [result.ftype(n), result.fmod(n)]
        ).fetchone()
        source_type = str(row[0]) if row is not None else "unknown"
        columns.append(SourceColumn(name, source_type, spark_type_of(source_type)))
    return tuple(columns)


def check_definition(channel: Channel, readable: ReadableTable) -> None:
    """Check the columns and options of a channel. Raises SchemaMismatch, DefinitionError."""
    assert channel.schema is not None
    columns = match_columns(channel.name, channel.schema, readable.columns)
    table = readable.table
    for name in channel.partition_columns:
        if columns[name].source_type.startswith("character("):
            raise DefinitionError(
                f"partition column {name!r} of external channel {channel.name!r} has a type that pads its values",
                found=columns[name].source_type,
                expected="text or character varying, for example through query=",
            )
    if table.freshness_column is not None:
        readable.column(table.freshness_column, "freshness_column")
    if table.split_by is not None:
        column = readable.column(table.split_by, "split_by")
        if table.split == "range" and not is_ordered_type(column.source_type):
            raise DefinitionError(
                f"split_by of external channel {channel.name!r} has no ranges",
                found=f"{column.name} {column.source_type}",
                expected='a whole number, a date or a timestamp with a time zone; or split="hash"',
            )
    if table.incremental is not None:
        _check_incremental(readable, readable.column(table.incremental, "incremental"))


def _check_incremental(readable: ReadableTable, column: SourceColumn) -> None:
    """Check that a column can tell which rows are new: ordered, never null, and with values that do not repeat later.

    Raises:
        DefinitionError.
    """
    found = f"{column.name} {column.source_type}"
    what = f"the incremental column of external channel {readable.channel_name!r}"
    if not is_ordered_type(column.source_type):
        raise DefinitionError(
            f"{what} has a type without an order that grows with time",
            found=found,
            expected="smallint, integer, bigint, date or timestamp with time zone",
        )
    row = readable.connection.execute(
        "SELECT a.attnotnull, EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid "
        "AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum) "
        "FROM pg_catalog.pg_attribute a WHERE a.attrelid = %s::oid AND a.attname = %s",
        [readable.oid, column.name],
    ).fetchone()
    is_not_null, is_unique = row if row is not None else (False, False)
    if not is_not_null:
        raise DefinitionError(
            f"{what} may be null, and rows with null would never be read",
            found=found,
            expected="a column that the table declares NOT NULL",
        )
    is_time = column.source_type == "date" or is_timestamp_with_zone(column.source_type)
    if not is_time and not is_unique:
        raise DefinitionError(
            f"{what} is not unique, and a later row with an equal value would never be read",
            found=found,
            expected="a primary key or a unique index on this column alone",
        )
    if is_time and readable.table.settle is None:
        raise DefinitionError(
            f"{what} needs settle=, since a transaction may insert rows that carry an earlier time",
            found=found,
            expected='settle="10m", or as long as the longest transaction; "0s" if no row is ever inserted late',
        )
    if not is_time and readable.table.settle is not None:
        raise DefinitionError(f"{what} is a number, on which settle= has no effect", found=found)
