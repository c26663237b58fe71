"""Provenance of data: follow the recorded reads of commits back to inserts, or forward to results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import DefinitionError, VersionNotFound
from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState
from nova_assets.model.provenance import CommitOrigin, NumberedBlock, ProvenanceStep
from nova_assets.plan.provenance import (
    ChannelBlocks,
    ChannelSlice,
    WantedBlocks,
    merge_slices,
    slices_of_changes,
    slices_of_read,
)
from nova_assets.store.channel_registry import ChannelRegistry, ProvenanceListing
from nova_assets.store.lost_numbers import check_number_not_lost

Steps = dict[tuple[str, str], ProvenanceStep]
"""(commit, channel) -> step, nearest first."""


class DataProvenance:
    """Store method that says where data came from, and where it went."""

    def __init__(self, runtime: Runtime, registry: ChannelRegistry) -> None:
        self.catalog = runtime.catalog
        self.registry = registry

    def provenance(
        self,
        channel: Channel | str,
        at: int | None = None,
        *,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
        downstream: bool = False,
    ) -> list[ProvenanceStep]:
        """Commits that a version of a channel was computed from, through all channels, back to the inserts.

        The list contains every commit whose rows an execution may have used through its declared inputs. It may contain
        more, because reads are recorded by number and partition, not by row. It needs no files, so it also covers
        blocks that were collected. Other reads are not recorded: of ``store.read`` and ``ctx.views`` in a function, of
        checks, and of anything outside of channels. The result of a Dagster asset that is no channel is not listed.

        Args:
            at: the version. By default, the head.
            since: follow only the changes after this version, up to ``at``: of each input with a cursor, what was new.
                An input without a cursor is followed only if no input of the execution has one. With ``downstream``,
                ask about the numbers after this version instead of a whole version.
            partition: ask about this partition, or every partition with these values.
            downstream: list the commits that used the version, instead of those behind it.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            DefinitionError: ``since`` is not before ``at``.
            PartitionError: the text names no partition of the channel.

        Source: Nova, section 1 ("capturing data provenance and making it easily queriable") and section 2.4.
        """
        state = self.registry.registered_state(channel)
        query, asked = _ProvenanceQuery(self.catalog), self._asked_slice(state, at, since, state.parse_scope(partition))
        return ProvenanceListing(query.trace_results(asked) if downstream else query.trace_sources(asked))

    def _asked_slice(self, state: ChannelState, at: int | None, since: int | None, scope: str) -> ChannelSlice:
        """The part of a channel that somebody asks about."""
        channel, head = state.channel.name, state.head
        at = head if at is None else at
        if not 0 <= at <= head:
            raise VersionNotFound.of(channel, at, head)
        check_number_not_lost(self.catalog, channel, at, since)
        if since is not None and not 0 <= since < at:
            raise DefinitionError(
                f"since={since} is not before version {at} of channel {channel!r}",
                expected=f"since= from 0 to {at - 1}" if at else "a channel with data",
            )
        return ChannelSlice(channel, since, at, scope)


class _ProvenanceQuery:
    """One query. Each channel is loaded once. Commits that are made meanwhile may be missing."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._blocks_by_channel: dict[str, ChannelBlocks] = {}
        self._readers_by_channel: dict[str, list[CommitOrigin]] = {}

    def trace_sources(self, asked: ChannelSlice) -> list[ProvenanceStep]:
        """Commits that a part of a channel was computed from, nearest first.

        Args:
            asked: a version leads back to everything that it was computed from; numbers after a version only to the
                changes that led to them.
        """
        steps: Steps = {}
        origins: dict[str, CommitOrigin] = {}
        taken: dict[tuple[str, str, int], int] = {}
        slices, distance = [asked], 0
        while slices:
            blocks = [b for s in self._take_new(slices, taken) for b in self._blocks(s.channel).select(s)]
            new_origins = self._catalog.provenance.commit_origins({b.commit_id for b in blocks} - origins.keys())
            origins |= new_origins
            _add_steps(steps, blocks, origins, distance)
            slices = merge_slices(
                s for o in new_origins.values() for s in self._slices_behind(o, changes_only=asked.since is not None)
            )
            distance += 1
        return list(steps.values())

    def trace_results(self, asked: ChannelSlice) -> list[ProvenanceStep]:
        """Commits that were computed from a part of a channel, nearest first. Those without a result are left out."""
        steps: Steps = {}
        origins: dict[str, CommitOrigin] = {}
        blocks, distance = list(self._blocks(asked.channel).select(asked)), 1
        while blocks:
            results = {o.id: o for o in self._readers(blocks, origins)}
            origins |= results
            parts = [ChannelSlice(n, seq - 1, seq) for o in results.values() for n, seq in o.numbers.items()]
            blocks = [b for s in parts for b in self._blocks(s.channel).select(s)]
            _add_steps(steps, blocks, origins, distance)
            distance += 1
        return list(steps.values())

    def _slices_behind(self, origin: CommitOrigin, *, changes_only: bool) -> Iterable[ChannelSlice]:
        if changes_only:
            return slices_of_changes(origin.reads)
        return [s for r in origin.reads for s in slices_of_read(r, self._blocks(r.channel))]

    def _take_new(
        self, slices: Iterable[ChannelSlice], taken: dict[tuple[str, str, int], int]
    ) -> Iterator[ChannelSlice]:
        """Slices except versions whose blocks another version had.

        Args:
            taken: (channel, scope, number of bases before the version) -> the greatest version that was taken.
        """
        for part in sorted(slices, key=lambda s: -s.at):
            if part.since is None:
                key = (part.channel, part.scope, self._blocks(part.channel).count_bases(part.scope, part.at))
                if taken.get(key, -1) >= part.at:
                    continue
                taken[key] = part.at
            yield part

    def _readers(self, blocks: Iterable[NumberedBlock], known: Mapping[str, CommitOrigin]) -> Iterator[CommitOrigin]:
        """Commits that may have used some blocks, except those that are known."""
        blocks_by_channel: dict[str, list[NumberedBlock]] = {}
        for block in blocks:
            blocks_by_channel.setdefault(block.channel, []).append(block)
        for channel, of_channel in blocks_by_channel.items():
            if channel not in self._readers_by_channel:
                self._readers_by_channel[channel] = self._catalog.provenance.commits_that_read(channel)
            wanted = WantedBlocks(of_channel, self._blocks(channel))
            for origin in self._readers_by_channel[channel]:
                if origin.id not in known and any(
                    r.channel == channel and wanted.may_be_used_by(r) for r in origin.reads
                ):
                    yield origin

    def _blocks(self, channel: str) -> ChannelBlocks:
        if channel not in self._blocks_by_channel:
            self._blocks_by_channel[channel] = ChannelBlocks(self._catalog.provenance.numbered_blocks(channel))
        return self._blocks_by_channel[channel]


def _add_steps(
    steps: Steps, blocks: Iterable[NumberedBlock], origins: Mapping[str, CommitOrigin], distance: int
) -> None:
    """Add a step for each commit and channel that is new, and partitions to those that exist."""
    for block in sorted(blocks, key=lambda b: (b.channel, b.seq)):
        key = (block.commit_id, block.channel)
        earlier = steps.get(key)
        if earlier is not None and block.partition in earlier.partitions:
            continue
        steps[key] = ProvenanceStep(
            distance if earlier is None else earlier.distance,
            block.channel,
            block.seq,
            (block.partition,) if earlier is None else tuple(sorted({*earlier.partitions, block.partition})),
            block.origin,
            origins[block.commit_id],
        )
