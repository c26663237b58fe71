"""Short notation for outlines: ``outline("b1 d2 x3 d4 c4", sell=2)`` is a base at 1, deltas to 2 and 4, a collected
delta to 3, a compacted base at 4, and a consumer that has read 2; ``d1-4`` is a chained delta, ``d1..9`` are nine."""

from __future__ import annotations

from collections.abc import Iterator

from nova_assets.model.channel_state import BlockSpan, ChannelOutline, Cursor


def spans(text: str) -> Iterator[BlockSpan]:
    """One for each word; several for a range."""
    for word in text.split():
        kind, (first, _, last) = word[0], word[1:].partition("..")
        if "-" in first:
            lo, hi = map(int, first.split("-"))
            yield BlockSpan("delta", lo, hi, "compact", kind == "x")
            continue
        for n in range(int(first), int(last or first) + 1):
            if kind in "bc":
                yield BlockSpan("base", n, n, "compact" if kind == "c" else "task")
            else:
                yield BlockSpan("delta", n - 1, n, "task", kind == "x")


def outline(text: str = "", /, *cursors: Cursor, **at: int) -> ChannelOutline:
    """An outline of the channel ``orders``, with a cursor for each consumer that is named."""
    found = tuple(spans(text))
    head = max((s.hi for s in found), default=0)
    return ChannelOutline("orders", head, found, (*(Cursor(b, "orders", n, head) for b, n in at.items()), *cursors))


def of_day(binding: str, day: int, seq: int, head: int) -> Cursor:
    """A consumer's cursor on one day, which last changed at ``head``."""
    return Cursor(binding, "orders", seq, head, f"day={day}", f"day={day}")
