"""Provenance: which blocks of a channel a version, a change or a read was computed from."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nova_assets.model.partitions import WHOLE, is_in_scope
from nova_assets.model.provenance import ChannelRead, NumberedBlock


@dataclass(frozen=True, slots=True)
class ChannelSlice:
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


class ChannelBlocks:
    """Numbered blocks of one channel, to be looked up by number and partition.

    Args:
        blocks: the blocks, in the order of their numbers.
    """

    def __init__(self, blocks: Iterable[NumberedBlock]) -> None:
        self._blocks: dict[str, list[NumberedBlock]] = {}
        for block in blocks:
            self._blocks.setdefault(block.partition, []).append(block)
        self._numbers = {p: [b.seq for b in of_partition] for p, of_partition in self._blocks.items()}
        self._bases = {p: [b.seq for b in of_partition if b.kind == "base"] for p, of_partition in self._blocks.items()}
        self._partitions_by_scope: dict[str, list[str]] = {}
        self._bases_by_scope: dict[tuple[str, bool], list[int]] = {}

    def select(self, part: ChannelSlice) -> Iterator[NumberedBlock]:
        """Blocks that a part of the channel was computed from."""
        for partition in self.partitions(part.scope):
            numbers = self._numbers[partition]
            first, last = self.bounds(part, partition)
            yield from self._blocks[partition][bisect_left(numbers, first) : bisect_right(numbers, last)]

    def bounds(self, part: ChannelSlice, partition: str) -> tuple[int, int]:
        """First and last number of a part in a partition. A version begins at the last base before it."""
        if part.since is not None:
            return part.since + 1, part.at
        bases = self._bases.get(partition, [])
        index = bisect_right(bases, part.at)
        return (bases[index - 1] if index else 0), part.at

    def partitions(self, scope: str) -> list[str]:
        """Partitions within a scope."""
        if scope not in self._partitions_by_scope:
            self._partitions_by_scope[scope] = (
                [scope] if scope in self._blocks else [p for p in self._blocks if is_in_scope(p, scope)]
            )
        return self._partitions_by_scope[scope]

    def count_bases(self, scope: str, at: int) -> int:
        """Number of bases of the partitions in a scope up to a version."""
        return bisect_right(self._base_numbers(scope, with_drops=True), at)

    def has_written_base(self, part: ChannelSlice) -> bool:
        """Whether a base that is no drop lies between the numbers of a part."""
        bases = self._base_numbers(part.scope, with_drops=False)
        return bisect_right(bases, part.at) > bisect_right(bases, part.since or 0)

    def _base_numbers(self, scope: str, *, with_drops: bool) -> list[int]:
        key = (scope, with_drops)
        if key not in self._bases_by_scope:
            blocks = (b for p in self.partitions(scope) for b in self._blocks[p] if b.kind == "base")
            self._bases_by_scope[key] = sorted(b.seq for b in blocks if with_drops or b.origin != "drop")
        return self._bases_by_scope[key]


def slices_of_read(read: ChannelRead, blocks: ChannelBlocks) -> tuple[ChannelSlice, ...]:
    """Everything that an execution may have used of a channel: too much rather than too little.

    Without a cursor, that is one version. With a cursor, it is what was new. If the tasks read more than that, it is
    also the version before, which may have rows that are not in the version after it. The same holds if a base lies
    between: the change then contains old rows, as deletions.
    """
    if read.since is None:
        return (ChannelSlice(read.channel, None, read.at, read.scope),)
    new = ChannelSlice(read.channel, read.since, read.at, read.scope)
    if read.is_new_only and not blocks.has_written_base(new):
        return (new,)
    return (new, ChannelSlice(read.channel, None, read.since, read.scope))


def slices_of_changes(reads: Sequence[ChannelRead]) -> list[ChannelSlice]:
    """What an execution was caused by: the new numbers of its inputs, or if none has a cursor, what it read."""
    # Without the rows that it looks up. They would lead from any maintained result back to the whole history.
    with_cursor = [ChannelSlice(r.channel, r.since, r.at, r.scope) for r in reads if r.since is not None]
    return with_cursor or [ChannelSlice(r.channel, None, r.at, r.scope) for r in reads]


def merge_slices(slices: Iterable[ChannelSlice]) -> list[ChannelSlice]:
    """Fewer slices with the same blocks: ranges of a channel and scope that adjoin or overlap become one."""
    slices = list(slices)
    merged: list[ChannelSlice] = []
    for part in sorted((s for s in slices if s.since is not None), key=lambda s: (s.channel, s.scope, s.since or 0)):
        last = merged[-1] if merged else None
        is_same_part = last is not None and (last.channel, last.scope) == (part.channel, part.scope)
        if last is not None and is_same_part and (part.since or 0) <= last.at:
            merged[-1] = replace(last, at=max(last.at, part.at))
        else:
            merged.append(part)
    return [*dict.fromkeys(s for s in slices if s.since is None), *merged]


class WantedBlocks:
    """Some blocks of a channel, to find out which reads may have used them.

    Args:
        wanted: the blocks.
        blocks: all blocks of the channel.
    """

    def __init__(self, wanted: Iterable[NumberedBlock], blocks: ChannelBlocks) -> None:
        numbers: dict[str, set[int]] = {}
        for block in wanted:
            numbers.setdefault(block.partition, set()).add(block.seq)
        self._numbers = {p: sorted(n) for p, n in numbers.items()}
        self._all_numbers = sorted(set().union(*numbers.values()))
        self._blocks = blocks

    def may_be_used_by(self, read: ChannelRead) -> bool:
        """Whether an execution may have used rows of one of the blocks."""
        return any(self._is_any_in(part) for part in slices_of_read(read, self._blocks))

    def _is_any_in(self, part: ChannelSlice) -> bool:
        if part.scope == WHOLE and part.since is not None:
            return _has_number(self._all_numbers, part.since + 1, part.at)
        return any(
            _has_number(numbers, *self._blocks.bounds(part, partition))
            for partition, numbers in self._numbers.items()
            if is_in_scope(partition, part.scope)
        )


def _has_number(numbers: list[int], first: int, last: int) -> bool:
    return bisect_right(numbers, last) > bisect_left(numbers, first)
