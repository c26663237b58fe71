"""Timeline chart of a channel as SVG, at most a few kilobytes, for any page. Pure, like the chart itself.

Hand-written, because a plotting library would be loaded into each run for a few kilobytes (decision 0044).
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from nova_assets.plan.timeline_chart import ConsumerLane, TimelineChart

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
