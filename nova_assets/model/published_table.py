"""Tables in which a channel is published, so that other tools can read it without a copy of its data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from nova_assets.errors import DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.external_table import (
    EXPECTED_METASTORE,
    EXPECTED_METASTORE_TABLE,
    MetastoreTable,
    metastore_table,
)
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.published_version import TABLE_FORMATS, TableFormat
from nova_assets.short_repr import short_repr

_NAME_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class HiveTable:
    """A folder of Parquet files in Hive layout: one folder per partition value, as in ``dt=2024-01-01/action=login``.

    The folder is a symbolic link to the newest published version (*edition*). Publishing switches the link atomically.
    A reader that resolves the link before it reads sees one consistent version. The files are hard links to files of
    the channel, or symbolic links if the warehouse is on another file system.

    Args:
        path: the folder, relative to the project's root. The folder must not exist yet, or an earlier publication must
            have created it. ``nova publish --take-over`` replaces a folder that other tools have filled. In an object
            store, the address of the folder: ``s3://BUCKET/PATH`` or ``hdfs://NAMENODE:PORT/PATH``. Such a folder has a
            manifest for each partition in place of links. ``nova publish --take-over-from`` takes over a folder there,
            at another address.
        every: minimum time between two published versions under Dagster, such as ``"1m"``.
        metastore: address of a Hive metastore that also shows the table, such as ``thrift://metastore:9083``. Requires
            ``nova-assets[hive]``.
        table: name of the table in the metastore, such as ``shop.actions``. The database must exist.
        partitions_per_call: number of partitions that are submitted to the metastore in one transaction. 1 submits
            them one by one.
        format: format of the files of the table, as for ``hive_table``. None for the channel's own files.
    """

    __repr__ = short_repr

    path: str
    every: str = "1m"
    metastore: str | None = None
    table: str | None = None
    partitions_per_call: int = 500
    format: TableFormat | None = None

    @property
    def id(self) -> str:
        """Name of the table in the catalog and in commands."""
        return f"hive:{self.path}"

    @property
    def registered_as(self) -> MetastoreTable | None:
        """Table of the metastore; None if the folder is not registered in a metastore."""
        return None if self.metastore is None or self.table is None else metastore_table(self.metastore, self.table)

    @property
    def shows_seals(self) -> bool:
        """Whether readers see which days or hours are sealed."""
        return True

    @property
    def converts(self) -> bool:
        """Whether the table has converted files, and shows only sealed days or hours of a channel with ``seal=``."""
        return self.format is not None

    def problems(self) -> list[str]:
        """Problems of this definition alone."""
        found = _period_problems(self.id, self.every)
        if self.format is not None and self.format not in TABLE_FORMATS:
            found.append(f"{self.id} has format={self.format!r}; expected {', '.join(TABLE_FORMATS)}")
        scheme, _, rest = self.path.rpartition("://")
        is_remote = scheme in ("s3", "hdfs") and "/" in rest.strip("/")
        if not self.path.strip("/") or (scheme and not is_remote) or self.path.rstrip("/").endswith(".."):
            found.append(
                f"a hive table has path={self.path!r}; expected a folder, such as 'exports/actions', or an address, "
                "such as 's3://lake/exports/actions'"
            )
        if scheme and self.metastore is not None:
            found.append(f"{self.id} has metastore=, which only a folder on a disk can have; expected no metastore=")
        return found + self._metastore_problems()

    def _metastore_problems(self) -> list[str]:
        found = []
        if (self.metastore is None) != (self.table is None):
            found.append(
                f"{self.id} needs metastore= and table= together: {EXPECTED_METASTORE}; {EXPECTED_METASTORE_TABLE}"
            )
        elif self.metastore is not None and self.registered_as is None:
            found.append(
                f"{self.id} has an invalid metastore= or table=; expected {EXPECTED_METASTORE}, without a user or a "
                f"password, and {EXPECTED_METASTORE_TABLE}"
            )
        if self.partitions_per_call < 1:
            found.append(f"{self.id} has partitions_per_call={self.partitions_per_call}; expected 1 or more")
        return found


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """An Apache Iceberg table whose snapshots register the channel's own files.

    Args:
        name: name of the table with its namespace, such as ``lake.actions``.
        catalog: name of the catalog in PyIceberg's configuration (``.pyiceberg.yaml`` or the variables
            ``PYICEBERG_CATALOG__*``). By default, a SQLite file under ``.nova/iceberg/``.
        every: minimum time between two published versions under Dagster, such as ``"1m"``.
    """

    __repr__ = short_repr

    name: str
    catalog: str | None = None
    every: str = "1m"

    @property
    def id(self) -> str:
        """Name of the table in the catalog and in commands."""
        return f"iceberg:{self.name}" + (f"@{self.catalog}" if self.catalog else "")

    @property
    def shows_seals(self) -> bool:
        """Whether readers see which days or hours are sealed."""
        return False

    @property
    def converts(self) -> bool:
        """Whether the table has converted files."""
        return False

    def problems(self) -> list[str]:
        """Problems of this definition alone."""
        found = _period_problems(self.id, self.every)
        parts = self.name.split(".")
        if len(parts) < 2 or not all(_NAME_PART.fullmatch(p) for p in parts):
            found.append(f"an iceberg table has name={self.name!r}; expected NAMESPACE.TABLE, such as 'lake.actions'")
        return found


PublishedTable: TypeAlias = HiveTable | IcebergTable
PublishedTableT = TypeVar("PublishedTableT", HiveTable, IcebergTable)


def table_from_id(table_id: str) -> PublishedTable:
    """Table definition from its id, with defaults for all settings that the id does not contain. Raises
    DefinitionError.
    """
    kind, _, path_or_name = table_id.partition(":")
    if kind == "hive" and path_or_name:
        return HiveTable(path_or_name)
    name, _, catalog = path_or_name.partition("@")
    if kind == "iceberg" and name:
        return IcebergTable(name, catalog or None)
    raise DefinitionError(f"{table_id!r} is no table", expected="hive:PATH, or iceberg:NAMESPACE.TABLE[@CATALOG]")


@check_argument_types("nova.hive")
def hive(
    path: str,
    *,
    every: str = "1m",
    metastore: str | None = None,
    table: str | None = None,
    partitions_per_call: int = 500,
) -> HiveTable:
    """Publish a channel as a folder of Parquet files in Hive layout, and register the folder in a Hive metastore if one
    is named. See ``HiveTable`` for the arguments.

        nova.Channel("actions", ..., publish=nova.hive("exports/actions"))
        nova.Channel("actions", ..., publish=nova.hive("exports/actions", metastore="thrift://metastore:9083",
                                                       table="shop.actions"))

    Raises:
        DefinitionError: the path cannot name a folder, ``every`` is not a period, or the metastore or the table has an
            invalid name.
    """
    return _validate_table(HiveTable(path, every, metastore, table, partitions_per_call))


@check_argument_types("nova.hive_table")
def hive_table(path: str, *, format: TableFormat = "parquet", every: str = "1m") -> HiveTable:
    """Publish a channel as a folder in Hive layout whose files have the format that its readers know.

        nova.Channel("actions", ..., seal=nova.seal("dt"), publish=nova.hive_table("exports/actions", format="rcfile"))

    The blocks of the channel stay as they are. Each partition is converted once, into files of about
    ``Compaction.target`` bytes, and again only if its rows change. On a channel with ``seal=``, a day or hour enters
    the table when it is sealed. A day that late data reopens keeps its files until it is sealed again. As in tables
    that Hive and Spark write, partition columns are in the names of folders, and in no file (Speedy Batch 6.1).

    Args:
        path: the folder, as for ``hive``.
        format: ``parquet``, ``orc``, ``rcfile``, ``avro``, ``csv`` or ``json`` (one object per line). Arrow writes
            Parquet, Spark writes the other formats. RCFile needs a Spark session with support for Hive, and Avro needs
            Spark's module for Avro. A session that nova starts has both.
        every: minimum time between two published versions under Dagster, such as ``"1m"``.

    Raises:
        DefinitionError: the path cannot name a folder, the format is unknown, or ``every`` is not a period.
    """
    return _validate_table(HiveTable(path, every, format=format))


@check_argument_types("nova.iceberg")
def iceberg(name: str, *, catalog: str | None = None, every: str = "1m") -> IcebergTable:
    """Publish a channel as an Apache Iceberg table. See ``IcebergTable`` for the arguments. Requires
    ``nova-assets[iceberg]``.

        nova.Channel("actions", ..., publish=nova.iceberg("lake.actions"))

    Raises:
        DefinitionError: the name has no namespace, or ``every`` is not a period.
    """
    return _validate_table(IcebergTable(name, catalog, every))


def _validate_table(table: PublishedTableT) -> PublishedTableT:
    problems = table.problems()
    if problems:
        raise DefinitionError.of(problems, "a table to publish in")
    return table


def _period_problems(table_id: str, every: str) -> list[str]:
    return [] if period_seconds(every) is not None else [f"{table_id} has every={every!r}; expected {EXPECTED_PERIOD}"]
