"""Execution of bindings: begin, run tasks, commit, abort (DESIGN §4). All executions take this path.

    trigger ─► begin ─► read ─► task ─► stage ─► … ─► commit ─► materializations
              (pin)    (plan)   (user)  (engine)      (catalog)    (Dagster)

The runtime decides nothing about data (``plan/`` does), computes nothing (the engine does) and stores nothing (the
catalog does). Another process can therefore continue an execution from the catalog alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import partial

from nova_assets.catalog.catalog import Catalog
from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, EngineUnavailable
from nova_assets.execution.actor import current_actor
from nova_assets.execution.begin_request import (
    build_begin_request,
    check_rows_unchanged,
    plan_run_from_pins,
    retry_if_owner_dead,
)
from nova_assets.execution.changelog import stage_missing_changelogs
from nova_assets.execution.channel_writer import ChannelWriter
from nova_assets.execution.commit_request import build_commit_request
from nova_assets.execution.data_checks import check_failed_error, run_all_checks
from nova_assets.execution.lease import heartbeat, this_process
from nova_assets.execution.retries import commit_resolving_outcome, plan_again_after_conflict, run_with_retries
from nova_assets.execution.run_state import RunState, RunStateCache, with_backfill_outcome
from nova_assets.execution.shared_rows import FewRowsReader, SharedRowsOfRound
from nova_assets.execution.staging import Staging, ports_without_new_data
from nova_assets.execution.task_context import FileViewsFactory
from nova_assets.execution.task_run import Observer, TaskRun, ignore_event
from nova_assets.masking import get_logger, mask
from nova_assets.model.binding import Binding
from nova_assets.model.block import StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.engine import Engine
from nova_assets.model.execution import BeginRequest, CheckReport, Execution, TaskReport
from nova_assets.model.partitions import WHOLE
from nova_assets.model.project import Project
from nova_assets.nova_error import NovaError
from nova_assets.plan.run_plan import RunPlan, Step

log = get_logger("nova_assets.runtime")


class Runtime:
    """Carries out executions over a catalog and an engine.

    Args:
        engine: implementation of the protocol in ``model/engine``.
        project: the project that defines the bindings. None if only channels are used.
        lease: seconds that other processes leave an execution alone after its last heartbeat.
        sweep_delay: seconds before the staged files of a dead execution are deleted, in case its process still runs.
        owner: owner id of the executions. By default, this process. Dagster uses the run, since the steps of a run may
            be several processes.
        max_attempts: number of times that an execution is planned again after a conflict (R6).
        views_factory: creates the file views for tasks.
    """

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        project: Project | None = None,
        *,
        lease: float = 120.0,
        sweep_delay: float = 60.0,
        owner: str | None = None,
        max_attempts: int = 5,
        views_factory: FileViewsFactory | None = None,
    ) -> None:
        self.catalog = catalog
        self.engine = engine
        self.project = project or Project()
        self.lease = lease
        self.sweep_delay = sweep_delay
        self.max_attempts, self._owner = max_attempts, owner
        self.views_factory = views_factory
        self._shared_rows: SharedRowsOfRound | None = None
        self.staging = Staging(catalog, engine)
        self.channel_writer = ChannelWriter(catalog, self.staging, lease, lambda: self.owner)
        self.few_rows = FewRowsReader(catalog, engine)
        self._run_states = RunStateCache(self.few_rows)

    def with_owner(self, owner: str) -> Runtime:
        """A runtime that executes as another owner, and shares everything else with this runtime."""
        runtime = copy(self)
        runtime._owner = owner
        runtime.channel_writer = ChannelWriter(self.catalog, self.staging, self.lease, lambda: runtime.owner)
        return runtime

    def with_shared_rows(self, shared_rows: SharedRowsOfRound) -> Runtime:
        """A runtime whose executions share rows. It shares everything else with this runtime, too."""
        runtime = copy(self)
        runtime._shared_rows = shared_rows
        return runtime

    @property
    def owner(self) -> str:
        return self._owner or this_process()

    # complete executions

    def run(
        self,
        binding: str,
        partition: str = WHOLE,
        *,
        whole: bool = False,
        run_id: str | None = None,
        firing_id: str | None = None,
        observer: Observer | None = None,
        is_still_needed: Callable[[], bool] = lambda: True,
    ) -> Execution:
        """Execute a binding: begin, every task, commit. The execution is planned again if the commit conflicts (R6).

        Args:
            binding: name of the binding.
            whole: execute all partitions together, although the binding is triggered per partition.
            run_id: id of the orchestrator's run.
            firing_id: id of the firing that requested the execution.
            observer: called with ("begin", Execution), ("progress", TaskProgress), ("task", TaskReport), ("check",
                CheckReport) and ("commit", Commit) as they happen.
            is_still_needed: called after begin, when no other execution can begin any more. If it returns false, the
                execution is aborted.

        Raises:
            ExecutionInProgress: another execution of the binding is alive.
            TaskFailed: carries the cause. The execution can be resumed.
            CheckFailed: a blocking check failed. The execution can be resumed.
            CommitConflict: every attempt met a conflict.
        """
        self.delete_dead_staging()

        def run_once() -> Execution:
            execution = self.begin(binding, partition, whole=whole, run_id=run_id, firing_id=firing_id)
            with self._fail_on_error(execution, counts_as_failure=False):
                is_needed = is_still_needed()
            if not is_needed:
                self.abort(execution, "it is no longer needed", counts_as_failure=False)
                return self.catalog.executions.get(execution.id)
            return self.run_tasks_and_commit(execution, observer)

        return plan_again_after_conflict(run_once, binding, self.max_attempts, log, log_level=logging.WARNING)

    def resume(self, execution_id: str, observer: Observer | None = None) -> Execution:
        """Continue a failed execution with its pins and staged blocks (R4).

        Raises:
            ExecutionNotLive: the execution was superseded, aborted or committed.
        """
        return self.run_tasks_and_commit(self.catalog.executions.resume(execution_id, self.owner, self.lease), observer)

    def run_tasks_and_commit(self, execution: Execution, observer: Observer | None = None) -> Execution:
        """Run the tasks of a live execution that are not staged yet, and commit."""
        notify = observer or ignore_event
        notify("begin", execution)
        run = self._load_run_state(execution)
        with self._fail_on_error(execution), heartbeat(self.catalog, execution, self.lease):
            done = self.staging.complete_blocks_by_port(execution)
            for step in run.plan().steps:
                if step.outputs and all(o.port in done for o in step.outputs):
                    continue
                task = run.binding.workflowette.task(step.task)
                notify("task", run_with_retries(task, partial(self._run_task, run, step, notify)))
            checks = self.run_data_checks(execution, notify)
            if any(c.blocks_commit for c in checks):
                raise check_failed_error(execution, checks)
            commit = self.commit(execution)
        notify("commit", commit)
        return replace(
            self.catalog.executions.get(execution.id), commit=commit, tasks=tuple(run.reports.values()), checks=checks
        )

    # single steps, as Dagster calls them

    def begin(
        self,
        binding: str,
        partition: str = WHOLE,
        *,
        whole: bool = False,
        run_id: str | None = None,
        firing_id: str | None = None,
        scope_by_channel: Mapping[str, str] | None = None,
    ) -> Execution:
        """Open an execution: pin heads and cursors, take the lease. A failed or expired execution is superseded (R4).

        Args:
            scope_by_channel: partitions that are read of some channels, if the caller decides them.

        Raises:
            BindingNotFound, DefinitionConflict, PartitionError, InputsMissing, ExecutionInProgress, EngineUnavailable.
        """
        bound = self.project.binding(binding)
        self.engine.limit_cores(bound.resources.max_cores)
        crash_point("begin.before")
        request, checked_heads = self._begin_request(bound, partition, whole=whole)
        if scope_by_channel is not None:
            request = replace(request, scope_by_channel={**request.scope_by_channel, **scope_by_channel})
        self.register_binding(bound)
        execution = retry_if_owner_dead(
            self.catalog.executions.begin, replace(request, run_id=run_id, firing_id=firing_id)
        )
        check_rows_unchanged(self.catalog, execution, checked_heads)
        crash_point("begin.after")
        return execution

    def attach_to_execution(
        self, execution_id: str, run_id: str | None = None, is_owner_gone: Callable[[str], bool] = lambda owner: False
    ) -> Execution:
        """Continue an execution that another process began. A running execution is returned unchanged, a failed one is
        resumed (R4).

        Args:
            run_id: id of the Dagster run that continues the execution.
            is_owner_gone: whether an owner is known to be dead. A running execution of a dead owner is taken over.

        Raises:
            ExecutionNotLive: the execution was superseded, aborted or committed.
        """
        execution = self.catalog.executions.get(execution_id)
        orphaned = execution.owner != self.owner and is_owner_gone(execution.owner)
        if execution.state == "running" and not orphaned:
            return execution
        dead = frozenset({execution.owner} if orphaned else ())
        return self.catalog.executions.resume(execution_id, self.owner, self.lease, run_id=run_id, dead_owners=dead)

    def register_binding(self, binding: Binding) -> None:
        """Register a binding and its channels in the catalog."""
        self.catalog.definitions.register(self.project_channels(binding), [binding], by=current_actor())

    def project_channels(self, binding: Binding) -> list[Channel]:
        """Channels of a binding, as the project defines them."""
        names = {c.name for c in binding.channels.values()}
        return [c for c in self.project.channels if c.name in names]

    def run_task(self, execution: Execution, task: str, is_last_attempt: bool = True) -> TaskReport:
        """Carry out one task: read, call, stage. Earlier staged blocks of the task and of its readers become void (R4).

        Args:
            is_last_attempt: whether the caller will not retry after a failure.
        """
        run = self._load_run_state(execution)
        with self._fail_on_error(execution, is_last_attempt), heartbeat(self.catalog, execution, self.lease):
            return self._run_task(run, run.plan().step(task), ignore_event)

    def task_run(self, execution: Execution) -> TaskRun:
        """The tasks of an execution, for functions that are called elsewhere."""
        return self._make_task_run(self._load_run_state(execution), ignore_event, None)

    def run_data_checks(self, execution: Execution, observer: Observer | None = None) -> tuple[CheckReport, ...]:
        """Run every check on the staged blocks. The caller must not commit if a report ``blocks_commit``."""
        if not (run := self._load_run_state(execution)).binding.checks:
            return ()
        with self._fail_on_error(execution), heartbeat(self.catalog, execution, self.lease):
            reports = run_all_checks(self._make_task_run(run, observer or ignore_event, None))
            if not any(r.blocks_commit for r in reports):
                self.staging.record_checks_passed(execution)
        return reports

    def fail(self, execution: Execution, error: BaseException, counts_as_failure: bool = True) -> None:
        """Mark an execution as failed. It keeps its pins and staged blocks, and can be resumed (R4)."""
        self._run_states.forget(execution)
        with suppress(NovaError):
            error_text = mask(f"{type(error).__name__}: {error}")[:4000]
            self.catalog.executions.fail(execution.id, execution.epoch, error_text, counts_as_failure=counts_as_failure)

    def commit(self, execution: Execution) -> Commit:
        """Publish everything that the execution staged and move its cursors, in one transaction (R2).

        Raises:
            CommitConflict: a head or cursor that the execution relied on has moved. The execution is aborted (R6).
            CheckFailed: a blocking check failed. The checks run here if they have not run before.
        """
        run = self._load_run_state(execution)
        if run.binding.checks and not self.staging.has_passed_checks(execution):
            checks = self.run_data_checks(execution)
            if any(c.blocks_commit for c in checks):
                error = check_failed_error(execution, checks)
                self.fail(execution, error)
                raise error
        with self._fail_on_error(execution), heartbeat(self.catalog, execution, self.lease):
            staged = stage_missing_changelogs(self.staging, execution, run.histories)
        plan, reports = run.plan(ports_without_new_data(staged)), list(run.reports.values())
        request = build_commit_request(self.catalog, execution, staged, plan, run.histories, reports)
        request = with_backfill_outcome(request, run, self.project, self.catalog)
        crash_point("commit.before")
        try:
            commit = commit_resolving_outcome(self.catalog, self.staging.warehouse_check, request)
        except CommitConflict as conflict:
            self.abort(execution, conflict.what, counts_as_failure=False)
            raise
        crash_point("commit.after")
        self._run_states.forget(execution)
        return commit

    def commit_or_run_again(
        self,
        execution: Execution,
        commit: Callable[[], Commit],
        on_conflict: Callable[[CommitConflict], None],
        *,
        run_id: str | None = None,
        firing_id: str | None = None,
    ) -> Execution:
        """Commit an execution whose tasks have run. After a conflict, plan and run its binding again (R6).

        Args:
            commit: commits the execution.
            on_conflict: called before the binding is run again. It may raise to prevent that.
            run_id, firing_id: as for ``run``.
        """
        try:
            return replace(execution, commit=commit())
        except CommitConflict as conflict:
            on_conflict(conflict)
            binding, partition = execution.binding or "", execution.partition
            return self.run(binding, partition, whole=partition == WHOLE, run_id=run_id, firing_id=firing_id)

    def abort(self, execution: Execution, reason: str, counts_as_failure: bool = True) -> None:
        """End an execution without any visible effect. Its staged files are deleted after the grace period."""
        self._run_states.forget(execution)
        self.catalog.executions.abort(execution.id, reason, counts_as_failure=counts_as_failure)

    def delete_dead_staging(self) -> int:
        """Delete staged files of dead executions. Returns the number of folders."""
        return self.staging.delete_dead_staging(self.lease, self.sweep_delay)

    def plan(self, binding: str, partition: str = WHOLE, *, whole: bool = False) -> RunPlan:
        """Plan of an execution that would begin now. Opens nothing and pins nothing.

        Raises: the errors of ``begin`` and of the planning of a run.
        """
        bound = self.project.binding(binding)
        request, _ = self._begin_request(bound, partition, whole=whole)
        self.catalog.definitions.check_registration(self.project_channels(bound))
        now = self.catalog.now()
        pins = retry_if_owner_dead(self.catalog.executions.preview_pins, request)
        return plan_run_from_pins(self.catalog, bound, pins, request.partition, now, self.few_rows.at_pins(pins))

    # internals

    def _begin_request(self, bound: Binding, partition: str, *, whole: bool) -> tuple[BeginRequest, dict[str, int]]:
        """The request, and the heads of the channels whose rows it depends on."""
        few_rows, lease = self.few_rows.at_newest_heads(), self.lease
        request = build_begin_request(
            self.catalog, bound, partition, whole=whole, owner=self.owner, lease_seconds=lease, few_rows=few_rows
        )
        return request, few_rows.used

    def _load_run_state(self, execution: Execution) -> RunState:
        return self._run_states.load(execution, self.project.binding(execution.binding or ""), self.catalog)

    def _run_task(self, run: RunState, step: Step, observer: Observer) -> TaskReport:
        workflowette = run.binding.workflowette
        affected = {step.task, *workflowette.downstream(step.task)}
        ports = [e.port for t in workflowette.tasks if t.name in affected for e in t.produces]
        staged = self.staging.forget_staged_ports(run.execution, ports)
        for port in ports:
            self._run_states.frames_by_port.pop((run.execution.id, port), None)
        try:
            report = self._make_task_run(run, observer, staged).run_task(step.task)
        except BaseException as error:
            if self._shared_rows is not None:
                self._shared_rows.forget()
            if isinstance(error, EngineUnavailable):
                self._run_states.frames_by_port.clear()  # all frames belong to the Spark session that has ended
            raise
        run.reports[step.task] = report
        return report

    def _make_task_run(self, run: RunState, observer: Observer, staged: dict[str, StagedBlock] | None) -> TaskRun:
        frames = self._run_states.frames_by_port
        return TaskRun(self.engine, self.staging, run, frames, observer, self.views_factory, self._shared_rows, staged)

    @contextmanager
    def _fail_on_error(self, execution: Execution, counts_as_failure: bool = True) -> Iterator[None]:
        """Mark the execution as failed if the body raises. It keeps its pins and staged blocks (R4)."""
        try:
            yield
        except CommitConflict:
            raise
        except BaseException as error:
            self.fail(execution, error, counts_as_failure)
            raise
