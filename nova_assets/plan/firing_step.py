"""The next step of a firing that this process carries out itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from nova_assets.model.binding import Binding
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.plan.trigger_decision import next_retry_time


@dataclass(frozen=True, slots=True)
class FiringStep:
    """What is to be done for a requested firing.

    Args:
        action: ``run`` carries out its execution, ``retry`` carries it out in the next attempt, ``wait`` does nothing
            now, and ``abandon`` gives the firing up.
        why: reason to wait or to give up; empty otherwise.
    """

    action: Literal["run", "retry", "wait", "abandon"]
    why: str = ""


def next_firing_step(
    binding: Binding, firing: Firing, executions: Sequence[Execution], live: Execution | None, now: datetime
) -> FiringStep:
    """The next step of a requested firing, by the same rules as under Dagster.

    Args:
        executions: executions that this firing has requested, latest first.
        live: execution of the binding in the firing's partition whose owner may be alive; None if there is none.
    """
    if live is not None:
        return FiringStep("wait", f"execution {live.id} of {live.owner} is alive")
    ended = [e for e in executions if e.state in ("failed", "aborted")]
    if len(ended) < firing.attempt:
        return FiringStep("run")
    if firing.attempt >= binding.attempts:
        return FiringStep("abandon", f"{firing.attempt} executions failed, the last of them {ended[0].id}")
    again_at = next_retry_time(binding, firing, ended[0].finished_at or ended[0].started_at)
    if now < again_at:
        return FiringStep("wait", f"execution {ended[0].id} failed; the next attempt comes at {again_at:%H:%M:%S} UTC")
    return FiringStep("retry")
