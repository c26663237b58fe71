"""External tables: tables that another system writes, as views of them (BigDataFlow, part 2).

Files are read in place. Nova copies none of them, and never writes, drops or deletes one. The catalog knows the files
of the last listing. Each listing commits a base of the partitions whose files have changed. Of a database, each refresh
copies the partitions whose rows have changed (``model/database_table``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args

from nova_assets.errors import DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.database_table import (
    DatabaseTable,
    SplitKind,
    is_database_url,
    normalize_database_url,
    with_default_user,
)
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm, json_key
from nova_assets.short_repr import short_repr

if TYPE_CHECKING:
    from nova_assets.model.block import DataFile


METASTORE_SCHEME = "thrift"

EXPECTED_METASTORE = "thrift://HOST:PORT, such as thrift://metastore:9083"
EXPECTED_METASTORE_TABLE = "DATABASE.TABLE, such as shop.actions"

_METASTORE = re.compile(r"thrift://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})")
_TABLE = re.compile(r"([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")


@dataclass(frozen=True, slots=True)
class MetastoreTable:
    """A table, and the metastore that knows it.

    Args:
        database, name: in lower case, as a metastore compares names.
    """

    __repr__ = short_repr

    host: str
    port: int
    database: str
    name: str

    @property
    def metastore(self) -> str:
        """Address of the metastore."""
        return f"{METASTORE_SCHEME}://{self.host}:{self.port}"

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    def __str__(self) -> str:
        return f"{self.metastore}/{self.full_name}"


def is_metastore_address(text: str) -> bool:
    """Whether an address has the scheme of a metastore. The rest of the address may be invalid."""
    return text.startswith(f"{METASTORE_SCHEME}:")


def metastore_table(metastore: str, table: str) -> MetastoreTable | None:
    """Table of a metastore; None if the address or the name is invalid.

    Args:
        metastore: ``thrift://HOST:PORT``.
        table: ``DATABASE.TABLE``.
    """
    address, name = _METASTORE.fullmatch(metastore.rstrip("/")), _TABLE.fullmatch(table)
    if address is None or name is None or not 0 < int(address[2]) < 65536:
        return None
    return MetastoreTable(address[1].strip("[]"), int(address[2]), name[1].lower(), name[2].lower())


def parse_metastore_table(address: str) -> MetastoreTable | None:
    """Table from ``thrift://HOST:PORT/DATABASE.TABLE``; None if the address has another form."""
    metastore, _, table = address.rpartition("/")
    return metastore_table(metastore, table)


ExternalFormat = Literal["parquet", "orc"]


@dataclass(frozen=True, slots=True)
class External(JsonForm):
    """Location and format of a table that another system writes.

    Args:
        location: a folder, relative to the project's root, or an address: ``s3://BUCKET/PREFIX`` or
            ``hdfs://NAMENODE:PORT/PATH``. Each partition of the table is a folder such as
            ``day=2022-03-31/store=Paris``, as Hive and Spark write it. Or a table of a Hive metastore, as
            ``thrift://HOST:PORT/DATABASE.TABLE``: the metastore then names the partitions and their folders.
        format: format of all files.
        success_file: name of a marker file, such as ``_SUCCESS``. A partition's folder without the marker file is
            incomplete and is not read. By default, every folder is read as it is, so the writer should create each
            folder atomically.
        expected: function that takes a time and returns the partitions that should exist at this time. Needed only if
            the dimensions do not determine these partitions.
        database: the table of a database, if the location is the address of a database.
    """

    __repr__ = short_repr

    location: str
    format: ExternalFormat = "parquet"
    success_file: str | None = field(default=None, metadata=json_key("done", omit_default=True))
    expected: Callable[[datetime], Iterable[str]] | None = field(
        default=None, compare=False, repr=False, metadata=NOT_IN_JSON
    )
    database: DatabaseTable | None = field(default=None, metadata=json_key(omit_default=True))

    @property
    def has_changes(self) -> bool:
        """Whether consumers can read changes: only rows that a refresh adds to the earlier rows are changes."""
        return self.database is not None and self.database.incremental is not None

    @property
    def metastore_table(self) -> MetastoreTable | None:
        """Table of a Hive metastore that lists the partitions; None if the location is a folder."""
        return parse_metastore_table(self.location) if is_metastore_address(self.location) else None

    def problems(self) -> list[str]:
        """Problems of this definition alone."""
        if self.database is not None:
            return self.database.problems() + self._file_option_problems()
        found = []
        scheme, _, rest = self.location.partition("://")
        remote = bool(rest) and scheme in ("s3", "hdfs") and not rest.startswith("/") and ".." not in rest.split("/")
        if is_metastore_address(self.location):
            if self.metastore_table is None:
                found.append(
                    f"external has location={self.location!r}; expected {METASTORE_SCHEME}://HOST:PORT/DATABASE.TABLE, "
                    "without a user or a password"
                )
        elif not self.location or ("://" in self.location and not remote):
            found.append(
                f"external has location={self.location!r}; expected a folder, s3://BUCKET/PREFIX or "
                "hdfs://NAMENODE:PORT/PATH"
            )
        if self.format not in get_args(ExternalFormat):
            known = " or ".join(get_args(ExternalFormat))
            found.append(
                f"external has format={self.format!r}; expected {known} (to ingest files of other formats: "
                "source=nova.files(...))"
            )
        if self.success_file is not None and (not self.success_file or "/" in self.success_file):
            found.append(
                f"external has success_file={self.success_file!r}; expected the name of a file, such as _SUCCESS"
            )
        return found

    def _file_option_problems(self) -> list[str]:
        """Problems of a database with options for files, or with options that exclude each other."""
        found = []
        if self.format != "parquet":
            found.append(f"format={self.format!r} has no effect on a database")
        if self.success_file is not None:
            found.append("success_file= has no effect on a database; to wait for complete partitions: freshness_query=")
        if self.has_changes and self.expected is not None:
            found.append("an incremental table has no expected partitions; leave out FOR")
        return found


@check_argument_types("nova.external")
def external(
    location: str,
    *,
    format: ExternalFormat = "parquet",
    success_file: str | None = None,
    table: str | None = None,
    query: str | None = None,
    user: str | None = None,
    password_env: str | None = None,
    password_file: str | None = None,
    freshness_column: str | None = None,
    freshness_query: str | None = None,
    split_by: str | None = None,
    splits: int = 1,
    split: SplitKind = "range",
    incremental: str | None = None,
    settle: str | None = None,
    fetch_size: int = 10_000,
) -> External:
    """A table that another system writes: a folder of files that is read in place, or a table of a database.

        tickets = nova.Channel("tickets", schema="product_id string, day string, store string",
                               partitions=[nova.dynamic("day"), nova.dynamic("store")],
                               external=nova.external("/data/tickets", success_file="_SUCCESS"))

        orders = nova.Channel("orders", schema="id bigint, day date, amount decimal(10,2)",
                              partitions=[nova.dynamic("day")],
                              external=nova.external("postgresql://reader@db:5432/shop", table="public.orders",
                                                     password_env="SHOP_PASSWORD", freshness_column="updated_at"))

        clicks = nova.Channel("clicks", schema="url string, day string", partitions=[nova.dynamic("day")],
                              external=nova.external("thrift://metastore:9083/web.clicks"))  # nova-assets[hive]

    In a folder of datasets, the same declarations are ``CREATE EXTERNAL TABLE tickets (...) USING parquet ... LOCATION
    '...'`` and ``CREATE EXTERNAL TABLE orders (...) USING jdbc OPTIONS (...)``.

    A refresh of a database table copies the partitions that have changed, in one snapshot of the database. With
    ``incremental``, a refresh only appends rows above the largest value read so far. Deleted rows, and updates of rows
    below this value, are then not seen.

    Args:
        location: folder or address of the files, or ``postgresql://USER@HOST:PORT/DATABASE`` without a password.
        format, success_file: for files; see ``External``.
        user: database user, if the address names none.
        table, query, password_env, password_file: for a database; see ``DatabaseTable``.
        freshness_column, freshness_query: for a database; see ``DatabaseTable``.
        split_by, splits, split: for a database; see ``DatabaseTable``.
        incremental, settle: for a database; see ``DatabaseTable``. ``settle`` is a period such as ``"10m"``.
        fetch_size: for a database: rows per round trip.

    Raises:
        DefinitionError: options of a database are given for files.
    """
    if not is_database_url(location):
        options = {"table": table, "query": query, "user": user, "password_env": password_env}
        options |= {"password_file": password_file, "freshness_column": freshness_column, "split_by": split_by}
        options |= {"freshness_query": freshness_query, "incremental": incremental, "settle": settle}
        if superfluous := [name for name, value in options.items() if value is not None]:
            raise DefinitionError(
                f"{superfluous[0]}= of nova.external has no effect on files",
                found=location,
                expected="postgresql://USER@HOST:PORT/DATABASE",
            )
        return External(location, format, success_file)
    url, url_user = normalize_database_url(location)
    database = DatabaseTable(
        with_default_user(url, user or url_user),
        table=table,
        query=query,
        password_env=password_env,
        password_file=password_file,
        freshness_column=freshness_column,
        freshness_query=freshness_query,
        split_by=split_by,
        splits=splits,
        split=split,
        incremental=incremental,
        settle=settle,
        fetch_size=fetch_size,
    )
    return External(database.url, format, success_file, None, database)


@dataclass(frozen=True)
class RefreshResult:
    """Result of listing an external channel.

    Args:
        changed: partitions whose files differ from the catalog. All are committed, except those in ``bad``.
        gone: partitions that no longer have files.
        held: vanished partitions that are too many to drop without confirmation; they keep their state.
        unfinished: incomplete partitions; they keep their state.
        ignored: folders that are not partitions of the channel -> reason.
        beyond: existing partitions that are not expected.
        bad: partitions with a file that contradicts the channel's definition -> reason; they keep their state.
        same: number of unchanged partitions.
        seq: sequence number of the changes; None without changes, or in a dry run.
        error: why the listing failed; None if it succeeded.
    """

    __repr__ = short_repr

    channel: str
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    beyond: tuple[str, ...] = ()
    bad: Mapping[str, str] = field(default_factory=dict)
    same: int = 0
    seq: int | None = None
    error: str | None = None

    @property
    def needs_attention(self) -> bool:
        """Whether a person should act on this result."""
        return self.error is not None or bool(self.bad) or bool(self.held)

    @property
    def problems_text(self) -> str:
        """Problems of this result, in one line."""
        if self.error is not None:
            return f"{self.channel} cannot be listed: {self.error}"
        bad = [f"{p or 'the whole'}: {why}" for p, why in self.bad.items()]
        held = [f"{len(self.held)} partitions vanished at once and keep their state"] if self.held else []
        return f"{self.channel}: " + "; ".join([*bad, *held])


@dataclass(frozen=True, slots=True)
class ExternalPosition:
    """Position in another system's log up to which a channel shows all its changes.

    Args:
        source: identity of the log and of everything else that the position depends on. With another identity, the
            position says nothing.
        event_id: last event whose changes are committed.
        listed_at: time of the last comparison of all partitions.
        head: head of the channel at this position.
    """

    source: str
    event_id: int
    listed_at: datetime
    head: int


@dataclass(frozen=True)
class ExternalFilesContent:
    """Files of an external channel, with their content.

    Args:
        files: the files with their row counts.
        columns: columns that occur in some of the files, in lower case.
    """

    files: tuple[DataFile, ...]
    columns: frozenset[str]
