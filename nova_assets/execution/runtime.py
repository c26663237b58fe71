"""The one way anything is executed: begin, run task, commit, abort (DESIGN §4).

    trigger ─► begin ─► read ─► task ─► stage ─► … ─► commit ─► materializations
              (pin)    (plan)   (user)  (engine)      (catalog)    (Dagster)

The runtime decides nothing about data (that is ``plan/``), computes nothing (that is the engine) and keeps nothing
(that is the catalog): an execution can be taken up by another process from the catalog alone.
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
    NovaError,
)
from nova_assets.execution.data_checks import carry_out_checks, refusal
from nova_assets.execution.lease import heartbeat, is_dead, this_process
from nova_assets.execution.pins import existing_in, history_of, plan_pinned
from nova_assets.execution.staging import Staging
from nova_assets.execution.task_run import Run, TaskRun, Viewing
from nova_assets.execution.trigger_state import check_inputs_exist, check_partition_is_named
from nova_assets.masking import get_logger, mask
from nova_assets.model.binding import Binding
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit, CommitRequest
from nova_assets.model.engine import Engine
from nova_assets.model.execution import Begin, CheckReport, Execution, TaskReport
from nova_assets.model.partitions import WHOLE
from nova_assets.model.project import Project
from nova_assets.model.task import Task
from nova_assets.plan.run import RunPlan, Step, asked_for, channels_to_pin, scopes

log = get_logger("nova_assets.runtime")

Observer = Callable[[str, Any], None]
T = TypeVar("T")


def _tell_nobody(event: str, subject: Any) -> None:
    pass


class Runtime:
    """Carries out executions over a catalog and an engine.

    Args:
        catalog, engine: implementations of the protocols in ``model/catalog`` and ``model/engine``.
        project: where bindings are looked up; None when only channels are used.
        lease: seconds that others leave an execution alone after its last heartbeat.
        grace: seconds that staged files of a dead execution are left for a process that has not noticed yet.
        owner: who signs; this process by default. Dagster signs by run, since its steps may be several processes.
        attempts: how often an execution is planned again after a conflict (R6).
        frames: private rows that are passed on within this process; shared by runtimes that take turns.
        viewing: gives tasks what tells which files channels have.
    """

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        project: Project | None = None,
        *,
        lease: float = 120.0,
        grace: float = 60.0,
        owner: str | None = None,
        attempts: int = 5,
        frames: MutableMapping[tuple[str, str], Any] | None = None,
        viewing: Viewing | None = None,
    ) -> None:
        self.catalog = catalog
        self.engine = engine
        self.project = project or Project()
        self.lease = lease
        self.grace = grace
        self.attempts = attempts
        self._owner = owner
        self.staging = Staging(catalog, engine, crash_point)
        self.frames: MutableMapping[tuple[str, str], Any] = {} if frames is None else frames
        self.viewing = viewing
        self._runs: dict[tuple[str, int], Run] = {}

    @property
    def owner(self) -> str:
        return self._owner or this_process()

    # the whole of it

    def run(
        self,
        binding: str,
        partition: str = WHOLE,
        *,
        whole: bool = False,
        run_id: str | None = None,
        firing_id: str | None = None,
        observer: Observer | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Execution:
        """Execute a binding: begin, every task, commit; planned again when a commit conflicts (R6).

        Args:
            binding: its name.
            whole: execute all partitions together, although the binding is triggered per partition.
            observer: told ("begin", Execution), ("progress", Progress), ("task", TaskReport), ("check", CheckReport)
                and ("commit", Commit), as they happen.
            wanted: asked once it has begun, when nobody else can begin any more; where it is not, it is aborted.

        Raises:
            ExecutionInProgress: another execution of it is alive.
            TaskFailed: with the cause; the execution can be resumed.
            CheckFailed: a blocking check does not hold; likewise.
            CommitConflict: every attempt met a conflict.
        """
        self.sweep()
        for attempt in range(1, self.attempts + 1):
            execution = self.begin(binding, partition, whole=whole, run_id=run_id, firing_id=firing_id)
            with self._failing(execution, counts=False):
                is_wanted = wanted()
            if not is_wanted:
                self.abort(execution, "it is no longer wanted", failed=False)
                return self.catalog.execution(execution.id)
            try:
                return self.carry_on(execution, observer)
            except CommitConflict as conflict:
                log.warning("attempt %d of %s met a conflict: %s", attempt, binding, conflict.what)
                if attempt == self.attempts:
                    raise
        raise AssertionError("unreachable")

    def resume(self, execution_id: str, observer: Observer | None = None) -> Execution:
        """Take up a failed execution with the pins and staged blocks that it kept (R4).

        Raises:
            ExecutionNotLive: it was superseded, aborted or committed.
        """
        return self.carry_on(self.catalog.resume(execution_id, self.owner, self.lease), observer)

    def carry_on(self, execution: Execution, observer: Observer | None = None) -> Execution:
        """Run the tasks of a live execution that are not staged yet, and commit."""
        tell = observer or _tell_nobody
        tell("begin", execution)
        run = self._run_of(execution)
        with self._failing(execution), heartbeat(self.catalog, execution, self.lease):
            done = self.staging.complete(execution)
            for step in run.plan().steps:
                if step.outputs and all(o.port in done for o in step.outputs):
                    continue
                report = self._with_retries(run, step, tell)
                tell("task", report)
            checks = self.check(execution, tell)
            if any(c.blocks for c in checks):
                raise refusal(execution, checks)
            commit = self.commit(execution)
        tell("commit", commit)
        return replace(
            self.catalog.execution(execution.id), commit=commit, tasks=tuple(run.reports.values()), checks=checks
        )

    # its steps, one by one (as Dagster calls them)

    def begin(
        self,
        binding: str,
        partition: str = WHOLE,
        *,
        whole: bool = False,
        run_id: str | None = None,
        firing_id: str | None = None,
    ) -> Execution:
        """Open an execution: pin heads and cursors, take the lease; a failed or expired one is superseded (R4).

        Raises:
            BindingNotFound, DefinitionConflict, PartitionError, InputsMissing, ExecutionInProgress.
        """
        bound = self.project.binding(binding)
        crash_point("begin.before")
        request = self._request(bound, partition, whole)
        self.register(bound)
        execution = self._unless_dead(self.catalog.begin, replace(request, run_id=run_id, firing_id=firing_id))
        crash_point("begin.after")
        return execution

    def attach(
        self, execution_id: str, run_id: str | None = None, is_gone: Callable[[str], bool] = lambda owner: False
    ) -> Execution:
        """An execution that another process began, to go on with: as it is while it runs, resumed if it failed (R4).

        Args:
            run_id: of the Dagster run that goes on with it.
            is_gone: whether an owner is known to be gone: then what runs under it is taken over.

        Raises:
            ExecutionNotLive: it was superseded, aborted or committed.
        """
        execution = self.catalog.execution(execution_id)
        orphaned = execution.owner != self.owner and is_gone(execution.owner)
        if execution.state == "running" and not orphaned:
            return execution
        dead = frozenset({execution.owner} if orphaned else ())
        return self.catalog.resume(execution_id, self.owner, self.lease, run_id=run_id, dead=dead)

    def register(self, binding: Binding) -> None:
        """Make sure that the catalog knows a binding and its channels."""
        self.catalog.register(self._channels(binding), [binding])

    def run_task(self, execution: Execution, task: str, last_try: bool = True) -> TaskReport:
        """Carry out one task: read, call, stage. What it or its readers staged before is void (R4).

        Args:
            last_try: whoever calls this will not try again when it fails.
        """
        run = self._run_of(execution)
        with self._failing(execution, last_try), heartbeat(self.catalog, execution, self.lease):
            return self._run_task(run, run.plan().step(task), _tell_nobody)

    def check(self, execution: Execution, tell: Observer | None = None) -> tuple[CheckReport, ...]:
        """Carry out every check on what is staged. What one of them ``blocks`` is not committed."""
        run = self._run_of(execution)
        if not run.binding.checks:
            return ()
        with self._failing(execution), heartbeat(self.catalog, execution, self.lease):
            reports = carry_out_checks(self._task_run(run, tell or _tell_nobody))
            if not any(r.blocks for r in reports):
                self.staging.mark_checked(execution)
        return reports

    def fail(self, execution: Execution, error: BaseException, counts: bool = True) -> None:
        """End an execution as failed: it keeps its pins and staged blocks, and can be resumed (R4)."""
        self._forget(execution)
        with suppress(NovaError):
            said = mask(f"{type(error).__name__}: {error}")[:4000]
            self.catalog.fail(execution.id, execution.epoch, said, counts=counts)

    def commit(self, execution: Execution) -> Commit:
        """Publish everything that the execution staged and move its cursors, in one transaction (R2).

        Raises:
            CommitConflict: something that it relied on has moved; the execution is aborted (R6).
            CheckFailed: a blocking check does not hold. They are carried out here, if nobody has before.
        """
        run = self._run_of(execution)
        if run.binding.checks and not self.staging.is_checked(execution):
            reports = self.check(execution)
            if any(r.blocks for r in reports):
                error = refusal(execution, reports)
                self.fail(execution, error)
                raise error
        with self._failing(execution), heartbeat(self.catalog, execution, self.lease):
            self.staging.tell_who_cannot_compare(execution, run.histories)
        plan = run.plan(self.staging.skipped(execution))
        request = self.staging.request(execution, plan, run.histories, list(run.reports.values()))
        request = replace(request, keeps_marks=self._reads_what_is_marked(run))
        crash_point("commit.before")
        try:
            commit = self.settled_commit(request)
        except CommitConflict as conflict:
            self.abort(execution, conflict.what, failed=False)
            raise
        crash_point("commit.after")
        self._forget(execution)
        return commit

    def _reads_what_is_marked(self, run: Run) -> bool:
        """Whether something that it read is to be made again, so that this is as much as ever."""
        marked = {(m.channel, m.partition) for m in self.catalog.marks()} if run.binding.is_scoped else set()
        if not marked:
            return False
        there = {c: {b.partition for b in h.blocks} for c, h in run.histories.items()}
        execution = run.execution
        asked = asked_for(run.binding, execution.partition, execution.started_at, lambda name: there.get(name, ()))
        return any((channel.name, p) in marked for channel, partitions in asked.items() for p in partitions)

    def abort(self, execution: Execution, reason: str, failed: bool = True) -> None:
        """End an execution without a trace in any channel; its staged files are swept after the grace."""
        self._forget(execution)
        self.catalog.abort(execution.id, reason, failed=failed)

    def sweep(self) -> int:
        """Delete staged files of executions that are dead for longer than lease and grace. Gives how many folders.

        Each is deleted once more some time later: Spark may have written on for a process that was killed.
        """
        blocks = self.catalog.sweepable(self.grace, self.lease + self.grace)
        for block in blocks:
            crash_point("sweep.before")
            self.engine.delete(block.folder)
        if blocks:
            crash_point("sweep.after")
            self.catalog.swept([b.id for b in blocks])
        return len(blocks)

    def plan(self, binding: str, partition: str = WHOLE, *, whole: bool = False) -> RunPlan:
        """What an execution that began now would do. Opens nothing and pins nothing.

        Raises: whatever ``begin`` and the planning of a run raise.
        """
        bound = self.project.binding(binding)
        request = self._request(bound, partition, whole)
        self.catalog.check_registration(self._channels(bound))
        now = self.catalog.now()
        pins = self._unless_dead(self.catalog.preview, request)
        return plan_pinned(self.catalog, bound, pins, request.partition, now)

    # inside

    def _channels(self, binding: Binding) -> list[Channel]:
        """The channels of a binding, as the project defines them."""
        return [c for c in self.project.channels if c in binding.channels.values()]

    def _request(self, bound: Binding, partition: str, whole: bool) -> Begin:
        """What an execution of a partition asks of the catalog, checked as far as this needs no transaction.

        Raises:
            PartitionError: the binding has no such partition, or is triggered per partition and none is named.
            InputsMissing: a query would read partitions that do not exist yet.
        """
        partition = bound.partition(partition)
        if partition == WHOLE and not whole:
            check_partition_is_named(bound, self.catalog)
        now, existing = self.catalog.now(), existing_in(self.catalog)
        check_inputs_exist(bound, partition, now, existing)
        heads, cursors = channels_to_pin(bound)
        return Begin(
            execution_id=uuid.uuid4().hex,
            binding=bound.name,
            heads=heads,
            cursors=cursors,
            partition=partition,
            owner=self.owner,
            lease=self.lease,
            scopes=scopes(bound, partition, now, existing),
        )

    def _unless_dead(self, call: Callable[[Begin], T], request: Begin) -> T:
        """Begin or preview; an owner that is known to be dead need not be waited for."""
        try:
            return call(request)
        except ExecutionInProgress as busy:
            holder = busy.fields.get("owner", "")
            if not is_dead(holder):
                raise
            return call(replace(request, dead=frozenset({holder})))

    def begin_insert(self, *channels: str, scope: str = WHOLE, purpose: str = "commit") -> Execution:
        """Open an execution for an insert: it pins the heads, holds no lock, and is swept like any other.

        Args:
            scope: of the first of the channels.
            purpose: what is about to be done to it, as its timeline tells.
        """
        crash_point("begin.before")
        execution = self.catalog.begin(
            Begin(
                uuid.uuid4().hex,
                binding=None,
                heads=channels,
                owner=self.owner,
                lease=self.lease,
                scopes={channels[0]: scope},
                purpose=purpose,
            )
        )
        crash_point("begin.after")
        return execution

    def commit_insert(self, request: CommitRequest) -> Commit:
        """Commit an insert's request, with the same care for an unknown outcome."""
        crash_point("commit.before")
        commit = self.settled_commit(request)
        crash_point("commit.after")
        return commit

    def settled_commit(self, request: CommitRequest) -> Commit:
        """Commit. An unknown outcome is looked up under a lock before anything else is done (R7).

        Raises:
            CommitConflict: something has moved, or nothing was committed.
            CommitOutcomeUnknown: the catalog could not be asked.
        """
        try:
            return self.catalog.commit(request)
        except CommitOutcomeUnknown as unknown:
            try:
                commit = self.catalog.settle(request.execution_id)
            except CatalogUnavailable as error:
                raise unknown from error
            if commit is None:
                raise CommitConflict(
                    "the connection was lost during COMMIT, and nothing was committed",
                    reason="connection",
                    execution_id=request.execution_id,
                ) from None
            return commit

    def _run_of(self, execution: Execution) -> Run:
        """The execution's binding and pinned histories; read once per process."""
        key = (execution.id, execution.epoch)
        if key not in self._runs:
            binding = self.project.binding(execution.binding or "")
            histories = {c: history_of(self.catalog, binding, p) for c, p in execution.pins.items()}
            self._runs[key] = Run(execution, binding, histories)
        return self._runs[key]

    def _run_task(self, run: Run, step: Step, tell: Observer) -> TaskReport:
        workflowette = run.binding.workflowette
        affected = {step.task, *workflowette.downstream(step.task)}
        ports = [e.port for t in workflowette.tasks if t.name in affected for e in t.produces]
        self.staging.void(run.execution, ports)
        for port in ports:
            self.frames.pop((run.execution.id, port), None)
        try:
            report = self._task_run(run, tell).carry_out(step.task)
        except EngineUnavailable:
            self.frames.clear()  # all of them were frames of the session that has ended
            raise
        run.reports[step.task] = report
        return report

    def _task_run(self, run: Run, tell: Observer) -> TaskRun:
        return TaskRun(self.engine, self.staging, run, self.frames, crash_point, tell, self.viewing)

    def _with_retries(self, run: Run, step: Step, tell: Observer) -> TaskReport:
        """A task, tried again as often as it says, with the same pins (R4)."""
        task = run.binding.workflowette.task(step.task)
        for attempt in range(task.retries + 1):
            try:
                return self._run_task(run, step, tell)
            except (ExecutionNotLive, CommitConflict):
                raise
            except Exception as error:
                if attempt == task.retries:
                    raise
                log.warning("task %s failed, trying again (%d of %d): %s", task.name, attempt + 1, task.retries, error)
                time.sleep(_delay(task, attempt))
        raise AssertionError("unreachable")

    @contextmanager
    def _failing(self, execution: Execution, counts: bool = True) -> Iterator[None]:
        """Whatever goes wrong inside fails the execution, which keeps its pins and staged blocks (R4)."""
        try:
            yield
        except CommitConflict:
            raise
        except BaseException as error:
            self.fail(execution, error, counts)
            raise

    def _forget(self, execution: Execution) -> None:
        self._runs.pop((execution.id, execution.epoch), None)
        for key in [k for k in self.frames if k[0] == execution.id]:
            del self.frames[key]


def _delay(task: Task, attempt: int) -> float:
    return task.retry_delay * 2.0**attempt
