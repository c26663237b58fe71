"""How a picture of a channel looks in a terminal: one line for the bases, one for the deltas, one for each consumer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nova_assets.cli.rendering import in_one_line
from nova_assets.plan.timeline_chart import Lane, Picture

_CELLS = (4, 2)
"""How wide a number may be drawn: the widest at which all of them fit."""

_FEWEST = 10
"""So many numbers are drawn even where names leave no room for them."""

_CHAINED = 4
"""So many lines are taken by chained deltas that overlap."""

_LEGEND = {
    "■": "■ base",
    "□": "□ compacted base",
    "×": "× partition dropped",
    "─": "─▶ delta",
    "═": "═▶ chained deltas",
    "·": "· collected",
    "●": "● read up to here",
    "╍": "╍ in some partitions",
    "┄": "┄ unread",
}

_NOBODY = "no consumer has a cursor on it"


def drawn(whole: Picture, width: int, longest: int | None = None) -> list[str]:
    """The lines of a drawing.

    Args:
        width: that they should keep to.
        longest: names are cut to this length; by default not at all.
    """
    labels = {lane: _cut(in_one_line(lane.consumer), longest) for lane in whole.lanes}
    margin = max(len("chained"), *map(len, labels.values()), 0) + 2
    room = width - margin - max((len(lane.said) for lane in whole.lanes), default=0) - 3
    cell = next((c for c in _CELLS if whole.numbers * c <= room), _CELLS[-1])
    picture = whole
    if whole.numbers * cell > room:
        more = max(0, len(f"… 1–{whole.head}") + 2 - margin)
        margin, picture = margin + more, whole.newest(max((room - more) // cell, _FEWEST))
    rows = [(picture.left_out, _axis(picture, cell), ""), *_blocks(picture, cell)]
    rows += [(labels[lane], _lane(lane, picture, cell), lane.said) for lane in whole.lanes]
    strip = picture.numbers * cell + 1
    lines = [f"{label:<{margin}}{row:<{strip}}  {said}".rstrip() for label, row, said in rows]
    return [_title(picture), "", *lines, "", *_legend(rows, picture, width)]


def _title(picture: Picture) -> str:
    where = f" {in_one_line(picture.scope)}" if picture.scope else ""
    return f"{picture.channel}{where}: head {picture.head}"


def _legend(rows: Sequence[tuple[str, str, str]], picture: Picture, width: int) -> list[str]:
    """What the marks mean that occur."""
    seen = {mark for _, row, _ in rows for mark in row}
    lines = [""]
    for text in (*(t for mark, t in _LEGEND.items() if mark in seen), *(() if picture.lanes else (_NOBODY,))):
        if lines[-1] and len(lines[-1]) + 2 + len(text) > width:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + text
    return lines


def _axis(picture: Picture, cell: int) -> str:
    """Numbers, each ending where it is."""
    row = _strip(picture, cell)
    for n in picture.ticks((len(str(picture.head)) + 2) / cell):
        text, end = str(n), (n - picture.start) * cell + 1
        if end >= len(text):
            row[end - len(text) : end] = text
    return "".join(row)


def _blocks(picture: Picture, cell: int) -> Iterator[tuple[str, str, str]]:
    """The lines of what there is: bases, deltas, and chained deltas, those that overlap below each other."""
    bases, deltas = _strip(picture, cell), _strip(picture, cell)
    for mark, numbers in (("×", picture.dropped), ("□", picture.compacted), ("■", picture.bases)):
        for n in numbers:
            bases[(n - picture.start) * cell] = mark
    for n in picture.collected:
        deltas[(n - picture.start) * cell] = "·"
    for n in picture.deltas:
        _arrow(deltas, n - 1, n, "─", picture, cell)
    for label, row in (("bases", bases), ("deltas", deltas)):
        if "".join(row).strip():
            yield label, "".join(row), ""
    yield from _chained(picture, cell)


def _chained(picture: Picture, cell: int) -> Iterator[tuple[str, str, str]]:
    rows: list[list[str]] = []
    left_out = 0
    for lo, hi in picture.chained:
        begin = max(lo - picture.start, 0) * cell + 1
        row = next((r for r in rows if not "".join(r[begin:]).strip()), None)
        if row is None and len(rows) == _CHAINED:
            left_out += 1
            continue
        if row is None:
            rows.append(row := _strip(picture, cell))
        _arrow(row, lo, hi, "═", picture, cell)
    for n, row in enumerate(rows, 1):
        yield "chained", "".join(row), f"and {left_out} more" if left_out and n == len(rows) else ""


def _arrow(row: list[str], lo: int, hi: int, line: str, picture: Picture, cell: int) -> None:
    begin, end = max(lo - picture.start, 0) * cell + 1, (hi - picture.start) * cell
    row[begin : end + 1] = line * (end - begin) + "▶"


def _lane(lane: Lane, picture: Picture, cell: int) -> str:
    """What a consumer has read, up to its cursor; one that lies further left is told at the edge."""
    row = ["┄"] * (picture.numbers * cell + 1)
    fastest, at = ((n - picture.start) * cell for n in (lane.fastest, lane.at))
    if fastest > max(at, 0):
        row[: fastest + 1] = "╍" * fastest + "○"
    if at >= 0:
        row[: at + 1] = "━" * at + "●"
    else:
        edge = f"◀ {lane.at} "
        row[: len(edge)] = edge
    return "".join(row)


def _strip(picture: Picture, cell: int) -> list[str]:
    return [" "] * (picture.numbers * cell + 1)


def _cut(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"
