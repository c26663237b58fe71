"""Maintenance of channels: compaction, garbage collection, retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_assets.errors import PartitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.compaction import Compaction
from nova_assets.model.registered_definition import DefinitionKey
from nova_assets.model.retention import CollectedGarbage, RetentionVerdict
from nova_assets.operations.lasting_problems import notify_if_failing
from nova_assets.operations.maintenance import ChannelMaintenance, CompactionOptions, channel_retention_seconds
from nova_assets.plan.compaction import PlannedCompaction
from nova_assets.plan.garbage_collection import expired_partitions
from nova_assets.store.channel_registry import ChannelRegistry


class StoreMaintenance:
    """Store methods that compact channels, collect garbage, and drop partitions."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry, maintenance: ChannelMaintenance) -> None:
        self.runtime = runtime
        self.registry = registry
        self.maintenance = maintenance

    def compact(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        chained: bool = False,
        policy: Compaction | None = None,
        partitions: Sequence[str] | None = None,
    ) -> Commit | None:
        """Add a base at the newest number of each partition that has deltas, so that readers need not merge deltas
        (R14).

        The head does not move, no trigger fires, and no answer changes.

        Args:
            channel: name of the channel.
            force: compact every partition, even if the policy does not consider the compaction worth its cost.
            chained: chain deltas into fewer deltas instead of adding a base.
            policy: limits that decide whether a compaction is worth its cost. By default, the policy in the project's
                definition of the channel.
            partitions: names of the partitions to compact. By default, all.

        Returns:
            The commit, or None if there was nothing to compact.
        """
        name = self.registry.registered_name(channel)
        options = self._compaction_options(name, force, chained, policy, partitions)
        with notify_if_failing(self.runtime.catalog, "upkeep_failing", name, f"compaction of {name}"):
            return self.maintenance.compact(name, options)

    def compactable(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        chained: bool = False,
        policy: Compaction | None = None,
        partitions: Sequence[str] | None = None,
    ) -> tuple[PlannedCompaction, ...]:
        """Dry run of ``compact``: the blocks that ``compact`` would add, with the reasons."""
        name = self.registry.registered_name(channel)
        return self.maintenance.plan_compaction(
            name, self._compaction_options(name, force, chained, policy, partitions)
        )

    def collect_garbage(
        self, channel: Channel | str, *, retain: str | None = None, undo_period: float = 0.0
    ) -> CollectedGarbage:
        """Collect the blocks of a channel that no retained answer needs (R15).

        The files are deleted after ``gc_grace``. The removal of the channel, and of bindings with this channel, becomes
        final.

        Args:
            retain: period for which old versions stay readable (time travel), such as ``"30d"``. By default, the
                retention in the project's definition of the channel. Without a definition, old versions are not
                retained.
            undo_period: seconds for which a removal can still be taken back. Automatic maintenance waits for
                ``gc_grace``.
        """
        name = self.registry.registered_name(channel)
        retain_seconds = channel_retention_seconds(self.runtime, name, retain)
        with notify_if_failing(self.runtime.catalog, "upkeep_failing", name, f"garbage collection of {name}"):
            return self.maintenance.collect(name, retain_seconds, undo_period)

    def collect_removals(
        self, channels: Sequence[str] | None = None, *, undo_period: float = 0.0, dry_run: bool = False
    ) -> list[DefinitionKey]:
        """Make the removal of definitions final: delete the cursors of removed bindings, and collect all blocks of
        removed channels.

        Args:
            channels: only removals of these channels and of bindings with one of them. By default, all.
            undo_period: seconds for which a removal can still be taken back.
            dry_run: return the definitions without changing anything.

        Returns:
            The definitions whose removal is final now. A removed channel that somebody reads is left out.
        """
        if dry_run:
            return self.runtime.catalog.removals_to_collect(channels, undo_period)
        return self.runtime.catalog.collect_removals(channels, undo_period)

    def held(self, channel: Channel | str, *, retain: str | None = None) -> tuple[RetentionVerdict, ...]:
        """Dry run of ``collect_garbage``: for every block of a channel, whether a reader needs the block, and why."""
        name = self.registry.registered_name(channel)
        return self.maintenance.collection_verdicts(name, channel_retention_seconds(self.runtime, name, retain))

    def drop(self, channel: Channel | str, partition: str | Mapping[str, object]) -> Commit | None:
        """Drop a partition, or every partition with given values of some dimensions.

        The partition is empty from the next number on. Dropping does not rewrite history (R19): earlier versions stay
        readable for as long as they are retained. No data trigger fires, and consumers do not see the drop as a change.
        Consumers keep the results that they derived from the partition. To propagate the removal to consumers, insert
        an empty base instead.

        Args:
            partition: ``"dt=2024-01-01"``, or ``"dt=2024-01-01/action=login"``.

        Returns:
            The commit, or None if there was nothing to drop.

        Raises:
            PartitionError: the channel has no such partition.
        """
        name = self.registry.registered_name(channel)
        scope = self.runtime.catalog.channel(name).parse_scope(partition)
        if not scope:
            raise PartitionError(
                f"channel {name!r} has no partition to drop",
                found=repr(partition),
                expected="a partition of a partitioned channel",
                next="to empty the channel, insert a base without rows",
            )
        return self.maintenance.drop_partitions(
            name, [p.partition for p in self.runtime.catalog.partitions(name, scope) if not p.is_dropped]
        )

    def expired(self, channel: Channel | str) -> tuple[str, ...]:
        """Partitions of a channel that are past the retention of its dimensions."""
        name = self.registry.registered_name(channel)
        state = self.runtime.catalog.channel(name)
        definition = self.registry.find_definition(name)
        keep_by_column = state.keep_by_column if definition is None else definition.upkeep.get("keep", {})
        existing_partitions = (
            [p.partition for p in self.runtime.catalog.partitions(name) if not p.is_dropped] if keep_by_column else []
        )
        return expired_partitions(
            state.channel.partitions, keep_by_column, existing_partitions, self.runtime.catalog.now()
        )

    def drop_expired(self, channel: Channel | str) -> Commit | None:
        """Drop the partitions that are past the retention of their dimensions, as returned by ``expired``. Returns None
        if no partition has expired.
        """
        expired_partitions = self.expired(channel)
        name = self.registry.registered_name(channel)
        if not expired_partitions:
            return None
        with notify_if_failing(self.runtime.catalog, "upkeep_failing", name, f"drop of expired partitions of {name}"):
            return self.maintenance.drop_partitions(name, expired_partitions)

    def delete_collected(self) -> int:
        """Delete the files of blocks that were collected longer than ``gc_grace`` ago. Returns their number."""
        with notify_if_failing(self.runtime.catalog, "upkeep_failing", None, "deletion of collected files"):
            return self.maintenance.delete_collected_files()

    def _compaction_options(
        self, channel: str, force: bool, chained: bool, policy: Compaction | None, partitions: Sequence[str] | None
    ) -> CompactionOptions:
        partition_names = None if partitions is None else tuple(partitions)
        return CompactionOptions(policy or self.registry.compaction_policy(channel), force, chained, partition_names)
