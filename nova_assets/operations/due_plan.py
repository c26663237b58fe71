"""What ``nova run --due`` would do now: the executions that are due, and the rows that they would share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nova_assets.execution.runtime import Runtime
from nova_assets.model.binding import Binding
from nova_assets.nova_error import NovaError
from nova_assets.operations.due_order import in_order_of_channels
from nova_assets.operations.due_steps import find_due_steps
from nova_assets.plan.due_step import DueStep
from nova_assets.plan.merged_executions import PlannedExecution, SharedRows, plan_merged_executions
from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class DuePlan:
    """Executions that are due, in the order in which they run, and the rows that several of them need.

    Args:
        steps: what is to be done now for each binding that is due or waits.
        shared: rows that several executions need, each with the decision whether they are computed once.
    """

    __repr__ = short_repr

    steps: tuple[DueStep, ...]
    shared: tuple[SharedRows, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "due": [_step_json(s) for s in self.steps if s.is_execution],
            "waits": [_step_json(s) for s in self.steps if s.action == "wait"],
            "shared": [s.as_json() for s in self.shared],
        }


def _step_json(step: DueStep) -> dict[str, Any]:
    return {"binding": step.binding.name, "partition": step.partition, "why": step.why}


def plan_due(runtime: Runtime, bindings: Sequence[Binding]) -> DuePlan:
    """What ``run_due_bindings`` would do now in its first round. Changes nothing.

    A binding that only becomes due by the commits of this round is not in the plan.
    """
    steps = [
        step
        for binding in in_order_of_channels(bindings)
        for step in find_due_steps(binding, runtime.catalog)
        if step.action != "none"
    ]
    return DuePlan(tuple(steps), plan_shared_rows(runtime, [s for s in steps if s.is_execution]))


def plan_shared_rows(runtime: Runtime, due: Iterable[DueStep]) -> tuple[SharedRows, ...]:
    """Rows that several due executions need. An execution that cannot be planned needs none."""
    due = list(due)
    read_by = [c.name for s in due for c in {c.name: c for c in s.binding.reads}.values()]
    common = {name for name in read_by if read_by.count(name) > 1}
    planned: list[PlannedExecution] = []
    for step in due:
        if not common & {c.name for c in step.binding.reads}:
            continue
        try:
            plan = runtime.plan(step.binding.name, step.partition)
        except NovaError:
            continue  # the execution itself reports the error
        planned.append(PlannedExecution(step.name, step.binding.workflowette, plan))
    return plan_merged_executions(planned)
