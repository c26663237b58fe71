"""Outlines: the spans of a channel's blocks and the positions of its consumers, without the content of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nova_assets.model.block import Kind, Origin
from nova_assets.model.partitions import WHOLE

if TYPE_CHECKING:
    from nova_assets.model.channel_state import Cursor


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Sequence numbers that a block covers: from ``lo`` to ``hi`` for a delta, ``hi`` for a base.

    Blocks of several partitions with the same ends share one span.

    Args:
        collected: the block was collected.
        rows: rows of the blocks, deletions included.
    """

    kind: Kind
    lo: int
    hi: int
    origin: Origin = "task"
    collected: bool = False
    rows: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ChannelOutline:
    """Data for the timeline chart of a channel, cheap enough to query after every commit.

    Args:
        spans: sorted by their ends; only for the newest numbers if the query was limited.
        cursors: cursors of its consumers, one per partition that is read separately.
        scope: partitions concerned.
    """

    channel: str
    head: int
    spans: tuple[BlockSpan, ...]
    cursors: tuple[Cursor, ...]
    scope: str = WHOLE
