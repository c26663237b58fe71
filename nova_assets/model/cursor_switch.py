"""Effect on the cursors of a binding when it switches between unpartitioned and per-partition executions (R13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nova_assets.model.partitions import WHOLE

SwitchTarget = Literal["whole", "partitions"]


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """One cursor as stored in the catalog, for a partition of the binding and a partition of the channel."""

    channel: str
    seq: int
    partition: str = WHOLE
    channel_partition: str = WHOLE


@dataclass(frozen=True, slots=True)
class CursorSwitch:
    """Replacement of the cursors of a binding.

    Args:
        before: cursors that must be unchanged when they are replaced.
        after: the new cursors; equal to ``before`` if the binding already runs in the target form.
    """

    binding: str
    to: SwitchTarget
    before: tuple[CursorPosition, ...]
    after: tuple[CursorPosition, ...]
