"""Runs of bindings that are due, in this process, by the same triggers and firings as under Dagster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nova_assets.errors import ExecutionInProgress
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.shared_rows import SharedRowsOfRound
from nova_assets.execution.task_run import Observer
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.nova_error import NovaError
from nova_assets.operations.due_order import in_order_of_channels
from nova_assets.operations.due_plan import plan_shared_rows
from nova_assets.operations.due_steps import find_due_steps, record_firing_of
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
    refused = [r for b in bindings if b.when is not None and (r := _why_refused(runtime, b)) is not None]
    yield from refused
    left_out = {r.binding for r in refused}
    ordered = in_order_of_channels(b for b in bindings if b.when is not None and b.name not in left_out)
    runtime.engine.limit_cores(_smallest_core_limit(runtime, ordered, follow))
    waiting = set[tuple[str, str]]()
    committed = True
    while committed:
        committed = False
        with _sharing_runtime(runtime, ordered) as (sharing, shared):
            for binding in ordered:
                for due_run in _run_if_due(sharing, binding, observer, run_id):
                    committed = committed or due_run.execution is not None
                    where = (due_run.binding, due_run.partition)
                    if due_run.execution is not None or where not in waiting:
                        yield due_run
                    if due_run.execution is None:
                        waiting.add(where)
                    if shared is not None:
                        shared.release_after(f"{due_run.binding} {due_run.partition}".rstrip())
        if not follow:
            return


def _why_refused(runtime: Runtime, binding: Binding) -> DueRun | None:
    """The failure of a binding that cannot be registered, such as one whose channels have changed; otherwise None."""
    try:
        runtime.register_binding(binding)
    except NovaError as error:
        log.warning("%s cannot run: %s", binding.name, error)
        return DueRun(binding.name, "", "", error=error)
    return None


def _smallest_core_limit(runtime: Runtime, bindings: Sequence[Binding], follow: bool) -> int | None:
    """Cores that every execution may use: they share a session. With ``follow``, any binding may become due."""
    limited = [b for b in bindings if b.resources.max_cores is not None]
    if not follow:
        limited = [b for b in limited if any(s.is_execution for s in find_due_steps(b, runtime.catalog))]
    return min((b.resources.max_cores for b in limited if b.resources.max_cores is not None), default=None)


@contextmanager
def _sharing_runtime(
    runtime: Runtime, ordered: Sequence[Binding]
) -> Iterator[tuple[Runtime, SharedRowsOfRound | None]]:
    """A runtime for one round, and the rows that its executions share; None if they share none."""
    steps = (s for b in ordered for s in find_due_steps(b, runtime.catalog) if s.is_execution)
    planned = plan_shared_rows(runtime, steps)
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
    for step in find_due_steps(binding, runtime.catalog):
        firing = record_firing_of(step, runtime.catalog)
        if firing is not None:
            yield _carry_out(runtime, binding, firing, observer, run_id)
        elif step.action == "wait":
            yield DueRun(binding.name, step.partition, "", waits=step.why)


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
