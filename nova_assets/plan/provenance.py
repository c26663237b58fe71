"""Provenance: which blocks of a channel a version, a change or a read was computed from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from nova_assets.model.partitions import WHOLE, is_in_scope
from nova_assets.model.provenance import ChannelRead, NumberedBlock


@dataclass(frozen=True, slots=True)
class Extent:
    """A part of a channel: one of its versions, or the numbers after another version.

    Args:
        since: None for the whole version.
        at: the version, or the last number.
        scope: partitions concerned.
    """

    channel: str
    since: int | None
    at: int
    scope: str = WHOLE

    def contains(self, block: NumberedBlock) -> bool:
        """Whether the rows of this part were computed from a block of the channel."""
        if not is_in_scope(block.partition, self.scope):
            return False
        return block.is_in_version(self.at) if self.since is None else self.since < block.seq <= self.at

    def is_within(self, other: Extent, base_numbers: Iterable[int]) -> bool:
        """Whether another extent has all blocks of this one.

        Args:
            base_numbers: numbers at which partitions of the channel got a base.
        """
        if (self.channel, self.scope) != (other.channel, other.scope) or self.at > other.at:
            return False
        if self.since is None:
            return other.since is None and not any(self.at < n <= other.at for n in base_numbers)
        return other.since is not None and other.since <= self.since


def extents_of_read(read: ChannelRead) -> tuple[Extent, ...]:
    """Everything that an execution may have used of a channel.

    Without a cursor, that is one version. With a cursor, it is what was new. If the tasks read more than that, it is
    also the version before, which may have rows that are not in the version after it.
    """
    if read.since is None:
        return (Extent(read.channel, None, read.at, read.scope),)
    new = Extent(read.channel, read.since, read.at, read.scope)
    return (new,) if read.is_new_only else (new, Extent(read.channel, None, read.since, read.scope))


def extents_of_reads(reads: Iterable[ChannelRead], *, changes_only: bool) -> list[Extent]:
    """The parts of channels that the reads of executions lead back to.

    Args:
        changes_only: only what was new to the bindings. Inputs without a cursor are left out.
    """
    found = [e for r in reads for e in extents_of_read(r) if not changes_only or e.since is not None]
    versions = dict.fromkeys(e for e in found if e.since is None)
    return [*versions, *_merge_ranges(e for e in found if e.since is not None)]


def touches(read: ChannelRead, blocks: Iterable[NumberedBlock]) -> bool:
    """Whether an execution may have used rows of some blocks of the channel."""
    extents = extents_of_read(read)
    return any(e.contains(b) for b in blocks for e in extents)


def _merge_ranges(extents: Iterable[Extent]) -> list[Extent]:
    """Fewer extents with the same numbers: those of a channel and scope that adjoin or overlap become one."""
    merged: list[Extent] = []
    for extent in sorted(extents, key=lambda e: (e.channel, e.scope, e.since or 0)):
        last = merged[-1] if merged else None
        if (
            last is None
            or (last.channel, last.scope) != (extent.channel, extent.scope)
            or last.at < (extent.since or 0)
        ):
            merged.append(extent)
        else:
            merged[-1] = replace(last, at=max(last.at, extent.at))
    return merged
