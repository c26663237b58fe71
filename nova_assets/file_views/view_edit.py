"""Edits of a view: it starts with data from the catalog, and continues with timeline steps.

Pure; nothing is written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from nova_assets.file_views.channel_view import ChannelView
from nova_assets.file_views.storage import Changes, ExpectedValue, Key, Keyspace, StorageSnapshot, Value
from nova_assets.file_views.view_entries import (
    DESCRIPTION_PREFIX,
    HEADER_KEY,
    LoadedPartition,
    SchemaVersion,
    ViewHeader,
    ViewInstant,
    block_key,
    channel_keyspace,
    collected_number_key,
    encode_block,
    encode_description,
    instant_key,
    partition_entry,
    partition_keyspace,
)
from nova_assets.model.block import Block
from nova_assets.model.merge import Custom, MergeModel
from nova_assets.model.partitions import is_in_scope
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import ChannelHead, CollectedBlock, History, TimelineStep

KeyChanges: TypeAlias = dict[Key, Value | None]
"""Key -> its new value, or None to delete the key."""

MAX_KEPT_INSTANTS = 10_000
"""Number of instants that a view keeps per channel. A follower that is further behind starts anew."""

_MAX_KEPT_VERSIONS = 1000
"""Number of schema versions that a view keeps."""


@dataclass(frozen=True, slots=True)
class LoadedPartitions:
    """Partitions of a channel, loaded from the catalog.

    Args:
        channel_head: head of the channel when they were loaded.
        partitions: names of the partitions, all loaded in full.
        history: their full history at that position.
    """

    channel_head: ChannelHead
    partitions: tuple[str, ...]
    history: History


class ViewEdit:
    """Collects changes of the view of one channel.

    Args:
        snapshot: state of the storage to which the changes apply.
        view: the view in that state; None if nothing of the channel is loaded.
    """

    def __init__(self, snapshot: StorageSnapshot, channel: str, view: ChannelView | None) -> None:
        self._snapshot = snapshot
        self._view = view
        self._channel = channel
        self._changes_by_keyspace: dict[Keyspace, KeyChanges | None] = {}
        self._channel_changes: KeyChanges = {}
        self._load_step_by_partition: dict[str, int] = {}
        self._loaded_scopes: list[tuple[str, int]] = [] if view is None else [(s, 0) for s in view.header.scopes]
        self._versions: list[SchemaVersion] = [] if view is None else list(view.header.versions)
        self._last_merge = None if view is None else view.header.last_merge
        self._has_new_scopes = False
        self._first_step = 0
        self.partitions_to_reload: set[str] = set()
        self.applied_count = 0

    def restart_view(self, channel_head: ChannelHead) -> None:
        """Start a new view at a head, and discard everything that was loaded."""
        self._changes_by_keyspace[channel_keyspace(self._channel)] = None
        for partition in [] if self._view is None else self._view.loaded_partitions():
            self._changes_by_keyspace[partition_keyspace(self._channel, partition.name)] = None
        self._view = None
        self._loaded_scopes = []
        self._first_step = channel_head.position.step
        schema = self._store_optional_description(channel_head.newest_block_schema)
        self._last_merge = self._store_optional_description(channel_head.last_merge)
        self._versions = [SchemaVersion(channel_head.head, schema, self._last_merge)]
        self._store_instant(ViewInstant(channel_head.position.step, channel_head.position.prefix, "", "", "", None, ()))

    def put_partitions(self, loaded: LoadedPartitions) -> None:
        """Replace partitions by their loaded content."""
        blocks: dict[str, list[Block]] = {p: [] for p in loaded.partitions}
        for block in loaded.history.blocks:
            blocks[block.partition].append(block)
        for partition, partition_blocks in blocks.items():
            keyspace = partition_keyspace(self._channel, partition)
            change: KeyChanges = {key: None for key, _ in self._snapshot.scan(keyspace)}
            change |= {collected_number_key(n): b"" for n in loaded.history.collected_numbers.get(partition, ())}
            change |= {block_key(b): encode_block(b, self._store_description) for b in partition_blocks}
            self._changes_by_keyspace[keyspace] = change
            step = loaded.channel_head.position.step
            self._load_step_by_partition[partition] = step
            self._channel_changes |= partition_entry(LoadedPartition(partition, step))

    def add_loaded_scope(self, scope: str, channel_head: ChannelHead) -> None:
        """Record that all partitions of a scope are loaded at a head.

        New partitions of the scope are then added by later steps.
        """
        self._loaded_scopes = [(s, n) for s, n in self._loaded_scopes if not is_in_scope(s, scope)]
        self._loaded_scopes.append((scope, channel_head.position.step))
        self._has_new_scopes = True

    def apply_step(self, step: TimelineStep) -> None:
        """Apply one step to the loaded partitions.

        Partitions with inconsistent blocks are added to ``partitions_to_reload``.
        """
        step_number = step.position.step
        for removed in step.collected:
            if self._applies_to_partition(removed.partition, step_number):
                self._remove_block(removed)
        for block in step.added:
            self._record_version(block)
            if self._applies_to_partition(block.partition, step_number) or self._create_if_in_loaded_scope(
                block.partition, step_number
            ):
                self._add_block(block)
        instant = ViewInstant.from_step(step)
        for partition in () if step.action == "rollback" else instant.partitions:  # its files were never part of a view
            if self._applies_to_partition(partition, step_number):
                self._channel_changes |= partition_entry(LoadedPartition(partition, step_number))
        self._store_instant(instant)
        if step_number > MAX_KEPT_INSTANTS:
            self._channel_changes[instant_key(step_number - MAX_KEPT_INSTANTS)] = None
        self.applied_count += 1

    def _applies_to_partition(self, partition: str, step_number: int) -> bool:
        """Whether to apply a step to a partition: the partition is loaded, and was loaded before the step."""
        if partition in self._load_step_by_partition:
            return self._load_step_by_partition[partition] < step_number
        return self._view is not None and self._view.is_partition_loaded(partition)

    def _create_if_in_loaded_scope(self, partition: str, step_number: int) -> bool:
        if partition in self._load_step_by_partition or not any(
            is_in_scope(partition, s) and at < step_number for s, at in self._loaded_scopes
        ):
            return False
        self._load_step_by_partition[partition] = 0
        self._changes_by_keyspace[partition_keyspace(self._channel, partition)] = {}
        return True

    def _remove_block(self, removed: CollectedBlock) -> None:
        key = block_key(removed)
        if self._read_changed_value(removed.partition, key) is None:
            self.partitions_to_reload.add(removed.partition)
        changes = self._pending_changes_of(removed.partition)
        changes[key] = None
        if removed.origin != "compact":
            changes[collected_number_key(removed.hi)] = b""

    def _add_block(self, block: Block) -> None:
        key = block_key(block)
        if self._read_changed_value(block.partition, key) is not None:
            self.partitions_to_reload.add(block.partition)
        self._pending_changes_of(block.partition)[key] = encode_block(block, self._store_description)

    def _record_version(self, block: Block) -> None:
        """Record the schema and merge model that a block sets at its number, whether its partition is loaded or not."""
        if block.origin == "compact":
            return
        last_version = self._versions[-1]
        has_schema = block.kind == "base" or not isinstance(block.merge, Custom)
        schema = self._store_description(block.manifest.schema.as_json()) if has_schema else last_version.schema
        if block.origin != "drop":
            self._last_merge = self._store_description(block.model_of_channel.as_json())
        if (schema, self._last_merge) != (last_version.schema, last_version.merge):
            self._versions.append(SchemaVersion(block.hi, schema, self._last_merge))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._channel_changes and not self._changes_by_keyspace and not self._has_new_scopes

    def to_changes(self, channel_head: ChannelHead) -> tuple[Changes, ExpectedValue]:
        """All collected changes, which move the view to a head, and the expected value that guards the write."""
        scopes = tuple(s for s, _ in self._loaded_scopes)
        header = ViewHeader(
            self._channel,
            channel_head.position,
            channel_head.head,
            self._store_optional_description(channel_head.schema),
            self._store_description(channel_head.merge.as_json()),
            self._store_optional_description(channel_head.last_merge),
            channel_head.columns,
            tuple(self._versions[-_MAX_KEPT_VERSIONS:]),
            scopes,
            -1 if self._view is None else self._view.header.cleaned,
            self._first_step if self._view is None else self._view.header.began,
        )
        self._channel_changes[HEADER_KEY] = header.encode()
        keyspace = channel_keyspace(self._channel)
        is_emptied = self._changes_by_keyspace.get(keyspace, {}) is None
        deleted_keys = {key: None for key, _ in self._snapshot.scan(keyspace)} if is_emptied else {}
        return {**self._changes_by_keyspace, keyspace: {**deleted_keys, **self._channel_changes}}, (
            keyspace,
            HEADER_KEY,
            self._snapshot.get(keyspace, HEADER_KEY),
        )

    def _pending_changes_of(self, partition: str) -> KeyChanges:
        """Changes of a partition's keyspace that are not yet written. The caller may add changes to them."""
        changes = self._changes_by_keyspace.setdefault(partition_keyspace(self._channel, partition), {})
        assert changes is not None
        return changes

    def _read_changed_value(self, partition: str, key: Key) -> Value | None:
        keyspace = partition_keyspace(self._channel, partition)
        changes = self._changes_by_keyspace.get(keyspace, {})
        assert changes is not None
        return changes[key] if key in changes else self._snapshot.get(keyspace, key)

    def _store_instant(self, instant: ViewInstant) -> None:
        self._channel_changes[instant_key(instant.n)] = instant.encode()

    def _store_optional_description(self, described: Schema | MergeModel | None) -> str | None:
        """Hash of a description that is stored with the view; None if there is nothing to describe."""
        return None if described is None else self._store_description(described.as_json())

    def _store_description(self, description: Any) -> str:
        digest, text = encode_description(description)
        self._channel_changes[DESCRIPTION_PREFIX + digest.encode()] = text
        return digest
