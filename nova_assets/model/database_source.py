"""Columns of a database table, and one read of its rows for the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from nova_assets.model.schema import DataType, Schema


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column as the source has it.

    Args:
        source_type: type in the source's own words, such as ``numeric(10,2)``.
        type: the Spark type that represents all its values.
    """

    name: str
    source_type: str
    type: DataType


@dataclass(frozen=True, slots=True)
class DatabaseRead:
    """One read of rows, for Spark's JDBC source.

    Dates arrive as days since 1970, and timestamps as microseconds since 1970 (in UTC, or in local time for a
    timestamp without a zone), so no time zone or calendar of Java affects them.

    Args:
        url: JDBC address without credentials.
        relation: a subquery with an alias.
        conditions: SQL condition of each parallel part. Each row satisfies exactly one of them.
        session_statement: SQL that each connection runs first, which selects the snapshot.
        schema: the columns to return.
    """

    url: str
    user: str
    password: str | None = field(repr=False)
    relation: str
    conditions: tuple[str, ...]
    session_statement: str
    schema: Schema
    fetch_size: int


@dataclass(frozen=True, slots=True)
class SetSourceVersion:
    """Update of a commit: the version of the source that a partition now shows.

    Args:
        version: None if the partition no longer exists in the source.
    """

    channel: str
    partition: str
    version: str | None
