"""What a store can do about datasets in SQL: make what they lack."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from nova_assets.plan.tick import Policy, Tick
from nova_assets.runtime import Runtime
from nova_assets.upkeep import Upkeep

if TYPE_CHECKING:
    from nova_assets.scheduling import Ran, Scheduling


class Scheduled:
    """This part of a store; the rest of it is in ``store.py``."""

    runtime: Runtime
    _upkeep: Upkeep

    @cached_property
    def _scheduling(self) -> Scheduling:
        """Loaded on first use: it brings the parser of SQL."""
        from nova_assets.scheduling import Scheduling

        return Scheduling(self.runtime, self._upkeep)

    def next_tick(self, policy: Policy | None = None) -> Tick:
        """What ``tick`` would do now, and what waits for what: its dry run.

        Args:
            policy: how much it does at once.
        """
        return self._scheduling.decide(policy)

    def tick(self, found: Tick | None = None, tell: Callable[[Ran], None] = lambda ran: None) -> list[Ran]:
        """Make what datasets in SQL lack, once: every task whose partition is missing, marked, or older than what it
        was made of, as soon as all that it reads is there; and drop partitions that no task writes any more.

        Nothing is kept between ticks. A task that fails stops no other, and is tried again by a later tick.

        Args:
            found: what ``next_tick`` has said; what it says now by default.
            tell: told of each task when it has ended.

        Returns:
            The tasks that were run; none where there was nothing to do, or everything waits.
        """
        return list(self._scheduling.carry_out(found or self._scheduling.decide(), tell))
