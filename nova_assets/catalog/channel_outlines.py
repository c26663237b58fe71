"""What is known of channels in outline: two statements for any number of channels, whatever their blocks hold."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, select

from nova_assets.catalog.database import Database
from nova_assets.catalog.history import Histories
from nova_assets.catalog.tables import blocks, channels
from nova_assets.model.channel_outline import Outline, Span
from nova_assets.model.channel_state import Cursor
from nova_assets.model.partitions import WHOLE, agree, within


class Outlines:
    """Reads outlines. Every answer is of one moment."""

    def __init__(self, database: Database, histories: Histories) -> None:
        self.database = database
        self.histories = histories

    def outlines(self, names: Sequence[str], numbers: int | None = None, scope: str = WHOLE) -> dict[str, Outline]:
        """Channel -> its outline, for those that are registered.

        Args:
            numbers: how many of the newest are wanted; all by default.
            scope: blocks of these partitions, and cursors of whoever reads any of them.
        """

        def work(c: Connection) -> dict[str, Outline]:
            heads, spans = _spans(c, names, numbers, scope)
            read: dict[str, list[Cursor]] = {name: [] for name in heads}
            for cursor in self.histories.cursors_in(c, of=list(heads)):
                if agree(cursor.channel_partition, scope):
                    read[cursor.channel].append(cursor)
            return {n: Outline(n, head, spans[n], tuple(read[n]), scope) for n, head in heads.items()}

        return self.database.read(work)


def _spans(
    c: Connection, names: Sequence[str], numbers: int | None, scope: str
) -> tuple[dict[str, int], dict[str, tuple[Span, ...]]]:
    """Heads and spans by channel; partitions are put together by the database, unless one is asked for."""
    newest = () if numbers is None else (blocks.c.hi > channels.c.head - numbers,)
    where = (blocks.c.kind, blocks.c.lo, blocks.c.hi, blocks.c.origin, blocks.c.collected_at.is_not(None))
    query = select(channels.c.name, channels.c.head, *where, *((blocks.c.partition,) if scope else ())).distinct()
    query = query.select_from(channels.outerjoin(blocks, and_(blocks.c.channel == channels.c.name, *newest)))
    heads: dict[str, int] = {}
    found: dict[str, set[Span]] = {}
    for name, head, *span in c.execute(query.where(channels.c.name.in_(names))):
        heads[name] = head
        found.setdefault(name, set())
        if span[0] is not None and (not scope or within(span[5], scope)):
            found[name].add(Span(span[0], span[1], span[2], span[3], bool(span[4])))
    order = {n: sorted(spans, key=lambda s: (s.hi, s.lo, s.kind, s.origin)) for n, spans in found.items()}
    return heads, {n: tuple(spans) for n, spans in order.items()}
