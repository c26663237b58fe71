"""External tables: files that another system writes, read in place as views of its tables (BigDataFlow, part 2).

Nova copies none of these files, and never writes, drops or deletes one. The catalog knows the files of the last
listing. Each listing commits a base of the partitions whose files have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from nova_assets.model.definition_argument_checks import check_argument_types
from nova_assets.model.metastore_table import (
    METASTORE_SCHEME,
    MetastoreTable,
    is_metastore_address,
    parse_metastore_table,
)
from nova_assets.short_repr import short_repr

if TYPE_CHECKING:
    from nova_assets.model.block import DataFile

ExternalFormat = Literal["parquet", "orc"]


@dataclass(frozen=True, slots=True)
class External:
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
    """

    __repr__ = short_repr

    location: str
    format: ExternalFormat = "parquet"
    success_file: str | None = None
    expected: Callable[[datetime], Iterable[str]] | None = field(default=None, compare=False, repr=False)

    @property
    def metastore_table(self) -> MetastoreTable | None:
        """Table of a Hive metastore that lists the partitions; None if the location is a folder."""
        return parse_metastore_table(self.location) if is_metastore_address(self.location) else None

    def problems(self) -> list[str]:
        """Problems of this definition alone."""
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

    def as_json(self) -> dict[str, Any]:
        return {
            "location": self.location,
            "format": self.format,
            **({"done": self.success_file} if self.success_file else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> External:
        return External(data["location"], data["format"], data.get("done"))


@check_argument_types("nova.external")
def external(location: str, *, format: ExternalFormat = "parquet", success_file: str | None = None) -> External:
    """A table that another system writes and Nova reads in place.

        tickets = nova.Channel("tickets", schema="product_id string, day string, store string",
                               partitions=[nova.dynamic("day"), nova.dynamic("store")],
                               external=nova.external("/data/tickets", success_file="_SUCCESS"))

        clicks = nova.Channel("clicks", schema="url string, day string", partitions=[nova.dynamic("day")],
                              external=nova.external("thrift://metastore:9083/web.clicks"))  # nova-assets[hive]

    In a folder of datasets, the same declaration is ``CREATE EXTERNAL TABLE tickets (...) USING parquet ... LOCATION
    '...'``. See ``External`` for the arguments.
    """
    return External(location, format, success_file)


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
