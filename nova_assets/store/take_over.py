"""Import of a folder that other tools have filled, into the channel that takes the folder over."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nova_assets.errors import BadRecord, DefinitionError, SchemaMismatch, SourceUnavailable, TableTaken
from nova_assets.execution.runtime import Runtime
from nova_assets.model.address import parse_address
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.published_table import HiveTable, PublishedTable
from nova_assets.model.published_version import ExistingTableFile, PublishedContent, TableFileLayout, TableFormat
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError
from nova_assets.publish.edition_folder import hive_partition_path, parse_hive_folder_values
from nova_assets.publish.target import PublishTarget
from nova_assets.store.insert import DataInserter
from nova_assets.user_code_errors import summarize_user_error

if TYPE_CHECKING:
    from nova_assets.publish.existing_folder import ExistingFolder, FolderFiles


class FolderImporter:
    """Imports the folders of Hive tables into channels without data.

    Args:
        outlet_factory: (table, channel) -> the target that writes the table.
        root: base folder of relative paths.
    """

    def __init__(
        self,
        runtime: Runtime,
        inserter: DataInserter,
        outlet_factory: Callable[[PublishedTable, str], PublishTarget],
        root: Path,
    ) -> None:
        self.runtime = runtime
        self.inserter = inserter
        self.outlet_factory = outlet_factory
        self.root = root

    def import_existing_folders(self, channel: Channel) -> None:
        """Insert the data of existing table folders into a channel that has no data."""
        for table in channel.publish:
            self.outlet_factory(table, channel.name).check_can_publish(take_over=True)
        for table in channel.publish:
            is_local = isinstance(table, HiveTable) and "://" not in table.path
            folder = self.root / table.path if isinstance(table, HiveTable) and is_local else None
            if folder is None or not folder.is_dir() or folder.is_symlink():
                continue
            assert isinstance(table, HiveTable)
            if self.runtime.catalog.definitions.channel(channel.name).head == 0:
                self._import_folder(folder, table, channel)

    def import_remote_folder(self, channel: Channel, address: str) -> None:
        """Insert the rows of a folder into a channel without data. The channel's tables get the form of its files."""
        from nova_assets.publish.remote_hive import RemoteHivePublishTarget  # loads Arrow, which few commands need

        remote = [t for t in channel.publish if isinstance(t, HiveTable) and "://" in t.path]
        folder = _check_take_over_source(address, remote, self.runtime.engine.warehouse.address)
        for table in channel.publish:
            self.outlet_factory(table, channel.name).check_can_publish()
        self._earlier_import(folder, channel)  # refuses a channel with other data before anything is written
        existing, layout = self._inspect_remote(folder, channel)
        for table in remote:
            target = self.outlet_factory(table, channel.name)
            assert isinstance(target, RemoteHivePublishTarget)
            target.use_layout(layout)
        self._import_remote(existing, channel, layout)

    def _import_folder(self, folder: Path, table: HiveTable, channel: Channel) -> None:
        """Insert the rows of a folder on a disk as the first base of a channel. Readers of the table then find the same
        rows in the same partitions.

        Args:
            folder: the folder of the table.
            table: the table.
            channel: channel without data.

        Raises:
            TableTaken: the folder is partitioned differently from the channel.
            BadRecord: a file is not in the format of the table, or a partition would get another name.
            DefinitionError: the format needs a schema, and the channel declares none.
            NotSupported: the folder is a table whose metadata decides which files are valid.
        """
        from nova_assets.publish.existing_folder import local_files  # loads Arrow, which few commands need

        format = table.format or "parquet"
        sizes = self._list_sizes(str(folder))
        files = local_files(folder)
        if not files.names:
            return
        if format != "parquet" and channel.schema is None:
            raise DefinitionError(
                f"channel {channel.name!r} has no schema, so a folder of {format} cannot be taken over",
                expected="a channel with schema=, with the columns in the order of the table",
                next=f'nova.Channel("{channel.name}", schema="...", ...)',
                channel=channel.name,
            )
        existing, layout = _inspect(files, format, channel)
        _check_partitions(existing, channel, self._insert(existing, sizes, channel, layout, None))

    def _inspect_remote(self, address: str, channel: Channel) -> tuple[ExistingFolder, TableFileLayout]:
        """Inspect a folder of Parquet files in S3 or HDFS. Changes nothing.

        Args:
            address: the folder.
            channel: channel that gets its rows.

        Returns:
            The folder, and the layout of files that its readers know.

        Raises:
            TableTaken: the folder is empty, or partitioned differently from the channel.
            BadRecord: a file is not in Parquet.
            NotSupported: the folder is a table whose metadata decides which files are valid, or has no single layout.
            SourceUnavailable: the store does not answer.
        """
        from nova_assets.publish.existing_folder import FolderFiles, is_data_file

        store = self.runtime.engine.table_files.store()
        names = tuple(sorted(name for name in self._list_sizes(address) if is_data_file(name)))
        if not names:
            raise TableTaken(
                f"{address} cannot be taken over, because it has no data files",
                found="no files, or only files whose names begin with . or _",
                expected="a folder of Parquet files",
                next="check the address",
                path=address,
            )
        with _translate_store_errors(address):
            return _inspect(
                FolderFiles(address, names, lambda name: store.open(f"{address}/{name}")), "parquet", channel
            )

    def _earlier_import(self, address: str, channel: Channel) -> Commit | None:
        """Commit by which a channel has already taken over a folder in S3 or HDFS; None for a channel without data.

        Raises:
            DefinitionError: the channel has other data.
        """
        earlier = self.runtime.catalog.commits.by_idempotency_key(channel.name, _import_key(address))
        head = self.runtime.catalog.definitions.channel(channel.name).head
        if earlier is None and head > 0:
            raise DefinitionError(
                f"channel {channel.name!r} has data already, so it does not take over {address}",
                found=f"sequence number {head}",
                expected="a channel without data",
                next=f"nova publish {channel.name} (publishes the channel without the rows of the folder)",
                channel=channel.name,
            )
        return None if earlier is None else earlier.commit

    def _import_remote(self, existing: ExistingFolder, channel: Channel, layout: TableFileLayout) -> None:
        """Insert the rows of a folder in S3 or HDFS as the first base of a channel, once. The folder is not changed.

        Args:
            existing: the folder.
            channel: channel without data, or with the rows of this folder.
            layout: layout of its files.

        Raises:
            DefinitionError: the channel has other data.
            SchemaMismatch: the channel cannot hold the rows, or the folder has changed meanwhile.
            BadRecord: a file is damaged.
        """
        address = existing.address
        commit = self._earlier_import(address, channel)
        sizes = self._list_sizes(address)
        if commit is None:
            with _translate_store_errors(address):
                commit = self._insert(existing, sizes, channel, layout, _import_key(address))
        _check_partitions(existing, channel, commit)
        if self._list_sizes(address) != sizes:
            raise _changed_folder_error(
                existing, channel, "other files than before its rows were read", "the same files"
            )

    def _list_sizes(self, address: str) -> dict[str, int]:
        """Size of each file of a folder, by its relative path."""
        files = self.runtime.engine.external_files.list_files(address)
        return {f.path.removeprefix(f"{address}/"): f.bytes for f in files}

    def _insert(
        self,
        existing: ExistingFolder,
        sizes: dict[str, int],
        channel: Channel,
        layout: TableFileLayout,
        idempotency_key: str | None,
    ) -> Commit:
        address = existing.address
        files = [
            ExistingTableFile(f"{address}/{name}", sizes.get(name, 0), parse_hive_folder_values(name))
            for name in existing.files.names
        ]
        try:
            rows = self.runtime.engine.table_files.read_folder(address, files, channel, layout)
            return self.inserter.insert(channel.name, rows, kind="base", idempotency_key=idempotency_key)
        except (NovaError, OSError):
            raise
        except Exception as error:
            raise BadRecord(
                f"{address} cannot be read as {layout.format.capitalize()}",
                found=summarize_user_error(error).message,
                expected=f"only files in the format {layout.format}; names that begin with . or _ are ignored",
                next="move the other files out of the folder; nothing was changed",
                path=address,
            ) from error


def _import_key(address: str) -> str:
    """Idempotency key of the import of a folder."""
    return f"take-over {hashlib.sha256(address.encode()).hexdigest()[:32]}"


def _check_take_over_source(address: str, tables: list[HiveTable], warehouse: str) -> str:
    """Check from where a channel takes a folder over.

    Args:
        address: address of the folder, as the user has typed it.
        tables: tables of the channel in S3 or HDFS.
        warehouse: address of all blocks.

    Returns:
        The address of the folder.

    Raises:
        DefinitionError: the folder is on a disk, or the channel has no table in a store.
        TableTaken: the folder overlaps a table of the channel, or the warehouse.
        SettingsError, NotSupported: the address is invalid.
    """
    if "://" not in address:
        raise DefinitionError(
            f"{address!r} is not an address in S3 or HDFS",
            expected="s3://BUCKET/PATH or hdfs://NAMENODE:PORT/PATH",
            next="take a folder on a disk over in its place: nova publish CHANNEL --take-over",
        )
    folder = str(parse_address(address))
    if not tables:
        raise DefinitionError(
            f"the channel has no table that could take over the form of {folder}",
            expected="a table in S3 or HDFS",
            next=f'publish=nova.hive("{folder}_v2")',
        )
    for own in (*(str(parse_address(t.path)) for t in tables), warehouse.rstrip("/")):
        if f"{own}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{own}/"):
            raise TableTaken(
                f"{folder} cannot be taken over by a table in the same folder",
                found=own,
                expected="a table at another address, so that readers of the folder are not disturbed",
                next=f'publish=nova.hive("{folder}_v2")',
                path=folder,
            )
    return folder


def _inspect(files: FolderFiles, format: TableFormat, channel: Channel) -> tuple[ExistingFolder, TableFileLayout]:
    from nova_assets.publish.existing_folder import check_partition_columns, inspect_folder, layout_of_folder

    existing = inspect_folder(files, format)
    check_partition_columns(existing, [d.column for d in channel.partitions], channel.name)
    return existing, layout_of_folder(existing, format, channel.schema or Schema(()))


@contextmanager
def _translate_store_errors(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceUnavailable(
            f"{address} cannot be read",
            found=f"{error.strerror or error}".split("\n")[0],
            expected="a store that answers, and files that stay as they are",
            next="correct the cause, then run the command again; the folder was not changed",
            path=address,
        ) from error


def _check_partitions(existing: ExistingFolder, channel: Channel, commit: Commit) -> None:
    """Check that each partition has the same folder and as many rows as before.

    Raises:
        SchemaMismatch: the channel would show a partition under another name.
    """
    rows_by_path: dict[str, int] = {}
    for block in commit.blocks:
        content = PublishedContent(channel.name, 0, block.manifest.schema, channel.partitions, ())
        path = hive_partition_path(block.partition, content)
        rows_by_path[path] = rows_by_path.get(path, 0) + block.rows
    before = existing.rows_by_partition or dict.fromkeys(existing.partition_paths, -1)
    for path, rows in before.items():
        if rows and (path not in rows_by_path or rows not in (-1, rows_by_path[path])):
            raise _changed_folder_error(
                existing,
                channel,
                f"{rows_by_path.get(path, 0)} rows in {path or 'the folder'} in channel {channel.name!r}",
                f"{rows} rows" if rows > 0 else "the rows of that folder",
            )


def _changed_folder_error(existing: ExistingFolder, channel: Channel, found: str, expected: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{existing.address} is not taken over, because readers would not find a partition as before",
        found=found,
        expected=expected,
        next="stop the programs that write into the folder, and declare the partition columns with the types of the "
        f"folder names, in another channel; the folder was not changed, but channel {channel.name!r} has its rows",
        channel=channel.name,
    )
