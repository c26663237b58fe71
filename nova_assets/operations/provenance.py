"""Provenance queries: follow the recorded reads of commits back to inserts, or forward to results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nova_assets.errors import DefinitionError, VersionNotFound
from nova_assets.model.catalog import Catalog
from nova_assets.model.partitions import WHOLE
from nova_assets.model.provenance import CommitOrigin, NumberedBlock, ProvenanceStep
from nova_assets.plan.provenance import Extent, extents_of_reads, touches


class ProvenanceQuery:
    """One query. It loads each channel that it meets once, so all steps show the same moment."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._blocks_by_channel: dict[str, list[NumberedBlock]] = {}
        self._readers_by_channel: dict[str, list[CommitOrigin]] = {}

    def trace_sources(self, extent: Extent) -> list[ProvenanceStep]:
        """Commits that a part of a channel was computed from, nearest first.

        Args:
            extent: a version leads back to everything that it was computed from; numbers after a version only to the
                changes that led to them.
        """
        steps: dict[tuple[str, str], ProvenanceStep] = {}
        visited_commits: set[str] = set()
        done: dict[tuple[str, str], list[Extent]] = {}
        extents, distance = [extent], 0
        while extents:
            found = [b for e in self._not_covered(extents, done) for b in self._blocks_in(e)]
            origins = self._catalog.commit_origins({b.commit_id for b in found})
            _add_steps(steps, found, origins, distance)
            reads = [r for o in origins.values() if o.id not in visited_commits for r in o.reads]
            visited_commits |= origins.keys()
            extents = extents_of_reads(reads, changes_only=extent.since is not None)
            distance += 1
        return list(steps.values())

    def trace_results(self, extent: Extent) -> list[ProvenanceStep]:
        """Commits that were computed from a part of a channel, nearest first. Commits without a result are left out."""
        steps: dict[tuple[str, str], ProvenanceStep] = {}
        visited_commits: set[str] = set()
        found, distance = list(self._blocks_in(extent)), 1
        while found:
            results = {o.id: o for o in self._readers(found) if o.id not in visited_commits}
            visited_commits |= results.keys()
            found = [
                b for n in sorted({n for o in results.values() for n in o.numbers}) for b in self._blocks_of(n, results)
            ]
            _add_steps(steps, found, results, distance)
            distance += 1
        return list(steps.values())

    def _not_covered(self, extents: Iterable[Extent], done: dict[tuple[str, str], list[Extent]]) -> Iterator[Extent]:
        """Extents whose blocks no earlier extent has. They are added to ``done``, by channel and scope."""
        for extent in sorted(extents, key=lambda e: -e.at):
            earlier = done.setdefault((extent.channel, extent.scope), [])
            bases = self._base_numbers(extent.channel)
            if not any(extent.is_within(other, bases) for other in earlier):
                earlier.append(extent)
                yield extent

    def _readers(self, found: Iterable[NumberedBlock]) -> Iterator[CommitOrigin]:
        """Commits that may have used some blocks."""
        by_channel: dict[str, list[NumberedBlock]] = {}
        for block in found:
            by_channel.setdefault(block.channel, []).append(block)
        for channel, blocks in by_channel.items():
            if channel not in self._readers_by_channel:
                self._readers_by_channel[channel] = self._catalog.commits_that_read(channel)
            for origin in self._readers_by_channel[channel]:
                if any(r.channel == channel and touches(r, blocks) for r in origin.reads):
                    yield origin

    def _blocks(self, channel: str) -> list[NumberedBlock]:
        if channel not in self._blocks_by_channel:
            self._blocks_by_channel[channel] = self._catalog.numbered_blocks(channel)
        return self._blocks_by_channel[channel]

    def _base_numbers(self, channel: str) -> list[int]:
        return sorted({b.seq for b in self._blocks(channel) if b.kind == "base"})

    def _blocks_in(self, extent: Extent) -> Iterator[NumberedBlock]:
        return (b for b in self._blocks(extent.channel) if extent.contains(b))

    def _blocks_of(self, channel: str, commits: Iterable[str]) -> Iterator[NumberedBlock]:
        ids = set(commits)
        return (b for b in self._blocks(channel) if b.commit_id in ids)


def check_extent(catalog: Catalog, channel: str, at: int | None, since: int | None, scope: str = WHOLE) -> Extent:
    """The part of a channel that somebody asks about.

    Raises:
        ChannelNotFound, VersionNotFound.
        DefinitionError: ``since`` is not before ``at``.
    """
    head = catalog.channel(channel).head
    at = head if at is None else at
    if not 0 <= at <= head:
        raise VersionNotFound.of(channel, at, head)
    if since is not None and not 0 <= since < at:
        raise DefinitionError(
            f"channel {channel!r} has no numbers after {since} up to {at}",
            expected=f"since= from 0 to {max(0, at - 1)}",
        )
    return Extent(channel, since, at, scope)


def _add_steps(
    steps: dict[tuple[str, str], ProvenanceStep],
    found: Iterable[NumberedBlock],
    origins: dict[str, CommitOrigin],
    distance: int,
) -> None:
    """Add a step for each commit and channel that is new, and partitions to those that exist."""
    partitions: dict[tuple[str, str], set[str]] = {}
    for block in sorted(found, key=lambda b: (b.channel, b.seq)):
        key = (block.commit_id, block.channel)
        partitions.setdefault(key, set()).add(block.partition)
        earlier = steps.get(key)
        partitions[key] |= set() if earlier is None else set(earlier.partitions)
        steps[key] = ProvenanceStep(
            distance if earlier is None else earlier.distance,
            block.channel,
            block.seq,
            tuple(sorted(partitions[key])),
            block.origin,
            origins[block.commit_id],
        )
