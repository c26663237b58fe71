"""Tables of a relational database that another system writes, copied as snapshots or row by row (BigDataFlow, part 2).

A database keeps no files that a block could list. So a refresh copies the partitions that have changed, as blocks of
the channel. The definition names where the password is, and never the password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from nova_assets.masking import remember_secrets
from nova_assets.model.json_form import JsonForm
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds_or_zero
from nova_assets.model.schema import DataType, Schema
from nova_assets.setting_secrets import remember_named_secrets

SplitKind = Literal["range", "hash"]

MAX_SPLITS = 256
"""Maximum number of parts into which one partition is split. Each part is a connection to the database."""

EXPECTED_URL = "postgresql://USER@HOST:PORT/DATABASE"

_SCHEMES = ("postgresql", "postgres")
_URL_OPTIONS = ("sslmode", "sslrootcert")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Parts of a database URL.

    Args:
        options: ``sslmode`` and ``sslrootcert``, as libpq and the JDBC driver know them.
    """

    host: str
    port: int
    database: str
    user: str | None
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DatabaseTable(JsonForm):
    """Table or query of a PostgreSQL database.

    Args:
        url: ``postgresql://USER@HOST:PORT/DATABASE``, without a password. ``sslmode`` and ``sslrootcert`` may follow.
        table: name of a table or view, such as ``public.orders``.
        query: SELECT statement in place of a table.
        password_env: environment variable that holds the password. By default, libpq's own sources apply (PGPASSWORD,
            ``~/.pgpass``).
        password_file: file that holds the password, such as a mounted secret.
        freshness_column: column whose largest value changes whenever rows of a partition change. The number of rows
            counts, too.
        freshness_query: query with the partition columns and then at least one column. A partition is read again when
            its row of this query changes. A partition without a row does not exist yet.
        split_by: column by which each partition is split, to read the parts in parallel.
        splits: number of parts.
        split: ``range`` splits into ranges of equal width; ``hash`` splits by a hash, for any type and distribution.
        incremental: column that grows with each inserted row. Only rows above the largest value read so far are read.
            Deleted rows, and updates of rows below this value, are not seen.
        settle: for an incremental column of dates or times: age from which a row is read, at least as long as the
            longest transaction that inserts rows.
        fetch_size: rows per round trip.
    """

    url: str
    table: str | None = None
    query: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    freshness_column: str | None = None
    freshness_query: str | None = None
    split_by: str | None = None
    splits: int = 1
    split: SplitKind = "range"
    incremental: str | None = None
    settle: str | None = None
    fetch_size: int = 10_000

    def __post_init__(self) -> None:
        named = {"password_env": self.password_env, "password_file": self.password_file}
        remember_named_secrets(named, Path())

    def problems(self) -> list[str]:
        """Problems of this definition alone."""
        found = self._address_problems()
        if (self.table is None) == (self.query is None):
            found.append("external reads a database; expected table= or query=, and not both")
        if self.password_env is not None and self.password_file is not None:
            found.append("external names password_env and password_file; expected one of the two")
        if self.freshness_column is not None and self.freshness_query is not None:
            found.append("external names freshness_column and freshness_query; expected one of the two")
        for name in ("table", "query", "password_env", "password_file", "freshness_column", "freshness_query"):
            value = getattr(self, name)
            if value is not None and (not value.strip() or "\x00" in value):
                found.append(f"external has {name}={value!r}; expected text")
        return found + self._split_problems() + self._incremental_problems()

    def _address_problems(self) -> list[str]:
        address = parse_database_url(self.url)
        return [f"external has the location {address}"] if isinstance(address, str) else []

    def _split_problems(self) -> list[str]:
        found = []
        if self.split not in get_args(SplitKind):
            found.append(f"external has split={self.split!r}; expected {' or '.join(get_args(SplitKind))}")
        if not 1 <= self.splits <= MAX_SPLITS:
            found.append(f"external has splits={self.splits}; expected 1 to {MAX_SPLITS}")
        if self.splits > 1 and self.split_by is None:
            found.append(f"external has splits={self.splits} without split_by=, the column by which to split")
        if self.split_by is not None and self.splits == 1:
            found.append(f"external has split_by={self.split_by!r} without splits=, the number of parts")
        if self.fetch_size < 1:
            found.append(f"external has fetch_size={self.fetch_size}; expected at least 1")
        return found

    def _incremental_problems(self) -> list[str]:
        if self.incremental is None:
            return [] if self.settle is None else ["settle= has no effect without incremental="]
        found = []
        if self.query is not None:
            found.append("incremental= needs table=: the columns of a query may be null")
        found += [
            f"{name}= has no effect with incremental={self.incremental!r}"
            for name in ("freshness_column", "freshness_query")
            if getattr(self, name) is not None
        ]
        if self.settle is not None and period_seconds_or_zero(self.settle) is None:
            found.append(f'external has settle={self.settle!r}; expected {EXPECTED_PERIOD}, or "0s"')
        return found

    @property
    def address(self) -> DatabaseAddress:
        """The parts of the URL, which ``problems`` has checked."""
        address = parse_database_url(self.url)
        assert isinstance(address, DatabaseAddress), address
        return address

    @property
    def relation(self) -> str:
        """The table, or the query, for messages."""
        return self.table if self.table is not None else f"({self.query})"

    def as_json(self) -> dict[str, Any]:
        """Values that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**data)


def is_database_url(location: str) -> bool:
    """Whether a location is the address of a database, of a supported kind or not."""
    scheme, separator, _ = location.partition("://")
    return location.startswith("jdbc:") or (
        bool(separator) and scheme.partition("+")[0] in (*_SCHEMES, "mysql", "mariadb", "oracle", "mssql", "sqlserver")
    )


def normalize_database_url(url: str) -> tuple[str, str | None]:
    """A URL in its usual form, and the user if the URL names the user as a parameter, as JDBC does.

    A password is left in place, so that ``problems`` reports it.
    """
    remember_secrets(url.removeprefix("jdbc:"))
    plain = url.removeprefix("jdbc:")
    base, question, query = plain.partition("?")
    options = parse_qsl(query, keep_blank_values=True) if question else []
    user = next((value for name, value in options if name == "user"), None)
    remaining = "&".join(f"{name}={value}" for name, value in options if name != "user")
    return f"{base}?{remaining}" if remaining else base, user


def with_default_user(url: str, user: str | None) -> str:
    """A URL with a user, if it names none."""
    scheme, separator, rest = url.partition("://")
    return url if user is None or "@" in rest.partition("/")[0] else f"{scheme}{separator}{user}@{rest}"


def parse_database_url(url: str) -> DatabaseAddress | str:
    """The parts of a URL; or the problem of the URL, as the rest of a sentence without any secret."""
    remember_secrets(url)
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        return f"of kind {scheme[:40]!r}; expected {EXPECTED_URL} (other databases cannot be read yet)"
    try:
        parts = urlsplit(url)
        port = parts.port or 5432
    except ValueError:
        return f"that is no address; expected {EXPECTED_URL}"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.password is not None or "password" in options:
        return (
            "with a password, which the catalog would store; "
            "expected the password in an environment variable (password_env=) or in a file (password_file=)"
        )
    unknown = [name for name in options if name not in _URL_OPTIONS]
    if unknown:
        return f"with the option {unknown[0]!r}; expected {' or '.join(_URL_OPTIONS)}"
    database = unquote(parts.path.removeprefix("/"))
    if not parts.hostname or not database or "/" in database or parts.fragment:
        return f"without a host or a database; expected {EXPECTED_URL}"
    return DatabaseAddress(
        parts.hostname, port, database, None if parts.username is None else unquote(parts.username), options
    )


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
