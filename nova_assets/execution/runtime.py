"""Execution of bindings: begin, run tasks, commit, abort (DESIGN §4). All executions take this path.

    trigger ─► begin ─► read ─► task ─► stage ─► … ─► commit ─► materializations
              (pin)    (plan)   (user)  (engine)      (catalog)    (Dagster)

The runtime decides nothing about data (``plan/`` does), computes nothing (the engine does) and stores nothing (the
catalog does). Another process can therefore continue an execution from the catalog alone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from nova_assets.crash_points import crash_point
from nova_assets.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    EngineUnavailable,
    ExecutionInProgress,
    ExecutionNotLive,
)
from nova_assets.execution.data_checks import check_failed_error, run_all_checks
from nova_assets.execution.lease import heartbeat, is_owner_dead, this_process
from nova_assets.execution.pins import existing_partitions_lookup, load_pinned_history, plan_run_from_pins
from nova_assets.execution.staging import Staging
from nova_assets.execution.task_run import RunState, TaskRun, ViewsFactory
from nova_assets.execution.trigger_state import check_inputs_exist, check_partition_given
from nova_assets.masking import get_logger, mask
from nova_assets.model.binding import Binding
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit, CommitRequest
from nova_assets.model.engine import Engine
from nova_assets.model.execution import BeginRequest, CheckReport, Execution, TaskReport
from nova_assets.model.partitions import WHOLE
from nova_assets.model.project import Project
from nova_assets.model.task import Task
from nova_assets.nova_error import NovaError
from nova_assets.plan.run import channels_to_pin, queried_partitions_by_channel, scope_by_channel
from nova_assets.plan.run_plan import RunPlan, Step

log = get_logger("nova_assets.runtime")

Observer = Callable[[str, Any], None]
T = TypeVar("T")


def _ignore_event(event: str, subject: Any) -> None:
    pass


class Runtime:
    """Carries out executions over a catalog and an engine.

    Args:
        catalog, engine: implementations of the protocols in ``model/catalog`` and ``model/engine``.
        project: the project that defines the bindings. None if only channels are used.
        lease: seconds that other processes leave an execution alone after its last heartbeat.
        sweep_delay: seconds before the staged files of a dead execution are deleted, in case its process still runs.
        owner: owner id of the executions. By default, this process. Dagster uses the run, since the steps of a run may
            be several processes.
        max_attempts: number of times that an execution is planned again after a conflict (R6).
        frames_by_port: private rows that are passed on within this process. Runtimes that take turns share it.
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
        frames_by_port: MutableMapping[tuple[str, str], Any] | None = None,
        views_factory: ViewsFactory | None = None,
    ) -> None:
        self.catalog = catalog
        self.engine = engine
        self.project = project or Project()
        self.lease = lease
        self.sweep_delay = sweep_delay
        self.max_attempts = max_attempts
        self._owner = owner
        self.staging = Staging(catalog, engine, crash_point)
        self.frames_by_port: MutableMapping[tuple[str, str], Any] = {} if frames_by_port is None else frames_by_port
        self.views_factory = views_factory
        self._run_states: dict[tuple[str, int], RunState] = {}

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
        for attempt in range(1, self.max_attempts + 1):
            execution = self.begin(binding, partition, whole=whole, run_id=run_id, firing_id=firing_id)
            with self._fail_on_error(execution, counts_as_failure=False):
                is_wanted = is_still_needed()
            if not is_wanted:
                self.abort(execution, "it is no longer wanted", failed=False)
                return self.catalog.execution(execution.id)
            try:
                return self.run_tasks_and_commit(execution, observer)
            except CommitConflict as conflict:
                log.warning("attempt %d of %s met a conflict: %s", attempt, binding, conflict.what)
                if attempt == self.max_attempts:
                    raise
        raise AssertionError("unreachable")

    def resume(self, execution_id: str, observer: Observer | None = None) -> Execution:
        """Continue a failed execution with its pins and staged blocks (R4).

        Raises:
            ExecutionNotLive: the execution was superseded, aborted or committed.
        """
        return self.run_tasks_and_commit(self.catalog.resume(execution_id, self.owner, self.lease), observer)

    def run_tasks_and_commit(self, execution: Execution, observer: Observer | None = None) -> Execution:
        """Run the tasks of a live execution that are not staged yet, and commit."""
        notify = observer or _ignore_event
        notify("begin", execution)
        run = self._load_run_state(execution)
        with self._fail_on_error(execution), heartbeat(self.catalog, execution, self.lease):
            done = self.staging.complete_blocks_by_port(execution)
            for step in run.plan().steps:
                if step.outputs and all(o.port in done for o in step.outputs):
                    continue
                report = self._run_task_with_retries(run, step, notify)
                notify("task", report)
            checks = self.run_data_checks(execution, notify)
            if any(c.blocks_commit for c in checks):
                raise check_failed_error(execution, checks)
            commit = self.commit(execution)
        notify("commit", commit)
        return replace(
            self.catalog.execution(execution.id), commit=commit, tasks=tuple(run.reports.values()), checks=checks
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
    ) -> Execution:
        """Open an execution: pin heads and cursors, take the lease. A failed or expired execution is superseded (R4).

        Raises:
            BindingNotFound, DefinitionConflict, PartitionError, InputsMissing, ExecutionInProgress.
        """
        bound = self.project.binding(binding)
        crash_point("begin.before")
        request = self._build_begin_request(bound, partition, whole)
        self.register_binding(bound)
        execution = self._retry_if_owner_dead(self.catalog.begin, replace(request, run_id=run_id, firing_id=firing_id))
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
        execution = self.catalog.execution(execution_id)
        orphaned = execution.owner != self.owner and is_owner_gone(execution.owner)
        if execution.state == "running" and not orphaned:
            return execution
        dead = frozenset({execution.owner} if orphaned else ())
        return self.catalog.resume(execution_id, self.owner, self.lease, run_id=run_id, dead_owners=dead)

    def register_binding(self, binding: Binding) -> None:
        """Register a binding and its channels in the catalog."""
        self.catalog.register(self._project_channels(binding), [binding])

    def run_task(self, execution: Execution, task: str, is_last_attempt: bool = True) -> TaskReport:
        """Carry out one task: read, call, stage. Earlier staged blocks of the task and of its readers become void (R4).

        Args:
            is_last_attempt: whether the caller will not retry after a failure.
        """
        run = self._load_run_state(execution)
        with self._fail_on_error(execution, is_last_attempt), heartbeat(self.catalog, execution, self.lease):
            return self._run_task(run, run.plan().step(task), _ignore_event)

    def run_data_checks(self, execution: Execution, observer: Observer | None = None) -> tuple[CheckReport, ...]:
        """Run every check on the staged blocks. The caller must not commit if a report ``blocks_commit``."""
        run = self._load_run_state(execution)
        if not run.binding.checks:
            return ()
        with self._fail_on_error(execution), heartbeat(self.catalog, execution, self.lease):
            reports = run_all_checks(self._make_task_run(run, observer or _ignore_event))
            if not any(r.blocks_commit for r in reports):
                self.staging.record_checks_passed(execution)
        return reports

    def fail(self, execution: Execution, error: BaseException, counts_as_failure: bool = True) -> None:
        """Mark an execution as failed. It keeps its pins and staged blocks, and can be resumed (R4)."""
        self._forget_run_state(execution)
        with suppress(NovaError):
            said = mask(f"{type(error).__name__}: {error}")[:4000]
            self.catalog.fail(execution.id, execution.epoch, said, counts_as_failure=counts_as_failure)

    def commit(self, execution: Execution) -> Commit:
        """Publish everything that the execution staged and move its cursors, in one transaction (R2).

        Raises:
            CommitConflict: a head or cursor that the execution relied on has moved. The execution is aborted (R6).
            CheckFailed: a blocking check failed. The checks run here if they have not run before.
        """
        run = self._load_run_state(execution)
        if run.binding.checks and not self.staging.checks_passed(execution):
            reports = self.run_data_checks(execution)
            if any(r.blocks_commit for r in reports):
                error = check_failed_error(execution, reports)
                self.fail(execution, error)
                raise error
        with self._fail_on_error(execution), heartbeat(self.catalog, execution, self.lease):
            self.staging.stage_missing_changelogs(execution, run.histories)
        plan = run.plan(self.staging.skipped_ports(execution))
        request = self.staging.build_commit_request(execution, plan, run.histories, list(run.reports.values()))
        request = replace(request, keeps_marks=self._reads_partitions_pending_backfill(run))
        crash_point("commit.before")
        try:
            commit = self.commit_resolving_outcome(request)
        except CommitConflict as conflict:
            self.abort(execution, conflict.what, failed=False)
            raise
        crash_point("commit.after")
        self._forget_run_state(execution)
        return commit

    def _reads_partitions_pending_backfill(self, run: RunState) -> bool:
        """Whether the execution read a partition that is marked for a backfill, so that its own mark has to stay."""
        requested = (
            {(m.channel, m.partition) for m in self.catalog.dirty_partitions()} if run.binding.is_scoped else set()
        )
        if not requested:
            return False
        partitions_by_channel = {c: {b.partition for b in h.blocks} for c, h in run.histories.items()}
        execution = run.execution
        read_partitions = queried_partitions_by_channel(
            run.binding, execution.partition, execution.started_at, lambda name: partitions_by_channel.get(name, ())
        )
        return any(
            (channel.name, p) in requested for channel, partitions in read_partitions.items() for p in partitions
        )

    def abort(self, execution: Execution, reason: str, failed: bool = True) -> None:
        """End an execution without any visible effect. Its staged files are deleted after the grace period."""
        self._forget_run_state(execution)
        self.catalog.abort(execution.id, reason, counts_as_failure=failed)

    def delete_dead_staging(self) -> int:
        """Delete staged files of executions that have been dead for longer than lease and grace. Returns the number of
        folders.

        Each folder is deleted a second time later, since Spark may continue to write for a killed process.
        """
        blocks = self.catalog.sweepable_blocks(self.sweep_delay, self.lease + self.sweep_delay)
        for block in blocks:
            crash_point("sweep.before")
            self.engine.delete_staged_folder(block.folder)
        if blocks:
            crash_point("sweep.after")
            self.catalog.mark_swept([b.id for b in blocks])
        return len(blocks)

    def plan(self, binding: str, partition: str = WHOLE, *, whole: bool = False) -> RunPlan:
        """Plan of an execution that would begin now. Opens nothing and pins nothing.

        Raises: the errors of ``begin`` and of the planning of a run.
        """
        bound = self.project.binding(binding)
        request = self._build_begin_request(bound, partition, whole)
        self.catalog.check_registration(self._project_channels(bound))
        now = self.catalog.now()
        pins = self._retry_if_owner_dead(self.catalog.preview_pins, request)
        return plan_run_from_pins(self.catalog, bound, pins, request.partition, now)

    # internals

    def _project_channels(self, binding: Binding) -> list[Channel]:
        """Channels of a binding, as the project defines them."""
        return [c for c in self.project.channels if c in binding.channels.values()]

    def _build_begin_request(self, binding: Binding, partition: str, whole: bool) -> BeginRequest:
        """Begin request for one partition, validated as far as that needs no transaction.

        Raises:
            PartitionError: the binding has no such partition, or it is triggered per partition and none is named.
            InputsMissing: a query would read partitions that do not exist yet.
        """
        partition = binding.partition(partition)
        if partition == WHOLE and not whole:
            check_partition_given(binding, self.catalog)
        now, existing = self.catalog.now(), existing_partitions_lookup(self.catalog)
        check_inputs_exist(binding, partition, now, existing)
        heads, cursors = channels_to_pin(binding)
        return BeginRequest(
            execution_id=uuid.uuid4().hex,
            binding=binding.name,
            pinned_channels=heads,
            cursor_channels=cursors,
            partition=partition,
            owner=self.owner,
            lease=self.lease,
            scope_by_channel=scope_by_channel(binding, partition, now, existing),
        )

    def _retry_if_owner_dead(self, begin_or_preview: Callable[[BeginRequest], T], request: BeginRequest) -> T:
        """Begin or preview. If a dead owner holds the lease, try again at once without waiting for the lease."""
        try:
            return begin_or_preview(request)
        except ExecutionInProgress as busy:
            holder = busy.fields.get("owner", "")
            if not is_owner_dead(holder):
                raise
            return begin_or_preview(replace(request, dead=frozenset({holder})))

    def begin_channel_write(self, *channels: str, scope: str = WHOLE, purpose: str = "commit") -> Execution:
        """Open an execution for an insert. It pins the heads, holds no lock, and is swept like any other execution.

        Args:
            scope: scope of the first channel.
            purpose: the kind of change, for the channel's timeline.
        """
        crash_point("begin.before")
        execution = self.catalog.begin(
            BeginRequest(
                uuid.uuid4().hex,
                binding=None,
                pinned_channels=channels,
                owner=self.owner,
                lease=self.lease,
                scope_by_channel={channels[0]: scope},
                purpose=purpose,
            )
        )
        crash_point("begin.after")
        return execution

    def commit_channel_write(self, request: CommitRequest) -> Commit:
        """Commit an insert's request, and resolve an unknown outcome."""
        crash_point("commit.before")
        commit = self.commit_resolving_outcome(request)
        crash_point("commit.after")
        return commit

    def commit_resolving_outcome(self, request: CommitRequest) -> Commit:
        """Commit. An unknown outcome is looked up under a lock before anything else is done (R7).

        Raises:
            CommitConflict: a requirement is not met, or the look-up found that nothing was committed.
            CommitOutcomeUnknown: the catalog could not be asked.
        """
        try:
            return self.catalog.commit(request)
        except CommitOutcomeUnknown as unknown:
            try:
                commit = self.catalog.commit_or_abort(request.execution_id)
            except CatalogUnavailable as error:
                raise unknown from error
            if commit is None:
                raise CommitConflict(
                    "the connection was lost during COMMIT, and nothing was committed",
                    reason="connection",
                    execution_id=request.execution_id,
                ) from None
            return commit

    def _load_run_state(self, execution: Execution) -> RunState:
        """Binding and pinned histories of an execution. Loaded once per process."""
        key = (execution.id, execution.epoch)
        if key not in self._run_states:
            binding = self.project.binding(execution.binding or "")
            histories = {c: load_pinned_history(self.catalog, binding, p) for c, p in execution.pins.items()}
            self._run_states[key] = RunState(execution, binding, histories)
        return self._run_states[key]

    def _run_task(self, run: RunState, step: Step, observer: Observer) -> TaskReport:
        workflowette = run.binding.workflowette
        affected = {step.task, *workflowette.downstream(step.task)}
        ports = [e.port for t in workflowette.tasks if t.name in affected for e in t.produces]
        self.staging.forget_staged_ports(run.execution, ports)
        for port in ports:
            self.frames_by_port.pop((run.execution.id, port), None)
        try:
            report = self._make_task_run(run, observer).run_task(step.task)
        except EngineUnavailable:
            self.frames_by_port.clear()  # all frames belong to the Spark session that has ended
            raise
        run.reports[step.task] = report
        return report

    def _make_task_run(self, run: RunState, observer: Observer) -> TaskRun:
        return TaskRun(self.engine, self.staging, run, self.frames_by_port, crash_point, observer, self.views_factory)

    def _run_task_with_retries(self, run: RunState, step: Step, observer: Observer) -> TaskReport:
        """Run a task and retry failures as often as the task declares, with the same pins (R4)."""
        task = run.binding.workflowette.task(step.task)
        for attempt in range(task.retries + 1):
            try:
                return self._run_task(run, step, observer)
            except (ExecutionNotLive, CommitConflict):
                raise
            except Exception as error:
                if attempt == task.retries:
                    raise
                log.warning("task %s failed, trying again (%d of %d): %s", task.name, attempt + 1, task.retries, error)
                time.sleep(_retry_delay_seconds(task, attempt))
        raise AssertionError("unreachable")

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

    def _forget_run_state(self, execution: Execution) -> None:
        self._run_states.pop((execution.id, execution.epoch), None)
        for key in [k for k in self.frames_by_port if k[0] == execution.id]:
            del self.frames_by_port[key]


def _retry_delay_seconds(task: Task, attempt: int) -> float:
    return task.retry_delay * 2.0**attempt
