"""A picture of a channel as SVG: text that any page can show, some kilobytes at most. Pure, like the picture itself."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from nova_assets.plan.timeline_chart import Lane, Picture

NUMBERS = 40
"""So many of the newest numbers are shown."""

_LANES = 12
"""So many consumers are shown: of more, those that are furthest behind."""

_CHAINED = 30
"""So many chained deltas are shown: each partition may have its own."""

_NAME = 20
"""Longer names end in an ellipsis, so that they stay on their side of the picture."""

_LEFT, _RIGHT, _WIDTH, _ROW = 170, 190, 760, 24

# Of medium lightness, without a background: readable on light and on dark pages.
_STYLE = (
    "text{font:12px ui-sans-serif,Helvetica,Arial,sans-serif;fill:#767b84}.t{font-weight:600;font-size:14px}"
    ".e{text-anchor:end}.m{text-anchor:middle;font-size:11px}.b{fill:#3b82f6}.c{fill:none;stroke:#3b82f6;stroke-width:2}"
    ".d{stroke:#16a34a;stroke-width:8}.k{stroke:#16a34a;stroke-width:4}.g{fill:#767b84}.r{stroke:#d97706;stroke-width:3}"
    ".p{stroke:#d97706;stroke-width:3;stroke-dasharray:4 3}.u{stroke:#767b84;stroke-dasharray:2 4}.h{fill:#d97706}"
)


def svg(whole: Picture) -> str:
    """The picture of a channel's newest numbers."""
    picture = whole.newest(NUMBERS)
    lanes = sorted(sorted(whole.lanes, key=lambda lane: (-lane.lag, lane.consumer))[:_LANES], key=lambda x: x.consumer)
    y = 40
    parts = [_text(8, 20, f"{picture.channel}: head {picture.head}", "t"), *_axis(picture, y)]
    for draw in (_bases, _deltas, _chained):
        shown = list(draw(picture, y + _ROW))
        parts += shown
        y += _ROW if shown else 0
    for lane in lanes:
        y += _ROW
        parts += _lane(lane, picture, y)
    if len(whole.lanes) > len(lanes):
        y += _ROW
        parts.append(_text(_LEFT - 12, y + 4, f"and {len(whole.lanes) - len(lanes)} more", "e"))
    height = y + _ROW
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{"".join(parts)}</svg>'


def _axis(picture: Picture, y: int) -> Iterator[str]:
    if picture.left_out:
        yield _text(_LEFT - 12, y + 4, picture.left_out, "e")
    for n in picture.ticks(8 * (len(str(picture.head)) + 1) / _cell(picture)):
        yield _text(_x(picture, n), y + 4, str(n), "m")


def _bases(picture: Picture, y: int) -> Iterator[str]:
    if picture.bases or picture.compacted or picture.dropped:
        yield _text(_LEFT - 12, y + 4, "bases", "e")
    for mark, size, numbers in (("c", 8, picture.compacted), ("b", 10, picture.bases)):
        if numbers:
            squares = "".join(f"M{_x(picture, n) - size // 2} {y - size // 2}h{size}v{size}h-{size}z" for n in numbers)
            yield f'<path class="{mark}" d="{squares}"/>'
    for n in picture.dropped:
        yield _text(_x(picture, n), y + 4, "×", "m")


def _deltas(picture: Picture, y: int) -> Iterator[str]:
    if picture.deltas or picture.collected:
        yield _text(_LEFT - 12, y + 4, "deltas", "e")
        yield _lines("d", y, *((_x(picture, n - 1) + 2, _x(picture, n) - 1) for n in picture.deltas))
    for n in picture.collected:
        yield f'<circle class="g" cx="{_x(picture, n)}" cy="{y}" r="2"/>'


def _chained(picture: Picture, y: int) -> Iterator[str]:
    if picture.chained:
        yield _text(_LEFT - 12, y + 4, "chained", "e")
    shown = picture.chained[-_CHAINED:]
    for height in range(3):  # those that overlap lie on different ones
        ends = ((_x(picture, max(lo, picture.start)) + 2, _x(picture, hi) - 1) for lo, hi in shown[height::3])
        yield _lines("k", y - 6 + 6 * height, *ends)


def _lane(lane: Lane, picture: Picture, y: int) -> Iterator[str]:
    left, right = _x(picture, picture.start), _x(picture, picture.head)
    at, fastest = (_x(picture, max(n, picture.start)) for n in (lane.at, lane.fastest))
    name = lane.consumer if len(lane.consumer) <= _NAME else lane.consumer[: _NAME - 1] + "…"
    yield _text(_LEFT - 12, y + 4, name, "e")
    yield _lines("r", y, (left, at)) + _lines("p", y, (at, fastest)) + _lines("u", y, (fastest, right))
    if lane.at < picture.start:
        yield f'<path class="h" d="M{left - 8} {y}l8 -5v10z"/>'
    else:
        yield f'<circle class="h" cx="{at}" cy="{y}" r="5"/>'
    yield _text(right + 14, y + 4, lane.said)


def _lines(mark: str, y: int, *ends: tuple[int, int]) -> str:
    drawn = "".join(f"M{a} {y}H{b}" for a, b in ends if b > a)
    return f'<path class="{mark}" d="{drawn}"/>' if drawn else ""


def _text(x: int, y: int, text: str, mark: str = "") -> str:
    of = f' class="{mark}"' if mark else ""
    shown = "".join(c if c.isprintable() else "�" for c in text)  # XML has no control characters
    return f'<text x="{x}" y="{y}"{of}>{escape(shown)}</text>'


def _cell(picture: Picture) -> int:
    return min(44, (_WIDTH - _LEFT - _RIGHT) // max(picture.numbers, 1))


def _x(picture: Picture, n: int) -> int:
    return _LEFT + (n - picture.start) * _cell(picture)
