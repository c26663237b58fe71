"""Where the partitions of an external table come from: a listing of its location, or a metastore."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nova_assets.model.block import Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.engine import Engine
from nova_assets.model.external_table import ExternalPosition
from nova_assets.model.file_source import ExternalFolder
from nova_assets.plan.external_changes import LocationContents, group_files_by_partition


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """Folder with the files of one partition.

    Args:
        address: the folder.
        location, has_values_in_path: see ``ExternalFolder``.
    """

    address: str
    location: str
    has_values_in_path: bool

    @staticmethod
    def of_manifest(manifest: Manifest) -> PartitionFolder | None:
        """Folder of the files of an external block; None if only a block with files would tell it."""
        folder = manifest.external_folder
        if folder is None or (folder.has_values_in_path and not manifest.files):
            return None
        address = manifest.files[0].path.rpartition("/")[0] if folder.has_values_in_path else folder.location
        return PartitionFolder(address, folder.location, folder.has_values_in_path)


@dataclass(frozen=True, slots=True)
class CommittedPartitions:
    """State of an external channel in the catalog.

    Args:
        version_by_partition: version of the external files of each existing partition.
        folder_by_partition: folder of each existing partition; None if the catalog does not know it.
    """

    head: int
    version_by_partition: Mapping[str, str]
    folder_by_partition: Mapping[str, PartitionFolder | None]


@dataclass(frozen=True)
class PartitionListing:
    """Current partitions of an external table.

    Args:
        location: location of partitions that are not in ``folders``.
        contents: the partitions with their files.
        folders: partition -> its folder.
        position: position in the other system's log before the listing; None if there is no log.
    """

    location: str
    contents: LocationContents
    folders: Mapping[str, PartitionFolder] = field(default_factory=dict)
    position: ExternalPosition | None = None

    def external_folder(self, partition: str, version: str) -> ExternalFolder:
        folder = self.folders.get(partition)
        if folder is None:
            return ExternalFolder(self.location, version)
        return ExternalFolder(folder.location, version, folder.has_values_in_path)


class PartitionFolders(Protocol):
    """Source of the partitions of external tables."""

    def list_partitions(
        self, channel: Channel, committed: CommittedPartitions, expected_partitions: Collection[str] | None
    ) -> PartitionListing:
        """Current partitions of an external channel, with their files.

        Args:
            expected_partitions: partitions that the channel should have; None if its dimensions alone determine them.

        Raises:
            SourceUnavailable: the source does not answer.
            NotSupported: the files of the table alone do not show its rows.
        """
        ...


class FolderListing:
    """Lists the location of a channel, and takes the partitions from the names of its folders.

    Args:
        root: base folder of relative locations.
    """

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine = engine
        self.root = root

    def list_partitions(
        self, channel: Channel, committed: CommittedPartitions, expected_partitions: Collection[str] | None
    ) -> PartitionListing:
        location = self._absolute_location(channel)
        files = self.engine.external_files.list_files(location)
        return PartitionListing(location, group_files_by_partition(channel, location, files, expected_partitions))

    def _absolute_location(self, channel: Channel) -> str:
        assert channel.external is not None
        location = channel.external.location
        if "://" in location:
            return location.rstrip("/")
        return os.path.normpath((self.root / Path(location).expanduser()).absolute())
