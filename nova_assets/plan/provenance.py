"""Provenance: which blocks of a channel a version, a change or a read was computed from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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


def extent_of_read(read: ChannelRead) -> Extent:
    """Everything that an execution may have used of a channel: only new numbers if it read nothing else."""
    return Extent(read.channel, read.since if read.is_new_only else None, read.at, read.scope)


def extents_of_reads(reads: Sequence[ChannelRead], *, changes_only: bool) -> Iterator[Extent]:
    """The parts of channels that the reads of an execution lead back to.

    Args:
        changes_only: only what was new to the binding. Inputs without a cursor are left out.
    """
    for read in reads:
        if not changes_only:
            yield extent_of_read(read)
        elif read.since is not None:
            yield Extent(read.channel, read.since, read.at, read.scope)


def touches(read: ChannelRead, blocks: Iterable[NumberedBlock]) -> bool:
    """Whether an execution may have used rows of some blocks of the channel."""
    extent = extent_of_read(read)
    return any(extent.contains(b) for b in blocks)
