"""Channels that are published as external tables."""

from __future__ import annotations

from nova_assets.errors import DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.channel import Channel
from nova_assets.model.published_table import PublishedTable, table_from_id
from nova_assets.model.published_version import PublicationPreview, PublishedVersion
from nova_assets.model.timeline import History
from nova_assets.nova_error import NovaError
from nova_assets.publish.open_target import open_publish_target
from nova_assets.publish.target import PublishTarget
from nova_assets.settings import Settings
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.compaction import ChannelCompaction
from nova_assets.store.insert import DataInserter
from nova_assets.store.lasting_problems import notify_if_failing
from nova_assets.store.table_publisher import TablePublisher
from nova_assets.store.take_over import FolderImporter

log = get_logger("nova_assets.publishing")


class ChannelPublishing:
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
        self.catalog = runtime.catalog
        self.registry = registry
        self.settings = settings
        self.importer = FolderImporter(runtime, inserter, self._open_outlet, settings.root)
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
            CopyUndecided: the catalog is a copy of another one, which may publish to the same tables.
        """
        definition = self._find_published_definition(channel)
        if take_over_from is not None:
            self.importer.import_remote_folder(definition, take_over_from)
        elif take_over:
            self.importer.import_existing_folders(definition)
        self.runtime.staging.warehouse_check.check_may_delete("nothing is published")
        takes_over = take_over or take_over_from is not None
        new_versions: list[PublishedVersion] = []
        first_error: NovaError | None = None
        for table in definition.publish:
            try:
                new_versions += self._publish_in_table(definition.name, table, takes_over)
            except NovaError as error:  # a failed table must not stop the others
                log.warning("publishing channel %s to %s failed: %s", definition.name, table.id, error)
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return new_versions

    def _publish_in_table(self, channel: str, table: PublishedTable, take_over: bool) -> list[PublishedVersion]:
        activity, policy = f"publication of {channel} in {table.id}", self.registry.compaction_policy(channel)
        with notify_if_failing(self.catalog, "publication_failing", channel, activity):
            new_version = self.publisher.publish_in_table(channel, table, policy, take_over)
            self.publisher.delete_expired_versions(channel, table)
        return [] if new_version is None else [new_version]

    def publishable(self, channel: Channel | str) -> list[PublicationPreview]:
        """Dry run of ``publish``: the actions that ``publish`` would take. Empty for a channel without a schema."""
        definition = self._find_published_definition(channel)
        history = self._load_head_history(definition.name)
        previews = [self.publisher.preview(definition.name, table, history) for table in definition.publish]
        return [preview for preview in previews if preview is not None]

    def to_publish(self, channel: Channel | str) -> list[PublishedTable]:
        """Tables of a channel that do not show its newest version, as far as the catalog knows, and whose publish
        interval is over.
        """
        definition = self._find_published_definition(channel)
        name = definition.name
        due_tables = [t for t in definition.publish if self.publisher.is_publish_interval_over(name, t)]
        history = self._load_head_history(name) if due_tables else None
        return [t for t in due_tables if history is not None and self.publisher.needs_publish(name, t, history)]

    def published(self, channel: Channel | str) -> list[PublishedVersion]:
        """Editions of a channel that readers may still use, in all its tables, latest first.

        nova does not delete the files of these editions.
        """
        return self.catalog.published_versions.find(self.registry.known(channel))

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
            **{e.table: table_from_id(e.table) for e in self.catalog.published_versions.find(name)},
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

    def _load_head_history(self, channel: str) -> History:
        head = self.catalog.definitions.channel(channel).head
        return self.catalog.histories.of(channel, head, back_to=head)

    def _open_outlet(self, table: PublishedTable, channel: str) -> PublishTarget:
        owner = f"channel {channel} of catalog {self.catalog.identity.get()}"
        engine = self.runtime.engine
        return open_publish_target(
            table,
            self.settings.root,
            self.settings.default_data_folder,
            engine.warehouse.address,
            owner,
            engine.table_files.store,
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
