"""Outlines: where a channel's blocks lie and how far each consumer has read, without what is in the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nova_assets.model.block import Kind, Origin
from nova_assets.model.partitions import WHOLE

if TYPE_CHECKING:
    from nova_assets.model.channel_state import Cursor


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Where a block lies: at ``hi``, and for a delta from ``lo`` on. Partitions' blocks that lie alike are one span.

    Args:
        collected: it is gone.
    """

    kind: Kind
    lo: int
    hi: int
    origin: Origin = "task"
    collected: bool = False


@dataclass(frozen=True, slots=True)
class ChannelOutline:
    """What a picture of a channel needs, and no more: cheap enough to be asked for with every commit.

    Args:
        spans: by their ends; of the newest numbers alone, where no more were asked for.
        cursors: of its consumers, one for each partition that is read by itself.
        scope: the partitions concerned.
    """

    channel: str
    head: int
    spans: tuple[BlockSpan, ...]
    cursors: tuple[Cursor, ...]
    scope: str = WHOLE
