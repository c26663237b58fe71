"""What a switch between executions of the whole and executions per partition does to a binding's cursors (R13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nova_assets.model.partitions import WHOLE

SwitchTarget = Literal["whole", "partitions"]


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """One cursor, as the catalog keeps it: of a binding's partition, on a channel's partition."""

    channel: str
    seq: int
    partition: str = WHOLE
    channel_partition: str = WHOLE


@dataclass(frozen=True, slots=True)
class Switch:
    """Cursors that replace others.

    Args:
        before: as they must still be when they are replaced.
        after: what replaces them; the same as ``before`` where the binding runs so already.
    """

    binding: str
    to: SwitchTarget
    before: tuple[CursorPosition, ...]
    after: tuple[CursorPosition, ...]
