"""What is to be done now for a binding that a trigger starts: nothing, wait, or an execution. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from nova_assets.model.binding import Binding
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.plan.firing_step import next_firing_step
from nova_assets.plan.trigger_decision import Positions, TriggerState, decide_trigger
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class DueStep:
    """What is to be done now for one partition of a binding.

    Args:
        partition: partition of the binding; empty if the binding has none.
        action: ``fire`` records a firing and executes the binding; ``run`` executes it for the firing that waits;
            ``retry`` is the next attempt of that firing; ``wait`` does nothing although something is due; ``none``
            means that nothing is due.
        why: reason why the binding is due, or why it waits.
        firing: its last firing; None before the first.
        positions: positions to store with a new firing.
        gives_up: why the last firing is given up; empty if it is not.
        due_at: time at which the trigger becomes due by itself; None if only a change in the catalog can make it due.
    """

    __repr__ = short_repr

    binding: Binding
    partition: str
    action: Literal["none", "wait", "fire", "run", "retry"]
    why: str = ""
    firing: Firing | None = None
    positions: Positions = field(default_factory=dict)
    gives_up: str = ""
    due_at: datetime | None = None

    @property
    def is_execution(self) -> bool:
        return self.action in ("fire", "run", "retry")

    @property
    def name(self) -> str:
        """Binding and partition, as people write them."""
        return f"{self.binding.name} {self.partition}".rstrip()


def decide_due_step(
    binding: Binding,
    partition: str,
    state: TriggerState,
    last: Firing | None,
    executions: Sequence[Execution],
    live: Execution | None,
    off: str,
) -> DueStep:
    """Decide what is to be done now for one partition of a binding that has a trigger.

    Args:
        last: last firing of the binding in this partition.
        executions: executions that this firing has requested, latest first.
        live: execution of the partition whose owner may be alive.
        off: why nothing runs the binding now; empty if nothing prevents it.
    """
    assert binding.when is not None
    gives_up = ""
    if last is not None and last.state == "requested":
        if off:
            return DueStep(binding, partition, "wait", off, last)
        step = next_firing_step(binding, last, executions, live, state.now)
        if step.action == "wait":
            return DueStep(binding, partition, "wait", step.why, last)
        if step.action != "abandon":
            return DueStep(binding, partition, step.action, last.why, last)
        gives_up = step.why
    decision = decide_trigger(binding.when, last.positions if last is not None else {}, state)
    if not decision.due:
        return DueStep(binding, partition, "none", decision.why, last, gives_up=gives_up, due_at=decision.due_at)
    if off:
        return DueStep(binding, partition, "wait", off, last, gives_up=gives_up)
    if live is not None:
        waits = f"execution {live.id} of {live.owner} is alive"
        return DueStep(binding, partition, "wait", waits, last, gives_up=gives_up)
    return DueStep(binding, partition, "fire", decision.why, last, decision.positions, gives_up)
