"""Timelines, as the service tells of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from nova_assets.model.timeline import Action, Instant
from nova_assets.service.shapes.blocks import BlockShape
from nova_assets.service.shapes.shape import Shape


class InstantShape(Shape):
    """One action on a channel, ``requested`` or ``complete``; ``seq`` is the number that it took, or at which it added
    a block."""

    action: Action
    state: Literal["requested", "complete"]
    seq: int | None
    at: datetime
    commit: str
    binding: str | None
    blocks: list[BlockShape]
    details: dict[str, Any]

    @staticmethod
    def of(instant: Instant) -> InstantShape:
        return InstantShape(
            action=instant.action,
            state=instant.state,
            seq=instant.seq,
            at=instant.at,
            commit=instant.commit_id,
            binding=instant.binding,
            blocks=[BlockShape.of(b) for b in instant.blocks],
            details=dict(instant.details),
        )

    def to_instant(self) -> Instant:
        blocks = tuple(b.to_block() for b in self.blocks)
        return Instant(self.action, self.state, self.seq, self.at, self.commit, self.binding, blocks, self.details)


class StepShape(Shape):
    """A complete instant as it is counted: every action has a number ``n``, those that take no sequence number too.
    ``prefix`` is a hash of it and all before it."""

    n: int
    prefix: str
    action: str
    commit: str
    at: str
    seq: int | None
    partitions: list[str]


class InstantsShape(Shape):
    """Complete instants after one, oldest first; ``behind`` is how many there are that the asker did not know."""

    channel: str
    after: int
    position: str
    behind: int
    instants: list[StepShape]


class TouchedShape(Shape):
    """The partitions that the instants after one have touched, up to ``until``."""

    channel: str
    after: int
    until: int
    position: str
    partitions: list[str]
