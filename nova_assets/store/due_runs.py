"""Runs of bindings that are due, in this process, by the same triggers and firings as under Dagster."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nova_assets.catalog.catalog import Catalog
from nova_assets.crash_points import crash_point
from nova_assets.errors import ExecutionInProgress
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.shared_rows import SharedRowsOfRound
from nova_assets.execution.task_run import Observer
from nova_assets.execution.trigger_state import KnownRuns, load_due_state, load_watched_partitions
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.execution import Execution, Firing
from nova_assets.model.partitions import WHOLE
from nova_assets.model.project import Project
from nova_assets.nova_error import NovaError
from nova_assets.plan.due import UNSEEN_CHANGE_INTERVAL, DueStep, decide_due, why_trigger_is_off
from nova_assets.plan.merged_executions import PlannedExecution, SharedRows, plan_merged_executions
from nova_assets.short_repr import short_repr

log = get_logger("nova_assets.triggers")


# which bindings are looked at, and in which order


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


# what is due


def find_due_steps(
    binding: Binding, catalog: Catalog, known_runs: KnownRuns | None = None, now: datetime | None = None
) -> Iterator[DueStep]:
    """What is to be done now for each partition of a binding with a trigger. Changes nothing.

    The steps are decided one by one, so that a later one sees what the earlier ones have done.

    Args:
        known_runs: what is known of runs; by default what the catalog records.
        now: time for which it is decided; by default the time by the catalog's clock.
    """
    if binding.when is None:
        return
    known_runs = known_runs or KnownRuns()
    watched = load_watched_partitions(binding, catalog, now)
    later = watched.now + UNSEEN_CHANGE_INTERVAL
    if watched.why_none:
        yield DueStep(binding, WHOLE, "none", watched.why_none, decide_again_at=later)
    can_run = known_runs.can_run(binding, watched.states)
    for partition, trigger in watched.states.items():
        if can_run(partition):
            state = load_due_state(binding, partition, trigger, watched.off, catalog, known_runs)
            yield decide_due(binding, partition, state)
        else:
            yield DueStep(binding, partition, "none", "the partition cannot be run yet", decide_again_at=later)


def record_firing_of(step: DueStep, catalog: Catalog) -> Firing | None:
    """Record what a step means for the firings of its binding. Returns the firing whose execution comes next; None if
    there is none, or if another process was faster.
    """
    name, last = step.binding.name, step.firing
    if step.end is not None and last is not None:
        if step.end.state == "abandoned":
            level = logging.ERROR if step.end.failures else logging.WARNING
            log.log(level, "%s; to run it by hand: nova run %s", step.end.describe(last), name)
        catalog.firings.end(last.id, step.end.state, step.end.why)
    if step.action == "fire":
        crash_point("fire.before")
        n = last.n if last is not None else 0
        firing = catalog.firings.record(name, n, step.positions, step.partition, step.why)
        crash_point("fire.after")
        if firing is not None:
            log.info("%s fires: %s", name, step.why)
        return firing
    if step.action == "retry" and last is not None:
        return catalog.firings.retry(last.id, last.attempt)
    return last if step.action == "run" else None


# what would run


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

    A binding that only becomes due by the commits of this round is not in the plan. A binding for which nothing can be
    decided waits, with the error as the reason.
    """
    steps = list[DueStep]()
    for binding in in_order_of_channels(bindings):
        try:
            steps.extend(s for s in find_due_steps(binding, runtime.catalog) if s.action != "none")
        except Exception as error:
            steps.append(DueStep(binding, WHOLE, "wait", str(_failure(binding, error).error)))
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


# runs


@dataclass(frozen=True, slots=True)
class DueRun:
    """What became of a binding that was due.

    Args:
        partition: partition of the binding; empty if the binding has none.
        why: reason why it was due.
        execution: its committed execution; None if it waits or has failed.
        waits: reason why it was not executed now.
        error: why its execution failed, or why nothing could be decided or executed.
    """

    binding: str
    partition: str
    why: str
    execution: Execution | None = None
    waits: str = ""
    error: NovaError | None = None

    __repr__ = short_repr

    @property
    def name(self) -> str:
        """Binding and partition, as people write them."""
        return f"{self.binding} {self.partition}".rstrip()


def run_due_bindings(
    runtime: Runtime,
    bindings: Sequence[Binding],
    *,
    follow: bool = False,
    observer: Observer | None = None,
    run_id: str | None = None,
) -> Iterator[DueRun]:
    """Execute the bindings that are due, one after the other, each with its own commit.

    A binding that reads the output of another one comes after it. So it reads what the other one has just committed.
    Rows that several executions of a round need are computed once, where that costs less.

    Args:
        bindings: bindings that may be executed, in any order. A binding without a trigger is never due.
        follow: go on with what becomes due by these commits, until nothing is due.
        observer, run_id: as in ``Runtime.run``.
    """
    statuses = runtime.catalog.definition_states.statuses()
    ordered = list[Binding]()
    for binding in in_order_of_channels(b for b in bindings if b.when is not None):
        try:
            if not why_trigger_is_off(binding, statuses):
                runtime.register_binding(binding)
            ordered.append(binding)
        except NovaError as error:  # such as changed channels
            yield _failure(binding, error)
    due = _due_executions(runtime, ordered)
    # With ``follow``, any binding may become due.
    runtime.engine.limit_cores(_smallest_core_limit(ordered if follow else [s.binding for s in due]))
    reported = set[tuple[str, str, str]]()
    while True:
        committed = False
        with _sharing_runtime(runtime, due) as (sharing, shared):
            for binding in ordered:
                for due_run in _run_if_due(sharing, binding, observer, run_id):
                    committed = committed or due_run.execution is not None
                    where = (due_run.binding, due_run.partition)
                    problem = (*where, "" if due_run.error is None else str(due_run.error))
                    if due_run.execution is not None or problem not in reported:
                        yield due_run
                    if due_run.execution is None:  # later rounds do not repeat it, nor that it waits after a failure
                        reported |= {problem, (*where, "")}
                    if shared is not None:
                        shared.release_after(due_run.name)
        if not (follow and committed):
            return
        due = _due_executions(runtime, ordered)


def _due_executions(runtime: Runtime, bindings: Iterable[Binding]) -> list[DueStep]:
    """Executions that are due now. A binding for which this cannot be decided has none: its turn reports the error."""
    due: list[DueStep] = []
    for binding in bindings:
        with suppress(Exception):
            due += [s for s in find_due_steps(binding, runtime.catalog) if s.is_execution]
    return due


def _smallest_core_limit(bindings: Iterable[Binding]) -> int | None:
    """Cores that every execution may use: they share a session."""
    return min((b.resources.max_cores for b in bindings if b.resources.max_cores is not None), default=None)


@contextmanager
def _sharing_runtime(runtime: Runtime, due: Iterable[DueStep]) -> Iterator[tuple[Runtime, SharedRowsOfRound | None]]:
    """A runtime for one round, and the rows that its executions share; None if they share none."""
    planned = plan_shared_rows(runtime, due)
    if not planned:
        yield runtime, None
        return
    shared = SharedRowsOfRound(runtime.engine, planned)
    try:
        yield runtime.with_shared_rows(shared), shared
    finally:
        for rows in shared.decisions:
            log.info("%s", rows)
        shared.close()


def _run_if_due(runtime: Runtime, binding: Binding, observer: Observer | None, run_id: str | None) -> Iterator[DueRun]:
    """Execute a binding where it is due. Its error does not stop the other bindings."""
    try:
        for step in find_due_steps(binding, runtime.catalog):
            firing = record_firing_of(step, runtime.catalog)
            if firing is not None:
                yield _carry_out(runtime, binding, firing, observer, run_id)
            elif step.action == "wait":
                yield DueRun(binding.name, step.partition, "", waits=step.why)
    except Exception as error:
        yield _failure(binding, error)


def _failure(binding: Binding, error: Exception) -> DueRun:
    """Failure of a binding of which no execution has begun."""
    is_expected = isinstance(error, NovaError)
    log.warning("%s cannot run: %s", binding.name, error, exc_info=not is_expected)
    text = f"binding {binding.name} cannot run: {type(error).__name__}: {error}"
    return DueRun(binding.name, "", "", error=error if isinstance(error, NovaError) else NovaError(text))


def _carry_out(
    runtime: Runtime, binding: Binding, firing: Firing, observer: Observer | None, run_id: str | None
) -> DueRun:
    try:
        execution = runtime.run(binding.name, firing.partition, firing_id=firing.id, observer=observer, run_id=run_id)
    except ExecutionInProgress as busy:
        return DueRun(binding.name, firing.partition, firing.why, waits=str(busy))
    except NovaError as error:
        log.warning("firing %s of %s failed: %s", firing.n, binding.name, error)
        return DueRun(binding.name, firing.partition, firing.why, error=error)
    return DueRun(binding.name, firing.partition, firing.why, execution)
