"""Refresh of external channels: list their locations and commit changed partitions as bases (BigDataFlow, part 2).

The module ``database_tables`` refreshes the channels that copy a database table.


A base lists the external files in place. Nothing is copied. If two processes refresh a channel at once, one of them
commits and the other finds no more changes.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nova_assets.errors import CommitConflict, DefinitionError, NotSupported, SchemaMismatch
from nova_assets.execution.retries import plan_again_after_conflict
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.commit import AddBlock, CommitRequest, RequireHead
from nova_assets.model.execution import Execution
from nova_assets.model.external_table import ExternalFilesContent, RefreshResult
from nova_assets.model.file_source import GONE_VERSION
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes
from nova_assets.plan.external_changes import ExternalChanges, PartitionFiles, detect_changes
from nova_assets.store.external_listing import (
    CommittedPartitions,
    FolderListing,
    PartitionFolder,
    PartitionFolders,
    PartitionListing,
)
from nova_assets.store.metastore_listing import MetastoreFolders

log = get_logger("nova_assets.external")

PARTITIONS_PER_COMMIT = 500
"""Number of partitions per commit."""

PARALLEL_PARTITIONS = 8
"""Number of partitions whose files are inspected in parallel."""


def absolute_location(location: str, root: Path) -> str:
    """Address of a location. A folder is relative to the root of the project."""
    if "://" in location:
        return location.rstrip("/")
    return os.path.normpath((root / Path(location).expanduser()).absolute())


class ExternalTables:
    """Store methods that detect and commit the changes of external files and tables.

    Args:
        root: base folder of relative locations.
    """

    def __init__(self, runtime: Runtime, root: Path) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.folder_listing = FolderListing(self.engine, root)
        self.metastore_folders = MetastoreFolders(self.engine, self.catalog)

    def refresh(self, channel: str, *, gone: bool = False) -> RefreshResult:
        """List the files of an external channel and commit the differences since the last refresh.

        Each changed partition gets a base that references the external files in place. Nothing is copied, and the
        external files are never modified. A partition with a file that contradicts the channel's definition keeps its
        old state.

        Args:
            gone: accept any number of vanished partitions. By default, if many partitions vanish at once, nova assumes
                a storage failure and keeps their state.

        Raises:
            DefinitionError: the channel is not external.
            SourceUnavailable: the location cannot be listed.
            NotSupported: the location holds a table format with its own file list.
            SchemaMismatch: a declared column is missing in every file.
        """
        definition = self._external_channel(channel)
        self.catalog.definitions.register([definition], (), False)

        def refresh_once() -> RefreshResult:
            # The catalog is read before the listing, so that the committed state is never newer than the listing.
            if definition.external is not None and definition.external.database is not None:
                return self._refresh_database(definition, gone)
            if self.catalog.sources.versions(channel):
                raise NotSupported(
                    f"external channel {channel!r} has rows of a database, and its definition names files",
                    next="declare a channel with another name for the files",
                    channel=channel,
                )
            history = self.catalog.histories.of(channel)
            return self._commit_changes(self._list_channel(definition, history, gone))

        return plan_again_after_conflict(refresh_once, f"the refresh of {channel}", self.runtime.max_attempts, log)

    def preview_refresh(self, channel: str, *, gone: bool = False) -> RefreshResult:
        """Dry run of ``refresh``: the changes that ``refresh`` would commit. No file is opened."""
        definition = self._external_channel(channel)
        if definition.external is not None and definition.external.database is not None:
            return self._refresh_database(definition, gone, dry_run=True)
        is_registered = channel in {c.channel.name for c in self.catalog.definitions.channels()}
        return self._list_channel(
            definition, self.catalog.histories.of(channel) if is_registered else None, gone
        ).to_refresh_result()

    def refresh_all(self) -> list[RefreshResult]:
        """Refresh all external channels of the project.

        If a channel cannot be refreshed, the channel keeps its state, and its result holds the reason. The other
        channels are refreshed all the same.
        """
        return [self._refresh_or_report(c.name) for c in self._external_channels()]

    def _external_channels(self) -> list[Channel]:
        return [c for c in self.runtime.project.channels if c.external is not None]

    def _refresh_or_report(self, name: str) -> RefreshResult:
        try:
            return self.refresh(name)
        except NovaError as error:
            log.warning("external channel %s was not refreshed: %s", name, error)
            return RefreshResult(name, error=str(error))

    def _refresh_database(self, channel: Channel, allow_vanished: bool, dry_run: bool = False) -> RefreshResult:
        from nova_assets.store.database_tables import DatabaseTableRefresher  # needs psycopg

        refresher = DatabaseTableRefresher(self.runtime)
        return refresher.refresh(channel, self._expected_partitions(channel), allow_vanished, dry_run)

    def _commit_changes(self, listing: _ChannelListing) -> RefreshResult:
        """Commit the changes in slices, so that an interrupted refresh of a large location keeps its progress."""
        errors_by_partition = dict(listing.partitions.contents.bad)
        columns: set[str] = set()
        head, seq = listing.committed_head, None
        for partition_slice in _split_into_slices(listing.changes.changed):
            manifests = self._manifests_by_partition(listing, partition_slice, errors_by_partition, columns)
            if manifests and listing.committed_head == 0:
                _check_columns_exist(listing.channel, columns)
            if manifests:
                head = seq = self._commit_manifests(listing, head, manifests)
        if listing.changes.gone:
            head = seq = self._commit_manifests(listing, head, listing.vanished_manifests())
        if not errors_by_partition and listing.is_complete:
            self.metastore_folders.save_position(listing.channel.name, listing.partitions, head)
        return listing.to_refresh_result(errors_by_partition, seq)

    def _commit_manifests(self, listing: _ChannelListing, expected_head: int, manifests: Mapping[str, Manifest]) -> int:
        """Commit new content of partitions. Returns the sequence number.

        Raises:
            CommitConflict: another commit happened since the listing.
        """
        name = listing.channel.name
        writer = self.runtime.channel_writer
        with writer.write(name) as execution:
            if execution.pins[name].head != expected_head:
                raise CommitConflict(f"channel {name!r} was refreshed by another process", reason="head", channel=name)
            commit = writer.commit(_build_commit_request(execution, listing, expected_head, manifests))
        return commit.numbers[name]

    def _list_channel(self, channel: Channel, history: History | None, allow_vanished: bool) -> _ChannelListing:
        """Listing of an external location, compared with the committed state."""
        committed = CommittedPartitions(0, {}, {}) if history is None else _committed_partitions(history)
        expected_partitions = self._expected_partitions(channel)
        partitions = self._partition_folders(channel).list_partitions(
            channel, committed, expected_partitions and expected_partitions | committed.version_by_partition.keys()
        )
        schema = (history.schema if history is not None else None) or channel.schema
        assert schema is not None  # an external channel has one
        return _ChannelListing(
            channel,
            schema,
            committed.head,
            expected_partitions is not None,
            partitions,
            detect_changes(partitions.contents, committed.version_by_partition, allow_gone=allow_vanished),
        )

    def _partition_folders(self, channel: Channel) -> PartitionFolders:
        """Where the folders of the channel's partitions come from."""
        assert channel.external is not None
        return self.folder_listing if channel.external.metastore_table is None else self.metastore_folders

    def _external_channel(self, name: str) -> Channel:
        channel = self.runtime.project.channel(name)
        if channel.external is None:
            external = ", ".join(c.name for c in self._external_channels())
            raise DefinitionError(
                f"channel {name!r} is not external",
                expected=external or "(the project has no external channel)",
            )
        return channel

    def _expected_partitions(self, channel: Channel) -> frozenset[str] | None:
        """Partitions that should exist, if the header of the channel's statement defines them."""
        assert channel.external is not None
        expected_partitions_at = channel.external.expected
        return None if expected_partitions_at is None else frozenset(expected_partitions_at(self.catalog.now()))

    def _manifests_by_partition(
        self,
        listing: _ChannelListing,
        contents: Mapping[str, PartitionFiles],
        errors_by_partition: dict[str, str],
        columns_in_files: set[str],
    ) -> dict[str, Manifest]:
        """Manifests of partitions that are valid.

        Args:
            errors_by_partition: filled with the errors of invalid partitions.
            columns_in_files: filled with the columns that occur in a file.
        """

        def describe_partition(partition: str, content: PartitionFiles) -> ExternalFilesContent | NovaError:
            try:
                return self.engine.external_files.describe_files(listing.channel, partition, content.files)
            except NovaError as error:
                return error

        manifests: dict[str, Manifest] = {}
        with ThreadPoolExecutor(PARALLEL_PARTITIONS, "nova-external") as pool:
            descriptions = pool.map(describe_partition, contents, contents.values())
            for (partition, content), description in zip(contents.items(), descriptions, strict=True):
                if isinstance(description, NovaError):
                    errors_by_partition[partition] = str(description)
                else:
                    columns_in_files |= description.columns
                    manifests[partition] = listing.build_manifest(partition, description.files, content.version)
        return manifests


@dataclass(frozen=True)
class _ChannelListing:
    """Listing of an external channel, compared with its committed state.

    Args:
        schema: schema in the catalog.
        committed_head: head of the channel before the listing.
        has_expected_partitions: whether the channel defines which partitions should exist.
    """

    channel: Channel
    schema: Schema
    committed_head: int
    has_expected_partitions: bool
    partitions: PartitionListing
    changes: ExternalChanges

    @property
    def is_complete(self) -> bool:
        """Whether every existing partition can be shown. Otherwise the next refresh must look at it again."""
        contents = self.partitions.contents
        return not (contents.unfinished or contents.unexpected or contents.bad or self.changes.unconfirmed_gone)

    def build_manifest(self, partition: str, files: tuple[DataFile, ...], version: str) -> Manifest:
        assert self.channel.external is not None
        external_folder = self.partitions.external_folder(partition, version)
        return Manifest(files, self.schema, format=self.channel.external.format, external_folder=external_folder)

    def vanished_manifests(self) -> dict[str, Manifest]:
        """Manifests of vanished partitions.

        If the channel defines its expected partitions, the partition is dropped, so that readers wait for it. Otherwise
        it becomes empty, which its consumers see as a change.
        """
        if self.has_expected_partitions:
            return {p: Manifest((), self.schema) for p in self.changes.gone}
        return {p: self.build_manifest(p, (), GONE_VERSION) for p in self.changes.gone}

    def to_refresh_result(
        self, errors_by_partition: Mapping[str, str] | None = None, seq: int | None = None
    ) -> RefreshResult:
        """Report for people."""
        return RefreshResult(
            self.channel.name,
            tuple(self.changes.changed),
            self.changes.gone,
            self.changes.unconfirmed_gone,
            self.partitions.contents.unfinished,
            self.partitions.contents.ignored,
            tuple(sorted(self.partitions.contents.unexpected)),
            dict(self.partitions.contents.bad if errors_by_partition is None else errors_by_partition),
            self.changes.unchanged_count,
            seq,
        )


def _committed_partitions(history: History) -> CommittedPartitions:
    """Version and folder of each existing partition's external files."""
    manifests = {b.partition: b.manifest for b in modes.snapshot(history, history.head).bases if isinstance(b, Block)}
    versions: dict[str, str] = {}
    folders: dict[str, PartitionFolder | None] = {}
    for partition, manifest in manifests.items():
        if manifest.external_folder is not None and manifest.external_folder.version != GONE_VERSION:
            versions[partition] = manifest.external_folder.version
            folders[partition] = PartitionFolder.of_manifest(manifest)
    return CommittedPartitions(history.head, versions, folders)


def _split_into_slices(changed: Mapping[str, PartitionFiles]) -> Iterator[dict[str, PartitionFiles]]:
    names = list(changed)
    for n in range(0, len(names), PARTITIONS_PER_COMMIT):
        yield {p: changed[p] for p in names[n : n + PARTITIONS_PER_COMMIT]}


def _check_columns_exist(channel: Channel, columns_in_files: set[str]) -> None:
    """Check that each declared column occurs in some file. A column in no file is more likely a wrong name than a
    future column.
    """
    assert channel.schema is not None
    partition_columns = {c.lower() for c in channel.partition_columns}
    missing_columns = [
        f.name for f in channel.schema.fields if f.name.lower() not in columns_in_files | partition_columns
    ]
    if missing_columns:
        raise SchemaMismatch(
            f"no file of external channel {channel.name!r} contains {', '.join(map(repr, missing_columns))}",
            found=", ".join(sorted(columns_in_files)) or "no columns",
            expected=", ".join(n for n in channel.schema.names if n.lower() not in partition_columns),
            next="use the column names of the files, or remove these columns from the definition",
            channel=channel.name,
        )


def _build_commit_request(
    execution: Execution, listing: _ChannelListing, head: int, manifests: Mapping[str, Manifest]
) -> CommitRequest:
    name, model = listing.channel.name, listing.channel.merge
    added_blocks = tuple(
        AddBlock(uuid.uuid4().hex, name, "base", m, model, p, "drop" if m.external_folder is None else "insert")
        for p, m in manifests.items()
    )
    return CommitRequest(
        id=uuid.uuid4().hex,
        execution_id=execution.id,
        epoch=execution.epoch,
        binding=None,
        added_blocks=added_blocks,
        required_heads=(RequireHead(name, head),),
        details={"refreshed": len(added_blocks)},
    )
