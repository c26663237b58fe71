"""Provenance queries: follow the recorded reads of commits back to inserts, or forward to results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nova_assets.errors import DefinitionError, VersionNotFound
from nova_assets.model.catalog import Catalog
from nova_assets.model.partitions import WHOLE
from nova_assets.model.provenance import CommitOrigin, NumberedBlock, ProvenanceStep
from nova_assets.plan.provenance import (
    ChannelBlocks,
    ChannelSlice,
    WantedBlocks,
    merge_slices,
    slices_of_changes,
    slices_of_read,
)
from nova_assets.store.lost_numbers import check_number_not_lost

Steps = dict[tuple[str, str], ProvenanceStep]
"""(commit, channel) -> step, nearest first."""


class ProvenanceQuery:
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
            new_origins = self._catalog.commit_origins({b.commit_id for b in blocks} - origins.keys())
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
                self._readers_by_channel[channel] = self._catalog.commits_that_read(channel)
            wanted = WantedBlocks(of_channel, self._blocks(channel))
            for origin in self._readers_by_channel[channel]:
                if origin.id not in known and any(
                    r.channel == channel and wanted.may_be_used_by(r) for r in origin.reads
                ):
                    yield origin

    def _blocks(self, channel: str) -> ChannelBlocks:
        if channel not in self._blocks_by_channel:
            self._blocks_by_channel[channel] = ChannelBlocks(self._catalog.numbered_blocks(channel))
        return self._blocks_by_channel[channel]


def slice_of_question(
    catalog: Catalog, channel: str, at: int | None, since: int | None, scope: str = WHOLE
) -> ChannelSlice:
    """The part of a channel that somebody asks about.

    Raises:
        ChannelNotFound, VersionNotFound.
        DefinitionError: ``since`` is not before ``at``.
    """
    head = catalog.channel(channel).head
    at = head if at is None else at
    if not 0 <= at <= head:
        raise VersionNotFound.of(channel, at, head)
    check_number_not_lost(catalog, channel, at, since)
    if since is not None and not 0 <= since < at:
        raise DefinitionError(
            f"since={since} is not before version {at} of channel {channel!r}",
            expected=f"since= from 0 to {at - 1}" if at else "a channel with data",
        )
    return ChannelSlice(channel, since, at, scope)


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
