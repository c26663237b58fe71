"""Channels that are published as external tables."""

from __future__ import annotations

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.published_table import HiveTable, PublishedTable, table_from_id
from nova_assets.model.published_version import PublicationPreview, PublishedVersion
from nova_assets.publish.open_target import open_publish_target
from nova_assets.publish.target import PublishTarget
from nova_assets.settings import Settings
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.compaction import ChannelCompaction
from nova_assets.store.insert import DataInserter
from nova_assets.store.publish import TablePublisher
from nova_assets.store.take_over import FolderImporter, check_take_over_source


class StorePublishing:
    """Store methods that publish channels as external tables."""

    def __init__(
        self,
        runtime: Runtime,
        registry: ChannelRegistry,
        inserter: DataInserter,
        compaction: ChannelCompaction,
        settings: Settings,
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.settings = settings
        self.importer = FolderImporter(runtime, inserter)
        self.publisher = TablePublisher(runtime, compaction, inserter, self._open_outlet, settings.gc_grace)

    def publish(
        self, channel: Channel | str, *, take_over: bool = False, take_over_from: str | None = None
    ) -> list[PublishedVersion]:
        """Publish the current version of a channel in every table that its ``publish=`` names. Each table changes
        atomically.

        The data is not copied. A keyed channel with unmerged deltas is compacted first.

        Args:
            channel: a channel of the project with ``publish=``, or such a ``Channel`` object.
            take_over: for a Hive table, replace an existing folder that does not belong to the channel. The old folder
                is kept beside the new table under another name. If the channel has no data yet, the folder's data is
                first inserted into the channel. So readers of the folder see the same rows as before. An Iceberg table
                of another owner is never replaced, and neither is a folder in S3 or HDFS.
            take_over_from: address of a folder in S3 or HDFS that other tools have filled. Its rows are first inserted
                into the channel, which must be empty. The channel's tables in S3 and HDFS then have files in the form
                of the folder's files. The folder itself stays as it is, for its readers.

        Returns:
            The new editions. A table that already shows the newest version gets none.

        Raises:
            DefinitionError: the channel has no ``publish=``, or has data and takes over another folder.
            SchemaMismatch, BadRecord, NotSupported, SourceUnavailable: a folder cannot be taken over as it is.
            TableTaken: a table with this name or path exists, and does not belong to the channel.
            TableUnavailable: the table cannot be reached or written. The other tables are published all the same.
            ExecutionInProgress: another process is publishing the channel.
        """
        definition = self._find_published_definition(channel)
        if take_over_from is not None:
            self._import_remote_folder(definition, take_over_from)
        elif take_over:
            self._import_existing_folders(definition)
        return self.publisher.publish(
            definition.name,
            definition.publish,
            self.registry.compaction_policy(definition.name),
            take_over=take_over or take_over_from is not None,
        )

    def publishable(self, channel: Channel | str) -> list[PublicationPreview]:
        """Dry run of ``publish``: the actions that ``publish`` would take. Empty for a channel without a schema."""
        definition = self._find_published_definition(channel)
        return self.publisher.preview_publish(definition.name, definition.publish)

    def to_publish(self, channel: Channel | str) -> list[PublishedTable]:
        """Tables of a channel that do not show its newest version."""
        definition = self._find_published_definition(channel)
        return self.publisher.tables_to_publish(definition.name, definition.publish)

    def published(self, channel: Channel | str) -> list[PublishedVersion]:
        """Editions of a channel that readers may still use, in all its tables, latest first.

        nova does not delete the files of these editions.
        """
        return self.runtime.catalog.published_versions(self.registry.known(channel))

    def unpublish(self, channel: Channel | str, table: str | None = None, *, dry_run: bool = False) -> list[str]:
        """Remove the published table of a channel. Also remove the table from the channel's ``publish=``. Otherwise
        nova publishes the table again.

        Args:
            table: id of the table, such as ``hive:exports/actions``. By default, all tables of the channel.
            dry_run: return the ids without changing anything.

        Returns:
            The ids of the tables.

        Raises:
            DefinitionError: the channel is not published in this table.
        """
        name = self.registry.known(channel)
        definition = self.registry.find_definition(channel)
        tables_by_id = {t.id: t for t in (() if definition is None else definition.publish)}
        # A table that was removed from the definition first is still published.
        tables_by_id = {
            **{e.table: table_from_id(e.table) for e in self.runtime.catalog.published_versions(name)},
            **tables_by_id,
        }
        chosen_ids = sorted(table_id for table_id in tables_by_id if table in (None, table_id))
        if not chosen_ids:
            raise DefinitionError(
                f"channel {name!r} is not published" + (f" in {table!r}" if table is not None else " anywhere"),
                expected=" or ".join(sorted(tables_by_id)) or None,
                channel=name,
            )
        for i in [] if dry_run else chosen_ids:
            self.publisher.withdraw(name, tables_by_id[i])
        return chosen_ids

    def _import_existing_folders(self, channel: Channel) -> None:
        """Insert the data of existing table folders into a channel that has no data."""
        for table in channel.publish:
            self._open_outlet(table, channel.name).check_can_publish(take_over=True)
        for table in channel.publish:
            is_local = isinstance(table, HiveTable) and "://" not in table.path
            folder = self.settings.root / table.path if isinstance(table, HiveTable) and is_local else None
            if folder is None or not folder.is_dir() or folder.is_symlink():
                continue
            assert isinstance(table, HiveTable)
            if self.runtime.catalog.channel(channel.name).head == 0:
                self.importer.import_folder(folder, table, channel)

    def _import_remote_folder(self, channel: Channel, address: str) -> None:
        """Insert the rows of a folder into a channel without data. The channel's tables get the form of its files."""
        from nova_assets.publish.remote_hive import RemoteHivePublishTarget  # loads Arrow, which few commands need

        remote = [t for t in channel.publish if isinstance(t, HiveTable) and "://" in t.path]
        folder = check_take_over_source(address, remote, self.runtime.engine.address)
        for table in channel.publish:
            self._open_outlet(table, channel.name).check_can_publish()
        self.importer.earlier_import(folder, channel)  # refuses a channel with other data before anything is written
        existing, layout = self.importer.inspect_remote(folder, channel)
        for table in remote:
            target = self._open_outlet(table, channel.name)
            assert isinstance(target, RemoteHivePublishTarget)
            target.use_layout(layout)
        self.importer.import_remote(existing, channel, layout)

    def _open_outlet(self, table: PublishedTable, channel: str) -> PublishTarget:
        owner = f"channel {channel} of catalog {self.runtime.catalog.identity()}"
        engine = self.runtime.engine
        return open_publish_target(
            table, self.settings.root, self.settings.default_data_folder, engine.address, owner, engine.table_store
        )

    def _find_published_definition(self, channel: Channel | str) -> Channel:
        name = self.registry.known(channel)
        definition = self.registry.find_definition(channel)
        if definition is None or not definition.publish:
            raise DefinitionError(
                f"channel {name!r} is not published anywhere",
                expected="a channel of the project that has publish=nova.hive(...) or nova.iceberg(...)",
                next=f'nova.Channel("{name}", publish=nova.hive("exports/{name}"))',
                channel=name,
            )
        return definition
