"""Draws the rooms of the package, and which room imports which: ``docs/pictures/rooms.svg``.

    python tools/rooms.py [--check]

A room is a folder of ``nova_assets``. The modules beside the folders, such as ``errors``, are drawn as one room: the
foundation. A room stands above every room that it imports. An arrow that follows from two others is left out.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
WIDTH, BOX_HEIGHT, ROW_HEIGHT, MARGIN = 1100, 44, 96, 20

Imports = Mapping[str, frozenset[str]]


def main() -> int:
    """Write the picture; with ``--check``, return 1 if it is not the one of today's code."""
    picture = draw(room_imports())
    if "--check" in sys.argv:
        if PICTURE.read_text() == picture:
            return 0
        print(f"{PICTURE.relative_to(ROOT)} is out of date: python tools/rooms.py")
        return 1
    PICTURE.write_text(picture)
    return 0


def room_of(module: str) -> str:
    name = module.split(".")[1]
    return name if (ROOT / "nova_assets" / name).is_dir() else "foundation"


def room_imports() -> Imports:
    """Rooms that each room imports, imports for types included."""
    graph = grimp.build_graph("nova_assets", exclude_type_checking_imports=False, cache_dir=None)
    imported: dict[str, set[str]] = {room_of(m): set() for m in graph.modules if "." in m}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            if "." in module and "." in other and room_of(module) != room_of(other):
                imported[room_of(module)].add(room_of(other))
    return {room: frozenset(others) for room, others in imported.items()}


def levels(imports: Imports) -> list[list[str]]:
    """Rooms by their height above the ground, the highest first. Raises RecursionError if rooms import each other."""
    heights: dict[str, int] = {}

    def height(room: str) -> int:
        if room not in heights:
            heights[room] = 1 + max((height(other) for other in imports[room]), default=-1)
        return heights[room]

    rows: dict[int, list[str]] = defaultdict(list)
    for room in sorted(imports):
        rows[height(room)].append(room)
    return [rows[n] for n in sorted(rows, reverse=True)]


def without_detours(imports: Imports) -> Iterable[tuple[str, str]]:
    """Imports that do not follow from two others."""
    for room, others in sorted(imports.items()):
        indirect = {further for other in others for further in _reachable(imports, other)}
        yield from ((room, other) for other in sorted(others - indirect))


def _reachable(imports: Imports, room: str) -> set[str]:
    return {further for other in imports[room] for further in (other, *_reachable(imports, other))}


def draw(imports: Imports) -> str:
    """The picture as SVG."""
    rows = levels(imports)
    places: dict[str, tuple[float, float, float]] = {}
    for n, row in enumerate(rows):
        wanted = [70 + len(room) * 7 for room in row]
        gap = (WIDTH - 2 * MARGIN - sum(wanted)) / (len(row) + 1)
        x = MARGIN + gap
        for room, width in zip(row, wanted, strict=True):
            places[room] = (x, MARGIN + n * ROW_HEIGHT, width)
            x += width + gap
    height = 2 * MARGIN + (len(rows) - 1) * ROW_HEIGHT + BOX_HEIGHT
    arrows = [_arrow(places[room], places[other]) for room, other in without_detours(imports)]
    boxes = [_box(room, *place) for room, place in places.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
            "<title>The rooms of nova_assets: each stands above those that it imports</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="#64748b"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *arrows,
            *boxes,
            "</svg>\n",
        ]
    )


def _arrow(above: tuple[float, float, float], below: tuple[float, float, float]) -> str:
    x, y = above[0] + above[2] / 2, above[1] + BOX_HEIGHT
    to_x, to_y = below[0] + below[2] / 2, below[1]
    bend = (to_y - y) / 2
    return (
        f'<path d="M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}" '
        'fill="none" stroke="#94a3b8" marker-end="url(#tip)"/>'
    )


def _box(room: str, x: float, y: float, width: float) -> str:
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="6" fill="#eff6ff" '
        'stroke="#3b82f6"/>'
        f'<text x="{x + width / 2:.0f}" y="{y + 27:.0f}" font-size="15" text-anchor="middle">{escape(room)}</text>'
    )


if __name__ == "__main__":
    sys.exit(main())
