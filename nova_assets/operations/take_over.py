"""Import of a folder that other tools have filled, into the channel that takes the folder over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nova_assets.errors import BadRecord, DefinitionError, SchemaMismatch
from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.published_table import HiveTable
from nova_assets.model.published_version import PublishedContent
from nova_assets.model.schema import Schema
from nova_assets.model.table_files import TableFileLayout
from nova_assets.nova_error import NovaError
from nova_assets.operations.insert import DataInserter
from nova_assets.publish.partition_paths import hive_partition_path
from nova_assets.user_code_errors import summarize_user_error

if TYPE_CHECKING:
    from nova_assets.publish.existing_folder import ExistingFolder


class FolderImporter:
    """Imports the folders of Hive tables into channels without data."""

    def __init__(self, runtime: Runtime, inserter: DataInserter) -> None:
        self.runtime = runtime
        self.inserter = inserter

    def import_folder(self, folder: Path, table: HiveTable, channel: Channel) -> None:
        """Insert the rows of a folder as the first base of a channel. Readers of the table then find the same rows in
        the same partitions.

        Args:
            folder: the folder of the table.
            table: the table.
            channel: channel without data.

        Raises:
            TableTaken: the folder is partitioned differently from the channel.
            BadRecord: a file is not in the format of the table, or a partition would get another name.
            DefinitionError: the format needs a schema, and the channel declares none.
        """
        from nova_assets.publish.existing_folder import (  # loads Arrow, which few commands need
            check_partition_columns,
            data_files,
            inspect_folder,
            layout_of_folder,
        )

        format = table.format or "parquet"
        if not data_files(folder):
            return
        existing = inspect_folder(folder, format)
        check_partition_columns(existing, [d.column for d in channel.partitions], channel.name)
        if format != "parquet" and channel.schema is None:
            raise DefinitionError(
                f"channel {channel.name!r} has no schema, so a folder of {format} cannot be taken over",
                expected="a channel with schema=, with the columns in the order of the table",
                next=f'nova.Channel("{channel.name}", schema="...", ...)',
                channel=channel.name,
            )
        layout = layout_of_folder(existing, format, channel.schema or Schema(()))
        commit = self._insert(folder, channel, layout)
        _check_partitions(existing, channel, commit)

    def _insert(self, folder: Path, channel: Channel, layout: TableFileLayout) -> Commit:
        try:
            rows = self.runtime.engine.read_table_folder(folder, channel, layout)
            return self.inserter.insert(channel.name, rows, kind="base")
        except NovaError:
            raise
        except Exception as error:
            raise BadRecord(
                f"{folder} cannot be read as {layout.format.capitalize()}",
                found=summarize_user_error(error).message,
                expected=f"only files in the format {layout.format}; names that begin with . or _ are ignored",
                next="move the other files out of the folder; nothing was changed",
                path=str(folder),
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
            raise SchemaMismatch(
                f"{existing.path} is not taken over, because readers would not find a partition as before",
                found=f"{rows_by_path.get(path, 0)} rows in {path or 'the folder'} in channel {channel.name!r}",
                expected=f"{rows} rows" if rows > 0 else "the rows of that folder",
                next="declare the partition columns with the types of the folder names, in another channel; "
                f"the folder was not changed, but channel {channel.name!r} has its rows",
                channel=channel.name,
            )
