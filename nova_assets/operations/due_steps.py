"""What is due in a project now, and the firings that record it."""

from __future__ import annotations

from collections.abc import Iterator

from nova_assets.crash_points import crash_point
from nova_assets.execution.lease import is_owner_dead
from nova_assets.execution.trigger_state import load_trigger_state, load_trigger_states, runs_unpartitioned
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.catalog import Catalog
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.model.partitions import WHOLE
from nova_assets.plan.due_step import DueStep, decide_due_step
from nova_assets.plan.trigger_decision import TriggerState
from nova_assets.plan.trigger_pause import why_trigger_is_off

log = get_logger("nova_assets.due_runs")


def find_due_steps(binding: Binding, catalog: Catalog) -> Iterator[DueStep]:
    """What is to be done now for each partition of a registered binding. Changes nothing.

    The steps are decided one by one, so that a later one sees what the earlier ones have done.
    """
    if binding.when is None:
        return
    off = why_trigger_is_off(binding, catalog.definition_statuses())
    for partition, state in _states_by_partition(binding, catalog).items():
        last = catalog.last_firing(binding.name, partition)
        requested: list[Execution] = []
        if last is not None and last.state == "requested":
            requested = [e for e in catalog.executions(binding.name, 100, partition) if e.firing_id == last.id]
        live = _live_execution(binding, partition, state, catalog)
        yield decide_due_step(binding, partition, state, last, requested, live, off)


def record_firing_of(step: DueStep, catalog: Catalog) -> Firing | None:
    """Record what a step means for the firings of its binding. Returns the firing whose execution comes next; None if
    there is none.
    """
    last = step.firing
    if step.gives_up and last is not None:
        log.error("firing %s of %s is abandoned: %s", last.n, step.binding.name, step.gives_up)
        catalog.end_firing(last.id, "abandoned", step.gives_up)
    if step.action == "fire":
        crash_point("fire.before")
        n = last.n if last is not None else 0
        firing = catalog.record_firing(step.binding.name, n, step.positions, step.partition, step.why)
        crash_point("fire.after")
        return firing
    if step.action == "retry" and last is not None:
        return catalog.retry_firing(last.id, last.attempt)
    return last if step.action == "run" else None


def _states_by_partition(binding: Binding, catalog: Catalog) -> dict[str, TriggerState]:
    now = catalog.now()
    if not binding.dimensions:
        return {WHOLE: load_trigger_state(binding, catalog, now)}
    return {} if runs_unpartitioned(binding, catalog) else load_trigger_states(binding, catalog, now)


def _live_execution(binding: Binding, partition: str, state: TriggerState, catalog: Catalog) -> Execution | None:
    executions = catalog.executions(binding.name, 1, partition)
    return next((e for e in executions if e.has_valid_lease(state.now) and not is_owner_dead(e.owner)), None)
