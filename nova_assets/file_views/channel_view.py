"""View of one channel: its partitions with their blocks, at one position of its timeline.

A view uses several keyspaces of a storage. The keyspace of the channel holds its header, descriptions that blocks
share, its latest instants, and the names of the loaded partitions. Each loaded partition has a keyspace of its own,
with its blocks by number. So an instant changes only the partitions that it touches.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from nova_assets.file_views.storage import StorageSnapshot
from nova_assets.file_views.view_entries import (
    BASE_MARK,
    COLLECTED_MARK,
    DESCRIPTION_PREFIX,
    END_OF_NUMBERS,
    HEADER_KEY,
    INSTANT_PREFIX,
    NUMBER_FORMAT,
    PARTITION_PREFIX,
    Descriptions,
    EncodedBlock,
    LoadedPartition,
    ViewHeader,
    ViewInstant,
    channel_keyspace,
    decode_block,
    partition_key,
    partition_keyspace,
)
from nova_assets.model.block import Block
from nova_assets.model.partitions import WHOLE, is_in_scope
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, TimelinePosition
from nova_assets.plan.history_excerpt import IncompleteHistory, excerpt_history

_UNNUMBERED_ACTIONS = ("compact", "collect", "rollback", "define")
"""Actions that take no sequence number."""


class PartitionBlocks(NamedTuple):
    """Blocks of a partition, from a base on.

    Args:
        blocks: sorted by (hi, kind, id).
        collected_numbers: numbers whose blocks were collected.
        base_number: number of the base from which the blocks begin; 0 if there is none.
    """

    blocks: list[EncodedBlock]
    collected_numbers: list[int]
    base_number: int


class ChannelView:
    """View of one channel in one snapshot of a storage."""

    def __init__(self, snapshot: StorageSnapshot, header: ViewHeader) -> None:
        self._snapshot = snapshot
        self._channel_keyspace = channel_keyspace(header.channel)
        self.header = header
        self.descriptions = Descriptions(
            lambda mark: snapshot.get(self._channel_keyspace, DESCRIPTION_PREFIX + mark.encode())
        )

    @staticmethod
    def load(snapshot: StorageSnapshot, channel: str) -> ChannelView | None:
        """View of a channel; None if nothing of the channel is loaded."""
        encoded_header = snapshot.get(channel_keyspace(channel), HEADER_KEY)
        return None if encoded_header is None else ChannelView(snapshot, ViewHeader.decode(encoded_header))

    @property
    def position(self) -> TimelinePosition:
        return self.header.position

    def has_reached_position(self, position: TimelinePosition) -> bool:
        """Whether the view is at a position, or has passed it."""
        if position == self.position:
            return True
        encoded_instant = self._snapshot.get(self._channel_keyspace, INSTANT_PREFIX + NUMBER_FORMAT.pack(position.step))
        return encoded_instant is not None and ViewInstant.decode(encoded_instant).prefix == position.prefix

    def instants(self, after_step: int = 0) -> list[ViewInstant]:
        """Applied instants after a step, as far back as they are kept."""
        start = INSTANT_PREFIX + NUMBER_FORMAT.pack(after_step + 1)
        result = []
        for key, text in self._snapshot.scan(self._channel_keyspace, start):
            if not key.startswith(INSTANT_PREFIX):
                break
            result.append(ViewInstant.decode(text))
        return [i for i in result if i.action]

    def is_scope_loaded(self, scope: str) -> bool:
        """Whether all partitions of a scope are loaded."""
        if any(is_in_scope(scope, s) for s in self.header.scopes):
            return True
        partition = self.header.single_partition(scope)
        return partition is not None and self.is_partition_loaded(partition)

    def is_partition_loaded(self, partition: str) -> bool:
        return self._snapshot.get(self._channel_keyspace, partition_key(partition)) is not None

    def loaded_partition(self, name: str) -> LoadedPartition | None:
        encoded_partition = self._snapshot.get(self._channel_keyspace, partition_key(name))
        return None if encoded_partition is None else LoadedPartition.decode(encoded_partition)

    def loaded_partitions(self, scope: str = WHOLE) -> list[LoadedPartition]:
        """Loaded partitions in a scope, by name."""
        partition = self.header.single_partition(scope)
        if partition is not None:
            loaded = self.loaded_partition(partition)
            return [] if loaded is None else [loaded]
        result: list[LoadedPartition] = []
        for key, text in self._snapshot.scan(self._channel_keyspace, PARTITION_PREFIX):
            if not key.startswith(PARTITION_PREFIX):
                break
            result.append(LoadedPartition.decode(text))
        return sorted((p for p in result if is_in_scope(p.name, scope)), key=lambda p: p.name)

    def partition_blocks(self, partition: str, back_to_base_at: int = 0) -> PartitionBlocks:
        """Blocks of a partition.

        Args:
            back_to_base_at: return only blocks from the newest base at or before this number on. Without such a base,
                all blocks are returned.
        """
        live_blocks, collected_numbers, first_number = [], [], 0
        for key, text in self._snapshot.scan_backwards(
            partition_keyspace(self.header.channel, partition), END_OF_NUMBERS
        ):
            number = int(NUMBER_FORMAT.unpack(key[:8])[0])
            if number < first_number:
                break
            if key[8:9] == COLLECTED_MARK:
                collected_numbers.append(number)
                continue
            if key[8:9] == BASE_MARK and number <= back_to_base_at:
                first_number = first_number or number
            live_blocks.append(decode_block(self.header.channel, text, self.descriptions))
        return PartitionBlocks(live_blocks[::-1], collected_numbers[::-1], first_number)

    def has_schema_at(self, number: int) -> bool:
        """Whether the view knows the schema at a number."""
        return number >= self.header.head or (bool(self.header.versions) and self.header.versions[0].number <= number)

    def schema_at(self, scope: str, number: int) -> Schema | None:
        """Schema at a number, as the partitions of a scope determine it (R18).

        It is the schema of the newest block that is no compaction, or of the newest existing block. At equal numbers,
        the base decides.
        """
        newest_blocks = [b for p in self.loaded_partitions(scope) for b in self._newest_blocks_at(p.name, number)]
        newest_block = min(newest_blocks, key=lambda b: (b.origin == "compact", -b.hi, b.kind, b.id), default=None)
        return None if newest_block is None else newest_block.manifest.schema.without_columns("_deleted")

    def _newest_blocks_at(self, partition: str, number: int) -> list[Block]:
        """Blocks of a partition up to a number, back to the newest number of a block that is no compaction."""
        result: list[Block] = []
        newest_number = 0
        for key, text in self._snapshot.scan_backwards(
            partition_keyspace(self.header.channel, partition), NUMBER_FORMAT.pack(number + 1)
        ):
            if key[8:9] == COLLECTED_MARK:
                continue
            block = decode_block(self.header.channel, text, self.descriptions).block
            if block.hi < newest_number:
                break
            result.append(block)
            newest_number = block.hi if block.origin != "compact" else newest_number
        return result

    def excerpt(
        self, scope: str = WHOLE, at: int | None = None, since: int = 0, back_to: int = 0
    ) -> tuple[History, dict[str, EncodedBlock]]:
        """Excerpt of the history of a scope (see ``plan/history_excerpt``), with its encoded blocks by id.

        For a long history, hardly more than the excerpt is read.

        Args:
            at: sequence number; the head by default.
            since: only the changes after this number; 0 for all.
            back_to: only what snapshots from this number on need; 0 for all.
        """
        at = self.header.head if at is None else at
        oldest = since or min(back_to, at)
        partitions = (
            self._partitions_changed_between(scope, since, at)
            if since
            else [p.name for p in self.loaded_partitions(scope)]
        )
        if oldest:
            with suppress(IncompleteHistory):
                short_history, encoded_blocks = self._load_history(scope, partitions, at, oldest)
                return excerpt_history(
                    short_history, since, back_to, lambda n: self.schema_at(scope, n)
                ), encoded_blocks
        full_history, encoded_blocks = self._load_history(scope, partitions, at, 0)
        return excerpt_history(full_history, since, back_to, lambda n: self.schema_at(scope, n)), encoded_blocks

    def history_of_partitions(self, partitions: Sequence[str]) -> History:
        """History of some loaded partitions, with blocks without files."""
        return self._load_history(WHOLE, partitions, self.header.head, 0)[0]

    def last_step_at_number(self, number: int) -> int:
        """Last step before the channel took the next number after the given one.

        Returns:
            -1 if the view does not reach back that far.
        """
        kept_instants = self.instants()
        has_all_instants = len(kept_instants) == self.position.step - self.header.began
        if number < self.header.versions[0].number or not has_all_instants:
            return -1
        later = (
            i.n for i in kept_instants if i.action not in _UNNUMBERED_ACTIONS and i.seq is not None and i.seq > number
        )
        return min(later, default=self.position.step + 1) - 1

    def _partitions_changed_between(self, scope: str, since: int, at: int) -> list[str]:
        """Partitions of a scope that changed between two numbers. May include others."""
        touched_partitions = self.partitions_touched_since(since) if since < at else set()
        if touched_partitions is None:
            return [p.name for p in self.loaded_partitions(scope)]
        return sorted(p for p in touched_partitions if is_in_scope(p, scope) and self.is_partition_loaded(p))

    def partitions_touched_since(self, since: int) -> set[str] | None:
        """Partitions touched after a number was committed, loaded or not.

        Returns:
            None if the kept instants do not reach back that far.
        """
        result: set[str] = set()
        for key, text in self._snapshot.scan_backwards(self._channel_keyspace, INSTANT_PREFIX + END_OF_NUMBERS):
            if not key.startswith(INSTANT_PREFIX):
                break
            instant = ViewInstant.decode(text)
            if not instant.action:  # the view began here
                return result if self.header.versions[0].number <= since else None
            if instant.action not in _UNNUMBERED_ACTIONS and instant.seq is not None and instant.seq <= since:
                return result
            if instant.action != "rollback":
                result.update(instant.partitions)
        return None

    def _load_history(
        self, scope: str, partitions: Sequence[str], at: int, oldest_number: int
    ) -> tuple[History, dict[str, EncodedBlock]]:
        blocks: list[EncodedBlock] = []
        numbers: dict[str, tuple[int, ...]] = {}
        floors: dict[str, int] = {}
        for partition in partitions:
            of_partition = self.partition_blocks(partition, oldest_number)
            if of_partition.base_number:
                floors[partition] = of_partition.base_number
            blocks += [k for k in of_partition.blocks if k.block.hi <= at]
            if before := tuple(n for n in of_partition.collected_numbers if n <= at):
                numbers[partition] = before
        blocks.sort(key=lambda k: (k.block.hi, k.block.kind, k.block.id))
        schema, last_merge = self._schema_and_merge_at(at)
        merge = self.descriptions.merge(self.header.merge)
        assert merge is not None
        history = History(
            self.header.channel,
            scope,
            at,
            tuple(k.block for k in blocks),
            self.descriptions.schema(schema),
            merge,
            numbers,
            last_merge=self.descriptions.merge(last_merge),
            base_floors=floors,
        )
        return history, {k.block.id: k for k in blocks}

    def schema_and_merge_digests(self, number: int) -> tuple[str | None, str, str | None]:
        """Hashes of the schema, the channel's merge model and the newest block's merge model at a number."""
        schema, last_merge = self._schema_and_merge_at(number)
        return schema, self.header.merge, last_merge

    def _schema_and_merge_at(self, number: int) -> tuple[str | None, str | None]:
        if number >= self.header.head:
            return self.header.schema, self.header.last_merge
        version = next((v for v in reversed(self.header.versions) if v.number <= number), None)
        return (self.header.schema, None) if version is None else (version.schema or self.header.schema, version.merge)
