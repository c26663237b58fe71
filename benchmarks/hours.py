"""Work hour by hour as a picture."""

from __future__ import annotations

from collections.abc import Sequence

_LEFT, _HOUR, _HIGH, _TOP = 44, 24, 160, 34

# Of medium lightness, without a background: readable on light and on dark pages.
_STYLE = (
    "text{font:12px ui-sans-serif,Helvetica,Arial,sans-serif;fill:#767b84}.t{font-weight:600;font-size:14px}"
    ".e{text-anchor:end}.m{text-anchor:middle}.own{fill:#3b82f6}.last{fill:#16a34a}.line{stroke:#767b84;opacity:.4}"
)


def svg(title: str, hours: Sequence[float], last: float) -> str:
    """Seconds of work in each hour of a day, and after it.

    Args:
        last: from the last file to the seal.
    """
    most = max([*hours, last]) or 1.0
    bottom = _TOP + _HIGH
    parts = [f'<text x="8" y="18" class="t">{title}</text>']
    for part in (0.5, 1.0):
        y = bottom - round(_HIGH * part)
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" class="e">{most * part:.0f} s</text>')
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_LEFT + _HOUR * 26}" y2="{y}" class="line"/>')
    for n, seconds in enumerate(hours):
        parts.append(_bar(_LEFT + n * _HOUR, bottom, seconds / most, "own", str(n) if n % 3 == 0 else ""))
    parts.append(_bar(_LEFT + (len(hours) + 1) * _HOUR, bottom, last / most, "last", "seal"))
    width, height = _LEFT + _HOUR * 26 + 20, bottom + 26
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{"".join(parts)}</svg>\n'


def _bar(x: int, bottom: int, share: float, kind: str, label: str) -> str:
    height = max(1, round(_HIGH * share))
    bar = f'<rect x="{x + 3}" y="{bottom - height}" width="{_HOUR - 6}" height="{height}" class="{kind}"/>'
    return bar + (f'<text x="{x + _HOUR // 2}" y="{bottom + 16}" class="m">{label}</text>' if label else "")
