"""JSON shapes of timelines."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from nova_assets.model.timeline import Action, Instant, RolledBackBlock
from nova_assets.service.shapes.blocks import BlockShape
from nova_assets.service.shapes.shape import Shape


class RolledBackShape(Shape):
    """Removed files of a staged block. If its writing was cut off, ``partition`` is the scope of the write."""

    id: str
    partition: str
    folder: str
    files: list[str]


class InstantShape(Shape):
    """An action on a channel, ``requested`` or ``complete``. ``seq`` is the number that it took or at which it added a
    block. ``rolled_back`` has what a rollback removed.
    """

    action: Action
    state: Literal["requested", "complete"]
    seq: int | None
    at: datetime
    commit: str
    binding: str | None
    blocks: list[BlockShape]
    details: dict[str, Any]
    rolled_back: tuple[RolledBackShape, ...] = ()

    @staticmethod
    def from_instant(instant: Instant) -> InstantShape:
        return InstantShape(
            action=instant.action,
            state=instant.state,
            seq=instant.seq,
            at=instant.at,
            commit=instant.commit_id,
            binding=instant.binding,
            blocks=[BlockShape.from_block(b) for b in instant.blocks],
            details=dict(instant.details),
            rolled_back=tuple(RolledBackShape(**b.as_json()) for b in instant.rolled_back),
        )

    def to_instant(self) -> Instant:
        blocks = tuple(b.to_block() for b in self.blocks)
        rolled_back = tuple(RolledBackBlock.from_json(b.model_dump()) for b in self.rolled_back)
        return Instant(
            *(self.action, self.state, self.seq, self.at, self.commit, self.binding, blocks, self.details, rolled_back)
        )


class StepShape(Shape):
    """A complete instant with its ordinal ``n``. Actions without a sequence number have an ordinal, too.

    ``prefix`` is a hash of the timeline up to and including this instant.
    """

    n: int
    prefix: str
    action: str
    commit: str
    at: str
    seq: int | None
    partitions: list[str]


class InstantsShape(Shape):
    """Complete instants after a given one, oldest first. ``behind`` is the number of instants that the caller did not
    know.
    """

    channel: str
    after: int
    position: str
    behind: int
    instants: list[StepShape]


class TouchedShape(Shape):
    """Partitions touched by the instants after a given one, up to ``until``."""

    channel: str
    after: int
    until: int
    position: str
    partitions: list[str]
