"""A published folder that is also registered in a Hive metastore, in one publication.

    write the edition ─► submit its partitions to the metastore ─► switch the link

The link is switched last. So a sealed day's marker ``_SUCCESS`` appears below the published path after the metastore
knows all partitions of the day (Speedy Batch, part 6). If the metastore does not answer, readers of the folder keep the
previous edition, too, and the publication is repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from nova_assets.crash_points import crash_point
from nova_assets.errors import NotSupported, TableTaken, TableUnavailable
from nova_assets.metastore.client import HiveMetastore, open_metastore
from nova_assets.metastore.hive_tables import PARQUET_STORAGE, hive_location, hive_type
from nova_assets.model.external_table import MetastoreTable, parse_metastore_table
from nova_assets.model.partitions import Dimension
from nova_assets.model.published_table import HiveTable
from nova_assets.model.published_version import PublishedContent
from nova_assets.model.schema import Schema
from nova_assets.publish.hive import HivePublishTarget
from nova_assets.publish.target import Edition

_RECORD_FILE = ".nova.json.metastore"
"""File beside the editions that names the table of the metastore. It outlives the definition, so that the table can be
removed from the metastore after it was removed from the definition."""


class RegisteredHiveTarget(HivePublishTarget):
    """The published folder of one channel, which may also be a table of a metastore.

    Publishing creates or changes the table. If the definition names another table than before, or none, publishing
    drops the earlier table from its metastore. Withdrawing drops the table and deletes the folder.

    Args:
        path, forbidden_folders, owner: as for ``HivePublishTarget``.
        definition: definition of the folder. It names the table of the metastore, if there is one.
    """

    def __init__(self, path: Path, forbidden_folders: Sequence[Path], owner: str, definition: HiveTable) -> None:
        super().__init__(path, forbidden_folders, owner, definition.format)
        self.table = definition.registered_as
        self.partitions_per_call = definition.partitions_per_call
        self.record_path = self.versions_folder / _RECORD_FILE

    def check_can_publish(self, *, take_over: bool = False) -> None:
        super().check_can_publish(take_over=take_over)
        if self.table is not None and self.has_own_layout(take_over=take_over):
            raise NotSupported(
                f"{self.path} cannot be registered in a metastore, because it was taken over",
                found="files that keep the columns and types of the old folder, which the metastore would not know",
                expected="a folder that nova has made",
                next="publish without metastore=, or under another path",
            )
        if self.table is not None:
            self._registration(self.table).check_can_register()

    def is_complete(self, number: int) -> bool:
        if not super().is_complete(number) or self._recorded_table() != self.table:
            return False
        return self.table is None or self._registration(self.table).registered_version() == number

    def publish(self, edition: Edition) -> None:
        if self.table is not None:
            hive_columns(edition.content.schema)  # a type that Hive lacks must fail before anything is written
        super().publish(edition)

    def withdraw(self) -> None:
        recorded = self._recorded_table()
        if recorded is not None:
            self._registration(recorded).withdraw()
        for record in self.record_path.parent.glob(f"{_RECORD_FILE}*"):
            record.unlink(missing_ok=True)
        super().withdraw()

    def _before_shown(self, number: int, content: PublishedContent, version_folder: Path) -> None:
        recorded = self._recorded_table()
        if recorded is not None and recorded != self.table:  # its partitions would point to expired editions
            self._registration(recorded).withdraw()
            self.record_path.unlink()
        if self.table is None:
            return
        self._record_table(self.table)
        # Partitions point to the edition, not to the link: a query would fail if the link was switched after planning.
        edition = RegisteredEdition(
            number,
            content.seq,
            content.schema,
            content.dimensions,
            str(version_folder),
            _partition_folders(version_folder) if content.dimensions else (),
        )
        self._registration(self.table).register(edition)

    def _registration(self, table: MetastoreTable) -> MetastoreRegistration:
        return MetastoreRegistration(table, self.owner, self.partitions_per_call)

    def _recorded_table(self) -> MetastoreTable | None:
        try:
            address = json.loads(self.record_path.read_text(encoding="utf-8"))["table"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged_record_error(str(error)) from error
        table = parse_metastore_table(str(address))
        if table is None:
            raise self._damaged_record_error(str(address))
        return table

    def _record_table(self, table: MetastoreTable) -> None:
        """Record the table before it is registered, so that a crash leaves no unrecorded table."""
        unfinished = self.record_path.with_name(f"{_RECORD_FILE}.{os.getpid()}")
        unfinished.write_text(json.dumps({"table": str(table)}), encoding="utf-8")
        unfinished.rename(self.record_path)

    def _damaged_record_error(self, actual: str) -> TableUnavailable:
        return TableUnavailable(
            f"{self.record_path} does not name the table of a metastore",
            found=actual,
            expected='{"table": "thrift://HOST:PORT/DATABASE.TABLE"}',
            next="correct the file, or delete it after dropping the table from the metastore",
            path=str(self.record_path),
        )


def _partition_folders(version_folder: Path) -> list[str]:
    """Folders of an edition that hold files, relative to the edition. Marker files begin with an underscore."""
    files = (p for p in version_folder.rglob("*") if not p.name.startswith(("_", ".")) and not p.is_dir())
    return sorted({str(p.parent.relative_to(version_folder)) for p in files} - {"."})


_OWNER_PARAMETER = "nova.published-from"
_VERSION_PARAMETER = "nova.edition"
_SEQ_PARAMETER = "nova.seq"

_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}
"""Parameter by which a metastore does not list the files of a new partition."""


@dataclass(frozen=True, slots=True)
class RegisteredEdition:
    """An edition as a metastore shows it.

    Args:
        address: folder of the edition.
        partition_folders: folders of partitions below ``address``, such as ``dt=2024-01-01/action=view``. Without
            dimensions, the files are in ``address`` itself.
    """

    number: int
    seq: int
    schema: Schema
    dimensions: tuple[Dimension, ...]
    address: str
    partition_folders: Sequence[str] = ()


class MetastoreRegistration:
    """The entry of one channel in a metastore: its table, and one partition for each folder.

    The partitions of an edition point to the folders of this edition. So a reader that has asked the metastore finds
    all files until the edition expires. Everything is safe to repeat: the next registration completes one that was
    interrupted.

    Args:
        table: the table to register.
        owner: identifies nova's catalog and the channel.
        partitions_per_call: number of partitions that are submitted in one call, each call a transaction of the
            metastore. 1 submits them one by one.
    """

    def __init__(self, table: MetastoreTable, owner: str, partitions_per_call: int) -> None:
        self.table = table
        self.owner = owner
        self.partitions_per_call = partitions_per_call

    def check_can_register(self) -> None:
        """Check that the table is free, or belongs to this channel.

        Raises:
            TableTaken, TableUnavailable.
        """
        with self._connect() as metastore:
            self._check_ownership(metastore.load_table())
            if not metastore.has_database():
                raise TableUnavailable(
                    f"the Hive metastore {self.table.metastore} has no database {self.table.database!r}",
                    expected="a database, which nova does not create",
                    next=f"CREATE DATABASE {self.table.database}, or register the table in another database",
                    table=str(self.table),
                )

    def registered_version(self) -> int | None:
        """Number of the edition that the metastore shows completely; None if it shows none of this channel."""
        with self._connect() as metastore:
            table = metastore.load_table()
        parameters = {} if table is None else table.parameters or {}
        number = parameters.get(_VERSION_PARAMETER, "")
        return int(number) if parameters.get(_OWNER_PARAMETER) == self.owner and number.isdigit() else None

    def register(self, edition: RegisteredEdition) -> None:
        """Show an edition: create or change the table, submit new and changed partitions, and forget the others.

        The number of the edition is set last.

        Raises:
            TableTaken, TableUnavailable.
            NotSupported: Hive has no type for a column.
        """
        columns, keys = _columns_and_keys(edition, hive_columns(edition.schema))
        with self._connect() as metastore:
            table = metastore.load_table()
            self._check_ownership(table)
            if table is not None and not _can_alter(table, columns, keys):
                metastore.drop_table()
                table = None
            change_table = metastore.create_table if table is None else metastore.alter_table
            change_table(self._describe_table(metastore.types, edition, None))
            crash_point("metastore.created")
            if keys:
                self._submit_partitions(metastore, edition)
            crash_point("metastore.submitted")
            metastore.alter_table(self._describe_table(metastore.types, edition, edition.number))

    def withdraw(self) -> None:
        """Forget the table. A missing table is ignored.

        Raises:
            TableTaken, TableUnavailable.
        """
        with self._connect() as metastore:
            table = metastore.load_table()
            if table is not None:
                self._check_ownership(table)
                metastore.drop_table()

    def _submit_partitions(self, metastore: HiveMetastore, edition: RegisteredEdition) -> None:
        folder_by_values = {partition_values_of_folder(f): f for f in edition.partition_folders}
        existing = {tuple(p.values): p for p in metastore.partitions()}
        described = {
            values: self._describe_partition(metastore.types, edition, values, folder)
            for values, folder in folder_by_values.items()
        }
        for batch in self._batches([p for v, p in described.items() if v not in existing]):
            metastore.add_partitions(batch)
        for batch in self._batches([p for v, p in described.items() if v in existing]):
            metastore.alter_partitions(batch)
        for values in existing.keys() - described.keys():
            metastore.drop_partition(values)

    def _batches(self, partitions: Sequence[Any]) -> Iterator[Sequence[Any]]:
        for n in range(0, len(partitions), self.partitions_per_call):
            yield partitions[n : n + self.partitions_per_call]
            crash_point("metastore.batch")

    def _describe_table(self, types: Any, edition: RegisteredEdition, number: int | None) -> Any:
        """Description of the table. Without a number, readers see no edition that is complete."""
        columns, keys = _columns_and_keys(edition, hive_columns(edition.schema))
        version = {} if number is None else {_VERSION_PARAMETER: str(number), _SEQ_PARAMETER: str(edition.seq)}
        return types.Table(
            tableName=self.table.name,
            dbName=self.table.database,
            owner="nova",
            sd=_describe_storage(types, columns, edition.address),
            partitionKeys=_field_schemas(types, keys),
            parameters={
                "EXTERNAL": "TRUE",
                "external.table.purge": "false",  # a DROP TABLE of others deletes no file
                **_NO_STATISTICS,
                _OWNER_PARAMETER: self.owner,
                **version,
            },
            tableType="EXTERNAL_TABLE",
        )

    def _describe_partition(self, types: Any, edition: RegisteredEdition, values: tuple[str, ...], folder: str) -> Any:
        columns, _ = _columns_and_keys(edition, hive_columns(edition.schema))
        return types.Partition(
            values=list(values),
            dbName=self.table.database,
            tableName=self.table.name,
            sd=_describe_storage(types, columns, f"{edition.address}/{folder}"),
            parameters=dict(_NO_STATISTICS),
        )

    def _check_ownership(self, table: Any | None) -> None:
        owner = None if table is None else (table.parameters or {}).get(_OWNER_PARAMETER)
        if table is not None and owner != self.owner:
            raise TableTaken(
                f"the table {self.table.full_name} exists already in the Hive metastore {self.table.metastore}, and "
                "does not belong to this channel",
                found="a table of " + (owner or "an unknown owner"),
                expected=f"no table, or a table of {self.owner}",
                next="register under another name, or drop the table there (its files stay if it is external)",
                table=str(self.table),
            )

    def _connect(self) -> AbstractContextManager[HiveMetastore]:
        return open_metastore(
            self.table,
            TableUnavailable,
            "correct the cause; readers still see the previous version, and the next publication repeats this one",
            {"table": str(self.table)},
        )


def hive_columns(schema: Schema) -> dict[str, str]:
    """Column -> its type in Hive. Hive compares names in lower case.

    Raises:
        NotSupported: Hive has no type for a column.
    """
    return {f.name.lower(): hive_type(f.type, f.name) for f in schema.fields}


def partition_values_of_folder(folder: str) -> tuple[str, ...]:
    """Values of a partition from its folder in Hive layout."""
    return tuple(unquote(part.partition("=")[2]) for part in folder.split("/"))


def _columns_and_keys(
    edition: RegisteredEdition, type_by_column: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Columns of the files that are no partition keys, and partition keys, each with its type."""
    keys = {d.column.lower(): type_by_column[d.column.lower()] for d in edition.dimensions}
    return {c: t for c, t in type_by_column.items() if c not in keys}, keys


def _can_alter(table: Any, columns: Mapping[str, str], keys: Mapping[str, str]) -> bool:
    """Whether the metastore accepts new columns for a table: only additions at the end. Partition keys are fixed."""
    existing_columns = [(c.name, c.type) for c in table.sd.cols]
    existing_keys = [(k.name, k.type) for k in table.partitionKeys or ()]
    return existing_keys == list(keys.items()) and existing_columns == list(columns.items())[: len(existing_columns)]


def _describe_storage(types: Any, columns: Mapping[str, str], address: str) -> Any:
    input_format, output_format, serializer = PARQUET_STORAGE
    return types.StorageDescriptor(
        cols=_field_schemas(types, columns),
        location=hive_location(address),
        inputFormat=input_format,
        outputFormat=output_format,
        compressed=False,
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(serializationLib=serializer, parameters={"serialization.format": "1"}),
        bucketCols=[],
        sortCols=[],
        parameters={},
        storedAsSubDirectories=False,
    )


def _field_schemas(types: Any, type_by_column: Mapping[str, str]) -> list[Any]:
    return [types.FieldSchema(name=c, type=t) for c, t in type_by_column.items()]
