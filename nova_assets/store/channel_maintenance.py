"""Maintenance of channels: compaction and garbage collection, concurrent with readers and writers (R14, R15)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, DefinitionError
from nova_assets.execution.conflict_retry import plan_again_after_conflict
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.commit import AddBlock, Commit, CommitRequest, RequireHead
from nova_assets.model.compaction import Compaction
from nova_assets.model.execution import Execution
from nova_assets.model.external_files import is_external_path
from nova_assets.model.partitions import WHOLE
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds_or_zero
from nova_assets.model.read_strategy import ActualCost, total_costs_by_strategy
from nova_assets.model.reads import DeltaChain, Snapshot
from nova_assets.model.retention import CollectedGarbage, RetentionVerdict
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History
from nova_assets.plan import delta_paths, modes
from nova_assets.plan.compaction import (
    PlannedCompaction,
    compactions_of_complete_partitions,
    due_compactions,
    forced_compactions,
    group_by_written_schema,
    reusable_files,
)
from nova_assets.plan.garbage_collection import retention_verdicts
from nova_assets.plan.removal import without_consumers
from nova_assets.plan.retention import nonempty_partitions

log = get_logger("nova_assets.upkeep")

_CHAINED_PORT, _BASES_PORT = "(chained)", "(bases)"  # parentheses cannot occur in a port's name


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Options of one compaction.

    Args:
        policy: when compaction is worth the cost.
        force: compact every partition, even if the policy does not consider the compaction worth its cost.
        chain_deltas: chain deltas, where ``force`` would add a base.
        partitions: names of the partitions to compact. None for all.
        final_form: no more data is expected, so the partitions are compacted into their final form.
        replace_own_bases: also replace bases made by compaction if columns were renamed since.
        scope: scope that contains all the partitions. Only its history is read.
    """

    policy: Compaction
    force: bool = False
    chain_deltas: bool = False
    partitions: tuple[str, ...] | None = None
    final_form: bool = False
    replace_own_bases: bool = False
    scope: str = WHOLE


class ChannelMaintenance:
    """Compacts channels, drops partitions and collects garbage.

    Args:
        deletion_delay: seconds between the collection of a block and the deletion of its files, for readers that
            planned earlier and pinned nothing.
    """

    def __init__(self, runtime: Runtime, deletion_delay: float) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.deletion_delay = deletion_delay

    def plan_compaction(self, channel: str, options: CompactionOptions) -> tuple[PlannedCompaction, ...]:
        """Blocks that compaction would add now, with the reasons."""
        return self._choose_compactions(self._history_since_bases(channel, options.scope), options)

    def compact(self, channel: str, options: CompactionOptions) -> Commit | None:
        """Add bases or chained deltas at existing numbers, where this is worth the cost.

        Returns None if no partition is worth the cost. The head does not move, no trigger fires, and no answer changes.
        """
        history = self._history_since_bases(channel, options.scope)
        compactions = self._choose_compactions(history, options)
        if not compactions:
            return None
        writer = self.runtime.channel_writer
        with writer.write(channel, scope=options.scope, purpose="compact") as execution:
            head = execution.pins[channel].head
            if head != history.head:  # a concurrent compaction keeps the head, but then the commit conflicts
                history = self.catalog.history(channel, head, options.scope, back_to=head)
                compactions = self._choose_compactions(history, options)
            if not compactions:
                self.runtime.staging.abort_and_delete_staged(execution, "compacted by another process")
                return None
            try:
                commit = writer.commit(self._stage_compactions(execution, history, compactions, options))
            except CommitConflict as conflict:
                log.info("channel %s was compacted by another process: %s", channel, conflict.what)
                self.runtime.staging.abort_and_delete_staged(execution, "compacted by another process")
                return None
        summary = "; ".join(f"{c.range} {c.partition}".rstrip() + f": {c.why}" for c in compactions)
        log.info("compacted %s: %s", channel, summary)
        return commit

    def drop_partitions(self, channel: str, partitions: Sequence[str]) -> Commit | None:
        """Drop partitions with one commit (R19). The partitions are empty from its sequence number on.

        No data trigger fires, and consumers do not see the drop as a change.

        Args:
            partitions: names of the partitions.

        Returns:
            The commit, or None if the partitions were empty already.
        """
        self.catalog.channel(channel).channel.refuse_external()
        return plan_again_after_conflict(
            lambda: self._drop_partitions_once(channel, partitions),
            f"the drop of partitions of {channel}",
            self.runtime.max_attempts,
            log,
        )

    def _drop_partitions_once(self, channel: str, partitions: Sequence[str]) -> Commit | None:
        with self.runtime.channel_writer.write(channel, purpose="drop") as execution:
            history = self.catalog.history(channel, execution.pins[channel].head)
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

    def collection_verdicts(self, channel: str, retain: float) -> tuple[RetentionVerdict, ...]:
        """Retention verdict for every block of a channel: collectable, or retained by a named reader.

        Removed bindings are no readers, since a collection makes their removal final.
        """
        statuses = self.catalog.definition_statuses()
        removed = [key.name for key, s in statuses.items() if key.kind == "binding" and s.is_removed]
        return retention_verdicts(without_consumers(self.catalog.retention_state(channel, retain), removed))

    def collect(self, channel: str, retain: float, undo_period: float = 0.0) -> CollectedGarbage:
        """Collect every block that no retained answer needs. Blocks are marked now, and their files are deleted after
        the delay.

        Args:
            undo_period: seconds for which removals of definitions can still be taken back. Older ones become final.

        Raises:
            CopyUndecided: the catalog is a copy of another one, which may need the files.
            WarehouseMismatch: another copy of the catalog has claimed the warehouse.
        """
        self.runtime.staging.warehouse_check.check_may_delete("nothing is collected from its warehouse")
        self.runtime.delete_dead_staging()  # pins of long-dead executions must not retain blocks
        self.catalog.collect_removals([channel], undo_period)
        collected = self.catalog.collect_garbage(channel, retain)
        crash_point("collect.marked")
        self.delete_collected_files()
        return collected

    def delete_collected_files(self) -> int:
        """Delete files of blocks that were collected longer than the delay ago. Returns the number of files.

        An undecided copy of a catalog deletes none.
        """
        deletable = self.catalog.deletable_files(self.deletion_delay)
        if deletable and self.catalog.copied_from() is not None:
            return 0
        if deletable:
            self.runtime.staging.warehouse_check.check()
            self.engine.delete_files(sorted({path for _, path in deletable if not is_external_path(path)}))
            crash_point("collect.deleted")
            self.catalog.delete_file_records(deletable)
        return len(deletable)

    def _history_since_bases(self, channel: str, scope: str) -> History:
        """History for compaction: each partition from its newest base on, however much more is retained."""
        head = self.catalog.channel(channel).head
        return self.catalog.history(channel, head, scope, back_to=head)

    def _choose_compactions(self, history: History, options: CompactionOptions) -> tuple[PlannedCompaction, ...]:
        channel = history.channel
        if any(b.manifest.external_folder is not None for b in history.blocks):
            return ()  # the files of an external channel are not ours to rewrite
        if options.final_form:
            compactions = compactions_of_complete_partitions(history, options.policy)
        elif options.force:
            compactions = forced_compactions(
                history,
                options.chain_deltas,
                self._reader_versions(channel) if options.chain_deltas else (),
                is_published=options.replace_own_bases,
            )
        else:
            full_read_count = self.catalog.count_full_reads(channel)
            compactions = due_compactions(history, options.policy, full_read_count)
            if any(c.since is not None for c in compactions):  # only chains depend on the readers' positions
                compactions = due_compactions(history, options.policy, full_read_count, self._reader_versions(channel))
        return tuple(c for c in compactions if options.partitions is None or c.partition in options.partitions)

    def _reader_versions(self, channel: str) -> frozenset[int]:
        """Sequence numbers from which cursors and pins will read on."""
        state = self.catalog.retention_state(channel)
        pinned_versions = (n for p in state.pins for n in (p.cursor, p.head) if n is not None)
        return frozenset([*(r.cursor for r in state.consumers), *pinned_versions])

    def _stage_compactions(
        self,
        execution: Execution,
        history: History,
        compactions: Sequence[PlannedCompaction],
        options: CompactionOptions,
    ) -> CommitRequest:
        """Stage bases, one write per schema, and chained deltas."""
        bases_by_schema = group_by_written_schema((c for c in compactions if c.since is None), history)
        chains = [c for c in compactions if c.since is not None]
        costs: list[ActualCost] = []
        added_blocks = (
            *(
                block
                for n, (schema, schema_bases) in enumerate(bases_by_schema.items())
                for block in self._stage_bases(
                    execution, history, schema, schema_bases, f"{_BASES_PORT}{n}", options, costs
                )
            ),
            *(self._stage_chained_deltas(execution, history, chains, costs) if chains else ()),
        )
        return CommitRequest(
            id=uuid.uuid4().hex,
            execution_id=execution.id,
            epoch=execution.epoch,
            binding=None,
            added_blocks=added_blocks,
            details={
                "compacted": {f"{c.range} {c.partition}".rstrip(): c.why for c in compactions},
                "ways": [s.as_json() for s in total_costs_by_strategy(costs)],
            },
        )

    def _stage_chained_deltas(
        self, execution: Execution, history: History, compactions: Sequence[PlannedCompaction], costs: list[ActualCost]
    ) -> Iterator[AddBlock]:
        """Stage chained deltas. One chain of each partition is written together: partitions have disjoint keys."""
        definition = self.catalog.channel(history.channel).channel
        for n, chain_group in enumerate(_group_chains_into_writes(history, compactions)):
            deltas = tuple(sorted((d for chain in chain_group.values() for d in chain), key=lambda d: d.hi))
            schema = deltas[-1].manifest.schema
            read = DeltaChain(history.channel, deltas[0].lo, deltas[-1].hi, deltas, schema, deltas[-1].merge)
            port = f"{_CHAINED_PORT}{n}"
            manifest, cost = self.runtime.staging.write_compacted(execution, port, "delta", definition, read, schema)
            costs.append(cost)
            manifest_by_partition = manifest.split_by_partition()
            staged = self.runtime.staging.complete_blocks_by_port(execution)[port]
            for m, (compaction, chain) in enumerate(chain_group.items()):
                chain_manifest = manifest_by_partition.get(compaction.partition, replace(manifest, files=(), deletes=0))
                yield AddBlock(
                    f"{staged.id}-{m}" if m else staged.id,
                    history.channel,
                    "delta",
                    chain_manifest,
                    chain[-1].merge,
                    compaction.partition,
                    "compact",
                    span=(chain[0].lo, chain[-1].hi),
                )

    def _stage_bases(
        self,
        execution: Execution,
        history: History,
        schema: Schema,
        compactions: Sequence[PlannedCompaction],
        port: str,
        options: CompactionOptions,
        costs: list[ActualCost],
    ) -> Iterator[AddBlock]:
        """Stage bases. Unchanged files of old bases are reused.

        Args:
            schema: schema of the sequence numbers at which the bases are added.
        """
        history_at_schema = replace(history.for_partitions({c.partition for c in compactions}), schema=schema)
        snapshot = modes.snapshot(history_at_schema)
        blocks = {b.id: b for b in (*snapshot.bases, *snapshot.deltas) if isinstance(b, Block)}
        reused_paths = reusable_files(
            history_at_schema, blocks, options.policy, self.engine.format, is_final=options.final_form
        )
        definition = self.catalog.channel(history.channel).channel
        manifest, cost = self.runtime.staging.write_compacted(
            execution, port, "base", definition, _exclude_files(snapshot, reused_paths), schema
        )
        costs.append(cost)
        files_by_partition = {p: list(m.files) for p, m in manifest.split_by_partition().items()}
        for block in blocks.values():
            for file in block.manifest.files:
                if file.path in reused_paths:
                    files_by_partition.setdefault(block.partition, []).append(replace(file, partition=block.partition))
        staged = self.runtime.staging.complete_blocks_by_port(execution)[port]
        for n, compaction in enumerate(compactions):
            yield _make_base_block(
                staged.id if n == 0 else f"{staged.id}-{n}",
                history,
                compaction,
                files_by_partition.get(compaction.partition, []),
                manifest,
            )


def _make_base_block(
    block_id: str, history: History, compaction: PlannedCompaction, files: list[DataFile], merged_manifest: Manifest
) -> AddBlock:
    manifest = replace(merged_manifest, files=tuple(files), deletes=0)
    at = compaction.at
    return AddBlock(
        block_id,
        history.channel,
        "base",
        manifest,
        history.merge,
        compaction.partition,
        "compact",
        span=(at, at),
        replaces_base=compaction.anew,
    )


def channel_retention_seconds(runtime: Runtime, channel: str, requested: str | None = None) -> float:
    """Seconds for which old versions of a channel are retained.

    The explicit request wins, then the project's definition, then the catalog's record. Without any of them, old
    versions are not retained.

    Raises:
        DefinitionError: the value is no period. Treating it as zero would delete everything.
    """
    project_retention = next((c.retain for c in runtime.project.channels if c.name == channel), None)
    retention = (project_retention or runtime.catalog.channel(channel).retain) if requested is None else requested
    seconds = 0 if retention is None else period_seconds_or_zero(retention)
    if seconds is None:
        raise DefinitionError("retain is not a valid period", found=repr(retention), expected=EXPECTED_PERIOD)
    return float(seconds)


def _group_chains_into_writes(
    history: History, compactions: Sequence[PlannedCompaction]
) -> list[dict[PlannedCompaction, tuple[Block, ...]]]:
    """Chains with their deltas, in groups that one write can merge: one schema, and at most one chain per partition."""
    history_by_partition = {t.partition: t for t in history.partition_histories}
    groups: dict[tuple[int, Schema], dict[PlannedCompaction, tuple[Block, ...]]] = {}
    last_group_by_partition: dict[str, int] = {}
    for compaction in compactions:
        assert compaction.since is not None
        chained_deltas = delta_paths.shortest_delta_path(
            history_by_partition[compaction.partition], compaction.since, compaction.at
        )
        assert chained_deltas, "no path of deltas leads from the first number of the chain to the last"
        group_index = last_group_by_partition[compaction.partition] = (
            last_group_by_partition.get(compaction.partition, -1) + 1
        )
        groups.setdefault((group_index, chained_deltas[-1].manifest.schema), {})[compaction] = chained_deltas
    return list(groups.values())


def _exclude_files(snapshot: Snapshot, reused_paths: frozenset[str]) -> Snapshot:
    """Snapshot without the files that are reused unchanged."""
    if not reused_paths:
        return snapshot

    def exclude_from_block(block: Block) -> Block:
        files = tuple(f for f in block.manifest.files if f.path not in reused_paths)
        return replace(block, manifest=replace(block.manifest, files=files))

    return replace(
        snapshot,
        bases=tuple(exclude_from_block(b) for b in snapshot.bases if isinstance(b, Block)),
        deltas=tuple(exclude_from_block(b) for b in snapshot.deltas if isinstance(b, Block)),
    )
