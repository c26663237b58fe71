"""Channel outlines: heads, block spans and cursors of any number of channels, loaded by two statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, and_, func, select

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.cursors import read_cursors
from nova_assets.catalog.tables import blocks, channels
from nova_assets.model.channel_outline import BlockSpan, ChannelOutline
from nova_assets.model.channel_state import Cursor
from nova_assets.model.partitions import WHOLE, is_in_scope, scopes_overlap


class Outlines(CatalogPart):
    """Reads outlines. Each answer shows the state at one moment."""

    def outlines(
        self, channel_names: Sequence[str], version_limit: int | None = None, scope: str = WHOLE
    ) -> dict[str, ChannelOutline]:
        """Outline of each channel that is registered, by name.

        Args:
            version_limit: number of newest versions to include; all by default.
            scope: include blocks of these partitions, and cursors of consumers that read any of them.
        """

        def read_outlines(c: Connection) -> dict[str, ChannelOutline]:
            heads, spans = _heads_and_spans_by_channel(c, channel_names, version_limit, scope)
            cursors_by_channel: dict[str, list[Cursor]] = {name: [] for name in heads}
            for cursor in read_cursors(c, channel_names=list(heads)):
                if scopes_overlap(cursor.channel_partition, scope):
                    cursors_by_channel[cursor.channel].append(cursor)
            return {
                n: ChannelOutline(n, head, spans[n], tuple(cursors_by_channel[n]), scope) for n, head in heads.items()
            }

        return self.database.read(read_outlines)


def _heads_and_spans_by_channel(
    c: Connection, channel_names: Sequence[str], version_limit: int | None, scope: str
) -> tuple[dict[str, int], dict[str, tuple[BlockSpan, ...]]]:
    """Heads and block spans by channel.

    The database merges equal spans of different partitions, unless a scope is requested.
    """
    newest_only = () if version_limit is None else (blocks.c.hi > channels.c.head - version_limit,)
    span_columns = (blocks.c.kind, blocks.c.lo, blocks.c.hi, blocks.c.origin, blocks.c.collected_at.is_not(None))
    columns = (channels.c.name, channels.c.head, *span_columns, *((blocks.c.partition,) if scope else ()))
    query = select(func.sum(blocks.c.rows), *columns).group_by(*columns)
    query = query.select_from(channels.outerjoin(blocks, and_(blocks.c.channel == channels.c.name, *newest_only)))
    heads: dict[str, int] = {}
    spans_by_channel: dict[str, dict[BlockSpan, int]] = {}
    for rows, name, head, *span in c.execute(query.where(channels.c.name.in_(channel_names))):
        heads[name] = head
        rows_by_span = spans_by_channel.setdefault(name, {})
        if span[0] is not None and (not scope or is_in_scope(span[5], scope)):
            key = BlockSpan(span[0], span[1], span[2], span[3], bool(span[4]))
            rows_by_span[key] = rows_by_span.get(key, 0) + int(rows)
    sorted_spans = {
        n: sorted((replace(s, rows=r) for s, r in spans.items()), key=lambda s: (s.hi, s.lo, s.kind, s.origin))
        for n, spans in spans_by_channel.items()
    }
    return heads, {n: tuple(spans) for n, spans in sorted_spans.items()}
