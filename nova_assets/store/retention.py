"""Retention: expired partitions are dropped, and blocks that no retained answer needs are collected (R15, R19)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from nova_assets.crash_points import crash_point
from nova_assets.errors import DefinitionError, PartitionError
from nova_assets.execution.retries import plan_again_after_conflict
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import CollectedGarbage, RetentionVerdict
from nova_assets.model.commit import AddBlock, Commit, CommitRequest, RequireHead
from nova_assets.model.file_source import is_external_path
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds_or_zero
from nova_assets.model.registered_definition import DefinitionKey
from nova_assets.plan.garbage_collection import expired_partitions, nonempty_partitions, retention_verdicts
from nova_assets.plan.removal import without_consumers
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.lasting_problems import notify_if_failing

log = get_logger("nova_assets.upkeep")


class ChannelRetention:
    """Store methods that drop partitions and collect garbage.

    Args:
        deletion_delay: seconds between the collection of a block and the deletion of its files, for readers that
            planned earlier and pinned nothing.
    """

    def __init__(self, runtime: Runtime, registry: ChannelRegistry, deletion_delay: float) -> None:
        self.runtime = runtime
        self.registry = registry
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.deletion_delay = deletion_delay

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

        Raises:
            CopyUndecided: the catalog is a copy of another one, which may need the files.
            WarehouseMismatch: another copy of the catalog has claimed the warehouse.
        """
        name = self.registry.known(channel)
        retain_seconds = channel_retention_seconds(self.runtime, name, retain)
        with notify_if_failing(self.catalog, "upkeep_failing", name, f"garbage collection of {name}"):
            self.runtime.staging.warehouse_check.check_may_delete("nothing is collected from its warehouse")
            self.runtime.delete_dead_staging()  # pins of long-dead executions must not retain blocks
            self.catalog.definition_states.collect_removals([name], undo_period)
            collected = self.catalog.garbage.collect(name, retain_seconds)
            crash_point("collect.marked")
            self._delete_collected_files()
            return collected

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
            return self.catalog.definition_states.removals_to_collect(channels, undo_period)
        return self.catalog.definition_states.collect_removals(channels, undo_period)

    def held(self, channel: Channel | str, *, retain: str | None = None) -> tuple[RetentionVerdict, ...]:
        """Dry run of ``collect_garbage``: for every block of a channel, whether a reader needs the block, and why."""
        name = self.registry.known(channel)
        retain_seconds = channel_retention_seconds(self.runtime, name, retain)
        statuses = self.catalog.definition_states.statuses()
        # A collection makes the removal of bindings final, so removed ones are no readers.
        removed = [key.name for key, s in statuses.items() if key.kind == "binding" and s.is_removed]
        return retention_verdicts(
            without_consumers(self.catalog.garbage.retention_state(name, retain_seconds), removed)
        )

    def delete_collected(self) -> int:
        """Delete the files of blocks that were collected longer than ``gc_grace`` ago. Returns their number."""
        with notify_if_failing(self.catalog, "upkeep_failing", None, "deletion of collected files"):
            return self._delete_collected_files()

    def _delete_collected_files(self) -> int:
        """Delete files of blocks that were collected longer than the delay ago. Returns the number of files.

        An undecided copy of a catalog deletes none.
        """
        deletable = self.catalog.garbage.deletable_files(self.deletion_delay)
        if deletable and self.catalog.identity.copied_from() is not None:
            return 0
        if deletable:
            self.runtime.staging.warehouse_check.check()
            self.engine.warehouse.delete_files(sorted({path for _, path in deletable if not is_external_path(path)}))
            crash_point("collect.deleted")
            self.catalog.garbage.delete_file_records(deletable)
        return len(deletable)

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
        state = self.registry.registered_state(channel)
        name, scope = state.channel.name, state.parse_scope(partition)
        if not scope:
            raise PartitionError(
                f"channel {name!r} has no partition to drop",
                found=repr(partition),
                expected="a partition of a partitioned channel",
                next="to empty the channel, insert a base without rows",
            )
        return self.drop_partitions(
            name, [p.partition for p in self.catalog.histories.partitions(name, scope) if not p.is_dropped]
        )

    def expired(self, channel: Channel | str) -> tuple[str, ...]:
        """Partitions of a channel that are past the retention of its dimensions."""
        state = self.registry.registered_state(channel)
        name = state.channel.name
        definition = self.registry.find_definition(name)
        keep_by_column = state.keep_by_column if definition is None else definition.upkeep.get("keep", {})
        existing_partitions = (
            [p.partition for p in self.catalog.histories.partitions(name) if not p.is_dropped] if keep_by_column else []
        )
        return expired_partitions(state.channel.partitions, keep_by_column, existing_partitions, self.catalog.now())

    def drop_expired(self, channel: Channel | str) -> Commit | None:
        """Drop the partitions that are past the retention of their dimensions, as returned by ``expired``. Returns None
        if no partition has expired.
        """
        expired_partitions = self.expired(channel)
        name = self.registry.known(channel)
        if not expired_partitions:
            return None
        with notify_if_failing(self.catalog, "upkeep_failing", name, f"drop of expired partitions of {name}"):
            return self.drop_partitions(name, expired_partitions)

    def drop_partitions(self, channel: str, partitions: Sequence[str]) -> Commit | None:
        """Drop partitions with one commit (R19). The partitions are empty from its sequence number on.

        No data trigger fires, and consumers do not see the drop as a change.

        Args:
            partitions: names of the partitions.

        Returns:
            The commit, or None if the partitions were empty already.
        """
        self.catalog.definitions.channel(channel).channel.refuse_external()
        return plan_again_after_conflict(
            lambda: self._drop_partitions_once(channel, partitions),
            f"the drop of partitions of {channel}",
            self.runtime.max_attempts,
            log,
        )

    def _drop_partitions_once(self, channel: str, partitions: Sequence[str]) -> Commit | None:
        with self.runtime.channel_writer.write(channel, purpose="drop") as execution:
            history = self.catalog.histories.of(channel, execution.pins[channel].head)
            droppable_partitions = nonempty_partitions(history, frozenset(partitions))
            if not droppable_partitions or history.schema is None:
                self.runtime.staging.abort_and_delete_staged(execution, "the partitions were already empty")
                return None
            empty_manifest = Manifest((), history.schema, format=self.engine.format)
            model = history.last_merge or history.merge  # a changed model takes effect only with a written base
            return self.runtime.channel_writer.commit(
                CommitRequest(
                    id=uuid.uuid4().hex,
                    execution_id=execution.id,
                    epoch=execution.epoch,
                    binding=None,
                    added_blocks=tuple(
                        AddBlock(uuid.uuid4().hex, channel, "base", empty_manifest, model, p, "drop")
                        for p in droppable_partitions
                    ),
                    required_heads=tuple(RequireHead(channel, history.head, p) for p in droppable_partitions),
                    details={"dropped": len(droppable_partitions)},
                )
            )


def channel_retention_seconds(runtime: Runtime, channel: str, requested: str | None = None) -> float:
    """Seconds for which old versions of a channel are retained.

    The explicit request wins, then the project's definition, then the catalog's record. Without any of them, old
    versions are not retained.

    Raises:
        DefinitionError: the value is no period. Treating it as zero would delete everything.
    """
    project_retention = next((c.retain for c in runtime.project.channels if c.name == channel), None)
    retention = (
        (project_retention or runtime.catalog.definitions.channel(channel).retain) if requested is None else requested
    )
    seconds = 0 if retention is None else period_seconds_or_zero(retention)
    if seconds is None:
        raise DefinitionError("retain is not a valid period", found=repr(retention), expected=EXPECTED_PERIOD)
    return float(seconds)
