"""Timelines: what happened to one channel, oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from nova_assets.model.block import Block
from nova_assets.model.merge import MergeModel
from nova_assets.model.schema import Schema

Action = Literal["commit", "compact", "collect", "drop", "restore"]


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on a channel: requested, then complete.

    Args:
        action: what was done.
        state: ``requested`` or ``complete``.
        seq: the number it took, or at which it added a block; None while requested.
        at: when it was completed (requested, while it is).
        commit_id: the commit it belongs to.
        binding: the binding that did it; None for an insert.
        blocks: the blocks it added.
    """

    action: Action
    state: Literal["requested", "complete"]
    seq: int | None
    at: datetime
    commit_id: str
    binding: str | None
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """Everything about one partition of a channel that a plan needs: its blocks up to a head, in order.

    Planning is pure: it gets this from the catalog and asks nothing more.

    Args:
        blocks: every retained block of the partition, by (hi, kind).
        head: the pinned head of the channel.
        schema: the channel's schema now; None while nothing has given one.
        merge: the channel's merge model now.
        oldest: the oldest number that can still be answered.
        numbers: the numbers at which the partition changed, where blocks were collected since; otherwise the blocks'
        own.
    """

    channel: str
    partition: str
    head: int
    blocks: tuple[Block, ...]
    schema: Schema | None
    merge: MergeModel
    oldest: int = 0
    numbers: tuple[int, ...] = ()
