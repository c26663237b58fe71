"""Executions of bindings: run, plan, resume, switch, release."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from nova_assets.errors import ExecutionInProgress, ExecutionNotLive
from nova_assets.execution.lease import Liveness, owner_liveness
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.task_run import Observer
from nova_assets.execution.trigger_state import (
    BindingState,
    list_unread_partitions,
    load_binding_state,
    load_cursor_switch,
)
from nova_assets.model.channel_state import Cursor
from nova_assets.model.execution import CursorSwitch, Execution
from nova_assets.model.execution import SwitchTarget as SwitchTo
from nova_assets.plan.run_plan import RunPlan
from nova_assets.store.due_runs import DuePlan, DueRun, plan_due, run_due_bindings, select_bindings

if TYPE_CHECKING:
    from nova_assets.store.forecast import MaintenanceForecast


@dataclass(frozen=True, slots=True)
class OpenExecution:
    """An execution that runs, or that failed and can be resumed.

    Args:
        holder: liveness of the process that holds the execution: ``alive``, ``gone`` or ``unknown``. ``none`` for a
            failed execution.
        lapsed: whether the lease has expired.
    """

    execution: Execution
    holder: Liveness | str
    lapsed: bool

    @property
    def may_end(self) -> bool:
        """Whether the execution can be released safely: no process works for it, as far as is known."""
        if self.holder == "alive":
            return False
        return self.lapsed or self.holder in ("gone", "none")


class BindingExecutions:
    """Store methods that execute bindings, or list their executions and cursors."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def bindings(self) -> list[BindingState]:
        """Every binding of the project with its cursors, its last execution and its due partitions."""
        return [load_binding_state(b, self.runtime.catalog) for b in self.runtime.project.bindings]

    def run(
        self,
        binding: str,
        partition: str | Mapping[str, object] | None = None,
        *,
        whole: bool = False,
        resume: str | None = None,
        observer: Observer | None = None,
    ) -> Execution:
        """Execute a binding and commit.

        Args:
            binding: name of the binding.
            partition: partition of a partitioned binding, such as ``"dt=2024-01-01"``. If there is one dimension, its
                value is enough.
            whole: execute all partitions together, although the binding is triggered per partition. The binding then
                keeps one cursor per channel for all partitions, until ``switch`` changes it back.
            resume: id of a failed execution. The run continues with the pins and staged blocks of that execution (R4).
            observer: function that is called at each event, with ("begin", Execution), ("task", TaskReport) or
                ("commit", Commit).

        Raises:
            BindingNotFound: the project has no such binding.
            PartitionError: the binding has no such partition, or it is triggered per partition and ``partition`` is
                missing.
            InputsMissing: a query would read partitions that do not exist yet.
            ExecutionInProgress: another execution of the binding is alive.
            TaskFailed, CheckFailed: a task or a check failed. Nothing was committed, and the execution can be resumed.
        """
        if resume is not None:
            return self.runtime.resume(resume, observer)
        return self.runtime.run(
            binding, self.runtime.project.binding(binding).partition(partition), whole=whole, observer=observer
        )

    def run_due(
        self, select: Sequence[str] = (), *, follow: bool = False, observer: Observer | None = None
    ) -> list[DueRun]:
        """Execute the bindings that are due, in this process, each with its own commit.

        Rows that several of these executions need are computed once, where the estimates say that this costs less: a
        read of the same blocks, or a function that several workflowettes begin with. A function with a parameter
        ``ctx`` is called for each binding.

        The same triggers decide as under Dagster, and the same firings are recorded. So a trigger fires once, whoever
        sees first that it is due. A failed execution is tried again by later calls, after the delay and up to the
        number of attempts that its binding states.

        Args:
            select: names of bindings, such as ``["totals"]``. ``"totals+"`` selects the bindings that read its outputs,
                too, directly or through other bindings. By default, all bindings.
            follow: go on with what becomes due by these commits, until nothing is due.
            observer: as in ``run``.

        Raises:
            BindingNotFound: the project has no such binding.
        """
        bindings = select_bindings(self.runtime.project, select)
        return list(run_due_bindings(self.runtime, bindings, follow=follow, observer=observer))

    def plan_due(self, select: Sequence[str] = ()) -> DuePlan:
        """Dry run of ``run_due``: what is due now, and the rows that these executions would share. Changes nothing.

        Args:
            select: as for ``run_due``.

        Raises:
            BindingNotFound: the project has no such binding.
        """
        return plan_due(self.runtime, select_bindings(self.runtime.project, select))

    def plan(
        self, binding: str, partition: str | Mapping[str, object] | None = None, *, whole: bool = False
    ) -> RunPlan:
        """Dry run of ``run``: the plan of the execution that ``run`` would carry out now.

        ``plan`` starts no execution and pins nothing. It raises the errors that ``run`` raises before the first task.
        """
        return self.runtime.plan(binding, self.runtime.project.binding(binding).partition(partition), whole=whole)

    def forecast(self, run_plan: RunPlan) -> list[MaintenanceForecast]:
        """How an execution would bring the results of maintained queries up to date, for each task that has one.

        The forecast follows from the catalog alone: Spark may refuse to confirm how nova understands a query, and a
        changed setting of the Spark session is not noticed. Then the execution computes the whole query.

        Args:
            run_plan: a plan that ``plan`` has returned.
        """
        binding = self.runtime.project.binding(run_plan.binding)
        if all(inspect.isfunction(task.function) for task in binding.tasks):
            return []
        from nova_assets.store.forecast import forecast_maintenance  # loads PyArrow

        return forecast_maintenance(self.runtime.catalog, binding, run_plan)

    def unread(self, binding: str) -> list[str]:
        """Partitions of a binding that have unread data. One ``run`` for each of these partitions reads all unread
        data.

        For a binding without cursors, a partition counts as unread if an input has the partition, and no output has the
        partition.
        """
        return list_unread_partitions(self.runtime.project.binding(binding), self.runtime.catalog)

    def switch(self, binding: str, to: SwitchTo) -> CursorSwitch:
        """Switch a binding between unpartitioned executions and executions per partition (R13).

        The switch does not change which rows count as read. So no row is lost, and no row is read again.

        Args:
            to: ``partitions`` gives each partition the position of the unpartitioned cursor. ``whole`` requires that no
                partition has unread data, since one cursor cannot hold a different position for each partition.

        Raises:
            PartitionError: the binding has no partitions, or ``to`` is ``whole`` and some partitions have unread data.
            ExecutionInProgress: an execution of the binding is alive.
        """
        cursor_switch = self.plan_switch(binding, to)
        self.runtime.catalog.cursors.switch(cursor_switch)
        return cursor_switch

    def plan_switch(self, binding: str, to: SwitchTo) -> CursorSwitch:
        """Dry run of ``switch``: the cursors that ``switch`` would set."""
        return load_cursor_switch(self.runtime.project.binding(binding), self.runtime.catalog, to)

    def open_executions(self) -> list[OpenExecution]:
        """Executions that have not ended, oldest first, including readers and inserts. Each result says whether the
        owning process is alive.
        """
        catalog = self.runtime.catalog
        now = catalog.now()
        unended = [e for e, _ in catalog.staging.executions_with_blocks() if e.state in ("running", "failed")]
        return [_to_open_execution(e, now) for e in sorted(unended, key=lambda e: (e.started_at, e.id))]

    def release(self, execution_id: str, *, force: bool = False, dry_run: bool = False) -> OpenExecution:
        """End an execution of a dead process without a commit (R6). The cursors of the execution do not move.

        Its pins are released, and its staged files are deleted later. This is safe at any time: a process that still
        works for the execution can no longer commit.

        Args:
            execution_id: id of the execution, or a unique prefix.
            force: end the execution although its owner is alive or may be alive.
            dry_run: only check whether the execution can be released. Nothing changes.

        Returns:
            The execution before its end.

        Raises:
            ExecutionNotLive: no live execution has this id or prefix, or several do.
            ExecutionInProgress: the owner is not known to be dead.
        """
        matches = [e for e in self.open_executions() if e.execution.id.startswith(execution_id)]
        if len(matches) != 1 or not execution_id:
            raise _no_single_match_error(execution_id, [e.execution.id for e in matches])
        (open_execution,) = matches
        if not open_execution.may_end and not force:
            raise _execution_held_error(open_execution)
        if not dry_run:
            self.runtime.catalog.executions.abort(
                open_execution.execution.id,
                "the execution was released manually",
                open_execution.execution.epoch,
                counts_as_failure=False,
            )
        return open_execution

    def executions(self, binding: str | None = None, limit: int = 100) -> list[Execution]:
        """Executions, latest first."""
        return self.runtime.catalog.executions.find(binding, limit)

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """Cursors: how far each binding has read each channel and partition.

        Raises:
            BindingNotFound: the binding has no cursors, and the project does not define it.
        """
        cursors = self.runtime.catalog.cursors.find(binding)
        if binding is not None and not cursors:
            self.runtime.project.binding(binding)
        return cursors


def _to_open_execution(execution: Execution, now: datetime) -> OpenExecution:
    holder = owner_liveness(execution.owner) if execution.state == "running" else "none"
    return OpenExecution(execution, holder, execution.lease_until < now)


def _no_single_match_error(execution_id: str, matching_ids: list[str]) -> ExecutionNotLive:
    subject = "the ids of several open executions begin" if matching_ids else "no open execution has an id that begins"
    return ExecutionNotLive(
        f"{subject} with {execution_id!r}",
        found=", ".join(i[:12] for i in matching_ids) or None,
        expected="the id of one execution that is running, or has failed and can be resumed",
        next="nova executions",
        execution_id=execution_id,
    )


def _execution_held_error(open_execution: OpenExecution) -> ExecutionInProgress:
    execution = open_execution.execution
    owner_description = (
        "which runs on this host"
        if open_execution.holder == "alive"
        else "and this host cannot tell whether it is alive"
    )
    return ExecutionInProgress(
        f"execution {execution.id[:8]} is held by {execution.owner}, {owner_description}",
        found=f"a lease until {execution.lease_until:%Y-%m-%d %H:%M:%S} UTC",
        expected="an owner that has ended, or an expired lease",
        next=f"end the owner, or run nova release {execution.id[:8]} --force (only the work of that execution is lost)",
        execution_id=execution.id,
        owner=execution.owner,
    )
