"""Partitions of an external table from a Hive metastore, refreshed by its notification log where it keeps one.

The log names the partitions that were added, changed or dropped, so the metastore is asked for these alone. The folders
of all partitions are listed at each refresh: Spark writes files to an existing partition without an event.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import PartitionError, SourceUnavailable
from nova_assets.masking import get_logger
from nova_assets.metastore.client import HiveMetastore, open_metastore
from nova_assets.metastore.hive_tables import nova_address, storage_format
from nova_assets.metastore.notification_log import PartitionValues, changed_partitions
from nova_assets.model.channel import Channel
from nova_assets.model.engine import Engine
from nova_assets.model.external_table import ExternalPosition
from nova_assets.model.file_source import ExternalFileInfo
from nova_assets.model.partitions import partition_values
from nova_assets.nova_error import NovaError
from nova_assets.plan.external_changes import (
    HIVE_NULL,
    LocationContents,
    PartitionFiles,
    is_hidden_file,
    partition_files,
    partition_of_folder,
    partition_of_values,
)
from nova_assets.store.external_listing import CommittedPartitions, PartitionFolder, PartitionListing
from nova_assets.store.metastore_columns import (
    check_declared_columns,
    load_described_table,
    metastore_columns,
    partition_keys,
)

log = get_logger("nova_assets.external")

FULL_LISTING_EVERY = timedelta(days=1)
"""Time after which the metastore is asked for all partitions, even if its log is complete."""

MAX_EVENTS = 20_000
"""Number of events above which asking for all partitions is cheaper than reading the log."""

EVENTS_PER_CALL = 1000

MAX_CHANGED_PARTITIONS = 1000
"""Number of changed partitions above which all are fetched together."""

PARALLEL_LISTINGS = 16
"""Number of partitions whose folders are listed at the same time."""

MIN_PARTITIONS_OF_COMMON_LISTING = 20
"""Number of partitions below one folder from which the folder is listed once, instead of each partition."""


@dataclass(frozen=True)
class _MetastorePartitions:
    """Answer of a metastore.

    Args:
        table: description of the table.
        storage_by_values: values of each partition -> its storage; for a table without partitions, its own.
        unchanged: committed partitions that the metastore was not asked for, since no event concerns them.
    """

    table: Any
    storage_by_values: Mapping[PartitionValues, Any]
    unchanged: Mapping[str, PartitionFolder]
    position: ExternalPosition | None


class MetastoreFolders:
    """Takes the partitions of a channel, and their folders, from a Hive metastore. Implements ``PartitionFolders``."""

    def __init__(self, engine: Engine, catalog: Catalog) -> None:
        self.engine = engine
        self.catalog = catalog

    def list_partitions(
        self, channel: Channel, committed: CommittedPartitions, expected_partitions: Collection[str] | None
    ) -> PartitionListing:
        assert channel.external is not None and channel.external.metastore_table is not None
        table = channel.external.metastore_table
        next_step = "correct the address, or wait until the metastore answers; the channel keeps its earlier state"
        with open_metastore(table, SourceUnavailable, next_step, {"channel": channel.name}) as metastore:
            answer = self._fetch_partitions(metastore, channel, committed)
        return _Listing(self.engine, channel, answer, committed, expected_partitions).result()

    def save_position(self, channel: str, listing: PartitionListing, head: int) -> None:
        """Record that a channel shows all changes before the position of a listing.

        Args:
            head: head of the channel with these changes.
        """
        if listing.position is not None:
            self.catalog.sources.set_position(channel, replace(listing.position, head=head))

    def _fetch_partitions(
        self, metastore: HiveMetastore, channel: Channel, committed: CommittedPartitions
    ) -> _MetastorePartitions:
        event_id = metastore.current_event_id()  # before the partitions: later changes are events after it
        description = load_described_table(metastore, channel.name)
        columns = metastore_columns(description)
        check_declared_columns(channel, metastore.table, columns)
        keys, now = columns.partition_keys, self.catalog.now()
        source = _source_identity(metastore, channel, description)
        position = None if event_id is None else ExternalPosition(source, event_id, now, committed.head)
        saved = self.catalog.sources.position(channel.name)
        if position is not None and saved is not None and _is_recent_listing_of_same_log(saved, position):
            changed = _changes_since(metastore, saved.event_id, position.event_id, keys)
            unchanged = None if changed is None else _unchanged_partitions(channel, keys, changed, committed)
            if changed is not None and unchanged is not None:
                asked = {values: metastore.partition(values) for values in sorted(changed)}
                storage_by_values = {values: p.sd for values, p in asked.items() if p is not None}
                position = replace(position, listed_at=saved.listed_at)
                return _MetastorePartitions(description, storage_by_values, unchanged, position)
        if keys:
            storage_by_values = {tuple(p.values): p.sd for p in metastore.partitions()}
        else:
            storage_by_values = {(): description.sd}
        return _MetastorePartitions(description, storage_by_values, {}, position)


class _Listing:
    """Lists the files of the partitions that a metastore named."""

    def __init__(
        self,
        engine: Engine,
        channel: Channel,
        answer: _MetastorePartitions,
        committed: CommittedPartitions,
        expected_partitions: Collection[str] | None,
    ) -> None:
        self.engine = engine
        self.channel = channel
        self.answer = answer
        self.committed = committed
        self.expected_partitions = expected_partitions
        self.keys = partition_keys(answer.table)
        self.location = nova_address(answer.table.sd.location or "") or ""
        self.folders = dict(answer.unchanged)
        self.unexpected: set[str] = set()
        self.unfinished: set[str] = set()
        self.ignored: dict[str, str] = {}
        self.bad: dict[str, str] = {}

    def result(self) -> PartitionListing:
        for values, storage in sorted(self.answer.storage_by_values.items()):
            self._place_partition(values, storage)
        partitions: dict[str, PartitionFiles] = {}
        for partition, files in self._list_files().items():
            if isinstance(files, NovaError):
                self._set_aside(partition, files)
            else:
                self._add_files(partition, files, partitions)
        contents = LocationContents(
            partitions, tuple(sorted(self.unfinished)), frozenset(self.unexpected), self.ignored, self.bad
        )
        return PartitionListing(self.location, contents, self.folders, self.answer.position)

    def _place_partition(self, values: PartitionValues, storage: Any) -> None:
        """Find the folder of a partition, and whether its path gives the values of the partition."""
        text = "/".join(f"{k}={v}" for k, v in zip(self.keys, values, strict=True))
        try:
            partition = _partition_name(self.channel, self.keys, values)
        except PartitionError as error:
            self.ignored[text] = error.what
            return
        if self.expected_partitions is not None and partition not in self.expected_partitions:
            self.unexpected.add(partition)
            return
        assert self.channel.external is not None
        actual_format, address = storage_format(storage), nova_address(storage.location or "")
        if actual_format != self.channel.external.format:
            self.bad[partition] = (
                f"its files are {actual_format}, and the channel declares {self.channel.external.format}"
            )
        elif address is None:
            self.bad[partition] = f"its location {storage.location!r} is neither a local folder nor in s3:// or hdfs://"
        elif partition in self.folders:
            self.bad[partition] = f"the metastore has two partitions with this value; one is {text}"
        else:
            self._add_place(partition, address)

    def _add_place(self, partition: str, address: str) -> None:
        parts = address.split("/")
        above, folder = "/".join(parts[: len(parts) - len(self.keys)]), "/".join(parts[len(parts) - len(self.keys) :])
        if not self.keys or self._is_folder_of(partition, folder):
            self.folders[partition] = PartitionFolder(address, above, True)
        elif all(self._has_plain_values(c) for c in self.channel.partition_columns):
            self.folders[partition] = PartitionFolder(address, address, False)
        else:
            self.bad[partition] = f"its folder {address} does not name the partition's values, as in column=value"

    def _is_folder_of(self, partition: str, folder: str) -> bool:
        try:
            names = [part.partition("=")[0].lower() for part in folder.split("/")]
            return names == list(self.keys) and partition_of_folder(self.channel, folder) == partition
        except PartitionError:
            return False

    def _has_plain_values(self, column: str) -> bool:
        """Whether the text of a value has only one meaning. Timestamps depend on a time zone."""
        assert self.channel.schema is not None
        return not self.channel.schema.field(column).type.name.startswith("timestamp")

    def _list_files(self) -> dict[str, Sequence[ExternalFileInfo] | NovaError]:
        """Files of each partition, below its folder."""
        counts = Counter(folder.location for folder in self.folders.values())
        common_locations = [location for location, n in counts.items() if n >= MIN_PARTITIONS_OF_COMMON_LISTING]
        files_by_folder: dict[str, list[ExternalFileInfo]] = {}
        for file in (f for location in common_locations for f in self.engine.external_files.list_files(location)):
            files_by_folder.setdefault(file.path.rpartition("/")[0], []).append(file)
        addresses = [folder.address for folder in self.folders.values()]
        subfolders = sorted(files_by_folder.keys() - set(addresses))

        def list_folder(address: str) -> Sequence[ExternalFileInfo] | NovaError:
            if address in files_by_folder and not any(f.startswith(f"{address}/") for f in subfolders):
                return files_by_folder[address]
            try:
                return self.engine.external_files.list_files(address)
            except NovaError as error:
                return error

        with ThreadPoolExecutor(PARALLEL_LISTINGS, "nova-external") as pool:
            return dict(zip(self.folders, pool.map(list_folder, addresses), strict=True))

    def _add_files(
        self, partition: str, files: Sequence[ExternalFileInfo], partitions: dict[str, PartitionFiles]
    ) -> None:
        assert self.channel.external is not None
        address, success_file = self.folders[partition].address, self.channel.external.success_file
        names = {f.path: f.path.removeprefix(f"{address}/") for f in files}
        nested = sorted(n for n in names.values() if "/" in n and not is_hidden_file(*n.rsplit("/", 1)))
        if nested:
            self.bad[partition] = f"its folder has subfolders with files, which Hive and Spark do not read: {nested[0]}"
        elif success_file is not None and success_file not in names.values():
            self.unfinished.add(partition)
        else:
            data = [f for f in files if f.bytes and "/" not in names[f.path] and not is_hidden_file("", names[f.path])]
            partitions[partition] = partition_files(self.channel, data)

    def _set_aside(self, partition: str, error: NovaError) -> None:
        """Keep the state of a partition whose folder cannot be listed. A new one may have no folder yet."""
        if isinstance(error, SourceUnavailable) and partition not in self.committed.version_by_partition:
            self.unfinished.add(partition)
        else:
            self.bad[partition] = str(error)


def _partition_name(channel: Channel, keys: Sequence[str], values: PartitionValues) -> str:
    """Name of a partition from its values in the metastore. Raises PartitionError."""
    texts = (None if v == HIVE_NULL else v for v in values)
    return partition_of_values(channel, dict(zip(keys, texts, strict=True)))


def _unchanged_partitions(
    channel: Channel, keys: Sequence[str], changed: Collection[PartitionValues], committed: CommittedPartitions
) -> dict[str, PartitionFolder] | None:
    """Committed partitions that no event concerns, with their folders; None if the metastore must name all of them."""
    unchanged = dict(committed.folder_by_partition)
    for values in changed:
        try:
            partition = _partition_name(channel, keys, values)
        except PartitionError:
            continue
        canonical_by_column = {c.lower(): v for c, v in partition_values(partition).items()}
        if tuple(HIVE_NULL if v is None else v for v in (canonical_by_column[k] for k in keys)) != values:
            return None  # another partition of the metastore may have the same value, written differently
        unchanged.pop(partition, None)
    folders = {p: f for p, f in unchanged.items() if f is not None}
    return folders if len(folders) == len(unchanged) else None


def _changes_since(
    metastore: HiveMetastore, after_event: int, up_to_event: int, keys: Sequence[str]
) -> set[PartitionValues] | None:
    """Partitions that events concern; None if the log is incomplete, too long, or has an event on the whole table."""
    if up_to_event - after_event > MAX_EVENTS:
        return None
    changed: set[PartitionValues] = set()
    position = after_event
    while position < up_to_event:
        events = metastore.events_after(position, EVENTS_PER_CALL)
        if [e.eventId for e in events] != list(range(position + 1, position + 1 + len(events))) or not events:
            return None  # the metastore has deleted events
        of_events = changed_partitions(events, metastore.table.database, metastore.table.name, keys)
        if of_events is None or len(changed | of_events) > MAX_CHANGED_PARTITIONS:
            return None
        changed |= of_events
        position = events[-1].eventId
    return changed


def _is_recent_listing_of_same_log(saved: ExternalPosition, current: ExternalPosition) -> bool:
    is_recent = current.listed_at - saved.listed_at < FULL_LISTING_EVERY
    is_same = (saved.source, saved.head) == (current.source, current.head)
    return is_recent and is_same and saved.event_id <= current.event_id


def _source_identity(metastore: HiveMetastore, channel: Channel, description: Any) -> str:
    """Identity of the log, the table and the channel's definition. If it changes, all partitions are compared."""
    assert channel.external is not None and channel.schema is not None
    described = [
        metastore.server_id(),
        str(metastore.table),
        description.createTime,
        channel.external.as_json(),
        channel.schema.as_json(),
        list(channel.partition_columns),
    ]
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()
