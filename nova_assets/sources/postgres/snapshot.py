"""One snapshot of a PostgreSQL table: the versions of its partitions, and reads that several connections share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nova_assets.errors import DefinitionError
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import DatabaseRead
from nova_assets.model.partitions import partition_values
from nova_assets.plan.source_columns import match_columns
from nova_assets.sources.postgres.connection import SESSION_SETTINGS
from nova_assets.sources.postgres.table import ReadableTable, check_definition, open_table, table_of

if TYPE_CHECKING:
    from psycopg import sql


@contextmanager
def open_snapshot(channel: Channel) -> Iterator[PostgresSnapshot]:
    """One snapshot of the database, which the connections of Spark's tasks share.

    It is open until the context ends, so all partitions and parts show the same moment.

    Raises:
        SchemaMismatch, DefinitionError, SourceUnavailable, SettingsError, NotSupported: as for ``check_source``.
    """
    from psycopg import sql

    with open_table(channel.name, table_of(channel)) as readable, readable.connection.transaction():
        readable.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        readable.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        readable.connection.execute(SESSION_SETTINGS)
        check_definition(channel, readable)
        snapshot_id = str(readable.fetch(sql.SQL("SELECT pg_export_snapshot()"))[0][0])
        yield PostgresSnapshot(channel, readable, snapshot_id)


class PostgresSnapshot:
    """State of a source table at one moment.

    Args:
        readable: the table, within a transaction.
        snapshot_id: name by which other connections join the snapshot.
    """

    def __init__(self, channel: Channel, readable: ReadableTable, snapshot_id: str) -> None:
        from nova_assets.sources.postgres import queries

        assert channel.schema is not None
        self.channel = channel
        self.schema = channel.schema
        self.readable = readable
        self.table = readable.table
        self.snapshot_id = snapshot_id
        self.columns = match_columns(channel.name, channel.schema, readable.columns)
        extra = {}
        if self.table.split_by is not None:
            extra[queries.SPLIT_ALIAS] = readable.column(self.table.split_by, "split_by").name
        if self.table.incremental is not None:
            extra[queries.MARK_ALIAS] = readable.column(self.table.incremental, "incremental").name
        self.rows = queries.rows_sql(readable.relation, channel.schema, self.columns, channel.partition_columns, extra)

    @property
    def definition_digest(self) -> str:
        """Hash of everything in the definition that decides which rows are copied, and how."""
        described = [self.readable.connection.info.dbname, self._text(self.rows), self.schema.as_json()]
        return _digest(described)

    def partition_versions(self) -> list[tuple[tuple[str | None, ...], str]]:
        """Values of the partition columns of each partition, with its version.

        Without a stated column or query, the version is a checksum of the rows, which the database computes.

        Raises:
            DefinitionError: the freshness query has too few columns, or repeats a partition.
        """
        count = len(self.channel.partitions)
        rows = self._freshness_rows() if self.table.freshness_query is not None else self._computed_versions()
        digest = self.definition_digest
        versions = {tuple(map(_as_text, row[:count])): _digest([digest, list(map(str, row[count:]))]) for row in rows}
        if len(versions) != len(rows):
            raise DefinitionError(
                f"the freshness query of external channel {self.channel.name!r} repeats a partition",
                found=f"{len(rows)} rows for {len(versions)} partitions",
                expected="one row for each partition: GROUP BY the partition columns"
                if count
                else "one row, since the channel has no partitions",
            )
        return list(versions.items())

    def _freshness_rows(self) -> list[tuple[Any, ...]]:
        from psycopg import sql

        from nova_assets.sources.postgres import queries

        assert self.table.freshness_query is not None
        count = len(self.channel.partitions)
        query = queries.raw_sql(self.table.freshness_query.rstrip().removesuffix(";"))
        cursor = self.readable.connection.execute(sql.SQL("SELECT * FROM ({}\n) AS nova_freshness").format(query))
        width = len(cursor.description or ())
        if width <= count:
            raise DefinitionError(
                f"the freshness query of external channel {self.channel.name!r} has too few columns",
                found=f"{width} columns",
                expected=f"{', '.join(self.channel.partition_columns) or 'no partition columns'}, "
                "then at least one column that changes with the rows",
            )
        return cursor.fetchall()

    def _computed_versions(self) -> list[tuple[Any, ...]]:
        from psycopg import sql

        from nova_assets.sources.postgres import queries

        keys = [sql.Identifier(f"{queries.PARTITION_ALIAS}{n}") for n in range(len(self.channel.partitions))]
        if self.table.freshness_column is not None:
            column = self.readable.column(self.table.freshness_column, "freshness_column").name
            source_keys = [sql.Identifier(self.columns[c].name) for c in self.channel.partition_columns]
            selected = [*source_keys, sql.SQL("count(*)"), sql.SQL("max({})::text").format(sql.Identifier(column))]
            relation, grouped = self.readable.relation, source_keys
        else:
            row_hash = sql.SQL("hashtextextended({}::text, 0)::numeric").format(sql.Identifier(queries.ROWS_ALIAS))
            selected = [*keys, sql.SQL("count(*)"), sql.SQL("sum({})::text").format(row_hash)]
            relation, grouped = self.rows, keys
        query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(selected), relation)
        if grouped:
            query = sql.SQL("{} GROUP BY {}").format(query, sql.SQL(", ").join(grouped))
        return self.readable.fetch(query)

    def read_partitions(self, partitions: Sequence[str]) -> DatabaseRead:
        """Read of some partitions. Each partition, or each part of it, is one task of Spark."""
        from nova_assets.sources.postgres import queries

        types = [self.columns[c].source_type for c in self.channel.partition_columns]
        conditions = []
        for partition in partitions:
            values = partition_values(partition) if self.channel.partitions else {}
            own = queries.partition_condition([values[c] for c in self.channel.partition_columns], types)
            conditions += [queries.both(own, part) for part in self._split_conditions(own)]
        return self._read(conditions)

    def read_above(self, after: str | None, up_to: str) -> DatabaseRead:
        """Read of the rows above a mark and up to another."""
        from nova_assets.sources.postgres import queries

        assert self.table.incremental is not None
        column = self.readable.column(self.table.incremental, "incremental")
        own = queries.mark_condition(after, up_to, column.source_type)
        return self._read([queries.both(own, part) for part in self._split_conditions(own)])

    def explain_failure(self, read: DatabaseRead) -> str | None:
        """The database's own message about a read that has failed in Spark; None if the database can compute the rows.

        Spark loses the message if the driver was added to a session that already ran.
        """
        import psycopg
        from psycopg import sql

        from nova_assets.sources.postgres import queries

        computed = sql.SQL("SELECT count({}::text) FROM {} WHERE ").format(
            sql.Identifier(queries.ROWS_ALIAS), self.rows
        )
        try:
            with self.readable.connection.transaction():
                for condition in read.conditions:
                    self.readable.connection.execute(self._text(computed) + condition)
        except psycopg.Error as error:
            return str(error).strip().splitlines()[0]
        return None

    def _split_conditions(self, own: sql.Composable) -> list[sql.Composable]:
        """Conditions of the parallel parts of the rows that satisfy ``own``."""
        from psycopg import sql

        from nova_assets.sources.postgres import queries

        if self.table.split_by is None:
            return [sql.SQL("TRUE")]
        if self.table.split == "hash":
            return queries.hash_conditions(self.table.splits)
        column = self.readable.column(self.table.split_by, "split_by")
        split, source_type = sql.Identifier(queries.SPLIT_ALIAS), queries.raw_sql(column.source_type)
        if column.source_type in ("smallint", "integer", "bigint"):
            low_high = sql.SQL("(SELECT min({0})::numeric low, max({0})::numeric high FROM {1} WHERE {2}) AS ends")
            step = sql.SQL("trunc(low + (high - low) * n / {})::{}").format(sql.Literal(self.table.splits), source_type)
        else:
            low_high = sql.SQL("(SELECT min({0}) AS low, max({0}) AS high FROM {1} WHERE {2}) AS ends")
            step = sql.SQL("(low + (high - low) * n / {})::{}").format(sql.Literal(self.table.splits), source_type)
        query = sql.SQL(
            "SELECT DISTINCT ({})::text, {} AS bound FROM {}, generate_series(1, {}) AS n "
            "WHERE low IS NOT NULL ORDER BY bound"
        ).format(
            step,
            step,
            low_high.format(split, self.rows, own),
            sql.Literal(self.table.splits - 1),
        )
        return queries.range_conditions([str(row[0]) for row in self.readable.fetch(query)], column.source_type)

    def _read(self, conditions: Sequence[sql.Composable]) -> DatabaseRead:
        info = self.readable.connection.info
        options = [f"{name}={quote(value, safe='')}" for name, value in self.table.address.options.items()]
        host = f"[{info.host}]" if ":" in info.host else info.host
        session = (
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
            f"SET TRANSACTION SNAPSHOT '{self.snapshot_id}'; {SESSION_SETTINGS}"
        )
        return DatabaseRead(
            f"jdbc:postgresql://{host}:{info.port}/{quote(info.dbname, safe='')}{'?' if options else ''}"
            + "&".join(options),
            info.user,
            info.password or None,
            self._text(self.rows),
            tuple(self._text(c) for c in conditions),
            session,
            self.schema,
            self.table.fetch_size,
        )

    def _text(self, composed: sql.Composable) -> str:
        return composed.as_string(self.readable.connection)


def _as_text(value: object) -> str | None:
    """A value of a partition column as partitions write it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _digest(described: object) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]
