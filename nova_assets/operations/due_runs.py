"""Runs of bindings that are due, in this process, by the same triggers and firings as under Dagster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from nova_assets.crash_points import crash_point
from nova_assets.errors import ExecutionInProgress
from nova_assets.execution.lease import is_owner_dead
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.task_run import Observer
from nova_assets.execution.trigger_state import load_trigger_state, load_trigger_states, runs_unpartitioned
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.catalog import Catalog
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.model.partitions import WHOLE
from nova_assets.model.project import Project
from nova_assets.nova_error import NovaError
from nova_assets.plan.firing_step import next_firing_step
from nova_assets.plan.trigger_decision import TriggerState, decide_trigger
from nova_assets.plan.trigger_pause import why_trigger_is_off
from nova_assets.short_repr import short_repr

log = get_logger("nova_assets.due_runs")


@dataclass(frozen=True, slots=True)
class DueRun:
    """What became of a binding that was due.

    Args:
        partition: partition of the binding; empty if the binding has none.
        why: reason why it was due.
        execution: its committed execution; None if it waits or has failed.
        waits: reason why it was not executed now.
        error: why its execution failed.
    """

    binding: str
    partition: str
    why: str
    execution: Execution | None = None
    waits: str = ""
    error: NovaError | None = None

    __repr__ = short_repr


def run_due_bindings(
    runtime: Runtime, bindings: Sequence[Binding], *, follow: bool = False, observer: Observer | None = None
) -> Iterator[DueRun]:
    """Execute the bindings that are due, one after the other, each with its own commit.

    A binding that reads the output of another one comes after it. So it reads what the other one has just committed.

    Args:
        bindings: bindings that may be executed, in any order. A binding without a trigger is never due.
        follow: go on with what becomes due by these commits, until nothing is due.
        observer: as in ``Runtime.run``.
    """
    ordered, waiting = in_order_of_channels(bindings), set[tuple[str, str]]()
    committed = True
    while committed:
        committed = False
        for binding in ordered:
            for due_run in _run_if_due(runtime, binding, observer):
                committed = committed or due_run.execution is not None
                where = (due_run.binding, due_run.partition)
                if due_run.execution is not None or where not in waiting:
                    yield due_run
                if due_run.execution is None:
                    waiting.add(where)
        if not follow:
            return


def select_bindings(project: Project, select: Sequence[str]) -> list[Binding]:
    """Bindings of a project by their names; all of them if no name is given.

    Args:
        select: names; ``name+`` selects the bindings that read its outputs, too, directly or through other bindings.

    Raises:
        BindingNotFound: the project has no such binding.
    """
    selected: list[Binding] = [] if select else list(project.bindings)
    for text in select:
        selected.append(project.binding(text.removesuffix("+")))
        if text.endswith("+"):
            _add_readers(project, selected)
    return list(dict.fromkeys(selected))


def _add_readers(project: Project, selected: list[Binding]) -> None:
    """Add the bindings that read outputs of the last selected binding, and the readers of their outputs."""
    reached = [selected[-1]]
    for binding in reached:
        written = {c.name for c in binding.writes}
        reached += [b for b in project.bindings if b not in reached and written & {c.name for c in b.reads}]
    selected += reached


def in_order_of_channels(bindings: Iterable[Binding]) -> list[Binding]:
    """Bindings, each after those whose outputs it reads. Bindings of a cycle keep their order."""
    remaining, ordered = list(bindings), list[Binding]()
    while remaining:
        written = {c.name for b in remaining for c in b.writes}
        free = [b for b in remaining if not written & ({c.name for c in b.reads} - {c.name for c in b.writes})]
        chosen = free or remaining[:1]
        ordered += chosen
        remaining = [b for b in remaining if b not in chosen]
    return ordered


def _run_if_due(runtime: Runtime, binding: Binding, observer: Observer | None) -> Iterator[DueRun]:
    if binding.when is None:
        return
    catalog = runtime.catalog
    runtime.register_binding(binding)
    off = why_trigger_is_off(binding, catalog.definition_statuses())
    for partition, state in _states_by_partition(binding, catalog, catalog.now()).items():
        firing, why = _requested_firing(binding, partition, state, catalog, off)
        if firing is not None:
            yield _carry_out(runtime, binding, firing, observer)
        elif why:
            yield DueRun(binding.name, partition, "", waits=why)


def _states_by_partition(binding: Binding, catalog: Catalog, now: datetime) -> dict[str, TriggerState]:
    if not binding.dimensions:
        return {WHOLE: load_trigger_state(binding, catalog, now)}
    return {} if runs_unpartitioned(binding, catalog) else load_trigger_states(binding, catalog, now)


def _requested_firing(
    binding: Binding, partition: str, state: TriggerState, catalog: Catalog, off: str
) -> tuple[Firing | None, str]:
    """The firing to carry out now: a new one, or one that waits for an execution. Or the reason to wait, if a firing
    has to wait.

    Args:
        off: why nothing runs the binding now; empty if nothing prevents it.
    """
    assert binding.when is not None
    last = catalog.last_firing(binding.name, partition)
    live = next((e for e in catalog.executions(binding.name, 1, partition) if _is_live(e, state.now)), None)
    if last is not None and last.state == "requested":
        if off:
            return None, off
        executions = [e for e in catalog.executions(binding.name, 100, partition) if e.firing_id == last.id]
        step = next_firing_step(binding, last, executions, live, state.now)
        if step.action == "run":
            return last, ""
        if step.action == "retry":
            return catalog.retry_firing(last.id, last.attempt), ""
        if step.action == "wait":
            return None, step.why
        log.error("firing %s of %s is abandoned: %s", last.n, binding.name, step.why)
        catalog.end_firing(last.id, "abandoned", step.why)
    decision = decide_trigger(binding.when, last.positions if last is not None else {}, state)
    if not decision.due:
        return None, ""
    if off:
        return None, off
    if live is not None:
        return None, f"execution {live.id} of {live.owner} is alive"
    crash_point("fire.before")
    n = last.n if last is not None else 0
    firing = catalog.record_firing(binding.name, n, decision.positions, partition, decision.why)
    crash_point("fire.after")
    return firing, ""


def _is_live(execution: Execution, now: datetime) -> bool:
    return execution.has_valid_lease(now) and not is_owner_dead(execution.owner)


def _carry_out(runtime: Runtime, binding: Binding, firing: Firing, observer: Observer | None) -> DueRun:
    try:
        execution = runtime.run(binding.name, firing.partition, firing_id=firing.id, observer=observer)
    except ExecutionInProgress as busy:
        return DueRun(binding.name, firing.partition, firing.why, waits=str(busy))
    except NovaError as error:
        log.warning("firing %s of %s failed: %s", firing.n, binding.name, error)
        return DueRun(binding.name, firing.partition, firing.why, error=error)
    return DueRun(binding.name, firing.partition, firing.why, execution)
