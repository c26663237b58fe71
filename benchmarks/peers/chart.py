"""Results as a picture: a bar for each system and workload."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.peers import tables
from benchmarks.peers.results import Result
from benchmarks.peers.workloads import ALL, Workload

_LEFT, _BAR, _RIGHT, _ROW = 130, 480, 150, 18

# Of medium lightness, without a background: readable on light and on dark pages.
_STYLE = (
    "text{font:12px ui-sans-serif,Helvetica,Arial,sans-serif;fill:#767b84}.t{font-weight:600;font-size:14px}"
    ".e{text-anchor:end}.own{fill:#3b82f6}.peer{fill:#16a34a}.limit{fill:#767b84}.bad{fill:#d97706}"
)


def svg(results: Sequence[Result]) -> str:
    """Seconds on the clock, workload by workload; the longest bar of each fills the width."""
    parts, y = [], 8
    for workload in ALL:
        found = tables.lines(results, workload)
        if any(line.steps for line in found):
            y += 26
            parts.append(f'<text x="8" y="{y}" class="t">{escape(workload.title)}, seconds</text>')
            y += 8
            parts += _bars(workload, found, y)
            y += _ROW * len(found)
    width, height = _LEFT + _BAR + _RIGHT, y + 12
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{"".join(parts)}</svg>\n'


def _bars(workload: Workload, found: Sequence[tables.Line], y: int) -> list[str]:
    longest = max(line.total("wall", workload.total) for line in found) or 1.0
    parts = []
    for n, line in enumerate(found):
        wall, at = line.total("wall", workload.total), y + n * _ROW
        says = f"{wall:.2f} {line.says}".strip() if line.steps else line.says
        length = round(_BAR * wall / longest)
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 13}" class="e">{escape(line.system)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{at + 3}" width="{length}" height="12" class="{_colour(line)}"/>')
        parts.append(f'<text x="{_LEFT + length + 6}" y="{at + 13}">{escape(says)}</text>')
    return parts


def _colour(line: tables.Line) -> str:
    if line.says:
        return "bad"
    if line.system == tables.OWN:
        return "own"
    return "limit" if line.system in tables.LIMITS else "peer"
