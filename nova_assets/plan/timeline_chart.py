"""Pictures of a channel: its bases, its deltas, and how far behind each consumer is. Pure: what is shown is decided
here, once; the terminal and the SVG only draw it.

The partitions of a channel share its numbers (R13), so they are one picture: a block that any of them has is there,
and a consumer that reads them one by one stands between its slowest and its fastest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from nova_assets.model.binding import Binding
from nova_assets.model.channel_outline import ChannelOutline
from nova_assets.model.channel_state import Cursor
from nova_assets.model.partitions import WHOLE


@dataclass(frozen=True, slots=True)
class ConsumerLane:
    """One consumer: what it has read, and what not yet.

    Args:
        at: the number up to which it has read, in all its partitions; the head where nothing is unread.
        fastest: the same, for the partition that is ahead of the others.
        lag: sequence numbers still unread, in the partition with most of them.
        partitions: how many cursors it is put together from. Those that have never been run have none.
    """

    consumer: str
    at: int
    fastest: int
    lag: int
    partitions: int = 1

    @property
    def label(self) -> str:
        """``at 3, lag 2``; of several partitions, the slowest and the fastest."""
        at = f"{self.at}" if self.at == self.fastest else f"{self.at}–{self.fastest}"
        return f"at {at}, lag {self.lag}" + (f", {self.partitions} partitions" if self.partitions > 1 else "")


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """What is seen of a channel: the numbers from ``start`` on, up to the head.

    Args:
        start: the left edge: a number, or B_0. What lies to its left is left out.
        bases: numbers at which a base was given.
        compacted: numbers at which there is but a base made by compaction.
        deltas: ``n`` for each Δ(n-1→n).
        chained: (lo, hi) of deltas that span several numbers.
        collected: numbers whose blocks are gone.
        dropped: numbers at which retention dropped a partition, and nothing was given (R19).
        lanes: one for each consumer, by name.
    """

    channel: str
    head: int
    start: int
    bases: tuple[int, ...]
    compacted: tuple[int, ...]
    deltas: tuple[int, ...]
    chained: tuple[tuple[int, int], ...]
    collected: tuple[int, ...]
    lanes: tuple[ConsumerLane, ...]
    dropped: tuple[int, ...] = ()
    scope: str = WHOLE

    @property
    def numbers(self) -> int:
        """How many numbers are shown."""
        return self.head - self.start

    @property
    def left_out_label(self) -> str:
        """``… 1–960``: the numbers to the left of what is shown; empty where there are none."""
        return "" if self.start == 0 else "… 1" if self.start == 1 else f"… 1–{self.start}"

    @property
    def lag_by_consumer(self) -> dict[str, int]:
        """Consumer -> its lag."""
        return {lane.consumer: lane.lag for lane in self.lanes}

    def axis_numbers(self, min_distance: float) -> tuple[int, ...]:
        """Numbers to be written at their places: the head, and round ones that leave each other room.

        Args:
            min_distance: how many numbers must lie between two.
        """
        step = next(s for s in _axis_steps() if s >= min_distance)
        first = -(-(self.start + (self.start > 0)) // step) * step  # the left edge is told with what is left out
        return (*range(first, self.head - math.ceil(min_distance) + 1, step), self.head)

    def newest_only(self, max_numbers: int) -> TimelineChart:
        """The same with no more than the newest numbers."""
        start = max(self.start, self.head - max(max_numbers, 1), 0)
        return replace(
            self,
            start=start,
            bases=_numbers_after(start, self.bases),
            compacted=_numbers_after(start, self.compacted),
            deltas=_numbers_after(start, self.deltas),
            chained=tuple((lo, hi) for lo, hi in self.chained if hi > start),
            collected=_numbers_after(start, self.collected),
            dropped=_numbers_after(start, self.dropped),
        )


def build_chart(outline: ChannelOutline, bindings: Iterable[Binding] = ()) -> TimelineChart:
    """The whole picture of a channel.

    Args:
        bindings: of the project: those that consume changes of the channel and never ran have read nothing.
    """
    retained_spans = [s for s in outline.spans if not s.collected]
    given_numbers = {s.hi for s in retained_spans if s.origin != "compact"}
    bases = {s.hi for s in retained_spans if s.kind == "base" and s.origin not in ("compact", "drop")}
    dropped = {s.hi for s in retained_spans if s.origin == "drop"} - bases
    heads = {outline.channel: outline.head}
    cursors = [*outline.cursors, *cursors_of_unrun_bindings(bindings, outline.cursors, heads)]
    return TimelineChart(
        outline.channel,
        outline.head,
        0,
        bases=tuple(sorted(bases)),
        compacted=tuple(sorted({s.hi for s in retained_spans if s.kind == "base"} - bases - dropped)),
        deltas=tuple(sorted({s.hi for s in retained_spans if s.kind == "delta" and s.hi - s.lo == 1})),
        chained=tuple(sorted({(s.lo, s.hi) for s in retained_spans if s.kind == "delta" and s.hi - s.lo > 1})),
        collected=tuple(
            sorted({s.hi for s in outline.spans if s.collected and s.origin != "compact" and s.hi not in given_numbers})
        ),
        lanes=_consumer_lanes(cursors, outline.head),
        dropped=tuple(sorted(dropped)),
        scope=outline.scope,
    )


def cursors_of_unrun_bindings(
    bindings: Iterable[Binding], existing_cursors: Iterable[Cursor], head_by_channel: Mapping[str, int]
) -> list[Cursor]:
    """Cursors of bindings that have not run: they stand at 0, and the catalog has no row of them.

    Args:
        head_by_channel: of the channels concerned.
    """
    known = {(c.binding, c.channel) for c in existing_cursors}
    return [
        Cursor(b.name, c.name, 0, head_by_channel[c.name])
        for b in bindings
        for c in b.cursor_channels
        if c.name in head_by_channel and (b.name, c.name) not in known
    ]


def _consumer_lanes(cursors: Iterable[Cursor], head: int) -> tuple[ConsumerLane, ...]:
    cursors_by_binding: dict[str, list[Cursor]] = {}
    for cursor in cursors:
        cursors_by_binding.setdefault(cursor.binding, []).append(cursor)
    return tuple(
        _consumer_lane(consumer, binding_cursors, head)
        for consumer, binding_cursors in sorted(cursors_by_binding.items())
    )


def _consumer_lane(consumer: str, cursors: list[Cursor], head: int) -> ConsumerLane:
    # Where a partition has not changed since it was read, nothing is unread up to the head of the channel.
    positions = [c.seq if c.lag else head for c in cursors]
    return ConsumerLane(consumer, min(positions), max(positions), max(c.lag for c in cursors), len(cursors))


def _axis_steps() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, …"""
    return (digit * 10**power for power in count() for digit in (1, 2, 5))


def _numbers_after(first_number: int, numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in numbers if n > first_number)
