"""One task of one execution: its inputs, the call, and what it gave, staged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from nova_assets.errors import NovaError, TaskFailed
from nova_assets.execution.staging import Staging
from nova_assets.masking import get_logger
from nova_assets.model import reads
from nova_assets.model.binding import Binding
from nova_assets.model.block import Block, Manifest
from nova_assets.model.data_check import Check
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.execution import Execution, Progress, TaskReport
from nova_assets.model.modes_view import View
from nova_assets.model.read_strategy import Estimate
from nova_assets.model.reads import Port, Read
from nova_assets.model.task import Context, Task
from nova_assets.model.timeline import History
from nova_assets.plan.read_strategy import best, ways
from nova_assets.plan.run import Input, Output, RunPlan, Step, plan_run
from nova_assets.user_code_errors import fault

log = get_logger("nova_assets.task")


@dataclass(frozen=True, slots=True)
class Run:
    """What one execution needs to go on: itself, its binding, and the histories behind its pins.

    Args:
        reports: task -> what it did, where it ran in this process.
    """

    execution: Execution
    binding: Binding
    histories: Mapping[str, History]
    reports: dict[str, TaskReport] = field(default_factory=dict)

    def plan(self, skipped: frozenset[str] = frozenset()) -> RunPlan:
        execution = self.execution
        return plan_run(
            self.binding, execution.pins, self.histories, execution.partition, skipped, execution.started_at
        )


class Viewing(Protocol):
    """Gives what tells which files channels have (``views/files``)."""

    def __call__(self, heads: Mapping[str, int]) -> Any:
        """Of channels at the numbers that are pinned."""

    def close(self) -> None: ...


class TaskRun:
    """Carries out one task.

    Args:
        run: the execution, its binding and pinned histories.
        frames: (execution, port) -> a frame that was passed on without being written.
        crash_point: called at named points.
        tell: the execution's observer; told ("progress", Progress).
        viewing: gives the task what tells which files channels have.
    """

    def __init__(
        self,
        engine: Engine,
        staging: Staging,
        run: Run,
        frames: MutableMapping[tuple[str, str], Frame],
        crash_point: Callable[[str], None],
        tell: Callable[[str, Any], None] = lambda event, subject: None,
        viewing: Viewing | None = None,
    ) -> None:
        self.tell = tell
        self.viewing = viewing
        self.engine = engine
        self.staging = staging
        self.run = run
        self.frames = frames
        self.crash_point = crash_point
        self.skipped = staging.skipped(run.execution)
        self.staged = staging.blocks(run.execution, run.histories)
        self.plan: RunPlan = run.plan(self.skipped)

    def carry_out(self, name: str) -> TaskReport:
        """Read, call, stage.

        Raises:
            TaskFailed: the function raised, or gave something that is no output of the task.
        """
        started = time.monotonic()
        step = self.plan.step(name)
        task = self.run.binding.workflowette.task(name)
        if self._nothing_new(step):
            self.staging.skip(self.run.execution, step)
            return TaskReport(name, time.monotonic() - started, self._rows_read(step), {}, skipped=True)
        with self.computing(task):
            outputs = self._evaluate(step, task)
            wrote = self._stage(step, task, outputs)
        self.crash_point("task.after")
        return TaskReport(name, time.monotonic() - started, self._rows_read(step), wrote, ways=self._ways(step))

    def computing(self, work: Task | Check) -> AbstractContextManager[None]:
        """A block in which the engine works for a task or check: watched, and stopped with it."""
        marked = f"nova-{self.run.execution.id}"
        return self.engine.computing(marked, work.function, partial(self._progress, work.name))

    def _progress(self, task: str, done: int, known: int) -> None:
        told = Progress(task, done, known)
        log.info("%s", told)
        self.tell("progress", told)

    # inputs

    def _nothing_new(self, step: Step) -> bool:
        """Whether the task may be, or has to be, left out: it says ``skip_if_no_new`` and there is none, or a task
        that hands it private rows was left out itself."""
        fed_by_skipped = any(i.channel is None and i.port in self.skipped for i in step.inputs)
        if fed_by_skipped:
            return True
        return step.skip_if_no_new and all(self._is_empty(i) for i in step.inputs if i.is_new)

    def _is_empty(self, given: Input) -> bool:
        read = given.reads["new"]
        if not isinstance(read, Port):
            return reads.is_empty(reads.resolved(read, self.staged))
        if read.port in self.staged:
            return self.staged[read.port].rows == 0
        return self.engine.is_empty(self._port(read.port))

    def _frame(self, read: Read) -> Frame:
        if not isinstance(read, Port):
            return self.engine.read(reads.resolved(read, self.staged))
        return self._port(read.port)

    def _port(self, port: str) -> Frame:
        """Private rows: staged, passed on in this process, or evaluated again by a process that took over."""
        if port in self.staged:
            return self.engine.read(_whole(self.staged[port]))
        key = (self.run.execution.id, port)
        if key not in self.frames:
            writer = self.run.binding.workflowette.writer(port)
            assert writer is not None, port
            log.info("task %s is evaluated again for port %s", writer.name, port)
            outputs = self._evaluate(self.plan.step(writer.name), writer)
            self.frames.update({(self.run.execution.id, p): f for p, f in outputs.items()})
        return self.frames[key]

    def arguments(self, inputs: Sequence[Input], wants_context: bool) -> dict[str, Any]:
        """What a function is called with: a frame, or a ``View``, for each input."""
        found: dict[str, Any] = {}
        for given in inputs:
            if given.mode == "changes":
                lazily = {m: (lambda read=read: self._frame(read)) for m, read in given.reads.items()}
                found[given.name] = View(lazily["all"], lazily["new"], lazily["old"])
            elif given.mode != "matching":
                found[given.name] = self._frame(given.reads[given.mode])
        for given in inputs:
            if given.mode == "matching":
                keys = found[given.keys_of or ""]
                keys = keys.new if isinstance(keys, View) else keys
                read = given.reads["all"]
                rows = self._frame(read) if isinstance(read, Port) else reads.resolved(read, self.staged)
                found[given.name] = self.engine.matching(rows, keys, given.on)
        if wants_context:
            found["ctx"] = self._context()
        return found

    def _context(self) -> Context:
        execution = self.run.execution
        heads = {c: p.head for c, p in execution.pins.items()}
        return Context(
            spark=self.engine.session,
            partition=execution.partition,
            started=execution.started_at,
            params=self.run.binding.params,
            log=log,
            execution_id=execution.id,
            pins=heads,
            frame=self.engine.frame,
            query=self.engine.query,
            schema_of=self.engine.schema_of,
            viewing=lambda: None if self.viewing is None else self.viewing(heads),
        )

    # the call

    def _evaluate(self, step: Step, task: Task) -> Mapping[str, Frame]:
        with self.calling(task.name):  # keys to be looked up are computed by what a task before gave
            arguments = self.arguments(step.inputs, task.wants_context)
            result = task.function(**arguments)
        return self._outputs(step, task, result)

    @contextmanager
    def calling(self, name: str, how: str = "raised") -> Iterator[None]:
        """What a user's function raises is told as a failure of its task: their line first."""
        try:
            yield
        except NovaError:
            raise
        except Exception as error:
            raise self._failed(name, how, error) from error

    def _outputs(self, step: Step, task: Task, result: Any) -> Mapping[str, Frame]:
        ports = [o.port for o in step.outputs]
        if isinstance(result, Mapping) and set(result) == set(ports):
            given = dict(result)
        elif len(ports) == 1 and not isinstance(result, Mapping):
            given = {ports[0]: result}
        elif not ports and result is None:
            return {}
        else:
            found = (
                f"a dict of {', '.join(map(repr, result))}" if isinstance(result, Mapping) else type(result).__name__
            )
            raise self._wrong_output(task, found, _expected(ports))
        for port, frame in given.items():
            if frame is None:
                raise self._wrong_output(task, f"None for port {port!r}", "a frame; for no rows, one without rows")
            if not self.engine.is_frame(frame):
                raise self._wrong_output(task, f"{type(frame).__name__} for port {port!r}", "a Spark DataFrame")
            if not self.engine.column_names(frame):  # its rows would be lost
                raise self._wrong_output(task, f"a frame without a column for port {port!r}", "a frame with columns")
        return given

    def _failed(self, task: str, how: str, error: Exception) -> TaskFailed:
        found = fault(error)
        execution = self.run.execution
        where = f" --partition {execution.partition}" if execution.partition else ""
        known = {t.name: t.function for t in self.run.binding.tasks}
        written_in = getattr(known.get(task), "source", None) or "the task"
        return TaskFailed(
            f"task {task!r} of binding {self.run.binding.name!r} {how} {found.said}",
            found=found.at,
            next=f"mend {written_in}, then: nova run {self.run.binding.name}{where}",
            task=task,
            binding=self.run.binding.name,
            execution_id=self.run.execution.id,
        )

    def _wrong_output(self, task: Task, found: str, expected: str) -> TaskFailed:
        return TaskFailed(
            f"task {task.name!r} gave something that is not its output",
            found=found,
            expected=expected,
            task=task.name,
            binding=self.run.binding.name,
            execution_id=self.run.execution.id,
        )

    # what it gave

    def _stage(self, step: Step, task: Task, outputs: Mapping[str, Frame]) -> dict[str, int | None]:
        wrote: dict[str, int | None] = {}
        written = [o for o in step.outputs if o.handover == "stage"]
        for output in step.outputs:
            if output not in written:
                self.frames[self.run.execution.id, output.port] = outputs[output.port]
                wrote[output.port] = None
        with self.calling(task.name, "failed while its rows were computed:"):  # frames are lazy
            if len(written) > 1 and not task.deterministic:
                with self.engine.one_evaluation({o.port: outputs[o.port] for o in written}) as once:
                    wrote |= self._write(written, once)
            else:
                wrote |= self._write(written, outputs)
        return wrote

    def _write(self, outputs: list[Output], frames: Mapping[str, Frame]) -> dict[str, int]:
        manifests: dict[str, Manifest] = {}
        for output in outputs:
            channel = None if output.channel is None else self.run.binding.channels[output.port]
            history = None if output.channel is None else self.run.histories[output.channel]
            manifests[output.port] = self.staging.write(
                self.run.execution, output.port, output.kind, channel, history, frames[output.port]
            )
        return {port: manifest.rows for port, manifest in manifests.items()}

    def _ways(self, step: Step) -> dict[str, Estimate]:
        """How the inputs were read; those that are looked up by their keys depend on how many there are."""
        found = {}
        for given in step.inputs:
            for mode, read in given.reads.items() if given.mode != "matching" else ():
                estimate = best(ways(reads.resolved(read, self.staged)), self.engine.way)
                if estimate is not None:
                    found[given.name if len(given.reads) == 1 else f"{given.name}.{mode}"] = estimate
        return found

    def _rows_read(self, step: Step) -> dict[str, int | None]:
        def rows(given: Input) -> int | None:
            read = given.reads.get("new") or next(iter(given.reads.values()))
            if isinstance(read, Port):
                return self.staged[read.port].rows if read.port in self.staged else None
            return sum(b.rows for b in reads.sources(reads.resolved(read, self.staged)) if isinstance(b, Block))

        return {given.name: rows(given) for given in step.inputs}


def _whole(block: Block) -> reads.Snapshot:
    """A private block as a read: its rows as they were written."""
    whole = replace(block, kind="base")
    return reads.Snapshot(block.channel, block.hi, (whole,), (), block.manifest.schema, block.merge)


def _expected(ports: list[str]) -> str:
    if not ports:
        return "None: the task has no outputs"
    if len(ports) == 1:
        return f"a frame for port {ports[0]!r}"
    return f"a dict with a frame for each of {', '.join(map(repr, ports))}"
