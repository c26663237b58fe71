"""Compaction of channels, concurrent with readers and writers (R14)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nova_assets.errors import CommitConflict
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.commit import AddBlock, Commit, CommitRequest
from nova_assets.model.compaction import Compaction
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE
from nova_assets.model.read_strategy import ActualCost, total_costs_by_strategy
from nova_assets.model.reads import DeltaChain, Snapshot
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
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.lasting_problems import notify_if_failing

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


class ChannelCompaction:
    """Store methods that compact channels."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry) -> None:
        self.runtime = runtime
        self.registry = registry
        self.catalog = runtime.catalog
        self.engine = runtime.engine

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
        name = self.registry.known(channel)
        options = self._options(name, force, chained, policy, partitions)
        with notify_if_failing(self.catalog, "upkeep_failing", name, f"compaction of {name}"):
            return self.add_compacted_blocks(name, options)

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
        name = self.registry.known(channel)
        options = self._options(name, force, chained, policy, partitions)
        return self._choose_compactions(self._history_since_bases(name, options.scope), options)

    def _options(
        self, channel: str, force: bool, chained: bool, policy: Compaction | None, partitions: Sequence[str] | None
    ) -> CompactionOptions:
        partition_names = None if partitions is None else tuple(partitions)
        return CompactionOptions(policy or self.registry.compaction_policy(channel), force, chained, partition_names)

    def add_compacted_blocks(self, channel: str, options: CompactionOptions) -> Commit | None:
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
                history = self.catalog.histories.of(channel, head, options.scope, back_to=head)
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

    def _history_since_bases(self, channel: str, scope: str) -> History:
        """History for compaction: each partition from its newest base on, however much more is retained."""
        head = self.catalog.definitions.channel(channel).head
        return self.catalog.histories.of(channel, head, scope, back_to=head)

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
            full_read_count = self.catalog.garbage.count_full_reads(channel)
            compactions = due_compactions(history, options.policy, full_read_count)
            if any(c.since is not None for c in compactions):  # only chains depend on the readers' positions
                compactions = due_compactions(history, options.policy, full_read_count, self._reader_versions(channel))
        return tuple(c for c in compactions if options.partitions is None or c.partition in options.partitions)

    def _reader_versions(self, channel: str) -> frozenset[int]:
        """Sequence numbers from which cursors and pins will read on."""
        state = self.catalog.garbage.retention_state(channel)
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
        definition = self.catalog.definitions.channel(history.channel).channel
        for n, chain_group in enumerate(_group_chains_into_writes(history, compactions)):
            deltas = tuple(sorted((d for chain in chain_group.values() for d in chain), key=lambda d: d.hi))
            schema = deltas[-1].manifest.schema
            read = DeltaChain(history.channel, deltas[0].lo, deltas[-1].hi, deltas, schema, deltas[-1].merge)
            port = f"{_CHAINED_PORT}{n}"
            staged, cost = self.runtime.staging.write_compacted(execution, port, "delta", definition, read, schema)
            costs.append(cost)
            manifest = staged.manifest
            assert manifest is not None
            manifest_by_partition = manifest.split_by_partition()
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
        definition = self.catalog.definitions.channel(history.channel).channel
        staged, cost = self.runtime.staging.write_compacted(
            execution, port, "base", definition, _exclude_files(snapshot, reused_paths), schema
        )
        costs.append(cost)
        manifest = staged.manifest
        assert manifest is not None
        files_by_partition = {p: list(m.files) for p, m in manifest.split_by_partition().items()}
        for block in blocks.values():
            for file in block.manifest.files:
                if file.path in reused_paths:
                    files_by_partition.setdefault(block.partition, []).append(replace(file, partition=block.partition))
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
