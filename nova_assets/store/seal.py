"""Sealing of complete days and hours: compaction into the final form, then the seal.

The seal is committed last. Its commit is rejected if data has arrived in the group since. So a reader of the seal sees
all data of the group.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, DefinitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState
from nova_assets.model.commit import CommitRequest, RequireHead
from nova_assets.model.compaction import Compaction
from nova_assets.model.partitions import Dimension, partition_name, partition_values
from nova_assets.model.period import period_seconds
from nova_assets.model.seal import AddSeal, Seal, Sealing
from nova_assets.plan import modes
from nova_assets.plan.compaction import compactions_of_complete_partitions
from nova_assets.plan.seal import IncompleteGroup, SealableGroup, SealingDecision, SealingState, decide_sealing
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.compaction import ChannelCompaction, CompactionOptions

log = get_logger("nova_assets.sealing")

_MAX_ATTEMPTS = 3
"""Number of times that a group is compacted into its final form while more data arrives in it."""


class ChannelSeals:
    """Store methods that seal the groups (days or hours) of channels.

    Args:
        compaction: compacts groups into their final form.
    """

    def __init__(self, runtime: Runtime, registry: ChannelRegistry, compaction: ChannelCompaction) -> None:
        self.runtime = runtime
        self.registry = registry
        self.catalog = runtime.catalog
        self.compaction = compaction

    def seal(self, channel: Channel | str) -> list[Seal]:
        """Seal every complete day or hour of a channel. The files of a day or hour first get their final form. The seal
        is committed last.

        Raises:
            DefinitionError: the channel does not define when its days or hours are complete.
        """
        state = self.registry.registered_state(channel)
        name, policy = state.channel.name, self.registry.compaction_policy(state.channel.name)
        sealable_groups, _ = self._decide_sealing(state)
        for group in sealable_groups:  # oldest first
            try:
                self._seal_group(name, group, policy)
            except CommitConflict as conflict:  # new data or a seal by another process: the next call handles it
                log.info("%s of %s was not sealed: %s", group.group, name, conflict.what)
        seal_by_group = self.catalog.seals.latest(name) if sealable_groups else {}
        new_seals = (seal_by_group.get(group.group) for group in sealable_groups)
        return _with_ends(
            state, [s for s, g in zip(new_seals, sealable_groups, strict=True) if s and s.version == g.version]
        )

    def sealable(self, channel: Channel | str) -> tuple[list[SealableGroup], list[IncompleteGroup]]:
        """Dry run of ``seal``: the days or hours that ``seal`` would seal, and the incomplete days or hours with the
        reason.

        Raises:
            DefinitionError: the channel does not define when its days or hours are complete.
        """
        return self._decide_sealing(self.registry.registered_state(channel))

    def seals(self, channel: Channel | str, limit: int = 1000) -> list[Seal]:
        """Seals of a channel, latest first. The state ``reopened`` means that more data arrived after the seal."""
        state = self.registry.registered_state(channel)
        return _with_ends(state, self.catalog.seals.find(state.channel.name, limit))

    def _decide_sealing(self, state: ChannelState) -> SealingDecision:
        """Groups that can be sealed now, and open groups with the reason."""
        channel = state.channel.name
        sealing, dimension = _sealing_and_dimension(state)
        partitions = [p for p in self.catalog.histories.partitions(channel) if not p.is_dropped]
        groups = {partition_values(p.partition)[sealing.by] for p in partitions}
        source = next((c.source for c in self.runtime.project.channels if c.name == channel), None)
        assert state.registered_at is not None
        return decide_sealing(
            sealing,
            dimension,
            SealingState(
                now=self.catalog.now(),
                registered_at=state.registered_at,
                groups={g for g in groups if g is not None},
                seals=self.catalog.seals.latest(channel),
                has_source=source is not None,
                last_listing_at=state.last_listing_started_at,
                min_file_age_seconds=0 if source is None else period_seconds(source.min_age) or 0,
                oldest_waiting_file_at=None if source is None else self.catalog.arrivals.counts(channel).oldest,
            ),
        )

    def _seal_group(self, channel: str, group: SealableGroup, compaction_policy: Compaction) -> None:
        sealing, _ = _sealing_and_dimension(self.catalog.definitions.channel(channel))
        scope = partition_name([sealing.by], {sealing.by: group.group})
        for _ in range(_MAX_ATTEMPTS):
            partitions = [p.partition for p in self.catalog.histories.partitions(channel, scope) if not p.is_dropped]
            if partitions:
                self.compaction.add_compacted_blocks(
                    channel,
                    CompactionOptions(compaction_policy, final_form=True, partitions=tuple(partitions), scope=scope),
                )
            crash_point("seal.final")
            if self._commit_seal_if_final(channel, group, scope, compaction_policy):
                return
        raise CommitConflict(
            f"{scope} of channel {channel!r} is still being written to after {_MAX_ATTEMPTS} attempts to seal it",
            reason="final",
            channel=channel,
        )

    def _commit_seal_if_final(
        self, channel: str, group: SealableGroup, scope: str, compaction_policy: Compaction
    ) -> bool:
        """Commit the seal of a group in its final form. Returns False if the group needs more compaction first."""
        writer = self.runtime.channel_writer
        with writer.write(channel, scope=scope) as execution:
            head = execution.pins[channel].head
            history = self.catalog.histories.of(channel, head, scope, back_to=head)
            # Files below the target size were already rewritten once for it, so they do not delay the seal.
            if any(not c.anew for c in compactions_of_complete_partitions(history, compaction_policy)):
                self.runtime.staging.abort_and_delete_staged(execution, "new data arrived before the seal")
                return False
            snapshot = modes.snapshot(history)
            files = [f for b in (*snapshot.bases, *snapshot.deltas) if isinstance(b, Block) for f in b.manifest.files]
            seal = AddSeal(
                channel,
                group.group,
                scope,
                group.version,
                head,
                sum(f.rows for f in files),
                sum(f.bytes for f in files),
                len(files),
            )
            request = CommitRequest(
                id=uuid.uuid4().hex,
                execution_id=execution.id,
                epoch=execution.epoch,
                binding=None,
                added_blocks=(),
                required_heads=(RequireHead(channel, head, scope),),
                seals=(seal,),
                details={
                    "sealed": {
                        "channel": channel,
                        "group": scope,
                        "version": group.version,
                        "seq": head,
                        "rows": seal.rows,
                        "bytes": seal.bytes,
                        "files": seal.files,
                    }
                },
            )
            writer.commit(request)
        crash_point("seal.put")
        log.info("sealed %s of %s, version %d", scope, channel, group.version)
        return True


def _sealing_and_dimension(state: ChannelState) -> tuple[Sealing, Dimension]:
    if state.seal is None:
        raise DefinitionError(
            f"channel {state.channel.name!r} has no seal=, which defines when its days or hours are complete",
            expected="a channel with seal=nova.seal(...)",
            next='nova.Channel(..., partitions=[nova.daily("dt", ...)], seal=nova.seal("dt", lateness="15m"))',
            channel=state.channel.name,
        )
    dimensions: Mapping[str, Dimension] = {d.column: d for d in state.channel.partitions}
    return state.seal, dimensions[state.seal.by]


def _with_ends(state: ChannelState, seals: Iterable[Seal]) -> list[Seal]:
    """Seals with the times at which their groups end."""
    by = None if state.seal is None else state.seal.by
    dimension = next((d for d in state.channel.partitions if d.column == by), None)
    return [s if dimension is None else replace(s, ended_at=dimension.partition_end(s.group)) for s in seals]
