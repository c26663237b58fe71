"""Timeline chart of a channel: its bases, its deltas, and the lag of each consumer.

Pure. This module decides the content of the chart. The terminal and the SVG output only draw it.

The partitions of a channel share its sequence numbers (R13), so they share one chart. A block is shown if any partition
has it. A consumer that reads partitions separately spans the positions from its slowest to its fastest partition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from xml.sax.saxutils import escape

from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import BlockSpan, ChannelOutline, Cursor
from nova_assets.model.partitions import WHOLE


@dataclass(frozen=True, slots=True)
class ConsumerLane:
    """One consumer in the chart, with its position and lag.

    Args:
        at: number up to which it has read all its partitions; the head if nothing is unread.
        fastest: the same for its fastest partition.
        lag: number of unread sequence numbers, in the partition with most of them.
        partitions: number of its cursors. Partitions without a run have no cursor.
        unread_rows: rows of the blocks after ``at``, deletions included; None if earlier numbers are left out.
    """

    consumer: str
    at: int
    fastest: int
    lag: int
    partitions: int = 1
    unread_rows: int | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """``at 3, lag 2``; with several partitions, the slowest and the fastest position."""
        at = f"{self.at}" if self.at == self.fastest else f"{self.at}–{self.fastest}"
        return f"at {at}, lag {self.lag}" + (f", {self.partitions} partitions" if self.partitions > 1 else "")


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """Content of a chart: the sequence numbers from ``start`` to the head.

    Args:
        start: the left edge: a number, or 0 for B_0. Earlier numbers are left out.
        bases: numbers with a base from a task, an insert or a restore.
        compacted: numbers whose only base is from compaction.
        deltas: ``n`` for each Δ(n-1→n).
        chained: (lo, hi) of deltas that span several numbers.
        collected: numbers whose blocks were collected.
        dropped: numbers at which retention dropped a partition and no base was added (R19).
        lanes: one per consumer, sorted by name.
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
        """Count of the shown numbers."""
        return self.head - self.start

    @property
    def left_out_label(self) -> str:
        """``… 1–960``: the numbers left of the chart; empty if there are none."""
        return "" if self.start == 0 else "… 1" if self.start == 1 else f"… 1–{self.start}"

    @property
    def lag_by_consumer(self) -> dict[str, int]:
        """Consumer -> its lag."""
        return {lane.consumer: lane.lag for lane in self.lanes}

    @property
    def unread_rows_by_consumer(self) -> dict[str, int]:
        """Consumer -> its unread rows, as far as they are known."""
        return {lane.consumer: lane.unread_rows for lane in self.lanes if lane.unread_rows is not None}

    def axis_numbers(self, min_distance: float) -> tuple[int, ...]:
        """Numbers to label on the axis: the head, and round numbers with enough distance.

        Args:
            min_distance: minimum difference between two labelled numbers.
        """
        step = next(s for s in _axis_steps() if s >= min_distance)
        first = -(-(self.start + (self.start > 0)) // step) * step  # the left-out label names the edge
        return (*range(first, self.head - math.ceil(min_distance) + 1, step), self.head)

    def newest_only(self, max_numbers: int) -> TimelineChart:
        """The chart restricted to its newest numbers."""
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
    """Full chart of a channel.

    Args:
        outline: spans and cursors of the channel.
        bindings: bindings of the project. Those that consume changes of the channel and never ran are shown at 0.
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
        lanes=_consumer_lanes(cursors, outline.head, _rows_by_number(outline.spans)),
        dropped=tuple(sorted(dropped)),
        scope=outline.scope,
    )


def cursors_of_unrun_bindings(
    bindings: Iterable[Binding], existing_cursors: Iterable[Cursor], head_by_channel: Mapping[str, int]
) -> list[Cursor]:
    """Cursors at 0 for bindings that have not run and thus have no cursor in the catalog.

    Args:
        bindings: the bindings.
        existing_cursors: cursors in the catalog.
        head_by_channel: heads of the channels concerned.
    """
    known = {(c.binding, c.channel) for c in existing_cursors}
    return [
        Cursor(b.name, c.name, 0, head_by_channel[c.name])
        for b in bindings
        for c in b.cursor_channels
        if c.name in head_by_channel and (b.name, c.name) not in known
    ]


def _rows_by_number(spans: Iterable[BlockSpan]) -> dict[int, int]:
    """Number -> rows that a consumer of changes reads for it: those of its delta, or of its base if it has no delta."""
    bases: dict[int, int] = {}
    deltas: dict[int, int] = {}
    for span in spans:
        if span.origin != "compact":
            rows = 0 if span.origin == "drop" else span.rows
            by_number = bases if span.kind == "base" else deltas
            by_number[span.hi] = by_number.get(span.hi, 0) + rows
    return {**bases, **deltas}


def _consumer_lanes(
    cursors: Iterable[Cursor], head: int, rows_by_number: Mapping[int, int]
) -> tuple[ConsumerLane, ...]:
    cursors_by_binding: dict[str, list[Cursor]] = {}
    for cursor in cursors:
        cursors_by_binding.setdefault(cursor.binding, []).append(cursor)
    return tuple(
        _consumer_lane(consumer, binding_cursors, head, rows_by_number)
        for consumer, binding_cursors in sorted(cursors_by_binding.items())
    )


def _consumer_lane(consumer: str, cursors: list[Cursor], head: int, rows_by_number: Mapping[int, int]) -> ConsumerLane:
    # A partition without changes since it was read is read up to the head of the channel.
    positions = [c.seq if c.lag else head for c in cursors]
    at = min(positions)
    unread = [rows for number, rows in rows_by_number.items() if number > at]
    unread_rows = sum(unread) if len(unread) == head - at else None
    return ConsumerLane(consumer, at, max(positions), max(c.lag for c in cursors), len(cursors), unread_rows)


def _axis_steps() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, …"""
    return (digit * 10**power for power in count() for digit in (1, 2, 5))


def _numbers_after(first_number: int, numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in numbers if n > first_number)


SHOWN_NUMBERS = 40
"""Maximum number of sequence numbers in a chart, the newest ones."""

_MAX_LANES = 12
"""Maximum number of consumers in a chart: those that lag furthest behind."""

_MAX_CHAINED = 30
"""Maximum number of chained deltas in a chart. Each partition may have its own."""

_MAX_NAME_LENGTH = 20
"""Longer names are cut with an ellipsis, so that they do not run into the chart."""

_LEFT_MARGIN, _RIGHT_MARGIN, _WIDTH, _ROW_HEIGHT = 170, 190, 760, 24

# Medium lightness and no background: readable on light and on dark pages.
_STYLE = (
    "text{font:12px ui-sans-serif,Helvetica,Arial,sans-serif;fill:#767b84}.t{font-weight:600;font-size:14px}"
    ".e{text-anchor:end}.m{text-anchor:middle;font-size:11px}.b{fill:#3b82f6}.c{fill:none;stroke:#3b82f6;stroke-width:2}"
    ".d{stroke:#16a34a;stroke-width:8}.k{stroke:#16a34a;stroke-width:4}.g{fill:#767b84}.r{stroke:#d97706;stroke-width:3}"
    ".p{stroke:#d97706;stroke-width:3;stroke-dasharray:4 3}.u{stroke:#767b84;stroke-dasharray:2 4}.h{fill:#d97706}"
)


def render_svg(full_chart: TimelineChart) -> str:
    """SVG of the newest numbers of a chart."""
    chart = full_chart.newest_only(SHOWN_NUMBERS)
    lanes = sorted(
        sorted(full_chart.lanes, key=lambda lane: (-lane.lag, lane.consumer))[:_MAX_LANES], key=lambda x: x.consumer
    )
    y = 40
    parts = [_text_element(8, 20, f"{chart.channel}: head {chart.head}", "t"), *_draw_axis(chart, y)]
    for draw in (_draw_bases, _draw_deltas, _draw_chained_deltas):
        shown = list(draw(chart, y + _ROW_HEIGHT))
        parts += shown
        y += _ROW_HEIGHT if shown else 0
    for lane in lanes:
        y += _ROW_HEIGHT
        parts += _draw_lane(lane, chart, y)
    if len(full_chart.lanes) > len(lanes):
        y += _ROW_HEIGHT
        parts.append(_text_element(_LEFT_MARGIN - 12, y + 4, f"and {len(full_chart.lanes) - len(lanes)} more", "e"))
    height = y + _ROW_HEIGHT
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{"".join(parts)}</svg>'


def _draw_axis(chart: TimelineChart, y: int) -> Iterator[str]:
    if chart.left_out_label:
        yield _text_element(_LEFT_MARGIN - 12, y + 4, chart.left_out_label, "e")
    for n in chart.axis_numbers(8 * (len(str(chart.head)) + 1) / _pixels_per_number(chart)):
        yield _text_element(_x_of_number(chart, n), y + 4, str(n), "m")


def _draw_bases(chart: TimelineChart, y: int) -> Iterator[str]:
    if chart.bases or chart.compacted or chart.dropped:
        yield _text_element(_LEFT_MARGIN - 12, y + 4, "bases", "e")
    for css_class, size, numbers in (("c", 8, chart.compacted), ("b", 10, chart.bases)):
        if numbers:
            squares = "".join(
                f"M{_x_of_number(chart, n) - size // 2} {y - size // 2}h{size}v{size}h-{size}z" for n in numbers
            )
            yield f'<path class="{css_class}" d="{squares}"/>'
    for n in chart.dropped:
        yield _text_element(_x_of_number(chart, n), y + 4, "×", "m")


def _draw_deltas(chart: TimelineChart, y: int) -> Iterator[str]:
    if chart.deltas or chart.collected:
        yield _text_element(_LEFT_MARGIN - 12, y + 4, "deltas", "e")
        yield _horizontal_lines_element(
            "d", y, *((_x_of_number(chart, n - 1) + 2, _x_of_number(chart, n) - 1) for n in chart.deltas)
        )
    for n in chart.collected:
        yield f'<circle class="g" cx="{_x_of_number(chart, n)}" cy="{y}" r="2"/>'


def _draw_chained_deltas(chart: TimelineChart, y: int) -> Iterator[str]:
    if chart.chained:
        yield _text_element(_LEFT_MARGIN - 12, y + 4, "chained", "e")
    shown = chart.chained[-_MAX_CHAINED:]
    for height in range(3):  # overlapping deltas are drawn at different heights
        x_ranges = (
            (_x_of_number(chart, max(lo, chart.start)) + 2, _x_of_number(chart, hi) - 1) for lo, hi in shown[height::3]
        )
        yield _horizontal_lines_element("k", y - 6 + 6 * height, *x_ranges)


def _draw_lane(lane: ConsumerLane, chart: TimelineChart, y: int) -> Iterator[str]:
    left, right = _x_of_number(chart, chart.start), _x_of_number(chart, chart.head)
    at, fastest = (_x_of_number(chart, max(n, chart.start)) for n in (lane.at, lane.fastest))
    name = lane.consumer if len(lane.consumer) <= _MAX_NAME_LENGTH else lane.consumer[: _MAX_NAME_LENGTH - 1] + "…"
    yield _text_element(_LEFT_MARGIN - 12, y + 4, name, "e")
    yield (
        _horizontal_lines_element("r", y, (left, at))
        + _horizontal_lines_element("p", y, (at, fastest))
        + _horizontal_lines_element("u", y, (fastest, right))
    )
    if lane.at < chart.start:
        yield f'<path class="h" d="M{left - 8} {y}l8 -5v10z"/>'
    else:
        yield f'<circle class="h" cx="{at}" cy="{y}" r="5"/>'
    yield _text_element(right + 14, y + 4, lane.label)


def _horizontal_lines_element(css_class: str, y: int, *x_ranges: tuple[int, int]) -> str:
    path_data = "".join(f"M{left} {y}H{right}" for left, right in x_ranges if right > left)
    return f'<path class="{css_class}" d="{path_data}"/>' if path_data else ""


def _text_element(x: int, y: int, text: str, css_class: str = "") -> str:
    class_attribute = f' class="{css_class}"' if css_class else ""
    printable_text = "".join(c if c.isprintable() else "�" for c in text)  # XML does not allow control characters
    return f'<text x="{x}" y="{y}"{class_attribute}>{escape(printable_text)}</text>'


def _pixels_per_number(chart: TimelineChart) -> int:
    return min(44, (_WIDTH - _LEFT_MARGIN - _RIGHT_MARGIN) // max(chart.numbers, 1))


def _x_of_number(chart: TimelineChart, number: int) -> int:
    return _LEFT_MARGIN + (number - chart.start) * _pixels_per_number(chart)
